/* quantize.c: decodes and encodes a model tensor by tensor. A tensor passes through in slabs, so memory stays bounded whatever its
 * size; a slab is cut into chunks that the threads share, and the chunks land in one buffer in file order. */
#include "gguf/quantize.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/pool.h"
#include "gguf/write.h"
#include "quant/quant.h"

enum {
    CHUNK = 32768,      /* elements a thread converts at once; a multiple of every block */
    SLAB = CHUNK * 128, /* elements between two writes */
};

typedef struct job {
    const gguf *in;
    const gguf_quantize_options *options;
    gguf_quantize_report *report;
    pool *pool;
    gguf_writer *writer;
    int *types;     /* of each tensor in the new file */
    float *scratch; /* CHUNK of every thread */
    uint8_t *slab;
    uint64_t done;
} job;

/* What the threads need of one slab. */
typedef struct slab_work {
    const quant_info *from, *to;
    const uint8_t *src;
    uint8_t *dst;
    uint64_t n;
    float limit;
    float *scratch;
    atomic_bool bad;
    _Atomic float bad_value;
} slab_work;

/* The largest magnitude that a type holds. Most formats scale their blocks by half floats; a weight beyond their range is no weight. */
static float type_limit(int type) {
    if (type == QUANT_F32 || type == QUANT_MXFP4) return FLT_MAX;
    if (type == QUANT_BF16) return 0x1.FEp127f;
    return 65504.0f;
}

static void convert_chunk(void *context, int64_t i, int thread) {
    slab_work *w = context;
    uint64_t first = (uint64_t)i * CHUNK, n = w->n - first < CHUNK ? w->n - first : CHUNK;
    float *values = w->scratch + (size_t)thread * CHUNK;
    w->from->decode(values, w->src + quant_bytes(w->from, first), (int64_t)n);
    for (uint64_t k = 0; k < n; k++) {
        if (fabsf(values[k]) <= w->limit) continue; /* a NaN is not */
        atomic_store(&w->bad_value, values[k]);
        atomic_store(&w->bad, true);
        return;
    }
    w->to->encode(w->dst + quant_bytes(w->to, first), values, (int64_t)n);
}

static bool cannot_hold(const gguf_tensor *t, const quant_info *to, float value, err *e) {
    char name[140];
    err_quote(name, sizeof name, t->name.data, t->name.len);
    if (!isfinite(value)) return err_set(e, HEARTH_FORMAT, "the tensor '%s' holds a value that is no finite number; the model is damaged", name);
    return err_set(e, HEARTH_FORMAT, "the tensor '%s' holds %g, too large for %s; choose BF16 or F32", name, (double)value, to->name);
}

static bool advance(job *j, uint64_t bytes, err *e) {
    j->done += bytes;
    const gguf_quantize_options *o = j->options;
    if (o->progress) o->progress(o->progress_context, "quantizing", j->done, j->report->tensor_bytes_in);
    if (o->cancel && *o->cancel) return err_set(e, HEARTH_CANCELLED, "stopped; nothing was written");
    return true;
}

static bool convert_tensor(job *j, const gguf_tensor *t, int type, err *e) {
    const quant_info *from = quant_find(t->type), *to = quant_find(type);
    for (uint64_t at = 0; at < t->n_elements; at += SLAB) {
        slab_work w = {.from = from, .to = to, .dst = j->slab, .scratch = j->scratch, .limit = type_limit(type)};
        w.n = t->n_elements - at < SLAB ? t->n_elements - at : SLAB;
        w.src = t->data + quant_bytes(from, at);
        pool_run(j->pool, (int64_t)((w.n + CHUNK - 1) / CHUNK), convert_chunk, &w);
        if (atomic_load(&w.bad)) return cannot_hold(t, to, atomic_load(&w.bad_value), e);
        if (!gguf_writer_data(j->writer, j->slab, (size_t)quant_bytes(to, w.n), e) || !advance(j, quant_bytes(from, w.n), e)) return false;
    }
    return true;
}

static bool copy_tensor(job *j, const gguf_tensor *t, err *e) {
    for (uint64_t at = 0; at < t->n_bytes; at += SLAB) {
        size_t n = t->n_bytes - at < SLAB ? (size_t)(t->n_bytes - at) : SLAB;
        if (!gguf_writer_data(j->writer, t->data + at, n, e) || !advance(j, n, e)) return false;
    }
    return true;
}

/* ---- what the new file will be ---- */

static bool is_float_type(int type) { return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16 || type == QUANT_F64; }

