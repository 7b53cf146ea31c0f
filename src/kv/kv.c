/* kv.c: where things lie in a block. */
#include "kv/kv.h"

#include "quant/quant.h"

static const int types[] = {QUANT_F16, QUANT_Q8_0, QUANT_Q4_0, QUANT_F32}; /* the last one is for the exact kernels, not for users */
enum { N_TYPES = sizeof types / sizeof *types };

const char *kv_type_name(int type) {
    static const char *const names[N_TYPES] = {"f16", "q8_0", "q4_0", "f32"};
    for (int i = 0; i < N_TYPES; i++)
        if (types[i] == type) return names[i];
    return "";
}

static bool parse_type(const char *text, size_t len, int *type) {
    for (int i = 0; i < N_TYPES - 1; i++) {
        const char *name = kv_type_name(types[i]);
        if (strlen(name) != len || memcmp(name, text, len) != 0) continue;
        *type = types[i];
        return true;
    }
    return false;
}

bool kv_types_parse(const char *text, int *k_type, int *v_type, err *e) {
    const char *comma = strchr(text, ',');
    size_t len = comma ? (size_t)(comma - text) : strlen(text);
    const char *second = comma ? comma + 1 : text;
    if (parse_type(text, len, k_type) && parse_type(second, strlen(second), v_type)) return true;
    char quoted[48];
    return err_set(e, HEARTH_ARGUMENT, "keys and values can be f16, q8_0 or q4_0, or two of these with a comma between, not '%s'",
                   err_quote(quoted, sizeof quoted, text, strlen(text)));
}

size_t kv_row_bytes(int type, int n) {
    const quant_info *q = quant_find(type);
    return (size_t)((n + q->block - 1) / q->block) * (size_t)q->bytes;
}

bool kv_layout_init(kv_layout *l, int n_layers, int k_type, int v_type, err *e) {
    *l = (kv_layout){.k_type = k_type, .v_type = v_type, .n_layers = n_layers};
    l->layers = mem_zalloc((size_t)n_layers, sizeof *l->layers, e);
    l->order = mem_zalloc((size_t)n_layers, sizeof *l->order, e);
    if (l->layers && l->order) return true;
    kv_layout_free(l);
    return false;
}

bool kv_layout_set(kv_layout *l, int layer, int n_heads, int k_dim, int v_dim, bool shared_values, err *e) {
    _Static_assert(KV_BLOCK % 64 == 0, "heads start on cache lines");
    if (shared_values && l->k_type != l->v_type)
        return err_set(e, HEARTH_ARGUMENT, "the values of this model are part of its keys: they cannot be %s with keys in %s", kv_type_name(l->v_type), kv_type_name(l->k_type));
    kv_layer *a = &l->layers[layer];
    *a = (kv_layer){.n_heads = n_heads, .k_dim = k_dim, .v_dim = v_dim, .shared_values = shared_values};
    a->k_stride = kv_row_bytes(l->k_type, k_dim);
    a->v_stride = shared_values ? a->k_stride : kv_row_bytes(l->v_type, v_dim);
    a->k_head = a->k_stride * KV_BLOCK;
    a->v_head = a->v_stride * KV_BLOCK;
    a->k_offset = l->block_bytes - l->window_bytes;
    a->v_offset = shared_values ? a->k_offset : a->k_offset + a->k_head * (size_t)n_heads;
    l->block_bytes = l->window_bytes + a->v_offset + (shared_values ? a->k_head : a->v_head) * (size_t)n_heads;
    if (l->block_bytes > (size_t)1 << 40) return err_set(e, HEARTH_LIMIT, "the keys and values of %d tokens would take more than a terabyte", KV_BLOCK);
    l->order[l->n_set++] = layer;
    return true;
}

void kv_layout_window(kv_layout *l, int window) {
    l->window = window;
    l->window_bytes = l->block_bytes;
    for (int i = 0; i < l->n_set; i++) l->layers[l->order[i]].windowed = true;
}

void kv_layout_free(kv_layout *l) {
    mem_free(l->layers);
    mem_free(l->order);
    *l = (kv_layout){0};
}

size_t kv_bytes_per_token(const kv_layout *l) { return l->block_bytes / KV_BLOCK; }

bool kv_layout_describe(const kv_layout *l, buf *out, err *e) {
    bool same = l->k_type == l->v_type;
    bool ok = buf_addf(out, e, "%s%s%s block %d", kv_type_name(l->k_type), same ? "" : ",", same ? "" : kv_type_name(l->v_type), KV_BLOCK);
    for (int i = 0; ok && i < l->n_layers; i++) {
        const kv_layer *a = &l->layers[i];
        ok = buf_addf(out, e, " %dx%d%s%d%s", a->n_heads, a->k_dim, a->shared_values ? "=" : "+", a->v_dim, a->windowed ? "w" : "");
    }
    return ok;
}

size_t kv_packed_bytes(const kv_layout *l, int n) { return l->block_bytes / KV_BLOCK * (size_t)n; }

/* Copies every run of rows: one for each head of the keys and of the values. */
static void walk(const kv_seq *s, size_t block, int n, uint8_t *packed, bool to_block) {
    const kv_layout *l = s->layout;
    for (int i = 0; i < l->n_layers; i++) {
        const kv_layer *a = &l->layers[l->order[i]];
        for (int part = 0; part < (a->shared_values ? 1 : 2); part++) {
            size_t rows = (size_t)n * (part ? a->v_stride : a->k_stride), head = part ? a->v_head : a->k_head;
            uint8_t *at = kv_part(s, a, block) + (part ? a->v_offset : a->k_offset);
            for (int h = 0; h < a->n_heads; h++, at += head, packed += rows) memcpy(to_block ? at : packed, to_block ? packed : at, rows);
        }
    }
}

void kv_pack(const kv_seq *s, size_t i, int n, uint8_t *out) { walk(s, i, n, out, false); }
void kv_unpack(const kv_seq *s, size_t i, int n, const uint8_t *packed) { walk(s, i, n, (uint8_t *)packed, true); }
