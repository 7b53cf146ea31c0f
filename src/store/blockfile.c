#include "store/blockfile.h"

#include <stdio.h>

#include "quant/quant.h"

/* Rows of floats have their numbers as items, quantized ones are bytes. */
static bool add_rows(tensor_header *h, const char *name, int type, int n_heads, int n, int dim, err *e) {
    const bool bytes = type != QUANT_F32 && type != QUANT_F16;
    const int64_t shape[] = {n_heads, n, bytes ? (int64_t)kv_row_bytes(type, dim) : dim};
    return tensor_add(h, name, bytes ? "U8" : type == QUANT_F32 ? "F32" : "F16", 3, shape, bytes ? 1 : type == QUANT_F32 ? 4 : 2, e);
}

static bool add_layer(tensor_header *h, const kv_layout *l, int layer, int n, err *e) {
    const kv_layer *a = &l->layers[layer];
    char name[48];
    snprintf(name, sizeof name, "layers.%d.k", layer);
    bool ok = add_rows(h, name, l->k_type, a->n_heads, n, a->k_dim, e);
    snprintf(name, sizeof name, "layers.%d.v", layer);
    return ok && (a->shared_values || add_rows(h, name, l->v_type, a->n_heads, n, a->v_dim, e));
}

bool blockfile_tensors(tensor_header *h, const kv_layout *l, int n, err *e) {
    bool ok = true;
    for (int i = 0; ok && i < l->n_layers; i++) ok = add_layer(h, l, l->order[i], n, e);
    return ok;
}

enum { VERSION_DIGIT = '2' };

/* reach: 0 for a block; for its window part how many blocks far it is needed. */
static bool make_meta(tensor_header *h, const char *model, const shelf_key *key, const kv_name *parent, unsigned reach, size_t n_tensors, err *e) {
    char name[65], above[65], index[16], far[16];
    kv_name_text(&key->name, name);
    kv_name_text(parent, above);
    snprintf(index, sizeof index, "%u", key->index);
    snprintf(far, sizeof far, "%u", reach);
    return tensor_meta(h, "format", reach ? "hearth-window" : "hearth-kv", e) && tensor_meta(h, "version", (char[]){VERSION_DIGIT, 0}, e) &&
           tensor_meta(h, "name", name, e) && tensor_meta(h, "parent", above, e) && tensor_meta(h, "index", index, e) && tensor_meta(h, "model", model, e) &&
           (!reach || tensor_meta(h, "reach", far, e)) && tensor_sums(h, n_tensors, e);
}

static size_t tensors_of(const kv_layer *a) { return a->shared_values ? 1 : 2; }

blockfile_layer blockfile_first(const kv_layout *l, bool window) {
    blockfile_layer at = {.place = -1};
    blockfile_next(l, window, &at);
    return at;
}

bool blockfile_next(const kv_layout *l, bool window, blockfile_layer *at) {
    if (at->place >= 0) at->tensor += tensors_of(&l->layers[at->layer]);
    do at->place++;
    while (at->place < l->n_layers && l->layers[l->order[at->place]].windowed != window);
    if (at->place == l->n_layers) return false;
    at->layer = l->order[at->place];
    const kv_layer *a = &l->layers[at->layer];
    at->start = a->k_offset;
    at->k_bytes = a->k_head * (size_t)a->n_heads;
    at->v_bytes = a->shared_values ? 0 : a->v_head * (size_t)a->n_heads;
    return true;
}

bool blockfile_header(tensor_header *h, const kv_layout *l, const char *model, const shelf_key *key, const kv_name *parent, bool window, err *e) {
    size_t n = window ? 0 : 1;
    for (int i = 0; i < l->n_layers; i++) n += l->layers[i].windowed == window ? tensors_of(&l->layers[i]) : 0;
    bool ok = make_meta(h, model, key, parent, window ? (unsigned)kv_window_reach(l) : 0, n, e);
    for (int i = 0; ok && i < l->n_layers; i++)
        if (l->layers[l->order[i]].windowed == window) ok = add_layer(h, l, l->order[i], KV_BLOCK, e);
    return ok && (window || tensor_add(h, "tokens", "I32", 1, (int64_t[]){KV_BLOCK}, 4, e)) && tensor_end(h, e);
}

bool blockfile_write(const char *path, tensor_header *h, const kv_layout *l, const kv_block *b, bool window, err *e) {
    const uint8_t *data = window ? b->window : b->data;
    blockfile_layer at = blockfile_first(l, window);
    for (; at.place < l->n_layers; blockfile_next(l, window, &at)) {
        tensor_set_sum(h, at.tensor, data + at.start, at.k_bytes);
        if (at.v_bytes) tensor_set_sum(h, at.tensor + 1, data + at.start + at.k_bytes, at.v_bytes);
    }
    if (!window) tensor_set_sum(h, at.tensor, kv_block_tokens(l, b), KV_BLOCK * sizeof(int32_t));
    return tensor_write(path, h, data, e);
}

