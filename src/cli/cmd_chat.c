/* cmd_chat.c: `hearth chat`: lines in, answers out, and the commands that begin with a slash. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/chat.h"
#include "cli/interrupt.h"
#include "cli/lines.h"

typedef enum chat_next { CHAT_ON, CHAT_QUIT } chat_next;

/* A command gets what follows its name. When it fails it sets e, which is printed. */
typedef struct chat_command {
    const char *name, *argument, *help;
    chat_next (*run)(chat *c, const char *argument, err *e);
} chat_command;

static chat_next command_help(chat *c, const char *argument, err *e);

static chat_next command_quit(chat *c, const char *argument, err *e) {
    (void)c, (void)argument, (void)e;
    return CHAT_QUIT;
}

static chat_next command_reset(chat *c, const char *argument, err *e) {
    (void)argument, (void)e;
    chat_reset(c);
    fprintf(stderr, "[a new conversation]\n");
    return CHAT_ON;
}

static chat_next command_undo(chat *c, const char *argument, err *e) {
    (void)argument;
    if (chat_undo(c)) fprintf(stderr, "[the last turn is taken back]\n");
    else err_set(e, HEARTH_ARGUMENT, "there is nothing to take back");
    return CHAT_ON;
}

static chat_next command_retry(chat *c, const char *argument, err *e) {
    (void)argument;
    chat_retry(c, e);
    return CHAT_ON;
}

static chat_next command_system(chat *c, const char *argument, err *e) {
    if (!*argument) fprintf(stderr, "[system message: %s]\n", c->system ? c->system : "none");
    else if (chat_set_system(c, strcmp(argument, "none") == 0 ? NULL : argument, e)) fprintf(stderr, "[the system message is set]\n");
    return CHAT_ON;
}

static chat_next command_save(chat *c, const char *argument, err *e) {
    if (!*argument) err_set(e, HEARTH_ARGUMENT, "/save needs the name of a file");
    else if (chat_save(c, argument, e)) fprintf(stderr, "[saved to %s]\n", argument);
    return CHAT_ON;
}

static chat_next command_load(chat *c, const char *argument, err *e) {
    if (!*argument) err_set(e, HEARTH_ARGUMENT, "/load needs the name of a file");
    else if (chat_load(c, argument, e)) fprintf(stderr, "[%zu messages from %s]\n", json_array_size(c->messages), argument);
    return CHAT_ON;
}

static chat_next command_stats(chat *c, const char *argument, err *e) {
    (void)argument, (void)e;
    const hearth_model_info info = hearth_engine_info(c->engine);
    char bytes[32];
    size_t length = hearth_session_length(c->session);
    fprintf(stderr, "model    %s (%s, %.3g million parameters), %s kernels, %d threads\n", *info.name ? info.name : "without a name",
            info.architecture, (double)info.n_parameters / 1e6, info.cpu, info.threads);
    fprintf(stderr, "context  %zu of %d tokens, %s\n", length, info.n_context, cli_bytes(bytes, length * info.kv_bytes_per_token));
    fprintf(stderr, "seed     %llu\n", (unsigned long long)c->g.sampler.seed);
    if (c->last.prompt_tokens) {
        fprintf(stderr, "last     ");
        talk_print_speed(stderr, &c->last);
    }
    return CHAT_ON;
}

static const chat_command commands[] = {
    {"help", "", "print this", command_help},
    {"reset", "", "begin a new conversation; the system message stays", command_reset},
    {"clear", "", "the same", command_reset},
    {"undo", "", "take back the last message and its answer", command_undo},
    {"retry", "", "answer the last message anew", command_retry},
    {"system", "TEXT", "set the system message (none: take it away; nothing: show it)", command_system},
    {"save", "FILE", "write the conversation to a file, as JSON", command_save},
    {"load", "FILE", "go on with a conversation from a file", command_load},
    {"stats", "", "model, context, seed and speed", command_stats},
    {"quit", "", "end (so does Ctrl-D)", command_quit},
    {"exit", "", "the same", command_quit},
    {NULL, NULL, NULL, NULL},
};

static chat_next command_help(chat *c, const char *argument, err *e) {
    (void)c, (void)argument, (void)e;
    for (const chat_command *k = commands; k->name; k++) fprintf(stderr, "  /%-7s %-5s %s\n", k->name, k->argument, k->help);
    fprintf(stderr, "  Ctrl-C stops the answer. A line that ends with \\ goes on in the next one; lines between \"\"\" belong together.\n"
                    "  A message that begins with a slash is written with two.\n");
    return CHAT_ON;
}

static chat_next run_command(chat *c, const char *line, err *e) {
    size_t len = strcspn(line, " \t");
    const char *argument = line + len + strspn(line + len, " \t");
    for (const chat_command *k = commands; k->name; k++)
        if (strlen(k->name) == len && memcmp(k->name, line, len) == 0) return k->run(c, argument, e);
    err_set(e, HEARTH_ARGUMENT, "/%.*s is not a command: /help lists them", (int)(len < 100 ? len : 100), line);
    return CHAT_ON;
}

/* ---- input ---- */

static bool ends_with(const buf *b, const char *text) {
    size_t n = strlen(text);
    return b->len >= n && memcmp(b->data + b->len - n, text, n) == 0;
}

