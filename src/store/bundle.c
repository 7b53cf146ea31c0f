#include "store/bundle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/blockfile.h"
#include "store/tensorfile.h"

/* Names of blocks follow from the tokens and the tenant. */
static kv_chain chain_of(const char *tenant, const agent_record *a) {
    kv_chain c = kv_chain_make(tenant, "", 0, "", 0);
    c.root = a->root;
    return c;
}

static void describe(bundle_info *out, const agent_record *a, const char *name) {
    *out = (bundle_info){.tokens = a->n_tokens};
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(out->model, sizeof out->model, "%s", a->model);
}

/* ---- out ---- */

typedef struct packing {
    file_map *maps; /* the agent, then blocks from the first on */
    size_t n;
    file_map *windows; /* of the last blocks, from block first_window on */
    size_t first_window, n_windows;
} packing;

static void close_maps(packing *p) {
    for (size_t i = 0; i < p->n; i++) file_map_close(&p->maps[i]);
    for (size_t i = 0; i < p->n_windows; i++) file_map_close(&p->windows[i]);
    mem_free(p->maps), mem_free(p->windows);
}

/* Maps blocks as long as they are there and whole: what comes after a gap is of no use. */
static bool map_blocks(shelf *s, packing *p, const agent_record *a, const char *tenant, err *e) {
    const kv_chain chain = chain_of(tenant, a);
    kv_name parent = a->root;
    for (size_t i = 0; i < a->n_tokens / KV_BLOCK; i++) {
        const int32_t *tokens = a->tokens + i * KV_BLOCK;
        const kv_name name = kv_name_next(&chain, &parent, tokens, KV_BLOCK);
        const shelf_key key = shelf_key_make(&name, &parent, (uint32_t)i);
        char *path = shelf_path(s, &key, 0, e);
        if (!path) return false;
        bool ok = file_map_open(&p->maps[p->n], path, NULL) && blockfile_check(&p->maps[p->n], &key, &parent, a->model, tokens, 0, NULL);
        mem_free(path);
        if (!ok) {
            file_map_close(&p->maps[p->n]);
            break;
        }
        p->n++;
        parent = name;
    }
    return true;
}

/* Maps the window parts that going on needs: without all of them none is of use. */
static bool map_windows(shelf *s, packing *p, const agent_record *a, const char *tenant, err *e) {
    const kv_chain chain = chain_of(tenant, a);
    const size_t n_blocks = p->n - 1;
    const unsigned reach = n_blocks ? shelf_reach(s, &a->head) : 0;
    if (!reach || n_blocks < a->n_tokens / KV_BLOCK) return true;
    p->first_window = n_blocks < reach ? 0 : n_blocks - reach;
    p->windows = mem_zalloc(n_blocks - p->first_window, sizeof *p->windows, e);
    bool ok = p->windows != NULL, whole = true;
    kv_name parent = a->root;
    for (size_t i = 0; ok && whole && i < n_blocks; i++) {
        const kv_name name = kv_name_next(&chain, &parent, a->tokens + i * KV_BLOCK, KV_BLOCK);
        const shelf_key key = shelf_key_make(&name, &parent, (uint32_t)i);
        if (i >= p->first_window) {
            file_map *m = &p->windows[p->n_windows];
            char *path = shelf_path(s, &key, reach, e);
            ok = path != NULL;
            whole = ok && file_map_open(m, path, NULL);
            if (whole) p->n_windows++;
            whole = whole && blockfile_check(m, &key, &parent, a->model, NULL, reach, NULL);
            mem_free(path);
        }
        parent = name;
    }
    if (!whole) {
        for (size_t i = 0; i < p->n_windows; i++) file_map_close(&p->windows[i]);
        p->n_windows = 0;
    }
    return ok;
}

static bool make_header(tensor_header *h, const packing *p, const agent_record *a, err *e) {
    char name[32];
    bool ok = tensor_meta(h, "format", "hearth-bundle", e) && tensor_meta(h, "version", "1", e) && tensor_meta(h, "model", a->model, e) &&
              tensor_meta_any(h, "name", a->name, e) && tensor_add(h, "agent", "U8", 1, (int64_t[]){(int64_t)p->maps[0].size}, 1, e);
    for (size_t i = 1; ok && i < p->n; i++) {
        snprintf(name, sizeof name, "blocks.%zu", i - 1);
        ok = tensor_add(h, name, "U8", 1, (int64_t[]){(int64_t)p->maps[i].size}, 1, e);
    }
    for (size_t i = 0; ok && i < p->n_windows; i++) {
        snprintf(name, sizeof name, "windows.%zu", p->first_window + i);
        ok = tensor_add(h, name, "U8", 1, (int64_t[]){(int64_t)p->windows[i].size}, 1, e);
    }
    return ok && tensor_end(h, e);
}

