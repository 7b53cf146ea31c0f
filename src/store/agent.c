#include "store/agent.h"

#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "quant/quant.h"
#include "store/blockfile.h"
#include "store/tensorfile.h"

enum { MOST_TOKENS = 1 << 28 };

void agent_free(agent_record *a) {
    mem_free(a->name);
    mem_free(a->tokens);
    mem_free(a->tail);
    mem_free(a->note);
    *a = (agent_record){0};
}

static bool copy_bytes(void *to, const void *from, size_t n, err *e) {
    void *copy = from ? mem_alloc(n + 1, 1, e) : NULL;
    if (copy) memcpy(copy, from, n);
    memcpy(to, &copy, sizeof copy);
    return copy || !from;
}

bool agent_copy(agent_record *to, const agent_record *from, err *e) {
    *to = *from;
    to->name = NULL, to->tokens = NULL, to->tail = NULL, to->note = NULL;
    if (copy_bytes(&to->name, from->name, from->name ? strlen(from->name) + 1 : 0, e) && copy_bytes(&to->tokens, from->tokens, from->n_tokens * sizeof *from->tokens, e) &&
        copy_bytes(&to->tail, from->tail, from->tail_bytes, e) && copy_bytes(&to->note, from->note, from->note_len, e))
        return true;
    agent_free(to);
    return false;
}

void agent_tag(const char *tenant, char out[17]) {
    out[0] = 0;
    if (!tenant || !*tenant) return;
    uint8_t hash[16];
    crypto_generichash(hash, sizeof hash, (const unsigned char *)tenant, strlen(tenant), (const unsigned char *)"hearth agent tag", 16);
    sodium_bin2hex(out, 17, hash, 8);
}

/* ---- writing ---- */

static bool make_meta(tensor_header *h, const agent_record *a, err *e) {
    char root[65], head[65], created[24], length[24], hits[24];
    kv_name_text(&a->root, root);
    kv_name_text(&a->head, head);
    snprintf(created, sizeof created, "%" PRId64, a->created);
    snprintf(length, sizeof length, "%zu", a->n_tokens);
    snprintf(hits, sizeof hits, "%" PRIu64, a->hits);
    return tensor_meta(h, "format", "hearth-agent", e) && tensor_meta(h, "version", "1", e) && tensor_meta(h, "head", head, e) &&
           tensor_meta(h, "root", root, e) && tensor_meta(h, "model", a->model, e) && tensor_meta(h, "tenant", a->tag, e) &&
           tensor_meta(h, "created", created, e) && tensor_meta(h, "length", length, e) && (!a->hits || tensor_meta(h, "hits", hits, e)) &&
           tensor_meta_any(h, "name", a->name, e);
}

static bool make_header(tensor_header *h, const agent_record *a, const kv_layout *l, int n_tail, err *e) {
    bool ok = make_meta(h, a, e);
    if (n_tail) ok = ok && blockfile_tensors(h, l, n_tail, e);
    ok = ok && tensor_add(h, "tokens", "I32", 1, (int64_t[]){(int64_t)a->n_tokens}, 4, e);
    if (a->note_len) ok = ok && tensor_add(h, "note", "U8", 1, (int64_t[]){(int64_t)a->note_len}, 1, e);
    return ok && tensor_end(h, e);
}

/* A file as it will be written. */
typedef struct image {
    tensor_header header;
    uint8_t *data;
} image;

static void free_image(image *i) {
    buf_free(&i->header.text);
    mem_free(i->data);
    *i = (image){0};
}

static bool make_image(image *i, const agent_record *a, const kv_layout *l, int n_tail, err *e) {
    size_t tail = n_tail ? a->tail_bytes : 0, tokens = a->n_tokens * sizeof *a->tokens;
    i->data = mem_alloc(tail + tokens + a->note_len + 1, 1, e);
    if (!i->data || !make_header(&i->header, a, l, n_tail, e)) {
        free_image(i);
        return false;
    }
    if (tail) memcpy(i->data, a->tail, tail);
    if (tokens) memcpy(i->data + tail, a->tokens, tokens);
    if (a->note_len) memcpy(i->data + tail + tokens, a->note, a->note_len);
    return true;
}

static uint64_t image_bytes(const image *i) { return i->header.text.len + i->header.offset; }