/* Reads lines until the closing fence; text holds what stood after the opening one. */
static lines_result read_fenced(lines *l, buf *text, err *e) {
    buf line = {0};
    lines_result result = LINES_GOT;
    while (result == LINES_GOT && !ends_with(text, "\"\"\"")) {
        result = lines_read(l, "\"\"\" ", &line, e);
        if (result != LINES_GOT) break;
        if (!(text->len == 0 || buf_addc(text, '\n', e)) || !buf_add(text, line.data, line.len, e)) result = LINES_FAILED;
    }
    if (result == LINES_END) result = LINES_GOT; /* the end of the input closes it too */
    else if (result == LINES_GOT) text->len -= 3;
    buf_free(&line);
    return result;
}

/* One message or command, which may take several lines. */
static lines_result read_message(lines *l, buf *text, err *e) {
    buf line = {0};
    lines_result result = lines_read(l, "> ", text, e);
    if (result == LINES_GOT && text->len >= 3 && memcmp(text->data, "\"\"\"", 3) == 0) {
        memmove(text->data, text->data + 3, text->len - 3);
        text->len -= 3;
        result = read_fenced(l, text, e);
    } else {
        while (result == LINES_GOT && ends_with(text, "\\")) {
            text->data[text->len - 1] = '\n';
            result = lines_read(l, ". ", &line, e);
            if (result == LINES_GOT && !buf_add(text, line.data, line.len, e)) result = LINES_FAILED;
        }
        if (result == LINES_END && text->len) result = LINES_GOT;
    }
    if (result == LINES_GOT && text->data) text->data[text->len] = 0;
    buf_free(&line);
    return result;
}

static chat_next handle(chat *c, const buf *text, err *e) {
    if (!text->data || strspn(text->data, " \t\r\n") == text->len) return CHAT_ON;
    if (text->data[0] == '/' && text->data[1] != '/') return run_command(c, text->data + 1, e);
    size_t skip = text->data[0] == '/' ? 1 : 0;
    chat_say(c, text->data + skip, text->len - skip, e);
    return CHAT_ON;
}

static int converse(chat *c, lines *l) {
    buf text = {0};
    bool warned = false, failed = false;
    int status = -1;
    while (status < 0) {
        err e = {0};
        interrupt_clear();
        lines_result result = read_message(l, &text, &e);
        if (result == LINES_INTERRUPTED) {
            /* At the keyboard the first one only clears the line. */
            if (warned || !lines_terminal(l)) status = 130;
            else fprintf(stderr, "[Ctrl-C once more, or Ctrl-D, ends the chat]\n");
            warned = true;
            continue;
        }
        warned = false;
        if (result == LINES_END) status = 0;
        else if (result == LINES_FAILED) status = cli_fail(&e);
        else if (handle(c, &text, &e) == CHAT_QUIT || c->output_gone) status = 0;
        if (result == LINES_GOT && e.code != HEARTH_OK) {
            cli_fail(&e);
            failed = true;
        }
    }
    buf_free(&text);
    /* A script should hear of it; a person has seen it. */
    return status == 0 && failed && !lines_terminal(l) ? 1 : status;
}

static int chat_with(chat *c, const char *model, const char *system) {
    err e = {0};
    char *found = model ? cli_find_model(model, &e) : NULL;
    const char *path = model ? found : cli_default_model(&e);
    if (path && !model) cli_default_notice("chat");
    bool ok = path && chat_set_system(c, system, &e) && chat_open(c, path, &e);
    mem_free(found);
    if (!ok) return cli_fail(&e);
    lines *l = lines_open(&e);
    if (!l) return cli_fail(&e);
    interrupt_catch(false);
    size_t before = json_array_size(c->messages);
    if (lines_terminal(l) && before) fprintf(stderr, "%s remembers %zu messages (%zu tokens).\n", c->agent, before, hearth_session_length(c->session));
    if (lines_terminal(l)) fprintf(stderr, "/help lists the commands, Ctrl-C stops an answer, Ctrl-D ends.\n");
    int status = converse(c, l);
    lines_close(l);
    return status;
}

int cmd_chat(int argc, char **argv) {
    chat c = {0};
    const char *system = NULL, *args[1];
    cli_generate_init(&c.g);
    const cli_option options[] = {
        {"--system", 0, CLI_TEXT, &system, "TEXT", "the system message", 0, 0},
        {"--agent", 0, CLI_TEXT, &c.agent, "NAME", "go on with this agent's conversation, and keep it for the next run", 0, 0},
        {NULL, 0, CLI_FLAG, NULL, NULL, NULL, 0, 0},
    };
    const cli_spec spec = {
        .usage = "hearth chat [MODEL] [options]",
        .about = "Talks with a model, the default one unless MODEL names a GGUF file. /help inside lists the commands; Ctrl-C\n"
                 "stops an answer and not the program. When input is not a terminal, each line is a message.",
        .options = options,
        .more_options = c.g.table,
        .max_args = 1,
    };
    int status = 0;
    int n = cli_parse(&spec, argc, argv, args, &status);
    if (n < 0) return status;
    err e = {0};
    signal(SIGPIPE, SIG_IGN);
    if (!cli_generate_finish(&c.g, &e)) status = cli_usage(&spec, &e);
    else status = chat_with(&c, n > 0 ? args[0] : NULL, system);
    chat_close(&c);
    cli_generate_free(&c.g);
    return status;
}
