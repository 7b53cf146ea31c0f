/* part.c: parses one GGUF file. This is where bytes from a stranger become tables, so every length is checked
 * against what is left of the file before it is used, and tables grow with what was really read.
 *
 *   0   "GGUF"              4   u32 version         8   u64 number of tensors    16  u64 number of metadata entries
 *   24  metadata entries:   string key, u32 type, value
 *   ..  tensor infos:       string name, u32 dimensions, u64 size of each, u32 type, u64 offset in the data
 *   ..  padding to the alignment, then the data of the tensors, each padded to the alignment
 *
 * A string is a u64 length and that many bytes. An array is u32 type of the items, u64 count, items. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/parts.h"
#include "quant/quant.h"

enum {
    MAX_KEY = 65535,
    MAX_TENSOR_NAME = 64,
    MAX_ARRAY_DEPTH = 8,
    MIN_ALIGNMENT = 8, /* what the format asks for; the kernels count on it */
    MAX_ALIGNMENT = 1 << 24,
    DEFAULT_ALIGNMENT = 32,
    MIN_KV_BYTES = 8 + 1 + 4 + 1,
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
};

typedef struct reader {
    const uint8_t *start, *at, *end;
    err *e;
} reader;

static uint64_t left(const reader *r) { return (uint64_t)(r->end - r->at); }

static bool ends_early(const reader *r, const char *inside) {
    err_set(r->e, HEARTH_FORMAT, "the file ends inside %s (at byte %zu of %zu): it is damaged or not downloaded completely", inside,
            (size_t)(r->at - r->start), (size_t)(r->end - r->start));
    return false;
}

static bool read_u32(reader *r, uint32_t *out, const char *inside) {
    if (left(r) < 4) return ends_early(r, inside);
    *out = gguf_read_u32(r->at);
    r->at += 4;
    return true;
}

static bool read_u64(reader *r, uint64_t *out, const char *inside) {
    if (left(r) < 8) return ends_early(r, inside);
    *out = gguf_read_u64(r->at);
    r->at += 8;
    return true;
}

static bool read_string(reader *r, gguf_string *out, const char *inside) {
    uint64_t len;
    if (!read_u64(r, &len, inside)) return false;
    if (len > left(r)) return ends_early(r, inside);
    *out = (gguf_string){(const char *)r->at, (size_t)len};
    r->at += len;
    return true;
}

/* ---- header ---- */

static bool check_magic(reader *r) {
    static const char *const old[] = {"lmgg", "fmgg", "tjgg", "algg"};
    if (left(r) >= 4 && memcmp(r->at, "GGUF", 4) == 0) {
        r->at += 4;
        return true;
    }
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        if (left(r) >= 4 && memcmp(r->at, old[i], 4) == 0)
            return err_set(r->e, HEARTH_UNSUPPORTED, "this is a GGML file from before GGUF; convert it to GGUF version 3");
    return err_set(r->e, HEARTH_FORMAT, "not a GGUF file: it does not start with \"GGUF\"");
}

static bool check_version(reader *r, int *version) {
    uint32_t v;
    if (!read_u32(r, &v, "the header")) return false;
    if (v == 2 || v == 3) {
        *version = (int)v;
        return true;
    }
    if (v != 0 && (v & 0xFFFF) == 0)
        return err_set(r->e, HEARTH_UNSUPPORTED, "this is a big-endian GGUF file; hearth reads little-endian ones, so convert it");
    if (v == 1) return err_set(r->e, HEARTH_UNSUPPORTED, "GGUF version 1 is not supported; convert the file to version 3");
    return err_set(r->e, HEARTH_UNSUPPORTED, "GGUF version %" PRIu32 " is unknown; hearth reads versions 2 and 3", v);
}

/* ---- metadata ---- */

size_t gguf_type_size(gguf_type t) {
    static const uint8_t sizes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return (unsigned)t < GGUF_TYPES ? sizes[t] : 0;
}

