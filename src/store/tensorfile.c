#include "store/tensorfile.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { HEADER_LIMIT = 100 << 20 }; /* what the format's reference reader allows */

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
    memcpy(h->text.data, &n, sizeof n);
    return true;
}

/* ---- the checksum ---- */

/* The hash of what is before the digits seeds the one of the rest of the header, which seeds the one of the data. */
static void sum_of(const char *header, size_t header_len, const void *data, size_t len, char digits[TENSOR_SUM_DIGITS + 1]) {
    const size_t after = TENSOR_SUM_AT + TENSOR_SUM_DIGITS;
    uint64_t sum = XXH3_64bits(header, TENSOR_SUM_AT);
    sum = XXH3_64bits_withSeed(header + after, header_len - after, sum);
    sum = XXH3_64bits_withSeed(data, len, sum);
    snprintf(digits, TENSOR_SUM_DIGITS + 1, "%016llx", (unsigned long long)sum);
}

bool tensor_write(const char *path, tensor_header *h, const void *data, err *e) {
    char digits[TENSOR_SUM_DIGITS + 1];
    sum_of(h->text.data, h->text.len, data, h->offset, digits);
    memcpy(h->text.data + TENSOR_SUM_AT, digits, TENSOR_SUM_DIGITS);
    file_writer w;
    if (!file_writer_open(&w, path, e)) return false;
    if (file_writer_add(&w, h->text.data, h->text.len, e) && file_writer_add(&w, data, h->offset, e)) return file_writer_commit(&w, e);
    file_writer_abort(&w);
    return false;
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

bool tensor_check(const file_map *m, size_t *header_end, err *e) {
    if (!tensor_check_start(m, header_end, e)) return false;
    char digits[TENSOR_SUM_DIGITS + 1];
    sum_of((const char *)m->data, *header_end, m->data + *header_end, m->size - *header_end, digits);
    if (memcmp(digits, m->data + TENSOR_SUM_AT, TENSOR_SUM_DIGITS) != 0) return err_set(e, HEARTH_FORMAT, "the checksum is wrong");
    return true;
}
