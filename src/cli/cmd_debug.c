/* cmd_debug.c: the table of `hearth debug` forms. */
#include "cli/cli.h"

int cmd_debug(int argc, char **argv) {
    static const cli_command commands[] = {
        {"tokens", debug_tokens, "text on stdin to token ids"},
        {"text", debug_text, "token ids on stdin to text"},
        {"render", debug_render, "a chat template with variables from a JSON file"},
        {"logits", debug_logits, "logits of every position as float32"},
        {"perplexity", debug_perplexity, "how well the model foretells a text"},
        {"decode", debug_decode, "packed blocks to float32"},
        {"encode", debug_encode, "float32 to packed blocks"},
        {NULL, NULL, NULL},
    };
    return cli_dispatch("hearth debug", commands, argc, argv);
}
