/* gguf_builder.h: makes GGUF files for tests, valid or wrong on purpose. Zero-initialised is empty. */
#ifndef TESTS_GGUF_BUILDER_H
#define TESTS_GGUF_BUILDER_H

#include "tools/support.h"

#include "gguf/gguf.h"

typedef struct builder {
    buf kv, infos, data;
    uint64_t n_kv, n_tensors;
    uint32_t alignment; /* 0: 32 */
} builder;

static inline void put(buf *b, const void *data, size_t len) { assert_true(buf_add(b, data, len, NULL)); }
static inline void put_u8(buf *b, uint8_t v) { put(b, &v, 1); }
static inline void put_u16(buf *b, uint16_t v) { put(b, &v, 2); }
static inline void put_u32(buf *b, uint32_t v) { put(b, &v, 4); }
static inline void put_u64(buf *b, uint64_t v) { put(b, &v, 8); }
static inline void put_f32(buf *b, float v) { put(b, &v, 4); }
static inline void put_text(buf *b, const char *s) {
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

/* Starts an entry; the value follows by put_*. */
static inline buf *add_kv(builder *b, const char *key, uint32_t type) {
    put_text(&b->kv, key);
    put_u32(&b->kv, type);
    b->n_kv++;
    return &b->kv;
}
static inline void add_u32(builder *b, const char *key, uint32_t v) { put_u32(add_kv(b, key, GGUF_U32), v); }
static inline void add_text(builder *b, const char *key, const char *v) { put_text(add_kv(b, key, GGUF_STRING), v); }
static inline buf *add_array(builder *b, const char *key, uint32_t item, uint64_t count) {
    buf *kv = add_kv(b, key, GGUF_ARRAY);
    put_u32(kv, item);
    put_u64(kv, count);
    return kv;
}

/* A tensor info as it is, and one with data after the data that is there. */
static inline void add_info(builder *b, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset) {
    put_text(&b->infos, name);
    put_u32(&b->infos, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) put_u64(&b->infos, ne[i]);
    put_u32(&b->infos, type);
    put_u64(&b->infos, offset);
    b->n_tensors++;
}
static inline void pad(buf *b, size_t alignment) {
    while (b->len % alignment) put_u8(b, 0);
}
static inline void add_tensor(builder *b, const char *name, uint32_t type, uint64_t columns, uint64_t rows, const void *data, size_t len) {
    pad(&b->data, b->alignment ? b->alignment : 32);
    const uint64_t ne[2] = {columns, rows};
    add_info(b, name, rows == 1 ? 1 : 2, ne, type, b->data.len);
    put(&b->data, data, len);
}

/* The bytes of the file; the builder is emptied. */
static inline buf finish(builder *b, uint32_t version) {
    buf out = {0};
    put(&out, "GGUF", 4);
    put_u32(&out, version);
    put_u64(&out, b->n_tensors);
    put_u64(&out, b->n_kv);
    put(&out, b->kv.data, b->kv.len);
    put(&out, b->infos.data, b->infos.len);
    if (b->data.len) {
        pad(&out, b->alignment ? b->alignment : 32);
        put(&out, b->data.data, b->data.len);
    }
    buf_free(&b->kv);
    buf_free(&b->infos);
    buf_free(&b->data);
    *b = (builder){0};
    return out;
}

/* Writes the file to the temporary folder; the path lives until the next call. */
static inline const char *finish_file(builder *b, const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", temp_dir(), name);
    buf out = finish(b, 3);
    spew(path, out.data, out.len);
    buf_free(&out);
    return path;
}

#endif
