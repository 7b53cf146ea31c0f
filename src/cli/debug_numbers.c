/* debug_numbers.c: `hearth debug decode` and `hearth debug encode`: files of packed blocks to files of float32 and back. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "quant/quant.h"

enum { CHUNK = 1 << 16 }; /* elements at a time: a multiple of every block */

typedef struct job {
    const quant_info *type;
    const char *in, *out;
    bool encode;
} job;

static bool add_decoded(const job *j, file_writer *w, const unsigned char *data, int64_t n, float *floats, err *e) {
    j->type->decode(floats, data, n);
    return file_writer_add(w, floats, (size_t)n * 4, e);
}

static bool add_encoded(const job *j, file_writer *w, const unsigned char *data, int64_t first, int64_t n, float *floats, void *packed,
                        err *e) {
    memcpy(floats, data, (size_t)n * 4);
    for (int64_t i = 0; j->type->block > 1 && i < n; i++)
        if (!isfinite(floats[i]))
            return err_set(e, HEARTH_ARGUMENT, "%s: element %lld is not a finite number, and %s has no place for it", j->in,
                           (long long)(first + i), j->type->name);
    j->type->encode(packed, floats, n);
    return file_writer_add(w, packed, quant_bytes(j->type, (uint64_t)n), e);
}

static bool convert(const job *j, const file_map *m, file_writer *w, err *e) {
    const uint64_t bytes = (uint64_t)j->type->bytes, block = (uint64_t)j->type->block, unit = j->encode ? block * 4 : bytes;
    if (m->size % unit != 0)
        return err_set(e, HEARTH_ARGUMENT, "%s: %zu bytes are no whole number of %s blocks, which need %llu bytes each%s", j->in, m->size,
                       j->type->name, (unsigned long long)unit, j->encode ? " (4 for every element)" : "");
    const int64_t total = (int64_t)(m->size / unit * block);
    float *floats = mem_alloc(CHUNK, sizeof *floats, e);
    void *packed = mem_alloc(quant_bytes(j->type, CHUNK), 1, e);
    bool ok = floats && packed;
    for (int64_t done = 0; ok && done < total; done += CHUNK) {
        const int64_t n = total - done < CHUNK ? total - done : CHUNK;
        const unsigned char *data = m->data + (size_t)((uint64_t)done / block * unit);
        ok = j->encode ? add_encoded(j, w, data, done, n, floats, packed, e) : add_decoded(j, w, data, n, floats, e);
    }
    mem_free(packed);
    mem_free(floats);
    return ok;
}

static bool run(const job *j, err *e) {
    file_map m;
    file_writer w;
    if (!file_map_open(&m, j->in, e)) return false;
    bool ok = file_writer_open(&w, j->out, e);
    if (ok && !convert(j, &m, &w, e)) {
        file_writer_abort(&w);
        ok = false;
    }
    ok = ok && file_writer_commit(&w, e);
    file_map_close(&m);
    return ok;
}

static int refuse_type(const char *name, bool encode) {
    char list[512] = "", shown[64];
    for (int type = 0; type < QUANT_TYPE_END; type++) {
        const quant_info *q = quant_find(type);
        const size_t used = strlen(list);
        if (q && (encode ? q->encode != NULL : q->decode != NULL))
            snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", q->name);
    }
    const quant_info *known = quant_find_name(name);
    const char *verb = encode ? "encode" : "decode";
    if (known) return cli_failf("hearth cannot %s %s; it can %s %s", verb, known->name, verb, list);
    return cli_failf("unknown type '%s': hearth can %s %s", err_quote(shown, sizeof shown, name, strlen(name)), verb, list);
}

static int debug_convert(int argc, char **argv, const cli_spec *spec, bool encode) {
    const char *args[3];
    int status;
    if (cli_parse(spec, argc, argv, args, &status) < 0) return status;
    const job j = {.type = quant_find_name(args[0]), .in = args[1], .out = args[2], .encode = encode};
    if (!j.type || (encode ? !j.type->encode : !j.type->decode)) return refuse_type(args[0], encode);
    err e = {0};
    return run(&j, &e) ? 0 : cli_fail(&e);
}

int debug_decode(int argc, char **argv) {
    static const cli_spec spec = {
        .usage = "hearth debug decode TYPE IN.bin OUT.f32",
        .about = "Decodes a file of packed blocks of a GGUF tensor type (Q4_K, IQ2_XS, MXFP4, ...) to little-endian float32.",
        .min_args = 3,
        .max_args = 3,
    };
    return debug_convert(argc, argv, &spec, false);
}

int debug_encode(int argc, char **argv) {
    static const cli_spec spec = {
        .usage = "hearth debug encode TYPE IN.f32 OUT.bin",
        .about = "Encodes a file of little-endian float32 as packed blocks of a GGUF tensor type (Q4_K, Q8_0, BF16, ...).",
        .min_args = 3,
        .max_args = 3,
    };
    return debug_convert(argc, argv, &spec, true);
}
