/* cmd_serve.c: `hearth serve`: its options, from the command line and from a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/serve.h"
#include "engine/recall.h"

/* What the options say that must be worked on before serve.c can use it. */
typedef struct serve_options {
    cli_list origins, aliases;
    float max_stall_ms;
    uint64_t max_body;
    const char *log, *config;
    bool quiet, print;
    const char *origin_table[65], *alias_table[65];
    buf config_text, responses_dir;
} serve_options;

static uint64_t machine_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : (uint64_t)4 << 30;
}

static bool finish_log(serve_command *c, const serve_options *x, err *e) {
    bool text = strcmp(x->log, "text") == 0, json = strcmp(x->log, "json") == 0;
    if (!text && !json && strcmp(x->log, "off") != 0) return err_set(e, HEARTH_ARGUMENT, "--log must be text, json or off, not '%s'", x->log);
    c->http.log = (text || json) && !x->quiet ? stderr : NULL;
    c->http.log_json = json;
    return true;
}

/* Responses are kept where conversations are. */
static bool find_responses(serve_command *c, serve_options *x, err *e) {
    if (!c->models.engine.store) return true;
    char *folder = recall_folder(c->models.engine.store_dir, NULL);
    bool ok = !folder || buf_addf(&x->responses_dir, e, "%s/responses", folder);
    if (folder && ok) c->models.api.responses_dir = x->responses_dir.data;
    mem_free(folder);
    return ok;
}

static bool finish_options(serve_command *c, serve_options *x, err *e) {
    memcpy(x->origin_table, x->origins.items, (size_t)x->origins.n * sizeof *x->origin_table);
    memcpy(x->alias_table, x->aliases.items, (size_t)x->aliases.n * sizeof *x->alias_table);
    c->http.origins = x->origin_table;
    models_options *o = &c->models;
    o->api.aliases = x->alias_table;
    o->loop.max_stall_ns = (uint64_t)((double)x->max_stall_ms * 1e6);
    /* Unless told otherwise, weights of all models get half of the machine's memory. */
    if (o->memory == UINT64_MAX) o->memory = machine_bytes() / 2;
    c->http.max_body = (size_t)x->max_body;
    if (c->record && (c->given.n > 1 || o->folder)) return err_set(e, HEARTH_ARGUMENT, "--record follows one model: serve only one");
    return find_responses(c, x, e) && finish_log(c, x, e);
}

/* --config, or the usual file when it is there. */
static bool read_config(const cli_spec *spec, const bool *seen, serve_options *x, err *e) {
    if (x->config) return cli_config_read(spec, seen, x->config, &x->config_text, e);
    const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    buf path = {0};
    bool known = folder && *folder == '/' ? buf_addf(&path, e, "%s/hearth/hearth.conf", folder) : home && *home == '/' && buf_addf(&path, e, "%s/.config/hearth/hearth.conf", home);
    file_id id;
    bool there = false, ok = !known || (file_look(path.data, &there, &id, e) && (!there || cli_config_read(spec, seen, path.data, &x->config_text, e)));
    buf_free(&path);
    return ok;
}

/* Models on the command line are there instead of the file's. */
static bool take_arguments(serve_command *c, const cli_spec *spec, bool *seen, const char *const *args, int n, err *e) {
    size_t place = 0;
    while (spec->options[place].name && spec->options[place].target != &c->given) place++;
    if (n + c->given.n > SERVE_MODELS) return err_set(e, HEARTH_ARGUMENT, "more than %d models are given: put them into a folder and name it with --models-dir", SERVE_MODELS);
    memmove(c->given.items + n, c->given.items, (size_t)c->given.n * sizeof *args);
    memcpy(c->given.items, args, (size_t)n * sizeof *args);
    c->given.n += n;
    if (n > 0) seen[place] = true;
    return true;
}