static bool write_bundle(const packing *p, const agent_record *a, const char *path, bundle_info *out, err *e) {
    tensor_header h = {0};
    const size_t n = p->n + p->n_windows;
    tensor_part *parts = mem_alloc(n, sizeof *parts, e);
    bool ok = parts && make_header(&h, p, a, e);
    for (size_t i = 0; ok && i < n; i++) {
        const file_map *m = i < p->n ? &p->maps[i] : &p->windows[i - p->n];
        parts[i] = (tensor_part){.data = m->data, .len = m->size};
    }
    ok = ok && tensor_write_parts(path, &h, parts, n, e);
    describe(out, a, a->name);
    out->blocks = p->n - 1;
    out->windows = p->n_windows;
    out->missing = a->n_tokens / KV_BLOCK - out->blocks;
    out->bytes = h.text.len + h.offset;
    buf_free(&h.text);
    mem_free(parts);
    return ok;
}

bool bundle_export(shelf *s, const char *agent, const char *tenant, const char *path, bundle_info *out, err *e) {
    agent_record a = {0};
    packing p = {0};
    file_map m = {0};
    file_id id;
    char tag[17], quoted[200];
    bool there = false;
    agent_tag(tenant, tag);
    char *source = shelf_agent_path(s, agent, tag, ".safetensors", e);
    bool ok = source && file_look(source, &there, &id, e);
    if (ok && !there) ok = err_set(e, HEARTH_ARGUMENT, "there is no agent '%s'", err_quote(quoted, sizeof quoted, agent, strlen(agent)));
    ok = ok && file_map_open(&m, source, e);
    if (ok && !agent_parse(&m, &a, e)) ok = err_prefix(e, "%s", source);
    p.maps = ok ? mem_zalloc(a.n_tokens / KV_BLOCK + 1, sizeof *p.maps, e) : NULL;
    ok = p.maps != NULL;
    if (ok) p.maps[p.n++] = m;
    else file_map_close(&m);
    ok = ok && map_blocks(s, &p, &a, tenant, e) && map_windows(s, &p, &a, tenant, e) && write_bundle(&p, &a, path, out, e);
    close_maps(&p);
    agent_free(&a);
    mem_free(source);
    return ok;
}

/* ---- in ---- */

/* The file that a tensor of the bundle holds; false when there is no such tensor. */
static bool part_of(const json_t *root, const char *name, const file_map *m, size_t header_end, file_map *out) {
    const json_t *offsets = json_object_get(json_object_get(root, name), "data_offsets");
    size_t from = (size_t)json_integer_value(json_array_get(offsets, 0)), to = (size_t)json_integer_value(json_array_get(offsets, 1));
    *out = (file_map){.data = m->data + header_end + from, .size = to - from};
    return offsets != NULL;
}

static bool write_file(const char *path, const file_map *m, err *e) {
    file_writer w;
    if (!file_writer_open(&w, path, e)) return false;
    if (file_writer_add(&w, m->data, m->size, e)) return file_writer_commit(&w, e);
    file_writer_abort(&w);
    return false;
}

/* *there: the block or window part is in the store now; false without an error when there is no room for it. */
static bool put_file(shelf *s, const shelf_file *f, const file_map *m, bool *there, err *e) {
    *there = f->reach ? shelf_has_window(s, &f->key, f->reach) : shelf_has(s, &f->key);
    if (*there) return true;
    err why = {0};
    if (!shelf_reserve(s, m->size, f, &why)) {
        if (why.code != HEARTH_OK && e) *e = why;
        return why.code == HEARTH_OK;
    }
    char *path = shelf_path(s, &f->key, f->reach, e);
    *there = path && shelf_make_folder(s, &f->key, e) && write_file(path, m, e);
    shelf_put_done(s, f, m->size, *there);
    mem_free(path);
    return *there;
}

/* How many tensors have names that start so. */
static size_t count_parts(const json_t *root, const char *start) {
    const char *name;
    json_t *t;
    size_t n = 0;
    json_object_foreach((json_t *)root, name, t) n += strncmp(name, start, strlen(start)) == 0;
    return n;
}

/* The window part of a block, if there is one: checked, or written. Its header says how far it is needed. */
static bool take_window(shelf *s, const file_map *part, const shelf_key *key, const kv_name *parent, const char *model, bool write, bool *there, err *e) {
    shelf_file f = {.key = *key};
    size_t header_end = 0;
    *there = false;
    if (!tensor_check_header(part, &header_end, e)) return false;
    json_t *root = tensor_parse(part->data, header_end, part->size - header_end, e);
    const char *reach = json_string_value(json_object_get(json_object_get(root, "__metadata__"), "reach"));
    f.reach = reach && strlen(reach) <= 6 ? (unsigned)strtoul(reach, NULL, 10) : 0;
    json_decref(root);
    if (!root) return false;
    if (!f.reach) return err_set(e, HEARTH_FORMAT, "it is no window part");
    return write ? put_file(s, &f, part, there, e) : blockfile_check(part, key, parent, model, NULL, f.reach, e);
}

