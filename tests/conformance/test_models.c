/* Every architecture against logits that Hugging Face transformers computed: the exact path closely, however the tokens are fed
 * and on however many threads, and every other kernel set by its divergence. */
#include "tools/support.h"

#include <jansson.h>
#include <math.h>

#include "gguf/write.h"
#include "model/model.h"
#include "quant/quant.h"

static const char *const names[] = {"deepseek2-lite", "deepseek3", "gemma2", "gemma3", "gpt-oss", "granite", "granitemoe", "llama",
                                    "llama3-rope",    "mistral",   "olmo2",  "phi3",   "qwen2",   "qwen3",   "qwen3moe",   "smollm3"};
enum { N_NAMES = sizeof names / sizeof *names };

typedef struct fixture {
    const char *name;
    gguf *file;
    json_t *json;
    buf reference;
    pool *pool;
} fixture;

typedef struct sequence {
    int32_t ids[512];
    int n;
    const json_t *positions;
    size_t offset_rows;
    const json_t *greedy;
} sequence;

static fixture open_fixture(const char *name) {
    char path[64];
    err e = {0};
    fixture f = {.name = name};
    snprintf(path, sizeof path, "models/%s.gguf", name);
    f.file = gguf_open(kit_path(path), &e);
    if (!f.file) fail_msg("%s", e.text);
    snprintf(path, sizeof path, "models/%s.json", name);
    f.json = json_load_file(kit_path(path), 0, NULL);
    assert_non_null(f.json);
    snprintf(path, sizeof path, "models/%s.f32", name);
    f.reference = slurp(kit_path(path));
    return f;
}

static void close_fixture(fixture *f) {
    gguf_close(f->file);
    json_decref(f->json);
    buf_free(&f->reference);
}

static sequence get_sequence(const fixture *f, size_t i) {
    const json_t *j = json_array_get(json_object_get(f->json, "sequences"), i);
    assert_non_null(j);
    const json_t *ids = json_object_get(j, "ids");
    sequence s = {.n = (int)json_array_size(ids), .positions = json_object_get(j, "positions"), .greedy = json_object_get(j, "greedy_next")};
    s.offset_rows = (size_t)json_integer_value(json_object_get(j, "offset_rows"));
    assert_true(s.n > 0 && s.n <= 480);
    for (int k = 0; k < s.n; k++) s.ids[k] = (int32_t)json_integer_value(json_array_get(ids, (size_t)k));
    return s;
}

/* Logits of every position, tokens fed in passes of chunk; fine: in small steps. */
static float *all_logits_by(const model *m, pool *p, const int32_t *ids, int n, int chunk, bool fine) {
    err e = {0};
    size_t row = (size_t)m->params.n_vocab;
    float *logits = malloc(row * (size_t)n * sizeof *logits);
    model_run run = {.pool = p, .fine = fine};
    kv_seq kv = {.layout = &m->kv};
    for (int at = 0; at < n; at += chunk) {
        int count = n - at < chunk ? n - at : chunk;
        model_part part = {.kv = &kv, .tokens = ids + at, .n = count, .n_logits = count};
        if (!model_forward(m, &run, &part, 1, logits + row * (size_t)at, &e)) fail_msg("%s", e.text);
    }
    model_run_free(&run);
    kv_seq_free(&kv);
    return logits;
}

static float *all_logits(const model *m, pool *p, const int32_t *ids, int n, int chunk) { return all_logits_by(m, p, ids, n, chunk, false); }

