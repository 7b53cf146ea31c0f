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

/* reach: 0 for a block; for its window part how many blocks far it is needed. */
static bool make_meta(tensor_header *h, const char *model, const shelf_key *key, const kv_name *parent, unsigned reach, err *e) {
    char name[65], above[65], index[16], far[16];
    kv_name_text(&key->name, name);
    kv_name_text(parent, above);
    snprintf(index, sizeof index, "%u", key->index);
    snprintf(far, sizeof far, "%u", reach);
    return tensor_meta(h, "format", reach ? "hearth-window" : "hearth-kv", e) && tensor_meta(h, "version", "1", e) && tensor_meta(h, "name", name, e) &&
           tensor_meta(h, "parent", above, e) && tensor_meta(h, "index", index, e) && tensor_meta(h, "model", model, e) &&
           (!reach || tensor_meta(h, "reach", far, e));
}

bool blockfile_header(tensor_header *h, const kv_layout *l, const char *model, const shelf_key *key, const kv_name *parent, bool window, err *e) {
    bool ok = make_meta(h, model, key, parent, window ? (unsigned)kv_window_reach(l) : 0, e);
    for (int i = 0; ok && i < l->n_layers; i++)
        if (l->layers[l->order[i]].windowed == window) ok = add_layer(h, l, l->order[i], KV_BLOCK, e);
    return ok && (window || tensor_add(h, "tokens", "I32", 1, (int64_t[]){KV_BLOCK}, 4, e)) && tensor_end(h, e);
}

bool blockfile_write(const char *path, tensor_header *h, const kv_block *b, bool window, err *e) { return tensor_write(path, h, window ? b->window : b->data, e); }

/* A mapping that a block's bytes lie in. */
typedef struct mapped {
    kv_owner owner;
    file_map map;
} mapped;

static void unmap(kv_owner *o) {
    mapped *m = (mapped *)o;
    file_map_close(&m->map);
    mem_free(m);
}

static bool as_expected(const file_map *m, const tensor_header *x, err *e) {
    size_t header_end = 0, after = TENSOR_SUM_AT + TENSOR_SUM_DIGITS;
    if (!tensor_check(m, &header_end, e)) return false;
    if (header_end != x->text.len || m->size != header_end + x->offset || memcmp(m->data, x->text.data, TENSOR_SUM_AT) != 0 ||
        memcmp(m->data + after, x->text.data + after, header_end - after) != 0)
        return err_set(e, HEARTH_FORMAT, "it is of another version or layout than its name says");
    return true;
}

/* The file, mapped and checked; NULL on failure. */
static mapped *open_checked(const char *path, const tensor_header *expected, err *e) {
    mapped *m = mem_zalloc(1, sizeof *m, e);
    if (!m) return NULL;
    m->owner.release = unmap;
    bool ok = file_map_open(&m->map, path, e);
    if (ok) file_map_ahead(m->map.data, m->map.size);
    if (ok && as_expected(&m->map, expected, e)) return m;
    unmap(&m->owner);
    return NULL;
}

kv_block *blockfile_read(const char *path, const tensor_header *expected, kv_cache *c, const kv_layout *l, err *e) {
    mapped *m = open_checked(path, expected, e);
    kv_block *b = m ? kv_block_mapped(c, l, m->map.data + expected->text.len, &m->owner, e) : NULL;
    if (m && !b) unmap(&m->owner);
    return b;
}

bool blockfile_read_window(const char *path, const tensor_header *expected, kv_cache *c, kv_block *b, err *e) {
    mapped *m = open_checked(path, expected, e);
    if (m) kv_block_put_window(c, b, m->map.data + expected->text.len, &m->owner);
    return m != NULL;
}

bool blockfile_check(const file_map *m, const shelf_key *key, const kv_name *parent, const char *model, const int32_t *tokens, unsigned reach, err *e) {
    size_t header_end = 0;
    if (!tensor_check(m, &header_end, e)) return false;
    json_t *root = tensor_parse(m->data, header_end, m->size - header_end, e);
    if (!root) return false;
    /* Written again it must be the same header to the byte, with what is expected in it. */
    tensor_header h = {0};
    bool ok = make_meta(&h, model, key, parent, tokens ? 0 : reach, e) && tensor_add_all(&h, root, e) && tensor_end(&h, e);
    size_t after = TENSOR_SUM_AT + TENSOR_SUM_DIGITS, n = KV_BLOCK * sizeof *tokens;
    if (ok && (h.text.len != header_end || memcmp(h.text.data + after, m->data + after, header_end - after) != 0))
        ok = err_set(e, HEARTH_FORMAT, "it is another block than it should be");
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
    int n = snprintf(start, sizeof start, "\",\"format\":\"%s\",\"version\":\"1\",\"name\":\"%s\",", window ? "hearth-window" : "hearth-kv", name);
    if (!file_map_open(&m, path, e)) return false;
    bool ok = tensor_check(&m, &header_end, e);
    if (ok && (header_end < TENSOR_SUM_AT + TENSOR_SUM_DIGITS + (size_t)n || memcmp(m.data + TENSOR_SUM_AT + TENSOR_SUM_DIGITS, start, (size_t)n) != 0))
        ok = err_set(e, HEARTH_FORMAT, "it is of another version or block than its name says");
    file_map_close(&m);
    return ok;
}
