/* main.c: the hearth command. Each subcommand lives in a file of its own. */
#include "cli/cli.h"

int main(int argc, char **argv) {
    static const cli_command commands[] = {
        {"run", cmd_run, "complete a prompt, streaming"},
        {"chat", cmd_chat, "talk with a model"},
        {"serve", cmd_serve, "answer over HTTP: OpenAI's and Anthropic's APIs, and a page to chat with"},
        {"pull", cmd_pull, "download a model from a hub"},
        {"bench", cmd_bench, "measure speed, beside the limits of the machine"},
        {"inspect", cmd_inspect, "show what a GGUF file holds"},
        {"quantize", cmd_quantize, "write a GGUF file in another number format"},
        {"cache", cmd_cache, "look after what hearth keeps on disk"},
        {"debug", cmd_debug, "print intermediate truths for tests and bug reports"},
        {NULL, NULL, NULL},
    };
    return cli_dispatch("hearth", commands, argc, argv);
}