static double deviation(const float *x, size_t n) {
    double mean = 0, square = 0;
    for (size_t i = 0; i < n; i++) mean += x[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
    return sqrt(square / (double)n);
}

static double divergence(const float *p, const float *q, size_t n) {
    double max_p = p[0], max_q = q[0], sum_p = 0, sum_q = 0, kl = 0;
    for (size_t i = 0; i < n; i++) max_p = fmax(max_p, p[i]), max_q = fmax(max_q, q[i]);
    for (size_t i = 0; i < n; i++) sum_p += exp(p[i] - max_p), sum_q += exp(q[i] - max_q);
    for (size_t i = 0; i < n; i++) {
        double lp = p[i] - max_p - log(sum_p), lq = q[i] - max_q - log(sum_q);
        kl += exp(lp) * (lp - lq);
    }
    return kl;
}

static model load_as(const fixture *f, const char *cpu, int kv_type) {
    err e = {0};
    model m;
    const kernels *k = kernels_find(cpu, &e);
    if (!k || !model_load(&m, f->file, k, kv_type, kv_type, &e)) fail_msg("%s: %s", f->name, e.text);
    return m;
}

static model load(const fixture *f, const char *cpu) { return load_as(f, cpu, strcmp(cpu, "ref") ? QUANT_F16 : QUANT_F32); }

/* Largest difference over the listed positions, in units of the reference's standard deviation. */
static double worst(const fixture *f, const sequence *s, const float *logits, size_t row) {
    double most = 0;
    for (size_t i = 0; i < json_array_size(s->positions); i++) {
        size_t position = (size_t)json_integer_value(json_array_get(s->positions, i));
        const float *want = (const float *)(void *)f->reference.data + (s->offset_rows + i) * row, *got = logits + position * row;
        double sd = deviation(want, row);
        for (size_t k = 0; k < row; k++) {
            double d = fabs((double)got[k] - want[k]) / sd;
            if (!(d <= most)) most = d;
        }
    }
    return most;
}

/* Feeds the sequence and 16 tokens more, each the likeliest; a difference from the reference is allowed only at a near tie. */
static void check_greedy(const fixture *f, const model *m, pool *p, const sequence *s) {
    err e = {0};
    size_t row = (size_t)m->params.n_vocab;
    float *logits = malloc(row * sizeof *logits);
    model_run run = {.pool = p};
    kv_seq kv = {.layout = &m->kv};
    model_part part = {.kv = &kv, .tokens = s->ids, .n = s->n, .n_logits = 1};
    if (!model_forward(m, &run, &part, 1, logits, &e)) fail_msg("%s", e.text);
    for (size_t i = 0; i < json_array_size(s->greedy); i++) {
        int32_t want = (int32_t)json_integer_value(json_array_get(s->greedy, i));
        size_t best = 0;
        for (size_t k = 1; k < row; k++)
            if (logits[k] > logits[best]) best = k;
        if ((int32_t)best != want && logits[best] - logits[want] > 1e-3 * deviation(logits, row))
            fail_msg("%s: greedy token %zu after %d is %zu, not %d", f->name, i, s->n, best, want);
        part = (model_part){.kv = &kv, .tokens = &want, .n = 1, .n_logits = 1};
        if (!model_forward(m, &run, &part, 1, logits, &e)) fail_msg("%s", e.text);
    }
    model_run_free(&run);
    kv_seq_free(&kv);
    free(logits);
}

static void check_exact(const fixture *kit) {
    fixture f = *kit;
    model m = load(&f, "ref");
    err e = {0};
    pool *one = pool_new(1, &e), *two = pool_new(2, &e);
    size_t row = (size_t)m.params.n_vocab;
    for (size_t i = 0; i < json_array_size(json_object_get(f.json, "sequences")); i++) {
        sequence s = get_sequence(&f, i);
        float *whole = all_logits(&m, one, s.ids, s.n, 512);
        double d = worst(&f, &s, whole, row);
        if (d > 1e-3) fail_msg("%s: %d tokens: logits differ by %g standard deviations", f.name, s.n, d);
        const struct { pool *p; int chunk; } ways[] = {{two, 512}, {one, 7}, {two, 1}};
        for (int k = 0; k < 3; k++) {
            float *other = all_logits(&m, ways[k].p, s.ids, s.n, ways[k].chunk);
            if (memcmp(whole, other, row * (size_t)s.n * sizeof *whole) != 0)
                fail_msg("%s: %d tokens fed in chunks of %d on %d threads give other logits", f.name, s.n, ways[k].chunk, pool_threads(ways[k].p));
            free(other);
        }
        check_greedy(&f, &m, two, &s);
        free(whole);
    }
    pool_free(one);
    pool_free(two);
    model_free(&m);
}

static void exact_path(void **state) {
    need_kit();
    fixture f = open_fixture(*state);
    check_exact(&f);
    close_fixture(&f);
}

/* The value of element (a, b, c) of a tensor in F16. */
static float element(const gguf_tensor *t, int64_t a, int64_t b, int64_t c) {
    uint16_t h;
    memcpy(&h, t->data + 2 * ((c * t->ne[1] + b) * t->ne[0] + a), 2);
    return quant_f16_to_f32(h);
}

/* attn_kv_b of the older layout from attn_k_b [nope, rank, heads] and attn_v_b [rank, v, heads], as float. */
static float *fuse(const gguf_tensor *k, const gguf_tensor *v) {
    int64_t rank = k->ne[1], nope = k->ne[0], size = v->ne[1], heads = k->ne[2], row = 0;
    float *out = malloc((size_t)(rank * heads * (nope + size)) * sizeof *out);
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t d = 0; d < nope; d++, row++)
            for (int64_t r = 0; r < rank; r++) out[row * rank + r] = element(k, d, r, h);
        for (int64_t d = 0; d < size; d++, row++)
            for (int64_t r = 0; r < rank; r++) out[row * rank + r] = element(v, r, d, h);
    }
    return out;
}

