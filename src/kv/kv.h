/* kv.h: keys and values of one conversation, in fixed runs of tokens (blocks) that hold every layer. */
#ifndef KV_KV_H
#define KV_KV_H

#include "base/mem.h"

enum { KV_BLOCK = 64 }; /* tokens per block */

/* Where a layer's keys and values lie in a block: [head][token][dimension]. */
typedef struct kv_layer {
    int n_heads, k_dim, v_dim;
    size_t k_offset, v_offset;   /* of the first head, in bytes */
    size_t k_stride, v_stride;   /* between tokens */
    size_t k_head, v_head;       /* between heads */
} kv_layer;

typedef struct kv_layout {
    int type; /* QUANT_F32 or QUANT_F16 */
    int n_layers;
    kv_layer *layers;
    size_t block_bytes;
} kv_layout;

/* shared_values: the values are the first v_dim dimensions of the keys (latent attention) and take no room. */
bool kv_layout_init(kv_layout *l, int n_layers, int type, err *e);
bool kv_layout_set(kv_layout *l, int layer, int n_heads, int k_dim, int v_dim, bool shared_values, err *e);
void kv_layout_free(kv_layout *l);
size_t kv_bytes_per_token(const kv_layout *l);

typedef struct kv_seq {
    const kv_layout *layout;
    uint8_t **blocks;
    size_t n_blocks, cap;
    size_t length; /* tokens */
} kv_seq;

/* Makes room for n more tokens. The sequence is unchanged on failure. */
bool kv_seq_reserve(kv_seq *s, size_t n, err *e);
/* Forgets every token from length on. */
void kv_seq_truncate(kv_seq *s, size_t length);
void kv_seq_free(kv_seq *s);

static inline uint8_t *kv_key(const kv_seq *s, int layer, int head, size_t position) {
    const kv_layer *l = &s->layout->layers[layer];
    return s->blocks[position / KV_BLOCK] + l->k_offset + (size_t)head * l->k_head + position % KV_BLOCK * l->k_stride;
}
static inline uint8_t *kv_value(const kv_seq *s, int layer, int head, size_t position) {
    const kv_layer *l = &s->layout->layers[layer];
    return s->blocks[position / KV_BLOCK] + l->v_offset + (size_t)head * l->v_head + position % KV_BLOCK * l->v_stride;
}

#endif
