/* inspect.h: what `hearth inspect` gathers from a file, shared by its two ways of printing. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include <jansson.h>

#include "gguf/gguf.h"
#include "quant/quant.h"

/* Tensors of one type. */
typedef struct inspect_type {
    size_t tensors;
    uint64_t elements, bytes;
} inspect_type;

/* Numbers are 0 and strings empty (data NULL) when the file does not say. */
typedef struct inspect_facts {
    gguf_string arch, name;
    uint64_t parameters, active_parameters, tensor_bytes;
    inspect_type types[QUANT_TYPE_END];

    uint64_t context, layers, width, feed_forward, vocabulary;
    uint64_t heads, kv_heads_least, kv_heads_most; /* these may differ by layer */
    uint64_t key_length, value_length, latent;     /* latent: kv_lora_rank of MLA */
    uint64_t experts, experts_used, experts_shared;
    uint64_t rope_dims, window;
    double rope_base, rope_factor;
    gguf_string rope_scaling;
    uint64_t rope_original;
    uint64_t kv_bytes; /* of one token in f16, all layers; 0: not known */

    gguf_string tokenizer, pre;
    uint64_t tokens;
    int64_t bos, eos; /* -1: none */
    gguf_string template;
} inspect_facts;

/* Entries of a wrong type are said on stderr and taken as missing. */
void inspect_gather(inspect_facts *f, const gguf *g);
/* Text of token id, empty when there is none. */
gguf_string inspect_token(const gguf *g, int64_t id);
const char *inspect_type_name(int type);
double inspect_bits(uint64_t bytes, uint64_t elements);

/* All there is as one JSON object on stdout. */
bool inspect_print_json(const gguf *g, const inspect_facts *f, err *e);

#endif
