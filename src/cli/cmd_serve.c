/* cmd_serve.c: `hearth serve`: the model behind HTTP. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"

enum { MOST_KEYS = 65 };

typedef struct serve_command {
    hearth_engine_options engine;
    loop_options loop;
    http_options http;
    api_options api;
    cli_list keys, origins, aliases;
    const char *key_file, *name;
    float max_stall_ms, drain_s;
    uint64_t max_body;
    bool quiet;
    const char *key_table[2 * MOST_KEYS], *origin_table[MOST_KEYS], *alias_table[MOST_KEYS];
    buf key_text;
    char model_name[256];
} serve_command;

/* The file's name without folders and .gguf. */
static void name_model(serve_command *c, const char *path) {
    const char *slash = strrchr(path, '/');
    snprintf(c->model_name, sizeof c->model_name, "%s", slash ? slash + 1 : path);
    size_t n = strlen(c->model_name);
    if (n > 5 && strcmp(c->model_name + n - 5, ".gguf") == 0) c->model_name[n - 5] = 0;
    c->api.model = c->name ? c->name : c->model_name;
}

/* Keys from the command line and one per line of the file. */
static bool gather_keys(serve_command *c, err *e) {
    int n = 0;
    for (int i = 0; i < c->keys.n; i++) {
        if (!*c->keys.items[i]) return err_set(e, HEARTH_ARGUMENT, "--api-key needs a key that is not empty");
        c->key_table[n++] = c->keys.items[i];
    }
    if (c->key_file) {
        if (!file_read(c->key_file, 1 << 20, &c->key_text, e)) return false;
        char *rest = NULL;
        for (char *line = strtok_r(c->key_text.data ? c->key_text.data : (char[]){0}, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
            if (n >= 2 * MOST_KEYS - 1) return err_set(e, HEARTH_ARGUMENT, "%s holds more keys than the %d that can be used", c->key_file, MOST_KEYS);
            c->key_table[n++] = line;
        }
        if (n == c->keys.n) return err_set(e, HEARTH_ARGUMENT, "%s holds no key: write one per line", c->key_file);
    }
    c->http.keys = c->key_table;
    return true;
}

static bool finish_options(serve_command *c, err *e) {
    memcpy(c->origin_table, c->origins.items, (size_t)c->origins.n * sizeof *c->origin_table);
    memcpy(c->alias_table, c->aliases.items, (size_t)c->aliases.n * sizeof *c->alias_table);
    c->http.origins = c->origin_table;
    c->api.aliases = c->alias_table;
    c->loop.max_stall_ns = (uint64_t)((double)c->max_stall_ms * 1e6);
    c->http.max_body = (size_t)c->max_body;
    c->http.log = c->quiet ? NULL : stderr;
    return gather_keys(c, e);
}

static void say_where(const serve_command *c, const http_server *s) {
    bool six = strchr(c->http.host, ':') != NULL;
    printf("hearth serves %s at http://%s%s%s:%d/ (Ctrl-C ends it)\n", c->api.model, six ? "[" : "", c->http.host, six ? "]" : "", http_port(s));
    fflush(stdout);
}

/* Waits for Ctrl-C, then lets running answers end; a second Ctrl-C ends at once. */
static void wait_and_stop(const serve_command *c, http_server *s, loop *l, const sigset_t *signals) {
    int number = 0;
    sigwait(signals, &number);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    http_quiesce(s);
    if (loop_count(l).running + loop_count(l).waiting > 0) fprintf(stderr, "hearth: finishing what runs, for at most %.0f s; Ctrl-C again ends at once\n", (double)c->drain_s);
    loop_drain(l, (uint64_t)((double)c->drain_s * 1e9));
    loop_end(l);
    http_settle(s, 1000000000u);
}

static int serve(serve_command *c, const char *path) {
    err e = {0};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread: only the waiting one gets them */
    signal(SIGPIPE, SIG_IGN);
    name_model(c, path);
    hearth_engine *engine = hearth_engine_open(path, &c->engine, &e);
    loop *l = engine ? loop_new(engine, &c->loop, &e) : NULL;
    api *a = l ? api_new(engine, l, &c->api, &e) : NULL;
    http_server *s = a ? http_start(&c->http, api_handle, a, &e) : NULL;
    if (s) {
        say_where(c, s);
        wait_and_stop(c, s, l, &signals);
    }
    http_stop(s);
    api_free(a);
    loop_free(l);
    cli_engine_close(engine);
    return s ? 0 : cli_fail(&e);
}

int cmd_serve(int argc, char **argv) {
    serve_command c = {.engine = hearth_engine_defaults(), .loop = loop_defaults(), .http = http_defaults()};
    c.api.sampler = hearth_sampler_defaults();
    c.engine.progress = cli_progress;
    c.engine.store = true;
    c.max_stall_ms = 100;
    c.drain_s = 30;
    c.max_body = c.http.max_body;
    hearth_sampler_options *s = &c.api.sampler;
    cli_option engine_table[CLI_ENGINE_OPTIONS + 1] = {0};
    cli_engine_table(engine_table, &c.engine);
    const cli_option options[] = {
        {"--host", 0, CLI_TEXT, &c.http.host, "ADDRESS", "where to listen (default 127.0.0.1: this machine only)", 0, 0},
        {"--port", 'p', CLI_INT, &c.http.port, "N", "port (default 8080; 0: any that is free)", 0, 65535},
        {"--api-key", 0, CLI_LIST, &c.keys, "KEY", "ask for this key; may be repeated (others on this machine can see it: rather use --api-key-file)", 0, 0},
        {"--api-key-file", 0, CLI_TEXT, &c.key_file, "FILE", "ask for one of the keys in this file, one per line", 0, 0},
        {"--open", 0, CLI_FLAG, &c.http.open, NULL, "listen beyond this machine without asking for a key", 0, 0},
        {"--cors", 0, CLI_LIST, &c.origins, "ORIGIN", "let pages of this site use the server (* is any); may be repeated", 0, 0},
        {"--name", 0, CLI_TEXT, &c.name, "NAME", "the model's name in the APIs (default: its file's)", 0, 0},
        {"--alias", 0, CLI_LIST, &c.aliases, "NAME", "another name that clients may ask for; may be repeated", 0, 0},
        {"--parallel", 0, CLI_INT, &c.loop.max_running, "N", "conversations computed together (default 16)", 1, 256},
        {"--queue", 0, CLI_INT, &c.loop.max_queue, "N", "requests that may wait; more are told to come back (default 64)", 0, 1e6},
        {"--max-stall", 0, CLI_FLOAT, &c.max_stall_ms, "MS", "longest pause of running answers while others' prompts are read (default 100)", 1, 1e6},
        {"--kv-memory", 0, CLI_BYTES, &c.engine.kv_memory, "BYTES", "memory for keys and values, running and kept (default auto: a part of what is free)", 0, 0},
        {"--store", 0, CLI_SWITCH, &c.engine.store, "on|off", "keep them on disk too, for the next start and for agents (default on)", 0, 0},
        {"--store-dir", 0, CLI_TEXT, &c.engine.store_dir, "PATH", "where (default: $XDG_DATA_HOME/hearth/kv or ~/.local/share/hearth/kv)", 0, 0},
        {"--kv-disk", 0, CLI_BYTES, &c.engine.kv_disk, "BYTES", "most that they may take there (default auto: half of the disk's room)", 0, 0},
        {"--timeout", 0, CLI_INT, &c.api.limit_s, "S", "longest time of one request (default 0: no limit)", 0, 1e6},
        {"--drain", 0, CLI_FLOAT, &c.drain_s, "S", "how long running answers may go on after Ctrl-C (default 30)", 0, 1e6},
        {"--max-body", 0, CLI_BYTES, &c.max_body, "BYTES", "largest request (default 16MiB)", 0, 0},
        {"--max-connections", 0, CLI_INT, &c.http.max_connections, "N", "connections at once (default 256)", 1, 65535},
        {"--idle", 0, CLI_INT, &c.http.idle_s, "S", "close connections that move nothing for so long (default 60)", 1, 1e6},
        {"--heartbeat", 0, CLI_INT, &c.http.heartbeat_s, "S", "streams that wait say so this often (default 5)", 1, 1e6},
        {"--quiet", 'q', CLI_FLAG, &c.quiet, NULL, "no line per request on standard error", 0, 0},
        {"--temperature", 0, CLI_FLOAT, &s->temperature, "T", "where a request does not say: how freely to choose (default 0.8)", 0, 2},
        {"--top-k", 0, CLI_INT, &s->top_k, "N", "where a request does not say: among the N likeliest (default 40; 0: off)", 0, 1e6},
        {"--top-p", 0, CLI_FLOAT, &s->top_p, "P", "where a request does not say: among those that make up P (default 0.95; 1: off)", 0, 1},
        {"--min-p", 0, CLI_FLOAT, &s->min_p, "P", "where a request does not say: drop what is below P times the likeliest (default 0.05)", 0, 1},
        {"--repeat-penalty", 0, CLI_FLOAT, &s->repeat_penalty, "R", "where a request does not say: make repeated tokens less likely (default 1: off)", 0.01, 100},
        {"--context", 'c', CLI_INT, &c.engine.context, "N", "most tokens of a conversation (default 0: as trained)", 0, 1e9},
        {"--threads", 't', CLI_INT, &c.engine.threads, "N", "threads to compute with (default 0: one per core)", 0, 1024},
        {"--cpu", 0, CLI_TEXT, &c.engine.cpu, "NAME", "kernels: auto (default), or a name that hearth run --help lists", 0, 0},
        {NULL, 0, CLI_FLAG, NULL, NULL, NULL, 0, 0},
    };
    const cli_spec spec = {
        .usage = "hearth serve [MODEL] [options]",
        .about = "Serves a model over HTTP: a page to chat with at /, OpenAI's API under /v1 (chat/completions, completions, models),\n"
                 "Anthropic's (/v1/messages), /tokenize, /detokenize, /apply-template, /health and /metrics.\n"
                 "Without MODEL the default model is served. Listens on this machine only, unless told otherwise.",
        .options = options,
        .more_options = engine_table,
        .max_args = 1,
    };
    const char *args[1];
    int status = 0;
    int n = cli_parse(&spec, argc, argv, args, &status);
    if (n < 0) return status;
    err e = {0};
    const char *path = n == 1 ? args[0] : cli_default_model(&e);
    if (!path) return cli_fail(&e);
    if (!finish_options(&c, &e)) status = cli_usage(&spec, &e);
    else status = serve(&c, path);
    buf_free(&c.key_text);
    return status;
}