/* Whether a header is the one that is expected, but for the digits of checksums. */
static bool same_header(const file_map *m, size_t header_end, const tensor_header *x, size_t n_sums) {
    const size_t first = TENSOR_SUM_AT + TENSOR_SUM_DIGITS, after = x->sums_at + n_sums * TENSOR_SUM_DIGITS;
    return header_end == x->text.len && memcmp(m->data, x->text.data, TENSOR_SUM_AT) == 0 && memcmp(m->data + first, x->text.data + first, x->sums_at - first) == 0 &&
           memcmp(m->data + after, x->text.data + after, header_end - after) == 0;
}

bool blockfile_is(const file_map *m, const tensor_header *expected, const kv_layout *l, bool window, err *e) {
    size_t header_end = 0;
    const size_t n = KV_BLOCK * sizeof(int32_t);
    blockfile_layer end = blockfile_first(l, window);
    while (blockfile_next(l, window, &end)) {}
    if (!tensor_check_start(m, &header_end, e)) return false;
    if (!same_header(m, header_end, expected, end.tensor + !window) || m->size != header_end + expected->offset)
        return err_set(e, HEARTH_FORMAT, "its header is damaged, or of another version or layout than its name says");
    if (!tensor_check_header(m, &header_end, e)) return false;
    if (!window && !tensor_is_sum((const char *)m->data + expected->sums_at + end.tensor * TENSOR_SUM_DIGITS, m->data + m->size - n, n))
        return err_set(e, HEARTH_FORMAT, "the checksum of its tokens is wrong");
    return true;
}

bool blockfile_check_layer(const uint8_t *data, const char *sums, const blockfile_layer *at, err *e) {
    const char *sum = sums + at->tensor * TENSOR_SUM_DIGITS;
    if (tensor_is_sum(sum, data + at->start, at->k_bytes) &&
        (!at->v_bytes || tensor_is_sum(sum + TENSOR_SUM_DIGITS, data + at->start + at->k_bytes, at->v_bytes)))
        return true;
    return err_set(e, HEARTH_FORMAT, "the checksum of layer %d is wrong", at->layer);
}

bool blockfile_check(const file_map *m, const shelf_key *key, const kv_name *parent, const char *model, const int32_t *tokens, unsigned reach, err *e) {
    size_t header_end = 0;
    if (!tensor_check_header(m, &header_end, e)) return false;
    json_t *root = tensor_parse(m->data, header_end, m->size - header_end, e);
    if (!root) return false;
    /* Written again it must be the same header to the byte, with what is expected in it. */
    tensor_header h = {0};
    const size_t n_tensors = json_object_size(root) - 1, n = KV_BLOCK * sizeof *tokens;
    bool ok = make_meta(&h, model, key, parent, tokens ? 0 : reach, n_tensors, e) && tensor_add_all(&h, root, e) && tensor_end(&h, e);
    ok = ok && tensor_check_sums(m, header_end, root, e);
    if (ok && !same_header(m, header_end, &h, n_tensors)) ok = err_set(e, HEARTH_FORMAT, "it is another block than it should be");
    const json_t *t = json_object_get(root, "tokens"), *offsets = json_object_get(t, "data_offsets");
    if (ok && tokens && (!t || json_integer_value(json_array_get(offsets, 1)) != (json_int_t)h.offset || h.offset < n || memcmp(m->data + m->size - n, tokens, n) != 0))
        ok = err_set(e, HEARTH_FORMAT, "its tokens are not those of its name");
    buf_free(&h.text);
    json_decref(root);
    return ok;
}

bool blockfile_verify(const char *path, const shelf_key *key, bool window, err *e) {
    file_map m;
    size_t header_end = 0;
    char name[65], start[160];
    kv_name_text(&key->name, name);
    int n = snprintf(start, sizeof start, "\",\"format\":\"%s\",\"version\":\"%c\",\"name\":\"%s\",", window ? "hearth-window" : "hearth-kv", VERSION_DIGIT, name);
    if (!file_map_open(&m, path, e)) return false;
    bool ok = tensor_check_start(&m, &header_end, e);
    if (ok && (header_end < TENSOR_SUM_AT + TENSOR_SUM_DIGITS + (size_t)n || memcmp(m.data + TENSOR_SUM_AT + TENSOR_SUM_DIGITS, start, (size_t)n) != 0))
        ok = err_set(e, HEARTH_FORMAT, "it is of another version or block than its name says");
    ok = ok && tensor_check_header(&m, &header_end, e);
    json_t *root = ok ? tensor_parse(m.data, header_end, m.size - header_end, e) : NULL;
    ok = root && tensor_check_sums(&m, header_end, root, e);
    json_decref(root);
    file_map_close(&m);
    return ok;
}