static bool bad_entry(const reader *r, gguf_string key, const char *problem) {
    char quoted[100];
    return err_set(r->e, HEARTH_FORMAT, "the metadata entry '%s' %s", err_quote(quoted, sizeof quoted, key.data, key.len), problem);
}

static bool read_type(reader *r, gguf_string key, gguf_type *out) {
    uint32_t t;
    if (!read_u32(r, &t, "the metadata")) return false;
    if (t >= GGUF_TYPES) {
        char quoted[100];
        return err_set(r->e, HEARTH_UNSUPPORTED, "the metadata entry '%s' has the unknown type %" PRIu32,
                       err_quote(quoted, sizeof quoted, key.data, key.len), t);
    }
    *out = (gguf_type)t;
    return true;
}

static bool read_array(reader *r, gguf_kv *kv, int depth);

/* Walks over count values of a type, checking them. */
static bool skip_values(reader *r, gguf_string key, gguf_type type, uint64_t count, int depth) {
    size_t size = gguf_type_size(type);
    uint64_t least = size ? size : type == GGUF_STRING ? 8 : 12;
    if (count > left(r) / least) return ends_early(r, "the metadata");
    if (type == GGUF_BOOL)
        for (uint64_t i = 0; i < count; i++)
            if (r->at[i] > 1) return bad_entry(r, key, "has a truth value other than 0 and 1");
    if (size) {
        r->at += count * size;
        return true;
    }
    for (uint64_t i = 0; i < count; i++) {
        gguf_string text;
        gguf_kv nested = {.key = key};
        if (type == GGUF_STRING ? !read_string(r, &text, "the metadata") : !read_array(r, &nested, depth + 1)) return false;
    }
    return true;
}

static bool read_array(reader *r, gguf_kv *kv, int depth) {
    if (depth > MAX_ARRAY_DEPTH) return bad_entry(r, kv->key, "nests arrays too deeply");
    if (!read_type(r, kv->key, &kv->item) || !read_u64(r, &kv->count, "the metadata")) return false;
    kv->data = r->at;
    return skip_values(r, kv->key, kv->item, kv->count, depth);
}

static bool read_kv(reader *r, gguf_kv *kv) {
    if (!read_string(r, &kv->key, "the metadata")) return false;
    if (kv->key.len == 0) return err_set(r->e, HEARTH_FORMAT, "a metadata entry has no name");
    if (kv->key.len > MAX_KEY) return bad_entry(r, kv->key, "has a name longer than 65535 bytes");
    if (!read_type(r, kv->key, &kv->type)) return false;
    kv->item = kv->type;
    kv->count = 1;
    kv->data = r->at;
    bool ok = kv->type == GGUF_ARRAY ? read_array(r, kv, 1) : skip_values(r, kv->key, kv->type, 1, 0);
    kv->end = r->at;
    return ok;
}

/* Room for one more item in a table that is to hold `want` in the end. */
static void *grow(void *items, size_t n, size_t *cap, uint64_t want, size_t size, err *e) {
    if (n < *cap) return items;
    uint64_t next = *cap ? *cap * 2 : 16;
    if (next > want) next = want;
    void *more = mem_realloc(items, (size_t)next, size, e);
    if (more) *cap = (size_t)next;
    return more;
}

static bool read_metadata(gguf_part *p, reader *r, uint64_t n) {
    if (n > left(r) / MIN_KV_BYTES)
        return err_set(r->e, HEARTH_FORMAT, "the header promises %" PRIu64 " metadata entries, more than the file can hold", n);
    for (uint64_t i = 0; i < n; i++) {
        gguf_kv *more = grow(p->kv, p->n_kv, &p->cap_kv, n, sizeof *p->kv, r->e);
        if (!more) return false;
        p->kv = more;
        if (!read_kv(r, &p->kv[p->n_kv])) return false;
        p->n_kv++;
    }
    return gguf_index_build(&p->kv_index, p->kv, sizeof *p->kv, p->n_kv, "metadata entry", r->e);
}

