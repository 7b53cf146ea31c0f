/* debug_logits.c: `hearth debug logits`, the truth that the conformance kit is held against. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "engine/engine.h"

static bool read_ids(const char *path, token_list *ids, err *e) {
    buf text = {0};
    bool ok = file_read(path, (size_t)1 << 30, &text, e);
    const char *p = ok ? text.data : "";
    while (ok) {
        while (*p && (isspace((unsigned char)*p) || *p == ',' || *p == '[' || *p == ']')) p++;
        if (!*p) break;
        char *end;
        errno = 0;
        long id = strtol(p, &end, 10);
        if (end == p || errno || id < 0 || id > INT32_MAX) {
            char quoted[32];
            ok = err_set(e, HEARTH_FORMAT, "%s: '%s' is no token id", path, err_quote(quoted, sizeof quoted, p, strcspn(p, " \t\r\n,")));
            break;
        }
        ok = token_list_add(ids, (int32_t)id, e);
        p = end;
    }
    if (ok && ids->n == 0) ok = err_set(e, HEARTH_FORMAT, "%s: no token ids in it", path);
    buf_free(&text);
    return ok;
}

/* Feeds the tokens in passes of `chunk` and writes the logits of every position. */
static bool write_logits(hearth_session *s, const token_list *ids, int chunk, file_writer *out, err *e) {
    const model *m = &s->engine->model;
    size_t row = (size_t)m->params.n_vocab;
    float *logits = mem_alloc(row * (size_t)chunk, sizeof *logits, e);
    bool ok = logits != NULL;
    bool is_long = m->rope.full_long && ids->n > (size_t)m->params.original_context;
    for (size_t at = 0; ok && at < ids->n; at += (size_t)chunk) {
        int n = ids->n - at < (size_t)chunk ? (int)(ids->n - at) : chunk;
        model_part part = {.kv = &s->kv, .tokens = ids->ids + at, .n = n, .n_logits = n, .long_context = is_long};
        ok = model_forward(m, &s->run, &part, 1, logits, e) && file_writer_add(out, logits, row * (size_t)n * sizeof *logits, e);
    }
    mem_free(logits);
    return ok;
}

static bool run_logits(hearth_engine *engine, const char *ids_path, const char *out_path, int chunk, err *e) {
    token_list ids = {0};
    hearth_session *s = NULL;
    file_writer out = {.fd = -1};
    bool ok = read_ids(ids_path, &ids, e) && (s = hearth_session_new(engine, e)) != NULL;
    if (ok && ids.n > (size_t)engine->n_context)
        ok = err_set(e, HEARTH_LIMIT, "%s: %zu tokens do not fit into the context of %d", ids_path, ids.n, engine->n_context);
    if (ok && (size_t)chunk > ids.n) chunk = (int)ids.n;
    ok = ok && file_writer_open(&out, out_path, e);
    if (ok) {
        ok = write_logits(s, &ids, chunk, &out, e);
        if (ok) ok = file_writer_commit(&out, e);
        else file_writer_abort(&out);
    }
    hearth_session_free(s);
    token_list_free(&ids);
    return ok;
}

int debug_logits(int argc, char **argv) {
    hearth_engine_options o = hearth_engine_defaults();
    o.kv_memory = 0;
    const char *ids = NULL, *out = NULL, *args[1];
    int chunk = MODEL_CHUNK, status;
    const cli_option options[] = {
        {"--ids", 0, CLI_TEXT, &ids, "FILE", "token ids as text, separated by blanks or commas; - is standard input", 0, 0},
        {"--out", 0, CLI_TEXT, &out, "FILE", "float32, one row of vocabulary size per position", 0, 0},
        {"--cpu", 0, CLI_TEXT, &o.cpu, "NAME", "kernel set; ref is exact (default: the best this CPU has)", 0, 0},
        {"--threads", 0, CLI_INT, &o.threads, "N", "threads (default: one per core)", 0, 1024},
        {"--chunk", 0, CLI_INT, &chunk, "N", "tokens per pass (default 512)", 1, MODEL_CHUNK},
        {0},
    };
    cli_option engine_table[CLI_ENGINE_OPTIONS + 1] = {0};
    cli_engine_table(engine_table, &o);
    const cli_spec spec = {"hearth debug logits MODEL --ids FILE --out FILE.f32 [options]", "Writes the logits of every position of a token sequence.", options, engine_table,
                           1, 1};
    int n = cli_parse(&spec, argc, argv, args, &status);
    if (n < 0) return status;
    if (!ids || !out) return cli_failf("hearth debug logits needs --ids and --out");
    err e = {0};
    hearth_engine *engine = hearth_engine_open(args[0], &o, &e);
    bool ok = engine && run_logits(engine, ids, out, chunk, &e);
    hearth_engine_close(engine);
    return ok ? 0 : cli_fail(&e);
}
