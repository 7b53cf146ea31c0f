/* cmd_serve.c: `hearth serve`: the model behind HTTP. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/models.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "engine/recall.h"
#include "gguf/folder.h"

enum { MOST_KEYS = 65, MOST_MODELS = 64 };

typedef struct serve_command {
    http_options http;
    models_options models;
    cli_list given, keys, origins, aliases; /* given: the models */
    const char *key_file, *name, *standard;
    float max_stall_ms, drain_s;
    uint64_t max_body;
    bool quiet;
    _Atomic bool up;
    const char *key_table[2 * MOST_KEYS], *origin_table[MOST_KEYS], *alias_table[MOST_KEYS];
    buf key_text, responses_dir;
} serve_command;

static uint64_t machine_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : (uint64_t)4 << 30;
}

/* MODEL or NAME=MODEL. Without a name, --name is the first one's and the others have their files'. */
static bool add_model(serve_command *c, models *m, const char *given, bool first, err *e) {
    char name[256];
    const char *path = given, *equals = strchr(given, '=');
    file_id id;
    bool there = false;
    if (equals && file_look(given, &there, &id, NULL) && !there) {
        path = equals + 1;
        snprintf(name, sizeof name, "%.*s", (int)(equals - given), given);
        if (!*name || !*path) return err_set(e, HEARTH_ARGUMENT, "'%s' is no model: give a file, or NAME=FILE", given);
    } else if (first && c->name) {
        snprintf(name, sizeof name, "%s", c->name);
    } else {
        gguf_model_name(path, name, sizeof name);
    }
    if (!file_look(path, &there, &id, e)) return false;
    return there ? models_add(m, name, path, e) : err_set(e, HEARTH_IO, "there is no model file %s", path);
}