/* All files are checked before the first is written. */
static bool take_blocks(shelf *s, const json_t *root, const file_map *m, size_t header_end, const agent_record *a, const char *tenant, bool write, bundle_info *out, err *e) {
    const kv_chain chain = chain_of(tenant, a);
    kv_name parent = a->root;
    const size_t n = count_parts(root, "blocks."), n_windows = count_parts(root, "windows.");
    size_t windows = 0;
    out->blocks = out->windows = 0;
    if (n > a->n_tokens / KV_BLOCK) return err_set(e, HEARTH_FORMAT, "it holds more blocks than the agent has tokens for");
    if (json_object_size(root) != n + n_windows + 2) return err_set(e, HEARTH_FORMAT, "it holds something that is neither the agent nor a block"); /* and the metadata */
    for (size_t i = 0; i < n; i++) {
        char name[32];
        file_map part, window;
        const int32_t *tokens = a->tokens + i * KV_BLOCK;
        const kv_name block = kv_name_next(&chain, &parent, tokens, KV_BLOCK);
        const shelf_key key = shelf_key_make(&block, &parent, (uint32_t)i);
        snprintf(name, sizeof name, "blocks.%zu", i);
        if (!part_of(root, name, m, header_end, &part)) return err_set(e, HEARTH_FORMAT, "it holds no block %zu", i);
        bool there = true;
        if (!write && !blockfile_check(&part, &key, &parent, a->model, tokens, 0, e)) return err_prefix(e, "block %zu", i);
        if (write && !put_file(s, &(shelf_file){.key = key}, &part, &there, e)) return false;
        if (!there) break;
        out->blocks++;
        snprintf(name, sizeof name, "windows.%zu", i);
        if (part_of(root, name, m, header_end, &window)) {
            windows++;
            if (!take_window(s, &window, &key, &parent, a->model, write, &there, e)) return write ? false : err_prefix(e, "the window part of block %zu", i);
            out->windows += there;
        }
        parent = block;
    }
    if (!write && windows != n_windows) return err_set(e, HEARTH_FORMAT, "it holds window parts of blocks that it does not hold");
    out->missing = a->n_tokens / KV_BLOCK - out->blocks;
    return true;
}

static bool check_whose(const agent_record *a, const char *tenant, err *e) {
    char tag[17];
    agent_tag(tenant, tag);
    if (strcmp(a->tag, tag) == 0) return true;
    if (!a->tag[0]) return err_set(e, HEARTH_ARGUMENT, "the agent belongs to no tenant: import it without one");
    return err_set(e, HEARTH_ARGUMENT, "the agent belongs to %s tenant: import it for the one that it was exported for", tenant && *tenant ? "another" : "a");
}

static bool take_bundle(shelf *s, const file_map *m, const char *name, const char *tenant, bundle_info *out, err *e) {
    size_t header_end = 0;
    file_map part;
    agent_record a = {0};
    char *path = NULL;
    int lock = -1;
    if (!tensor_check(m, &header_end, e)) return false;
    json_t *root = tensor_parse(m->data, header_end, m->size - header_end, e), *meta = json_object_get(root, "__metadata__");
    const char *format = json_string_value(json_object_get(meta, "format")), *version = json_string_value(json_object_get(meta, "version"));
    bool ok = root != NULL;
    if (ok && (!format || strcmp(format, "hearth-bundle") != 0)) ok = err_set(e, HEARTH_FORMAT, "it is no exported agent");
    if (ok && (!version || strcmp(version, "1") != 0)) ok = err_set(e, HEARTH_FORMAT, "it was written by another version of hearth");
    if (ok && !part_of(root, "agent", m, header_end, &part)) ok = err_set(e, HEARTH_FORMAT, "it holds no agent");
    ok = ok && agent_parse(&part, &a, e) && check_whose(&a, tenant, e);
    if (ok) describe(out, &a, name ? name : a.name);
    ok = ok && agent_claim(s, name ? name : a.name, a.tag, &path, &lock, e) && take_blocks(s, root, m, header_end, &a, tenant, false, out, e) &&
         take_blocks(s, root, m, header_end, &a, tenant, true, out, e) && agent_place(s, &part, path, name ? name : a.name, false, e);
    file_unlock(lock);
    json_decref(root);
    agent_free(&a);
    mem_free(path);
    return ok;
}

bool bundle_import(shelf *s, const char *path, const char *name, const char *tenant, bundle_info *out, err *e) {
    file_map m;
    *out = (bundle_info){0};
    if (!file_map_open(&m, path, e)) return false;
    err why = {0};
    bool ok = take_bundle(s, &m, name, tenant, out, &why);
    if (!ok && e) *e = why;
    if (!ok && why.code == HEARTH_FORMAT) err_prefix(e, "%s", path);
    out->bytes = m.size;
    file_map_close(&m);
    return ok;
}
