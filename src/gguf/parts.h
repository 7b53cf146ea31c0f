/* parts.h: inside the gguf room. One file of a model, parsed; and the index that finds names in constant time. */
#ifndef GGUF_PARTS_H
#define GGUF_PARTS_H

#include "base/file.h"
#include "gguf/gguf.h"

/* A hash table over an array of structs whose first member is their name (gguf_string). Zero-initialised is empty. */
typedef struct gguf_slot {
    uint32_t hash;
    uint32_t place; /* 1 + place in the array; 0: free */
} gguf_slot;
typedef struct gguf_index {
    gguf_slot *slots;
    size_t mask;
    uint64_t seed; /* drawn anew for each table, so that nobody can craft names that all collide */
} gguf_index;

/* False with e set when memory is short, or when two names are equal: what names them in the message. */
bool gguf_index_build(gguf_index *x, const void *items, size_t stride, size_t n, const char *what, err *e);
const void *gguf_index_find(const gguf_index *x, const void *items, size_t stride, const char *name, size_t len);
void gguf_index_free(gguf_index *x);

/* One file. Tensors of all parts go to one table, since their names share one space. */
typedef struct gguf_part {
    char *path;
    file_map map;
    int version;
    uint32_t alignment;
    gguf_kv *kv;
    size_t n_kv, cap_kv;
    gguf_index kv_index;
    uint64_t data_start;
} gguf_part;

typedef struct gguf_tensors {
    gguf_tensor *items;
    size_t n, cap;
} gguf_tensors;

/* Maps and parses path as part number `number`, appending its tensors. On failure what is there is freed by gguf_part_close. */
bool gguf_part_open(gguf_part *p, const char *path, int number, gguf_tensors *tensors, err *e);
void gguf_part_close(gguf_part *p);
const gguf_kv *gguf_part_find(const gguf_part *p, const char *key);

/* The value of a scalar entry as a whole number; false with e set when it is none or does not fit. */
bool gguf_kv_u64(const gguf_kv *kv, uint64_t *out, err *e);
/* Bytes of a value of fixed size; 0 for strings and arrays. */
size_t gguf_type_size(gguf_type t);

static inline uint32_t gguf_read_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t gguf_read_u64(const uint8_t *p) { return (uint64_t)gguf_read_u32(p) | (uint64_t)gguf_read_u32(p + 4) << 32; }

#endif