static bool plan_tensors(job *j, err *e) {
    const gguf_mix *mix = j->options->mix;
    gguf_mix_facts facts = gguf_mix_facts_of(j->in);
    gguf_quantize_report *r = j->report;
    for (size_t i = 0; i < gguf_n_tensors(j->in); i++) {
        const gguf_tensor *t = gguf_tensor_at(j->in, i);
        bool squeezed = false;
        int type = j->types[i] = gguf_mix_type(mix, &facts, t, &squeezed);
        const quant_info *q = quant_find(type);
        char name[140];
        if (type != t->type && (!q || !q->encode))
            return err_set(e, HEARTH_UNSUPPORTED, "the tensor '%s' should become %s, which hearth cannot write",
                           err_quote(name, sizeof name, t->name.data, t->name.len), q ? q->name : "an unknown type");
        uint64_t bytes = type == t->type ? t->n_bytes : quant_bytes(q, t->n_elements);
        r->elements += t->n_elements;
        r->tensor_bytes_in += t->n_bytes;
        r->tensor_bytes_out += bytes;
        r->fallbacks += squeezed;
        if (type == t->type) {
            r->kept++;
        } else {
            r->converted++;
            r->requantized += !is_float_type(t->type);
        }
        if (!gguf_writer_tensor(j->writer, t, type, bytes, e)) return false;
    }
    return true;
}

static bool key_is(const gguf_kv *kv, const char *key) { return kv->key.len == strlen(key) && memcmp(kv->key.data, key, kv->key.len) == 0; }

static bool plan_metadata(job *j, err *e) {
    static const char *const dropped[] = {"general.file_type", "general.quantization_version", "split.no", "split.count", "split.tensors.count"};
    for (size_t i = 0; i < gguf_n_kv(j->in); i++) {
        const gguf_kv *kv = gguf_kv_at(j->in, i);
        bool drop = false;
        for (size_t k = 0; k < sizeof dropped / sizeof *dropped; k++) drop = drop || key_is(kv, dropped[k]);
        if (!drop && !gguf_writer_copy(j->writer, kv, e)) return false;
    }
    return gguf_writer_u32(j->writer, "general.file_type", (uint32_t)j->options->mix->file_type, e) &&
           gguf_writer_u32(j->writer, "general.quantization_version", 2, e);
}

/* Renaming over the source would be safe but lose it. */
static bool check_not_same(const gguf *in, const char *out, err *e) {
    struct stat a, b;
    if (stat(out, &b) != 0) return true;
    if (S_ISDIR(b.st_mode)) return err_set(e, HEARTH_ARGUMENT, "%s: this is a folder; give the name of a file", out);
    for (int i = 0; i < gguf_n_parts(in); i++)
        if (stat(gguf_part_path(in, i), &a) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return err_set(e, HEARTH_ARGUMENT, "%s: the output is the same file as the input; give another name", out);
    return true;
}

static bool write_all(job *j, const char *out, err *e) {
    if (!gguf_writer_begin(j->writer, out, e)) return false;
    for (size_t i = 0; i < gguf_n_tensors(j->in); i++) {
        const gguf_tensor *t = gguf_tensor_at(j->in, i);
        if (j->types[i] == t->type ? !copy_tensor(j, t, e) : !convert_tensor(j, t, j->types[i], e)) return false;
    }
    return gguf_writer_commit(j->writer, &j->report->file_bytes_out, e);
}

bool gguf_quantize(const gguf *in, const char *out, const gguf_quantize_options *options, gguf_quantize_report *report, err *e) {
    *report = (gguf_quantize_report){.file_bytes_in = gguf_file_bytes(in)};
    job j = {.in = in, .options = options, .report = report};
    bool ok = check_not_same(in, out, e) && (j.pool = pool_new(options->threads, e)) && (j.writer = gguf_writer_new(gguf_alignment(in), e)) &&
              (j.types = mem_alloc(gguf_n_tensors(in), sizeof *j.types, e)) &&
              (j.scratch = mem_aligned((size_t)pool_threads(j.pool) * CHUNK, sizeof *j.scratch, e)) &&
              (j.slab = mem_aligned(SLAB, sizeof(float), e)) && plan_metadata(&j, e) && plan_tensors(&j, e) && write_all(&j, out, e);
    gguf_writer_free(j.writer);
    mem_free(j.slab);
    mem_free(j.scratch);
    mem_free(j.types);
    if (j.pool) pool_free(j.pool);
    return ok;
}