const gguf_kv *gguf_part_find(const gguf_part *p, const char *key) {
    return gguf_index_find(&p->kv_index, p->kv, sizeof *p->kv, key, strlen(key));
}

static bool read_alignment(gguf_part *p, err *e) {
    uint64_t a = DEFAULT_ALIGNMENT;
    const gguf_kv *kv = gguf_part_find(p, "general.alignment");
    if (kv && !gguf_kv_u64(kv, &a, e)) return false;
    if (a < MIN_ALIGNMENT || a > MAX_ALIGNMENT || (a & (a - 1)) != 0)
        return err_set(e, HEARTH_FORMAT, "general.alignment is %" PRIu64 ", not a power of two from %d to %d", a, MIN_ALIGNMENT, MAX_ALIGNMENT);
    p->alignment = (uint32_t)a;
    return true;
}

/* ---- tensors ---- */

typedef struct block_size {
    uint32_t elements, bytes;
} block_size;

/* The sizes alone, so that files can be examined without linking the formats. */
static block_size find_block(uint32_t type) {
    static const block_size sizes[QUANT_TYPE_END] = {
#define X(name, number, block, bytes) [number] = {block, bytes},
        QUANT_TYPES(X)
#undef X
    };
    return type < QUANT_TYPE_END ? sizes[type] : (block_size){0};
}

static bool bad_tensor(const reader *r, const gguf_tensor *t, const char *problem) {
    char quoted[140];
    return err_set(r->e, HEARTH_FORMAT, "the tensor '%s' %s", err_quote(quoted, sizeof quoted, t->name.data, t->name.len), problem);
}

static bool read_shape(reader *r, gguf_tensor *t) {
    uint32_t n_dims;
    if (!read_u32(r, &n_dims, "the tensor list")) return false;
    if (n_dims < 1 || n_dims > 4) return bad_tensor(r, t, "does not have 1 to 4 dimensions");
    t->n_dims = (int)n_dims;
    t->n_elements = 1;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t size = 1;
        if (i < n_dims && !read_u64(r, &size, "the tensor list")) return false;
        if (size == 0) return bad_tensor(r, t, "has a dimension of size 0");
        if (size > INT64_MAX || __builtin_mul_overflow(t->n_elements, size, &t->n_elements) || t->n_elements > INT64_MAX)
            return bad_tensor(r, t, "has more elements than can be counted");
        t->ne[i] = (int64_t)size;
    }
    return true;
}

static bool read_size(reader *r, gguf_tensor *t) {
    uint32_t type;
    char quoted[140];
    if (!read_u32(r, &type, "the tensor list")) return false;
    block_size b = find_block(type);
    if (b.elements == 0)
        return err_set(r->e, HEARTH_UNSUPPORTED, "the tensor '%s' has the unknown type %" PRIu32,
                       err_quote(quoted, sizeof quoted, t->name.data, t->name.len), type);
    t->type = (int)type;
    if (t->ne[0] % b.elements != 0)
        return err_set(r->e, HEARTH_FORMAT, "the tensor '%s' has rows of %" PRId64 " elements, not a multiple of its type's block of %" PRIu32,
                       err_quote(quoted, sizeof quoted, t->name.data, t->name.len), t->ne[0], b.elements);
    uint64_t blocks = t->n_elements / b.elements;
    if (blocks > (uint64_t)(r->end - r->start) / b.bytes) return bad_tensor(r, t, "is larger than the file");
    t->n_bytes = blocks * b.bytes;
    return true;
}

static bool read_tensor(reader *r, gguf_tensor *t) {
    if (!read_string(r, &t->name, "the tensor list")) return false;
    if (t->name.len == 0) return err_set(r->e, HEARTH_FORMAT, "a tensor has no name");
    if (t->name.len > MAX_TENSOR_NAME) return bad_tensor(r, t, "has a name longer than 64 bytes");
    return read_shape(r, t) && read_size(r, t) && read_u64(r, &t->offset, "the tensor list");
}

