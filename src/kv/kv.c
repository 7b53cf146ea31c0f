#include "kv/kv.h"

#include "quant/quant.h"

bool kv_layout_init(kv_layout *l, int n_layers, int type, err *e) {
    *l = (kv_layout){.type = type, .n_layers = n_layers};
    l->layers = mem_zalloc((size_t)n_layers, sizeof *l->layers, e);
    return l->layers != NULL;
}

/* Heads start on cache lines. */
static size_t round_up(size_t n) { return (n + 63) & ~(size_t)63; }

bool kv_layout_set(kv_layout *l, int layer, int n_heads, int k_dim, int v_dim, bool shared_values, err *e) {
    size_t item = l->type == QUANT_F32 ? 4 : 2;
    kv_layer *a = &l->layers[layer];
    *a = (kv_layer){.n_heads = n_heads, .k_dim = k_dim, .v_dim = v_dim};
    a->k_stride = (size_t)k_dim * item;
    a->v_stride = shared_values ? a->k_stride : (size_t)v_dim * item;
    a->k_head = round_up(a->k_stride * KV_BLOCK);
    a->v_head = round_up(a->v_stride * KV_BLOCK);
    a->k_offset = l->block_bytes;
    a->v_offset = shared_values ? a->k_offset : a->k_offset + a->k_head * (size_t)n_heads;
    l->block_bytes = a->v_offset + (shared_values ? a->k_head : a->v_head) * (size_t)n_heads;
    if (l->block_bytes > (size_t)1 << 40) return err_set(e, HEARTH_LIMIT, "the keys and values of %d tokens would take more than a terabyte", KV_BLOCK);
    return true;
}

void kv_layout_free(kv_layout *l) {
    mem_free(l->layers);
    *l = (kv_layout){0};
}

size_t kv_bytes_per_token(const kv_layout *l) { return l->block_bytes / KV_BLOCK; }

bool kv_seq_reserve(kv_seq *s, size_t n, err *e) {
    size_t need = (s->length + n + KV_BLOCK - 1) / KV_BLOCK;
    if (need > s->cap) {
        size_t cap = need + need / 2 + 4;
        uint8_t **blocks = mem_realloc(s->blocks, cap, sizeof *blocks, e);
        if (!blocks) return false;
        s->blocks = blocks;
        s->cap = cap;
    }
    while (s->n_blocks < need) {
        uint8_t *b = mem_aligned(1, s->layout->block_bytes, e);
        if (!b) return false;
        s->blocks[s->n_blocks++] = b;
    }
    return true;
}

void kv_seq_truncate(kv_seq *s, size_t length) {
    if (length >= s->length) return;
    s->length = length;
    size_t need = (length + KV_BLOCK - 1) / KV_BLOCK;
    while (s->n_blocks > need) mem_free(s->blocks[--s->n_blocks]);
}

void kv_seq_free(kv_seq *s) {
    while (s->n_blocks > 0) mem_free(s->blocks[--s->n_blocks]);
    mem_free(s->blocks);
    *s = (kv_seq){.layout = s->layout};
}
