/* embed.c: asks a model one question from a C program and streams the answer.
 *
 *   cc examples/embed.c -o embed $(pkg-config --cflags --libs hearth)        after `make install`
 *   ./embed models/ember-30m-q8_0.gguf "Hello! Who are you?"
 */
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>

static bool show(void *user, const char *text, size_t len) {
    (void)user;
    return fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0;
}

int main(int argc, char **argv) {
    const char *model = argc > 1 ? argv[1] : "models/ember-30m-q8_0.gguf";
    const char *question = argc > 2 ? argv[2] : "Hello! Who are you?";
    hearth_error error = {0};
    hearth_engine *engine = NULL;
    hearth_session *session = NULL;
    hearth_sampler *sampler = NULL;
    char messages[4096], *prompt = NULL;
    int32_t *tokens = NULL;
    size_t length = 0;
    int64_t n = -1;
    bool ok = false;

    /* The question must be valid inside a JSON string; a real program lets a JSON library see to that. */
    snprintf(messages, sizeof messages, "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}]}", question);

    if (!(engine = hearth_engine_open(model, NULL, &error))) goto end;
    if (!(session = hearth_session_new(engine, &error))) goto end;
    if (!(sampler = hearth_sampler_new(engine, NULL, &error))) goto end;

    /* The chat template turns messages into a prompt, the tokenizer turns that into tokens (never more than bytes). */
    if (!(prompt = hearth_chat_render(engine, messages, &length, &error))) goto end;
    if (!(tokens = malloc((length + 1) * sizeof *tokens))) goto end;
    n = hearth_tokenize(engine, prompt, length, HEARTH_PARSE_SPECIAL, tokens, length + 1, &error);
    if (n < 0 || !hearth_session_append(session, tokens, (size_t)n, &error)) goto end;

    hearth_generate_options options = hearth_generate_defaults();
    options.max_tokens = 200;
    options.on_text = show;
    ok = hearth_generate(session, sampler, &options, NULL, &error);
    putchar('\n');
end:
    if (!ok) fprintf(stderr, "embed: %s\n", error.text[0] ? error.text : "out of memory");
    free(tokens);
    hearth_free(prompt);
    hearth_sampler_free(sampler);
    hearth_session_free(session);
    hearth_engine_close(engine);
    return ok ? 0 : 1;
}