static int by_offset(const void *a, const void *b) {
    const gguf_tensor *const *x = a, *const *y = b;
    return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

static bool check_overlap(const gguf_tensor *tensors, size_t n, err *e) {
    size_t i = 1;
    while (i < n && tensors[i].offset >= tensors[i - 1].offset + tensors[i - 1].n_bytes) i++;
    if (i >= n) return true; /* in order, as nearly all files are */
    const gguf_tensor **order = mem_alloc(n, sizeof *order, e);
    if (!order) return false;
    for (i = 0; i < n; i++) order[i] = &tensors[i];
    qsort(order, n, sizeof *order, by_offset);
    bool ok = true;
    for (i = 1; i < n && ok; i++) {
        const gguf_tensor *a = order[i - 1], *b = order[i];
        char first[100], second[100];
        if (b->offset < a->offset + a->n_bytes)
            ok = err_set(e, HEARTH_FORMAT, "the tensors '%s' and '%s' overlap in the file",
                         err_quote(first, sizeof first, a->name.data, a->name.len), err_quote(second, sizeof second, b->name.data, b->name.len));
    }
    mem_free(order);
    return ok;
}

/* Offsets in the file are relative to the data; from here on they are relative to the file. */
static bool place_tensors(gguf_part *p, const reader *r, gguf_tensor *tensors, size_t n) {
    uint64_t size = (uint64_t)(r->end - r->start), at = (uint64_t)(r->at - r->start);
    p->data_start = (at + p->alignment - 1) / p->alignment * p->alignment;
    for (size_t i = 0; i < n; i++) {
        gguf_tensor *t = &tensors[i];
        if (t->offset % p->alignment != 0) return bad_tensor(r, t, "does not start at a multiple of the file's alignment");
        if (p->data_start > size || t->offset > size - p->data_start || t->n_bytes > size - p->data_start - t->offset)
            return bad_tensor(r, t, "lies past the end of the file: it is damaged or not downloaded completely");
        t->offset += p->data_start;
        t->data = r->start + t->offset;
    }
    return check_overlap(tensors, n, r->e);
}

static bool read_tensors(gguf_part *p, reader *r, uint64_t n, int number, gguf_tensors *all) {
    if (n > left(r) / MIN_TENSOR_BYTES)
        return err_set(r->e, HEARTH_FORMAT, "the header promises %" PRIu64 " tensors, more than the file can hold", n);
    size_t first = all->n;
    for (uint64_t i = 0; i < n; i++) {
        gguf_tensor *more = grow(all->items, all->n, &all->cap, first + n, sizeof *all->items, r->e);
        if (!more) return false;
        all->items = more;
        gguf_tensor t = {.part = number};
        if (!read_tensor(r, &t)) return false;
        all->items[all->n++] = t;
    }
    return place_tensors(p, r, all->items ? all->items + first : NULL, (size_t)n);
}

/* ---- the whole ---- */

bool gguf_part_parse(gguf_part *p, int number, gguf_tensors *tensors, err *e) {
    if (!p->map.data) return err_set(e, HEARTH_FORMAT, "the file is empty");
    reader r = {p->map.data, p->map.data, p->map.data + p->map.size, e};
    uint64_t n_tensors, n_kv;
    return check_magic(&r) && check_version(&r, &p->version) && read_u64(&r, &n_tensors, "the header") && read_u64(&r, &n_kv, "the header") &&
           read_metadata(p, &r, n_kv) && read_alignment(p, e) && read_tensors(p, &r, n_tensors, number, tensors);
}

bool gguf_part_open(gguf_part *p, const char *path, int number, gguf_tensors *tensors, err *e) {
    *p = (gguf_part){.path = mem_strndup(path, strlen(path), e)};
    if (!p->path || !file_map_open(&p->map, path, e)) return false;
    return gguf_part_parse(p, number, tensors, e) || err_prefix(e, "%s", path);
}

void gguf_part_close(gguf_part *p) {
    gguf_index_free(&p->kv_index);
    mem_free(p->kv);
    mem_free(p->path);
    file_map_close(&p->map);
    *p = (gguf_part){0};
}