bool agent_write(shelf *s, const agent_record *a, const kv_layout *l, err *e) {
    image i = {0};
    file_id old;
    bool there = false, room = false;
    char *path = shelf_agent_path(s, a->name, a->tag, ".safetensors", e);
    bool ok = path && make_image(&i, a, l, a->n_tail, e);
    if (ok && !(room = shelf_reserve(s, image_bytes(&i), NULL, NULL)) && a->n_tail) {
        free_image(&i);
        ok = make_image(&i, a, l, 0, e);
        room = ok && shelf_reserve(s, image_bytes(&i), NULL, NULL);
    }
    /* What was said is written even when there is no room for anything else. What it replaces may have been stripped of its tail to make the room. */
    bool written = ok && file_look(path, &there, &old, e) && tensor_write(path, &i.header, i.data, e);
    uint64_t bytes = image_bytes(&i);
    if (written) shelf_agent_bytes(s, there ? old.size : 0, bytes, room ? bytes : 0);
    else if (room) shelf_put_done(s, NULL, bytes, false);
    free_image(&i);
    mem_free(path);
    return written;
}

/* ---- reading ---- */

static const char *text_of(const json_t *meta, const char *key) {
    const char *text = json_string_value(json_object_get(meta, key));
    return text ? text : "";
}

/* Where a tensor of one dimension lies in the data; false when there is none. The header is sound. */
static bool range_of(const json_t *root, const char *name, const char *type, size_t *from, size_t *n) {
    const json_t *t = json_object_get(root, name), *shape = json_object_get(t, "shape");
    if (!t || json_array_size(shape) != 1 || strcmp(json_string_value(json_object_get(t, "dtype")), type) != 0) return false;
    *from = (size_t)json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
    *n = (size_t)json_integer_value(json_array_get(shape, 0));
    return *n <= MOST_TOKENS;
}

/* Hexadecimal digits, as few as none. */
static bool is_digits(const char *text, size_t most) { return strlen(text) <= most && strspn(text, "0123456789abcdef") == strlen(text); }

static bool parse_meta(const json_t *meta, agent_record *out, err *e) {
    const char *root = text_of(meta, "root"), *head = text_of(meta, "head"), *name = text_of(meta, "name");
    if (strcmp(text_of(meta, "format"), "hearth-agent") != 0) return err_set(e, HEARTH_FORMAT, "it is not the file of an agent");
    if (strcmp(text_of(meta, "version"), "1") != 0) return err_set(e, HEARTH_FORMAT, "it was written by another version of hearth");
    if (!kv_name_parse(root, strlen(root), &out->root) || !kv_name_parse(head, strlen(head), &out->head) || !*name || !is_digits(text_of(meta, "model"), 64) ||
        !is_digits(text_of(meta, "tenant"), 16))
        return err_set(e, HEARTH_FORMAT, "its header does not say whose it is");
    snprintf(out->model, sizeof out->model, "%s", text_of(meta, "model"));
    snprintf(out->tag, sizeof out->tag, "%s", text_of(meta, "tenant"));
    out->created = strtoll(text_of(meta, "created"), NULL, 10);
    out->hits = strtoull(text_of(meta, "hits"), NULL, 10);
    out->name = mem_strndup(name, strlen(name), e);
    return out->name != NULL;
}

/* The tail is what lies before the tokens; its header must be the one that would be written for it now. */
static bool take_tail(const file_map *m, size_t header_end, size_t tail_bytes, const kv_layout *l, agent_record *out, err *e) {
    int n = (int)(out->n_tokens % KV_BLOCK);
    if (tail_bytes == 0 || n == 0 || kv_packed_bytes(l, n) != tail_bytes) return true;
    tensor_header h = {0};
    bool ok = make_header(&h, out, l, n, e);
    if (ok && h.text.len == header_end &&
        memcmp(h.text.data + TENSOR_SUM_AT + TENSOR_SUM_DIGITS, m->data + TENSOR_SUM_AT + TENSOR_SUM_DIGITS, header_end - TENSOR_SUM_AT - TENSOR_SUM_DIGITS) == 0) {
        out->tail = mem_alloc(tail_bytes, 1, e);
        ok = out->tail != NULL;
        if (ok) {
            memcpy(out->tail, m->data + header_end, tail_bytes);
            out->n_tail = n;
            out->tail_bytes = tail_bytes;
        }
    }
    buf_free(&h.text);
    return ok;
}

