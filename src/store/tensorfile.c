#include "store/tensorfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the state on the stack */
#include <xxhash.h>

enum { HEADER_LIMIT = 100000000 }; /* what the format's reference reader allows */

/* ---- making a header ---- */

static bool start(tensor_header *h, err *e) {
    if (h->text.len) return true;
    return buf_add(&h->text, "\0\0\0\0\0\0\0\0", 8, e) && buf_adds(&h->text, TENSOR_START "0000000000000000\"", e);
}

bool tensor_meta(tensor_header *h, const char *key, const char *value, err *e) {
    return start(h, e) && buf_addf(&h->text, e, ",\"%s\":\"%s\"", key, value);
}

bool tensor_meta_any(tensor_header *h, const char *key, const char *value, err *e) {
    json_t *text = json_string(value);
    if (!text) return err_set(e, HEARTH_ARGUMENT, "the %s is no UTF-8", key);
    char *quoted = json_dumps(text, JSON_ENCODE_ANY);
    bool ok = quoted ? start(h, e) && buf_addf(&h->text, e, ",\"%s\":%s", key, quoted) : err_nomem(e, 0);
    free(quoted);
    json_decref(text);
    return ok;
}

bool tensor_sums(tensor_header *h, size_t n, err *e) {
    bool ok = tensor_meta(h, "sums", "", e);
    if (!ok) return false;
    h->text.len--; /* the digits come before the last quote */
    h->sums_at = h->text.len;
    for (size_t i = 0; ok && i < n; i++) ok = buf_adds(&h->text, "0000000000000000", e);
    return ok && buf_addc(&h->text, '"', e);
}

bool tensor_add(tensor_header *h, const char *name, const char *dtype, int n_dims, const int64_t *dims, size_t item, err *e) {
    bool ok = start(h, e) && buf_addf(&h->text, e, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", h->in_data ? "," : "},", name, dtype);
    uint64_t bytes = item;
    for (int i = 0; i < n_dims; i++) {
        ok = ok && buf_addf(&h->text, e, "%s%lld", i ? "," : "", (long long)dims[i]);
        bytes *= (uint64_t)dims[i];
    }
    ok = ok && buf_addf(&h->text, e, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)h->offset, (unsigned long long)(h->offset + bytes));
    h->offset += bytes;
    h->in_data = true;
    return ok;
}

bool tensor_end(tensor_header *h, err *e) {
    if (!start(h, e) || !buf_adds(&h->text, h->in_data ? "}" : "}}", e)) return false;
    while (h->text.len % TENSOR_ALIGN)
        if (!buf_addc(&h->text, ' ', e)) return false;
    uint64_t n = h->text.len - 8;
    if (n > HEADER_LIMIT) return err_set(e, HEARTH_LIMIT, "its header would be longer than the format allows");
    memcpy(h->text.data, &n, sizeof n);
    return true;
}

/* ---- checksums ---- */

static void print_sum(uint64_t sum, char digits[TENSOR_SUM_DIGITS + 1]) { snprintf(digits, TENSOR_SUM_DIGITS + 1, "%016llx", (unsigned long long)sum); }

void tensor_set_sum(tensor_header *h, size_t i, const void *data, size_t len) {
    char digits[TENSOR_SUM_DIGITS + 1];
    print_sum(XXH3_64bits(data, len), digits);
    memcpy(h->text.data + h->sums_at + i * TENSOR_SUM_DIGITS, digits, TENSOR_SUM_DIGITS);
}

bool tensor_is_sum(const char *expected, const void *data, size_t len) {
    char digits[TENSOR_SUM_DIGITS + 1];
    print_sum(XXH3_64bits(data, len), digits);
    return memcmp(digits, expected, TENSOR_SUM_DIGITS) == 0;
}

/* The hash of what is before the digits seeds the one of the rest of the header, which seeds the one of the data, if that has no sums of its own (n = 0). */
static void sum_of(const char *header, size_t header_len, const tensor_part *parts, size_t n, char digits[TENSOR_SUM_DIGITS + 1]) {
    const size_t after = TENSOR_SUM_AT + TENSOR_SUM_DIGITS;
    uint64_t sum = XXH3_64bits(header, TENSOR_SUM_AT);
    sum = XXH3_64bits_withSeed(header + after, header_len - after, sum);
    if (n == 1) {
        sum = XXH3_64bits_withSeed(parts->data, parts->len, sum);
    } else if (n > 1) {
        XXH3_state_t state;
        XXH3_64bits_reset_withSeed(&state, sum);
        for (size_t i = 0; i < n; i++) XXH3_64bits_update(&state, parts[i].data, parts[i].len);
        sum = XXH3_64bits_digest(&state);
    }
    print_sum(sum, digits);
}

bool tensor_write_parts(const char *path, tensor_header *h, const tensor_part *parts, size_t n, err *e) {
    char digits[TENSOR_SUM_DIGITS + 1];
    sum_of(h->text.data, h->text.len, parts, h->sums_at ? 0 : n, digits);
    memcpy(h->text.data + TENSOR_SUM_AT, digits, TENSOR_SUM_DIGITS);
    file_writer w;
    if (!file_writer_open(&w, path, e)) return false;
    bool ok = file_writer_add(&w, h->text.data, h->text.len, e);
    for (size_t i = 0; ok && i < n; i++) ok = file_writer_add(&w, parts[i].data, parts[i].len, e);
    if (ok) return file_writer_commit(&w, e);
    file_writer_abort(&w);
    return false;
}

bool tensor_write(const char *path, tensor_header *h, const void *data, err *e) {
    return tensor_write_parts(path, h, &(tensor_part){.data = data, .len = h->offset}, 1, e);
}

