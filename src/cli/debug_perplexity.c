/* debug_perplexity.c: `hearth debug perplexity`, how well a model foretells a text, with any kernels and any type of keys and values. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "engine/engine.h"

/* What was foretold so far: minus the logarithm of the likelihood of each token. */
typedef struct score {
    double sum, squares;
    size_t n;
} score;

static double surprise(const float *logits, int n, int32_t token) {
    double most = (double)logits[0], sum = 0;
    for (int i = 1; i < n; i++) most = fmax(most, (double)logits[i]);
    for (int i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    return most + log(sum) - (double)logits[token];
}

/* One window of the text, from nothing: every token but the first is foretold from those before it. */
static bool score_window(hearth_session *s, const int32_t *tokens, int n, float *logits, score *out, err *e) {
    const model *m = &s->engine->model;
    const int vocab = m->params.n_vocab;
    const bool is_long = m->rope.full_long && n > m->params.original_context;
    kv_seq_truncate(&s->kv, 0);
    for (int at = 0; at < n; at += MODEL_CHUNK) {
        const int count = n - at < MODEL_CHUNK ? n - at : MODEL_CHUNK;
        model_part part = {.kv = &s->kv, .tokens = tokens + at, .n = count, .n_logits = count, .long_context = is_long};
        if (!model_forward(m, &s->run, &part, 1, logits, e)) return false;
        for (int i = 0; i < count && at + i + 1 < n; i++) {
            const double x = surprise(logits + (int64_t)i * vocab, vocab, tokens[at + i + 1]);
            out->sum += x, out->squares += x * x, out->n++;
        }
    }
    return true;
}

static bool score_text(hearth_engine *engine, const char *path, int window, int most, score *out, err *e) {
    buf text = {0};
    token_list ids = {0};
    float *logits = NULL;
    hearth_session *s = NULL;
    bool ok = file_read(path, (size_t)1 << 30, &text, e) && tokenizer_encode(engine->tok, text.data, text.len, false, &ids, e);
    if (ok && window > engine->n_context) ok = err_set(e, HEARTH_ARGUMENT, "a window of %d is more than the context of %d", window, engine->n_context);
    if (ok && window == 0) window = engine->n_context;
    const size_t n = most > 0 && (size_t)most < ids.n ? (size_t)most : ids.n;
    if (ok && n < 2) ok = err_set(e, HEARTH_ARGUMENT, "%s: too short, it takes two tokens at least", path);
    ok = ok && (logits = mem_alloc((size_t)engine->model.params.n_vocab * MODEL_CHUNK, sizeof *logits, e)) && (s = hearth_session_new(engine, e));
    for (size_t at = 0; ok && at + 1 < n; at += (size_t)window)
        ok = score_window(s, ids.ids + at, n - at < (size_t)window ? (int)(n - at) : window, logits, out, e);
    hearth_session_free(s);
    mem_free(logits);
    token_list_free(&ids);
    buf_free(&text);
    return ok;
}

int debug_perplexity(int argc, char **argv) {
    hearth_engine_options o = hearth_engine_defaults();
    o.kv_memory = 0;
    const char *args[2];
    int window = 0, most = 0, status;
    const cli_option options[] = {
        {"--window", 0, CLI_INT, &window, "N", "tokens that are read together (default 0: as many as the context has)", 0, 1e9},
        {"--tokens", 0, CLI_INT, &most, "N", "most tokens of the text (default 0: all)", 0, 1e9},
        {"--cpu", 0, CLI_TEXT, &o.cpu, "NAME", "kernel set; ref is exact (default: the best this CPU has)", 0, 0},
        {"--threads", 0, CLI_INT, &o.threads, "N", "threads (default: one per core)", 0, 1024},
        {0},
    };
    cli_option engine_table[CLI_ENGINE_OPTIONS + 1] = {0};
    cli_engine_table(engine_table, &o);
    const cli_spec spec = {"hearth debug perplexity MODEL FILE [options]",
                           "How well the model foretells a text, which is cut into windows: the exponential of the mean of minus the logarithm of\n"
                           "each token's likelihood, the first of a window apart. - is standard input.",
                           options, engine_table, 2, 2};
    if (cli_parse(&spec, argc, argv, args, &status) < 0) return status;
    err e = {0};
    score total = {0};
    hearth_engine *engine = hearth_engine_open(args[0], &o, &e);
    bool ok = engine && score_text(engine, args[1], window, most, &total, &e);
    hearth_engine_close(engine);
    if (!ok) return cli_fail(&e);
    const double mean = total.sum / (double)total.n, variance = total.squares / (double)total.n - mean * mean;
    printf("perplexity %.5f (mean %.6f, deviation of the mean %.6f, %zu tokens)\n", exp(mean), mean, sqrt(fmax(variance, 0) / (double)total.n), total.n);
    return 0;
}