static bool add_models(serve_command *c, models *m, err *e) {
    const char *standard = c->given.n ? NULL : cli_default_model(e);
    if (!c->given.n && (!standard || !add_model(c, m, standard, true, e))) return false;
    for (int i = 0; i < c->given.n; i++)
        if (!add_model(c, m, c->given.items[i], i == 0, e)) return false;
    return !c->standard || models_set_default(m, c->standard, e);
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

/* The models on the command line come before those of --model. */
static bool order_models(serve_command *c, const char *const *args, int n, err *e) {
    cli_list *l = &c->given;
    if (n + l->n > MOST_MODELS) return err_set(e, HEARTH_ARGUMENT, "more than %d models are given: put them into a folder and name it with --models-dir", MOST_MODELS);
    memmove(l->items + n, l->items, (size_t)l->n * sizeof *l->items);
    memcpy(l->items, args, (size_t)n * sizeof *l->items);
    l->n += n;
    return true;
}

/* Responses are kept where conversations are. */
static bool find_responses(serve_command *c, err *e) {
    if (!c->models.engine.store) return true;
    char *folder = recall_folder(c->models.engine.store_dir, NULL);
    bool ok = !folder || buf_addf(&c->responses_dir, e, "%s/responses", folder);
    if (folder && ok) c->models.api.responses_dir = c->responses_dir.data;
    mem_free(folder);
    return ok;
}

static bool finish_options(serve_command *c, const char *const *args, int n, err *e) {
    if (!order_models(c, args, n, e)) return false;
    memcpy(c->origin_table, c->origins.items, (size_t)c->origins.n * sizeof *c->origin_table);
    memcpy(c->alias_table, c->aliases.items, (size_t)c->aliases.n * sizeof *c->alias_table);
    c->http.origins = c->origin_table;
    models_options *o = &c->models;
    o->api.aliases = c->alias_table;
    o->loop.max_stall_ns = (uint64_t)((double)c->max_stall_ms * 1e6);
    /* Unless told otherwise, weights of all models get half of the machine's memory. */
    if (o->memory == UINT64_MAX) o->memory = machine_bytes() / 2;
    c->http.max_body = (size_t)c->max_body;
    c->http.log = c->quiet ? NULL : stderr;
    return find_responses(c, e) && gather_keys(c, e);
}

/* At the start only what is served matters. */
static void tell(void *user, const char *sentence) {
    const serve_command *c = user;
    if (c->up && !c->quiet) fprintf(stderr, "hearth: %s\n", sentence);
}

static void say_where(serve_command *c, models *m, const http_server *s) {
    bool six = strchr(c->http.host, ':') != NULL;
    c->up = true;
    printf("hearth serves %s at http://%s%s%s:%d/ (Ctrl-C ends it)\n", models_default(m), six ? "[" : "", c->http.host, six ? "]" : "", http_port(s));
    fflush(stdout);
}

/* Waits for Ctrl-C, then lets running answers end; a second Ctrl-C ends at once. */
static void wait_and_stop(const serve_command *c, http_server *s, models *m, const sigset_t *signals) {
    int number = 0;
    sigwait(signals, &number);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    http_quiesce(s);
    if (models_busy(m) > 0) fprintf(stderr, "hearth: finishing what runs, for at most %.0f s; Ctrl-C again ends at once\n", (double)c->drain_s);
    models_drain(m, (uint64_t)((double)c->drain_s * 1e9));
    models_end(m);
    http_settle(s, 1000000000u);
}

static int serve(serve_command *c) {
    err e = {0};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread: only the waiting one gets them */
    signal(SIGPIPE, SIG_IGN);
    models *m = models_new(&c->models, &e);
    bool ok = m && add_models(c, m, &e) && models_load(m, NULL, &e);
    http_server *s = ok ? http_start(&c->http, api_handle, models_api(m), &e) : NULL;
    if (s) {
        say_where(c, m, s);
        wait_and_stop(c, s, m, &signals);
    }
    http_stop(s);
    models_free(m);
    return s ? 0 : cli_fail(&e);
}

int cmd_serve(int argc, char **argv) {
    serve_command c = {.http = http_defaults()};
    models_options *o = &c.models;
    o->engine = hearth_engine_defaults();
    o->loop = loop_defaults();
    o->api.sampler = hearth_sampler_defaults();
    o->engine.progress = cli_progress;
    o->engine.store = true;
    o->memory = UINT64_MAX;
    o->tell = tell;
    o->tell_user = &c;
    c.max_stall_ms = 100;
    c.drain_s = 30;
    c.max_body = c.http.max_body;
    hearth_sampler_options *s = &o->api.sampler;
    cli_option engine_table[CLI_ENGINE_OPTIONS + 1] = {0};
    cli_engine_table(engine_table, &o->engine);
    const cli_option options[] = {
        {"--host", 0, CLI_TEXT, &c.http.host, "ADDRESS", "where to listen (default 127.0.0.1: this machine only)", 0, 0},
        {"--port", 'p', CLI_INT, &c.http.port, "N", "port (default 8080; 0: any that is free)", 0, 65535},
        {"--api-key", 0, CLI_LIST, &c.keys, "KEY", "ask for this key; may be repeated (others on this machine can see it: rather use --api-key-file)", 0, 0},
        {"--api-key-file", 0, CLI_TEXT, &c.key_file, "FILE", "ask for one of the keys in this file, one per line", 0, 0},
        {"--open", 0, CLI_FLAG, &c.http.open, NULL, "listen beyond this machine without asking for a key", 0, 0},
        {"--cors", 0, CLI_LIST, &c.origins, "ORIGIN", "let pages of this site use the server (* is any); may be repeated", 0, 0},
        {"--name", 0, CLI_TEXT, &c.name, "NAME", "the first model's name in the APIs (default: its file's)", 0, 0},
        {"--model", 0, CLI_LIST, &c.given, "[NAME=]FILE", "another model, loaded when it is asked for; may be repeated", 0, 0},
        {"--models-dir", 0, CLI_TEXT, &o->folder, "PATH", "every model in this folder can be asked for by its file's name", 0, 0},
        {"--models-memory", 0, CLI_BYTES, &o->memory, "BYTES", "weights loaded at once; the least recently used leave (default auto: half of the memory)", 0, 0},
        {"--default", 0, CLI_TEXT, &c.standard, "NAME", "the model of requests that name none (default: the first)", 0, 0},
        {"--alias", 0, CLI_LIST, &c.aliases, "NAME", "another name of the default model; may be repeated", 0, 0},
        {"--parallel", 0, CLI_INT, &o->loop.max_running, "N", "conversations computed together (default 16)", 1, 256},
        {"--queue", 0, CLI_INT, &o->loop.max_queue, "N", "requests that may wait; more are told to come back (default 64)", 0, 1e6},
        {"--max-stall", 0, CLI_FLOAT, &c.max_stall_ms, "MS", "longest pause of running answers while others' prompts are read (default 100)", 1, 1e6},
        {"--kv-memory", 0, CLI_BYTES, &o->engine.kv_memory, "BYTES", "memory for keys and values, running and kept (default auto: a part of what is free)", 0, 0},
        {"--store", 0, CLI_SWITCH, &o->engine.store, "on|off", "keep them on disk too, for the next start and for agents (default on)", 0, 0},
        {"--store-dir", 0, CLI_TEXT, &o->engine.store_dir, "PATH", "where (default: $XDG_DATA_HOME/hearth/kv or ~/.local/share/hearth/kv)", 0, 0},
        {"--kv-disk", 0, CLI_BYTES, &o->engine.kv_disk, "BYTES", "most that they may take there (default auto: half of the disk's room)", 0, 0},
        {"--timeout", 0, CLI_INT, &o->api.limit_s, "S", "longest time of one request (default 0: no limit)", 0, 1e6},
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
        {"--context", 'c', CLI_INT, &o->engine.context, "N", "most tokens of a conversation (default 0: as trained)", 0, 1e9},
        {"--threads", 't', CLI_INT, &o->engine.threads, "N", "threads to compute with (default 0: one per core)", 0, 1024},
        {"--cpu", 0, CLI_TEXT, &o->engine.cpu, "NAME", "kernels: auto (default), or a name that hearth run --help lists", 0, 0},
        {NULL, 0, CLI_FLAG, NULL, NULL, NULL, 0, 0},
    };
    const cli_spec spec = {
        .usage = "hearth serve [[NAME=]MODEL ...] [options]",
        .about = "Serves models over HTTP: a page to chat with at /, OpenAI's API under /v1 (chat/completions, completions, responses,\n"
                 "embeddings, models), Anthropic's (/v1/messages), /tokenize, /detokenize, /apply-template, /health and /metrics.\n"
                 "The first model is loaded at once and answers where a request names none; the others are loaded when they are asked for.\n"
                 "Without MODEL the default model is served. Listens on this machine only, unless told otherwise.",
        .options = options,
        .more_options = engine_table,
        .max_args = MOST_MODELS,
    };
    const char *args[MOST_MODELS];
    int status = 0;
    int n = cli_parse(&spec, argc, argv, args, &status);
    if (n < 0) return status;
    err e = {0};
    if (!finish_options(&c, args, n, &e)) status = cli_usage(&spec, &e);
    else status = serve(&c);
    buf_free(&c.key_text);
    buf_free(&c.responses_dir);
    return status;
}