bool tensor_check_start(const file_map *m, size_t *header_end, err *e) {
    uint64_t n = 0;
    if (m->size < TENSOR_ALIGN) return err_set(e, HEARTH_FORMAT, "the file is cut off");
    memcpy(&n, m->data, sizeof n);
    if (n > HEADER_LIMIT || n > m->size - 8 || (n + 8) % TENSOR_ALIGN) return err_set(e, HEARTH_FORMAT, "the length of the header is wrong");
    if (memcmp(m->data + 8, TENSOR_START, sizeof TENSOR_START - 1) != 0) return err_set(e, HEARTH_FORMAT, "the file was not written by hearth");
    *header_end = (size_t)n + 8;
    return true;
}

static bool check(const file_map *m, bool with_data, size_t *header_end, err *e) {
    if (!tensor_check_start(m, header_end, e)) return false;
    char digits[TENSOR_SUM_DIGITS + 1];
    sum_of((const char *)m->data, *header_end, &(tensor_part){.data = m->data + *header_end, .len = m->size - *header_end}, with_data, digits);
    return memcmp(digits, m->data + TENSOR_SUM_AT, TENSOR_SUM_DIGITS) == 0 || err_set(e, HEARTH_FORMAT, "the checksum is wrong");
}

bool tensor_check(const file_map *m, size_t *header_end, err *e) { return check(m, true, header_end, e); }
bool tensor_check_header(const file_map *m, size_t *header_end, err *e) { return check(m, false, header_end, e); }

bool tensor_check_sums(const file_map *m, size_t header_end, const json_t *root, err *e) {
    const json_t *sums = json_object_get(json_object_get(root, "__metadata__"), "sums");
    const char *name;
    json_t *t;
    size_t n = 0, at = header_end;
    if (json_string_length(sums) != (json_object_size(root) - 1) * TENSOR_SUM_DIGITS) return err_set(e, HEARTH_FORMAT, "it has not one checksum for each tensor");
    json_object_foreach((json_t *)root, name, t) {
        if (strcmp(name, "__metadata__") == 0) continue;
        const size_t end = header_end + (size_t)json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 1));
        if (!tensor_is_sum(json_string_value(sums) + n++ * TENSOR_SUM_DIGITS, m->data + at, end - at)) return err_set(e, HEARTH_FORMAT, "the checksum of %s is wrong", name);
        at = end;
    }
    return true;
}

/* ---- reading a header ---- */

static size_t item_of(const char *dtype) {
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{"F16", 2}, {"F32", 4}, {"I32", 4}, {"U8", 1}, {"I8", 1}, {"BF16", 2}, {"I16", 2}, {"U16", 2}, {"U32", 4}, {"F64", 8}, {"I64", 8}, {"U64", 8}, {"BOOL", 1}};
    for (size_t i = 0; dtype && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, dtype) == 0) return types[i].bytes;
    return 0;
}

/* What a tensor's type and shape take; false when they say nothing sound. */
static bool bytes_of(const json_t *t, uint64_t most, uint64_t *out) {
    const json_t *shape = json_object_get(t, "shape");
    uint64_t n = item_of(json_string_value(json_object_get(t, "dtype")));
    bool ok = n && json_is_array(shape) && json_array_size(shape) <= 8;
    for (size_t i = 0; ok && i < json_array_size(shape); i++) {
        const json_t *d = json_array_get(shape, i);
        json_int_t dim = json_integer_value(d);
        ok = json_is_integer(d) && dim >= 0 && (dim == 0 || n <= most / (uint64_t)dim);
        n *= ok ? (uint64_t)dim : 1;
    }
    *out = n;
    return ok;
}

/* Names are written again without escapes. */
static bool plain(const char *name) {
    for (const char *p = name; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == '"' || *p == '\\') return false;
    return *name != 0;
}

static bool sound(const json_t *root, size_t n_data) {
    const char *name;
    json_t *t, *value;
    uint64_t at = 0, n;
    if (!json_is_object(json_object_get(root, "__metadata__"))) return false;
    json_object_foreach((json_t *)root, name, t) {
        if (strcmp(name, "__metadata__") == 0) {
            const char *key;
            json_object_foreach(t, key, value)
                if (!json_is_string(value)) return false;
            continue;
        }
        const json_t *offsets = json_object_get(t, "data_offsets"), *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
        if (!plain(name) || json_object_size(t) != 3 || json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to)) return false;
        if (!bytes_of(t, n_data, &n) || (uint64_t)json_integer_value(from) != at || (uint64_t)json_integer_value(to) != at + n || at + n > n_data) return false;
        at += n;
    }
    return at == n_data;
}

json_t *tensor_parse(const void *data, size_t header_end, size_t n_data, err *e) {
    json_t *root = json_loadb((const char *)data + 8, header_end - 8, JSON_REJECT_DUPLICATES, NULL);
    if (root && sound(root, n_data)) return root;
    err_set(e, HEARTH_FORMAT, root ? "its header does not describe its data" : "its header is not JSON");
    json_decref(root);
    return NULL;
}

bool tensor_add_all(tensor_header *h, const json_t *root, err *e) {
    const char *name;
    json_t *t;
    json_object_foreach((json_t *)root, name, t) {
        if (strcmp(name, "__metadata__") == 0) continue;
        const json_t *shape = json_object_get(t, "shape");
        const char *type = json_string_value(json_object_get(t, "dtype"));
        int64_t dims[8];
        size_t n = json_array_size(shape);
        for (size_t i = 0; i < n; i++) dims[i] = json_integer_value(json_array_get(shape, i));
        if (!tensor_add(h, name, type, (int)n, dims, item_of(type), e)) return false;
    }
    return true;
}
