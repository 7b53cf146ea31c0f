/* quantize.h: writes a model again in other number formats. */
#ifndef GGUF_QUANTIZE_H
#define GGUF_QUANTIZE_H

#include "gguf/gguf.h"

/* A mix says which format each tensor gets: most get `type`, those that matter more get more bits. */
typedef struct gguf_mix {
    const char *name; /* "Q4_K_M" */
    int file_type;    /* its number in general.file_type */
    int type;
} gguf_mix;

const gguf_mix *gguf_mix_find(const char *name, err *e); /* any case; NULL with a message that lists all */
const gguf_mix *gguf_mix_at(size_t i);                   /* NULL after the last */

/* What the choice depends on besides the tensor. */
typedef struct gguf_mix_facts {
    int64_t layers;
    uint64_t experts;
    uint64_t heads_per_kv; /* query heads that share a head of keys and values; 1 when unknown */
    bool tied;             /* the token embeddings serve as the output matrix too */
} gguf_mix_facts;

gguf_mix_facts gguf_mix_facts_of(const gguf *g);
/* The type that the tensor gets; its own when it is to be kept. *squeezed: its rows do not fit the one that the mix wanted. */
int gguf_mix_type(const gguf_mix *mix, const gguf_mix_facts *facts, const gguf_tensor *t, bool *squeezed);

typedef struct gguf_quantize_options {
    const gguf_mix *mix;
    int threads; /* 0: one per core */
    void (*progress)(void *context, const char *what, uint64_t done, uint64_t total);
    void *progress_context;
    const volatile int *cancel; /* may be NULL; not 0: stop soon with HEARTH_CANCELLED */
} gguf_quantize_options;

typedef struct gguf_quantize_report {
    uint64_t elements;
    uint64_t tensor_bytes_in, tensor_bytes_out;
    uint64_t file_bytes_in, file_bytes_out;
    size_t converted, kept;
    size_t fallbacks;   /* tensors whose rows do not fit the format that the mix wanted */
    size_t requantized; /* tensors that had been quantized before */
} gguf_quantize_report;

/* Writes out, whole or not at all; a split model becomes one file. Refuses to write over the model itself, and values that the
 * new format cannot hold. */
bool gguf_quantize(const gguf *in, const char *out, const gguf_quantize_options *options, gguf_quantize_report *report, err *e);

#endif