static bool name_ends(gguf_string s, const char *end) { return s.len >= strlen(end) && !memcmp(s.data + s.len - strlen(end), end, strlen(end)); }

static const gguf_tensor *values_of(const gguf *g, const gguf_tensor *keys) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)keys->name.len, keys->name.data);
    strcpy(strstr(name, "attn_k_b"), "attn_v_b.weight");
    const gguf_tensor *t = gguf_find_tensor(g, name);
    assert_non_null(t);
    return t;
}

/* Rewrites a DeepSeek file in the layout of older converters: keys and values expanded by one matrix, sizes of whole heads in the
 * metadata. Everything else is copied. */
static void write_older(const gguf *g, const char *path) {
    err e = {0};
    gguf_writer *w = gguf_writer_new(32, &e);
    static const char *const changed[] = {"head_count_kv", "key_length", "value_length", "key_length_mla", "value_length_mla"};
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const gguf_kv *kv = gguf_kv_at(g, i);
        bool keep = true;
        for (int c = 0; c < 5; c++) keep = keep && !name_ends(kv->key, changed[c]);
        if (keep) assert_true(gguf_writer_copy(w, kv, &e));
    }
    assert_true(gguf_writer_u32(w, "deepseek2.attention.head_count_kv", 4, &e));
    assert_true(gguf_writer_u32(w, "deepseek2.attention.key_length", 48, &e));
    assert_true(gguf_writer_u32(w, "deepseek2.attention.value_length", 24, &e));
    char fused_names[64][40];
    int fused = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < gguf_n_tensors(g); i++) {
            gguf_tensor t = *gguf_tensor_at(g, i);
            if (name_ends(t.name, "attn_v_b.weight")) continue;
            bool keys = name_ends(t.name, "attn_k_b.weight");
            const gguf_tensor *v = keys ? values_of(g, &t) : NULL;
            uint64_t bytes = keys ? (uint64_t)(t.ne[1] * t.ne[2] * (t.ne[0] + v->ne[1])) * 4 : t.n_bytes;
            if (pass == 1) {
                float *both = keys ? fuse(&t, v) : NULL;
                assert_true(gguf_writer_data(w, keys ? (const void *)both : t.data, bytes, &e));
                free(both);
                continue;
            }
            if (keys) {
                snprintf(fused_names[fused], sizeof fused_names[0], "%.*sattn_kv_b.weight", (int)(t.name.len - strlen("attn_k_b.weight")), t.name.data);
                t.name = (gguf_string){fused_names[fused], strlen(fused_names[fused])};
                fused++;
                int64_t rows = t.ne[2] * (t.ne[0] + v->ne[1]);
                t.n_dims = 2, t.ne[0] = t.ne[1], t.ne[1] = rows, t.ne[2] = 1;
                t.n_elements = (uint64_t)(t.ne[0] * rows);
            }
            if (!gguf_writer_tensor(w, &t, keys ? QUANT_F32 : t.type, bytes, &e)) fail_msg("%s", e.text);
        }
        if (pass == 0 && !gguf_writer_begin(w, path, &e)) fail_msg("%s", e.text);
    }
    if (!gguf_writer_commit(w, NULL, &e)) fail_msg("%s", e.text);
    gguf_writer_free(w);
}

