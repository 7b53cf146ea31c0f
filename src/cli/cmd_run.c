/* cmd_run.c: `hearth run`: one prompt, one answer. */
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/generate_options.h"
#include "cli/interrupt.h"
#include "cli/talk.h"

enum { LARGEST_PROMPT = 64 << 20, MOST_LOGPROBS = 100 };

typedef struct run_command {
    cli_generate g;
    const char *model; /* NULL: the default */
    const char *prompt, *file, *system;
    bool raw;
    int n_logprobs; /* -1: none asked for */
    hearth_engine *engine;
    hearth_session *session;
    hearth_sampler *sampler;
    buf text;     /* the prompt */
    buf logprobs; /* lines to print at the end */
    err logprobs_error;
} run_command;

/* Which of the arguments is the model and where the prompt comes from. */
static bool sort_arguments(run_command *r, const char **args, int n, err *e) {
    if (n == 2) r->model = args[0], r->prompt = args[1];
    else if (n == 1 && (r->file || cli_is_model(args[0]))) r->model = args[0];
    else if (n == 1) r->prompt = args[0];
    if (r->prompt && r->file) return err_set(e, HEARTH_ARGUMENT, "give a prompt or --file, not both");
    if (!r->prompt && !r->file) {
        if (isatty(STDIN_FILENO)) return err_set(e, HEARTH_ARGUMENT, "give a prompt, --file, or text on standard input; hearth chat holds a conversation");
        r->file = "-";
    }
    if (r->prompt && strcmp(r->prompt, "-") == 0) r->file = "-";
    if (r->raw && r->system) return err_set(e, HEARTH_ARGUMENT, "--system needs the chat template, which --raw turns off");
    return true;
}

static bool read_prompt(run_command *r, err *e) {
    if (!r->file) return buf_adds(&r->text, r->prompt, e);
    if (!file_read(r->file, LARGEST_PROMPT, &r->text, e)) return false;
    /* The line end that editors and echo put at the end is not meant. */
    if (r->text.len > 0 && r->text.data[r->text.len - 1] == '\n') r->text.len--;
    return true;
}

static char *render(const run_command *r, size_t *len, err *e) {
    json_t *user = json_stringn(r->text.data ? r->text.data : "", r->text.len), *system = r->system ? json_string(r->system) : NULL;
    char *rendered = NULL, *json = NULL;
    if (!user || (r->system && !system)) {
        err_set(e, HEARTH_FORMAT, "the prompt is not valid UTF-8: convert it, or give it to the model as it is with --raw");
    } else {
        json_t *messages = json_array();
        if (system) json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", system));
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", user));
        json_t *variables = json_pack("{s:o}", "messages", messages);
        json = json_dumps(variables, JSON_COMPACT);
        json_decref(variables);
        if (json) rendered = hearth_chat_render(r->engine, json, len, e);
        else err_nomem(e, r->text.len);
    }
    free(json);
    json_decref(user);
    json_decref(system);
    return rendered;
}

static bool make_tokens(const run_command *r, cli_tokens *tokens, err *e) {
    if (r->raw || !hearth_engine_info(r->engine).chat_template) {
        if (r->system) return err_set(e, HEARTH_ARGUMENT, "--system needs a chat template, and this model has none");
        if (!cli_tokenize(r->engine, r->text.data ? r->text.data : "", r->text.len, HEARTH_PARSE_SPECIAL | HEARTH_ADD_BOS, tokens, e)) return false;
        if (tokens->n > 0) return true;
        return err_set(e, HEARTH_ARGUMENT, "the prompt is empty and this model has no token to begin a text with: give some text");
    }
    size_t len = 0;
    char *text = render(r, &len, e);
    if (!text) return false;
    bool ok = cli_tokenize(r->engine, text, len, HEARTH_PARSE_SPECIAL, tokens, e);
    hearth_free(text);
    return ok;
}

static void add_logprob(run_command *r, hearth_logprob p, const char *after) {
    size_t len = 0;
    char quoted[256];
    const char *bytes = hearth_token_bytes(r->engine, p.token, true, &len);
    err_quote(quoted, sizeof quoted, bytes ? bytes : "", len);
    buf_addf(&r->logprobs, &r->logprobs_error, "%.4f \"%s\"%s", (double)p.logprob, quoted, after);
}