/* What the header says. *at and *note_at: where tokens and note lie in the data; the tail lies before the tokens. */
static bool parse_header(const json_t *root, agent_record *out, size_t *at, size_t *note_at, err *e) {
    if (!parse_meta(json_object_get(root, "__metadata__"), out, e)) return false;
    if (!range_of(root, "tokens", "I32", at, &out->n_tokens)) return err_set(e, HEARTH_FORMAT, "its header does not say where the tokens are");
    if (json_object_get(root, "note") && !range_of(root, "note", "U8", note_at, &out->note_len))
        return err_set(e, HEARTH_FORMAT, "its header does not say where the note is");
    return true;
}

static bool parse(const file_map *m, size_t header_end, const kv_layout *l, agent_record *out, err *e) {
    json_t *root = tensor_parse(m->data, header_end, m->size - header_end, e);
    size_t at = 0, note_at = 0;
    const uint8_t *bytes = m->data + header_end;
    bool ok = root && parse_header(root, out, &at, &note_at, e);
    json_decref(root);
    if (!ok) return false;
    out->tokens = mem_alloc(out->n_tokens + 1, sizeof *out->tokens, e);
    out->note = out->note_len ? mem_strndup((const char *)bytes + note_at, out->note_len, e) : NULL;
    if (!out->tokens || (out->note_len && !out->note)) return false;
    memcpy(out->tokens, bytes + at, out->n_tokens * sizeof *out->tokens);
    return !l || take_tail(m, header_end, at, l, out, e);
}

static bool read_file(const char *path, bool check, const kv_layout *l, agent_record *out, err *e) {
    *out = (agent_record){0};
    file_map m;
    size_t header_end = 0;
    if (!file_map_open(&m, path, e)) return false;
    bool ok = (check ? tensor_check : tensor_check_start)(&m, &header_end, e) && parse(&m, header_end, l, out, e);
    out->used = m.id.modified_ns / 1000000000;
    out->bytes = m.id.size;
    file_map_close(&m);
    if (!ok) agent_free(out);
    return ok;
}

bool agent_peek(const char *path, agent_record *out, err *e) {
    *out = (agent_record){0};
    file_map m;
    size_t header_end = 0, at = 0, note_at = 0;
    if (!file_map_open(&m, path, e)) return false;
    bool ok = tensor_check_start(&m, &header_end, e);
    json_t *root = ok ? tensor_parse(m.data, header_end, m.size - header_end, e) : NULL;
    ok = root && parse_header(root, out, &at, &note_at, e);
    json_decref(root);
    out->used = m.id.modified_ns / 1000000000;
    out->bytes = m.id.size;
    out->tail_bytes = at;
    out->n_tail = at ? (int)(out->n_tokens % KV_BLOCK) : 0;
    file_map_close(&m);
    if (!ok) agent_free(out);
    return ok;
}

bool agent_read(const char *path, const kv_layout *l, agent_record *out, err *e) { return read_file(path, true, l, out, e); }

bool agent_glance(const char *path, agent_record *out, err *e) { return read_file(path, false, NULL, out, e); }

bool agent_read_head(const char *path, kv_name *head, err *e) {
    static const char before[] = "\",\"format\":\"hearth-agent\",\"version\":\"1\",\"head\":\"";
    file_map m;
    size_t header_end = 0, at = TENSOR_SUM_AT + TENSOR_SUM_DIGITS;
    if (!file_map_open(&m, path, e)) return false;
    bool ok = tensor_check_start(&m, &header_end, e);
    if (ok && (header_end < at + strlen(before) + 64 || memcmp(m.data + at, before, strlen(before)) != 0 ||
               !kv_name_parse((const char *)m.data + at + strlen(before), 64, head)))
        ok = err_set(e, HEARTH_FORMAT, "it is not the file of an agent");
    file_map_close(&m);
    return ok;
}

/* ---- copying ---- */

/* Writes what a says and data, which the tensors of root describe, to path. Room is counted. */
static bool write_again(shelf *s, const char *path, const agent_record *a, const json_t *root, const uint8_t *data, err *e) {
    tensor_header h = {0};
    bool ok = make_meta(&h, a, e) && tensor_add_all(&h, root, e) && tensor_end(&h, e);
    uint64_t bytes = h.text.len + h.offset;
    if (ok && !shelf_reserve(s, bytes, NULL, e)) {
        err_set(e, HEARTH_LIMIT, "there is no room for another agent within the disk budget of %s", shelf_folder(s));
        ok = false;
    } else if (ok) {
        ok = tensor_write(path, &h, data, e);
        if (ok) shelf_agent_bytes(s, 0, bytes, bytes);
        else shelf_put_done(s, NULL, bytes, false);
    }
    buf_free(&h.text);
    return ok;
}