static void older_latent_layout(void **state) {
    need_kit();
    fixture f = open_fixture(*state);
    char path[128];
    err e = {0};
    snprintf(path, sizeof path, "%s/older.gguf", temp_dir());
    write_older(f.file, path);
    gguf_close(f.file);
    f.file = gguf_open(path, &e);
    if (!f.file) fail_msg("%s", e.text);
    check_exact(&f);
    close_fixture(&f);
}

/* A pass that could rest more often computes the same, with few tokens and with many. */
static void small_steps(void **state) {
    need_kit();
    fixture f = open_fixture(*state);
    err e = {0};
    pool *p = pool_new(2, &e);
    for (const kernels *const *k = kernels_all(); *k; k++) {
        if (!(*k)->usable()) continue;
        model m = load(&f, (*k)->name);
        const size_t row = (size_t)m.params.n_vocab;
        sequence s = get_sequence(&f, json_array_size(json_object_get(f.json, "sequences")) - 1);
        for (int chunk = 1; chunk <= 64; chunk = chunk == 1 ? 5 : chunk == 5 ? 64 : 65) {
            const int n = s.n < 2 * chunk ? s.n : 2 * chunk;
            float *large = all_logits(&m, p, s.ids, n, chunk), *small = all_logits_by(&m, p, s.ids, n, chunk, true);
            if (memcmp(large, small, row * (size_t)n * sizeof *large) != 0) fail_msg("%s, %s: passes of %d tokens in small steps give other logits", f.name, (*k)->name, chunk);
            free(large), free(small);
        }
        model_free(&m);
    }
    pool_free(p);
    close_fixture(&f);
}