/* One line per token: its log-probability and text, then the likeliest. */
static void note_logprobs(void *user, int32_t token, const float *logits) {
    run_command *r = user;
    hearth_logprob top[MOST_LOGPROBS];
    size_t n = (size_t)r->n_logprobs;
    float own = hearth_logprobs(r->engine, logits, token, top, n);
    add_logprob(r, (hearth_logprob){.token = token, .logprob = own}, n ? "  of: " : "\n");
    for (size_t i = 0; i < n && top[i].token >= 0; i++)
        add_logprob(r, top[i], i + 1 < n && top[i + 1].token >= 0 ? ", " : "\n");
}

static int answer(run_command *r, const cli_tokens *tokens, err *e) {
    talk_speed speed = {0};
    talk_output out = {0};
    hearth_finish finish = HEARTH_FINISH_LENGTH;
    interrupt_catch(true);
    bool ok = talk_read(r->engine, r->session, tokens, "shorten the prompt, or give more with --context if the model allows it", &speed, e);
    if (ok && !interrupt_pending())
        ok = talk_answer(r->session, r->sampler, &r->g.generate, r->n_logprobs >= 0 ? note_logprobs : NULL, r, &out, &speed, &finish, e);
    ok = talk_write_end(&out, e) && ok;
    if (r->logprobs.len) fwrite(r->logprobs.data, 1, r->logprobs.len, stderr);
    if (r->logprobs_error.code != HEARTH_OK && ok) *e = r->logprobs_error, ok = false;
    if (!ok) return cli_fail(e);
    if (interrupt_pending() && isatty(STDERR_FILENO)) fputc('\n', stderr);
    talk_print_speed(stderr, &speed);
    return interrupt_pending() ? 130 : 0;
}

static int run(run_command *r) {
    err e = {0};
    cli_tokens tokens = {0};
    int status = 1;
    char *found = r->model ? cli_find_model(r->model, &e) : NULL;
    const char *path = r->model ? found : cli_default_model(&e);
    if (!path || !read_prompt(r, &e)) {
        mem_free(found);
        return cli_fail(&e);
    }
    if (!r->model) cli_default_notice("run");
    if ((r->engine = hearth_engine_open(path, &r->g.engine, &e)) && (r->sampler = cli_generate_sampler(&r->g, r->engine, &e)) &&
        make_tokens(r, &tokens, &e) && (r->session = hearth_session_new(r->engine, &e)))
        status = answer(r, &tokens, &e);
    else
        cli_fail(&e);
    mem_free(found);
    cli_tokens_free(&tokens);
    hearth_session_free(r->session);
    hearth_sampler_free(r->sampler);
    cli_engine_close(r->engine);
    return status;
}

int cmd_run(int argc, char **argv) {
    run_command r = {.n_logprobs = -1};
    cli_generate_init(&r.g);
    const cli_option options[] = {
        {"--file", 'f', CLI_TEXT, &r.file, "FILE", "take the prompt from a file (- is standard input), less one line end at its end", 0, 0},
        {"--system", 0, CLI_TEXT, &r.system, "TEXT", "the system message", 0, 0},
        {"--raw", 0, CLI_FLAG, &r.raw, NULL, "continue the prompt as it stands, without the chat template", 0, 0},
        {"--logprobs", 0, CLI_INT, &r.n_logprobs, "N", "print each token's log-probability and the N likeliest on stderr", 0, MOST_LOGPROBS},
        {NULL, 0, CLI_FLAG, NULL, NULL, NULL, 0, 0},
    };
    const cli_spec spec = {
        .usage = "hearth run [MODEL] [PROMPT] [options]",
        .about = "Answers a prompt: the text goes to standard output as it is made, the speed to standard error.\n"
                 "The prompt is put into the model's chat template when it has one; --raw continues it as plain text.\n"
                 "Without MODEL the default model answers. A single argument is the model when it names a file or ends\n"
                 "in .gguf, else the prompt. Without PROMPT, or when it is -, the prompt is read from standard input.",
        .options = options,
        .more_options = r.g.table,
        .min_args = 0,
        .max_args = 2,
    };
    const char *args[2];
    int status = 0;
    int n = cli_parse(&spec, argc, argv, args, &status);
    if (n < 0) return status;
    err e = {0};
    signal(SIGPIPE, SIG_IGN); /* writing says so instead */
    if (!cli_generate_finish(&r.g, &e) || !sort_arguments(&r, args, n, &e)) status = cli_usage(&spec, &e);
    else status = run(&r);
    buf_free(&r.text);
    buf_free(&r.logprobs);
    cli_generate_free(&r.g);
    return status;
}