bool agent_parse(const file_map *m, agent_record *out, err *e) {
    *out = (agent_record){0};
    size_t header_end = 0;
    if (tensor_check(m, &header_end, e) && parse(m, header_end, NULL, out, e)) return true;
    agent_free(out);
    return false;
}

bool agent_claim(shelf *s, const char *name, const char *tag, char **path, int *lock, err *e) {
    char quoted[200];
    file_id id;
    bool there = false;
    *lock = -1;
    *path = shelf_agent_path(s, name, tag, ".safetensors", e);
    char *lock_path = *path ? shelf_agent_path(s, name, tag, ".lock", e) : NULL;
    bool ok = lock_path && file_lock_file(lock_path, lock, e);
    err_quote(quoted, sizeof quoted, name, strlen(name));
    if (ok && *lock < 0) ok = err_set(e, HEARTH_LIMIT, "the agent '%s' is open elsewhere: end it there first", quoted);
    ok = ok && file_look(*path, &there, &id, e);
    if (ok && there) ok = err_set(e, HEARTH_ARGUMENT, "there is an agent '%s' already", quoted);
    mem_free(lock_path);
    if (ok) return true;
    file_unlock(*lock);
    mem_free(*path);
    *lock = -1, *path = NULL;
    return false;
}

bool agent_place(shelf *s, const file_map *m, const char *path, const char *name, bool fresh, err *e) {
    agent_record a = {0};
    size_t header_end = 0, at = 0, note_at = 0;
    bool ok = tensor_check(m, &header_end, e);
    json_t *root = ok ? tensor_parse(m->data, header_end, m->size - header_end, e) : NULL;
    ok = root && parse_header(root, &a, &at, &note_at, e);
    if (ok) {
        mem_free(a.name);
        a.name = mem_strndup(name, strlen(name), e);
        if (fresh) a.created = (int64_t)time(NULL), a.hits = 0;
        ok = a.name && write_again(s, path, &a, root, m->data + header_end, e);
    }
    json_decref(root);
    agent_free(&a);
    return ok;
}

bool agent_fork(shelf *s, const char *from, const char *to, const char *tag, err *e) {
    char quoted[200], *source = shelf_agent_path(s, from, tag, ".safetensors", e), *path = NULL;
    file_id id;
    file_map m = {0};
    int lock = -1;
    bool there = false, ok = source && file_look(source, &there, &id, e);
    if (ok && !there) ok = err_set(e, HEARTH_ARGUMENT, "there is no agent '%s'", err_quote(quoted, sizeof quoted, from, strlen(from)));
    ok = ok && agent_claim(s, to, tag, &path, &lock, e) && file_map_open(&m, source, e) && agent_place(s, &m, path, to, true, e);
    file_map_close(&m);
    file_unlock(lock);
    mem_free(source), mem_free(path);
    return ok;
}

static bool strip(const file_map *m, const char *path, uint64_t room, uint64_t *freed) {
    agent_record a;
    image i = {0};
    if (!agent_parse(m, &a, NULL)) return false;
    bool ok = make_image(&i, &a, NULL, 0, NULL);
    uint64_t bytes = image_bytes(&i);
    if (ok && bytes < m->size && bytes <= room) {
        ok = tensor_write(path, &i.header, i.data, NULL);
        if (ok) *freed = m->size - bytes;
        if (ok) file_set_time(path, m->id.modified_ns, NULL); /* this was no use of it */
    }
    free_image(&i);
    agent_free(&a);
    return ok;
}

bool agent_strip(const char *path, uint64_t room, uint64_t *freed) {
    size_t stem = strlen(path) - strlen(".safetensors");
    file_map m = {0};
    size_t header_end, at = 0, note_at;
    int lock = -1;
    *freed = 0;
    char *lock_path = mem_strndup(path, strlen(path), NULL);
    if (lock_path) strcpy(lock_path + stem, ".lock");
    bool ok = lock_path && file_lock_file(lock_path, &lock, NULL) && lock >= 0 && file_map_open(&m, path, NULL) && tensor_check_start(&m, &header_end, NULL);
    /* Most have none: that is seen without reading the rest. */
    agent_record a = {0};
    json_t *root = ok ? tensor_parse(m.data, header_end, m.size - header_end, NULL) : NULL;
    ok = root && parse_header(root, &a, &at, &note_at, NULL);
    json_decref(root);
    agent_free(&a);
    if (ok && at > 0) ok = strip(&m, path, room, freed);
    file_map_close(&m);
    file_unlock(lock);
    mem_free(lock_path);
    return ok;
}