/* Three conversations of different lengths side by side give what each gives alone. */
static void several_at_once(void **state) {
    need_kit();
    fixture f = open_fixture(*state);
    model m = load(&f, "ref");
    err e = {0};
    pool *p = pool_new(2, &e);
    size_t row = (size_t)m.params.n_vocab;
    sequence s = get_sequence(&f, json_array_size(json_object_get(f.json, "sequences")) - 1);
    const int lengths[3] = {s.n < 40 ? s.n : 40, s.n < 3 ? s.n : 3, s.n < 17 ? s.n : 17};
    float *alone = all_logits(&m, p, s.ids, lengths[0], 512), *together = malloc(row * 3 * sizeof *together);
    model_run run = {.pool = p};
    kv_seq kv[3];
    for (int step = 0; step < lengths[0]; step++) {
        model_part parts[3];
        int n = 0, which[3];
        for (int i = 0; i < 3; i++) {
            if (step == 0) kv[i] = (kv_seq){.layout = &m.kv};
            if (step >= lengths[i]) continue;
            which[n] = i;
            parts[n++] = (model_part){.kv = &kv[i], .tokens = s.ids + step, .n = 1, .n_logits = 1};
        }
        if (!model_forward(&m, &run, parts, n, together, &e)) fail_msg("%s", e.text);
        for (int i = 0; i < n; i++)
            if (memcmp(together + row * (size_t)i, alone + row * (size_t)step, row * sizeof *alone) != 0)
                fail_msg("%s: conversation %d of %d at once gives other logits at token %d", f.name, which[i], n, step);
    }
    for (int i = 0; i < 3; i++) kv_seq_free(&kv[i]);
    model_run_free(&run);
    free(alone);
    free(together);
    pool_free(p);
    model_free(&m);
    close_fixture(&f);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean of divergences. Where many tokens are rounded to 8 bits of mantissa, two experts that are all but equally good may change places for a token, which is another
 * result and not a worse one: then the median. */
static double typical(const model *m, double *d, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += d[i];
    if (!m->params.n_experts || !kernels_matmul(m->kern, QUANT_F16)->many) return sum / (double)n;
    qsort(d, n, sizeof *d, by_size);
    return d[n / 2];
}

static void fast_paths(void **state) {
    need_kit();
    fixture f = open_fixture(*state);
    err e = {0};
    pool *p = pool_new(2, &e);
    for (const kernels *const *k = kernels_all(); *k; k++) {
        if (!(*k)->usable() || strcmp((*k)->name, "ref") == 0) continue;
        model m = load(&f, (*k)->name);
        size_t row = (size_t)m.params.n_vocab;
        double off[1000];
        size_t count = 0;
        for (size_t i = 0; i < json_array_size(json_object_get(f.json, "sequences")); i++) {
            sequence s = get_sequence(&f, i);
            float *got = all_logits(&m, p, s.ids, s.n, 512);
            for (size_t j = 0; j < json_array_size(s.positions); j++, count++) {
                size_t at = (size_t)json_integer_value(json_array_get(s.positions, j));
                assert_true(count < sizeof off / sizeof *off);
                off[count] = divergence((const float *)(void *)f.reference.data + (s.offset_rows + j) * row, got + at * row, row);
            }
            free(got);
        }
        const double all = typical(&m, off, count);
        if (!(all < 1e-3)) fail_msg("%s with %s: divergence %g", f.name, (*k)->name, all);
        model_free(&m);
    }
    pool_free(p);
    close_fixture(&f);
}

/* The divergence of logits from the reference over the sequence's listed positions. */
static double typical_divergence(const model *m, const fixture *f, const sequence *s, const float *logits) {
    double off[1000];
    const size_t n = json_array_size(s->positions), row = (size_t)m->params.n_vocab;
    assert_true(n <= sizeof off / sizeof *off);
    for (size_t j = 0; j < n; j++) {
        size_t at = (size_t)json_integer_value(json_array_get(s->positions, j));
        off[j] = divergence((const float *)(void *)f->reference.data + (s->offset_rows + j) * row, logits + at * row, row);
    }
    return typical(m, off, n);
}

/* With keys and values in few bits: the same logits however a text is cut (the tile unit, which computes many queries in another way, apart), and near the reference. */
static void few_bits(void **state) {
    need_kit();
    fixture f = open_fixture(*state);
    err e = {0};
    pool *p = pool_new(1, &e);
    static const struct { int type; double limit; } types[] = {{QUANT_Q8_0, 5e-4}, {QUANT_Q4_0, 0.1}};
    sequence s = get_sequence(&f, json_array_size(json_object_get(f.json, "sequences")) - 1);
    for (const kernels *const *k = kernels_all(); *k; k++)
        for (int i = 0; (*k)->usable() && i < 2; i++) {
            model m = load_as(&f, (*k)->name, types[i].type);
            size_t row = (size_t)m.params.n_vocab;
            float *whole = all_logits(&m, p, s.ids, s.n, 512);
            double off = typical_divergence(&m, &f, &s, whole);
            if (!(off < types[i].limit)) fail_msg("%s with %s: divergence %g with %s", f.name, (*k)->name, off, kv_type_name(types[i].type));
            const int n = s.n < 80 ? s.n : 80; /* more than one block */
            for (int chunk = 1; !(*k)->attention_many && chunk <= 7; chunk += 6) {
                float *other = all_logits(&m, p, s.ids, n, chunk);
                if (memcmp(whole, other, row * (size_t)n * sizeof *whole) != 0)
                    fail_msg("%s with %s: %d tokens in chunks of %d give other logits with %s", f.name, (*k)->name, n, chunk, kv_type_name(types[i].type));
                free(other);
            }
            free(whole);
            model_free(&m);
        }
    pool_free(p);
    close_fixture(&f);
}

int main(void) {
    enum { KINDS = 5 };
    static const struct { const char *title; CMUnitTestFunction run; } kinds[KINDS] = {{"exact", exact_path}, {"several at once", several_at_once}, {"small steps", small_steps}, {"fast", fast_paths}, {"few bits", few_bits}};
    struct CMUnitTest tests[KINDS * N_NAMES + 2] = {
        {"deepseek2-lite: older layout", older_latent_layout, NULL, NULL, "deepseek2-lite"},
        {"deepseek3: older layout", older_latent_layout, NULL, NULL, "deepseek3"},
    };
    static char titles[KINDS * N_NAMES][48];
    for (int i = 0; i < KINDS * N_NAMES; i++) {
        snprintf(titles[i], sizeof titles[0], "%s: %s", names[i / KINDS], kinds[i % KINDS].title);
        tests[i + 2] = (struct CMUnitTest){titles[i], kinds[i % KINDS].run, NULL, NULL, (void *)names[i / KINDS]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