int cmd_serve(int argc, char **argv) {
    serve_command c = {.http = http_defaults(), .drain_s = 30};
    serve_options x = {.max_stall_ms = 100, .max_body = c.http.max_body, .log = "text"};
    models_options *o = &c.models;
    o->engine = hearth_engine_defaults();
    o->loop = loop_defaults();
    o->api.sampler = hearth_sampler_defaults();
    o->engine.progress = cli_progress;
    o->engine.store = true;
    o->memory = UINT64_MAX;
    hearth_sampler_options *s = &o->api.sampler;
    cli_option engine_table[CLI_ENGINE_OPTIONS + 1] = {0};
    cli_engine_table(engine_table, &o->engine);
    const cli_option options[] = {
        {"--host", 0, CLI_TEXT, &c.http.host, "ADDRESS", "where to listen (default 127.0.0.1: this machine only)", 0, 0},
        {"--port", 'p', CLI_INT, &c.http.port, "N", "port (default 8080; 0: any that is free)", 0, 65535},
        {"--unix", 0, CLI_TEXT, &c.http.unix_path, "PATH", "listen on a unix socket instead, for this user only", 0, 0},
        {"--tls-cert", 0, CLI_TEXT, &c.http.tls_cert, "FILE", "speak TLS with this certificate (PEM, with those that it needs after it)", 0, 0},
        {"--tls-key", 0, CLI_TEXT, &c.http.tls_key, "FILE", "and its key (PEM)", 0, 0},
        {"--keys", 0, CLI_TEXT, &c.key_file, "FILE", "ask for a key; lines: KEY [tenant=NAME] [requests=N] [tokens=N] [admin], N a minute", 0, 0},
        {"--api-key", 0, CLI_LIST, &c.keys, "KEY", "ask for this key; may be repeated (others on this machine can see it: rather use --keys)", 0, 0},
        {"--admin-key", 0, CLI_TEXT, &c.admin_key, "KEY", "have routes under /admin, for this key only", 0, 0},
        {"--open", 0, CLI_FLAG, &c.http.open, NULL, "listen beyond this machine without asking for a key", 0, 0},
        {"--cors", 0, CLI_LIST, &x.origins, "ORIGIN", "let pages of this site use the server (* is any); may be repeated", 0, 0},
        {"--name", 0, CLI_TEXT, &c.name, "NAME", "the first model's name in the APIs (default: its file's)", 0, 0},
        {"--model", 0, CLI_LIST, &c.given, "[NAME=]MODEL", "another model, loaded when it is asked for; may be repeated", 0, 0},
        {"--models-dir", 0, CLI_TEXT, &o->folder, "PATH", "every model in this folder can be asked for by its file's name", 0, 0},
        {"--models-memory", 0, CLI_BYTES, &o->memory, "BYTES", "weights loaded at once; the least recently used leave (default auto: half of the memory)", 0, 0},
        {"--default", 0, CLI_TEXT, &c.standard, "NAME", "the model of requests that name none (default: the first)", 0, 0},
        {"--alias", 0, CLI_LIST, &x.aliases, "NAME", "another name of the default model; may be repeated", 0, 0},
        {"--parallel", 0, CLI_INT, &o->loop.max_running, "N", "conversations computed together (default 16)", 1, 256},
        {"--queue", 0, CLI_INT, &o->loop.max_queue, "N", "requests that may wait; more are told to come back (default 64)", 0, 1e6},
        {"--max-stall", 0, CLI_FLOAT, &x.max_stall_ms, "MS", "how long a running answer may wait for a token while others' prompts are read (default 100)", 1, 1e6},
        {"--kv-memory", 0, CLI_BYTES, &o->engine.kv_memory, "BYTES", "memory for keys and values of each model, running and kept (default auto: a part of what is free)", 0, 0},
        {"--store", 0, CLI_SWITCH, &o->engine.store, "on|off", "keep them on disk too, for the next start and for agents (default on)", 0, 0},
        {"--store-dir", 0, CLI_TEXT, &o->engine.store_dir, "PATH", "where (default: $XDG_DATA_HOME/hearth/kv or ~/.local/share/hearth/kv)", 0, 0},
        {"--kv-disk", 0, CLI_BYTES, &o->engine.kv_disk, "BYTES", "most that they may take there (default auto: half of the disk's room)", 0, 0},
        {"--timeout", 0, CLI_INT, &o->api.limit_s, "S", "longest time of one request (default 0: no limit)", 0, 1e6},
        {"--drain", 0, CLI_FLOAT, &c.drain_s, "S", "how long running answers may go on after Ctrl-C (default 30)", 0, 1e6},
        {"--max-body", 0, CLI_BYTES, &x.max_body, "BYTES", "largest request (default 16MiB)", 0, 0},
        {"--max-connections", 0, CLI_INT, &c.http.max_connections, "N", "connections at once (default 256)", 1, 65535},
        {"--idle", 0, CLI_INT, &c.http.idle_s, "S", "close connections that move nothing for so long (default 60)", 1, 1e6},
        {"--heartbeat", 0, CLI_INT, &c.http.heartbeat_s, "S", "streams that wait say so this often (default 5)", 1, 1e6},
        {"--record", 0, CLI_TEXT, &c.record, "FILE", "write what the scheduler is told and decides there, for hearth debug replay (complete when the server ends)", 0, 0},
        {"--log", 0, CLI_TEXT, &x.log, "FORM", "a line per request on standard error: text (default), json or off", 0, 0},
        {"--quiet", 'q', CLI_FLAG, &x.quiet, NULL, "the same as --log off", 0, 0},
        {"--config", 0, CLI_TEXT, &x.config, "FILE", "more options (default $XDG_CONFIG_HOME/hearth/hearth.conf if it is there): lines name = value", 0, 0},
        {"--print-config", 0, CLI_FLAG, &x.print, NULL, "print all options as they are in force, as such a file, and end", 0, 0},
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
                 "MODEL is a GGUF file or the name of one that hearth pull brought. Options can also stand in a file; those of the command line win.\n"
                 "Without MODEL the default model is served. Listens on this machine only, unless told otherwise.",
        .options = options,
        .more_options = engine_table,
        .max_args = SERVE_MODELS,
    };
    bool seen[sizeof options / sizeof *options + CLI_ENGINE_OPTIONS] = {0};
    const char *args[SERVE_MODELS];
    int status = 0;
    int n = cli_parse_seen(&spec, seen, argc, argv, args, &status);
    if (n < 0) return status;
    err e = {0};
    if (!take_arguments(&c, &spec, seen, args, n, &e) || !read_config(&spec, seen, &x, &e)) {
        status = cli_usage(&spec, &e);
    } else if (x.print) {
        cli_config_print(&spec, (const char *const[]){"--api-key", "--admin-key", NULL});
    } else {
        status = finish_options(&c, &x, &e) ? serve(&c) : cli_usage(&spec, &e);
    }
    buf_free(&x.config_text);
    buf_free(&x.responses_dir);
    return status;
}
