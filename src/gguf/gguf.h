/* gguf.h: reads GGUF model files (versions 2 and 3, little-endian, whole or split).
 *
 * The file is mapped and treated as hostile: every length and offset is checked against the file before
 * anything is allocated or read, and the tables grow with the entries that were really read, never with what a
 * header promises. What is returned points into the mapping or into tables owned by the gguf, and lives until
 * gguf_close. docs/gguf.md lists what is refused. */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include "base/file.h"

typedef enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64,
    GGUF_TYPES,
} gguf_type;

typedef struct gguf_string {
    const char *data; /* not NUL-terminated */
    size_t len;
} gguf_string;

/* One metadata entry. Values are read with the functions below, never through a cast: they are unaligned. */
typedef struct gguf_kv {
    gguf_string key;
    gguf_type type;
    gguf_type item;      /* of an array: the type of its items */
    uint64_t count;      /* of an array: how many; 1 otherwise */
    const uint8_t *data; /* first byte of the value or of the first item */
    const uint8_t *end;
} gguf_kv;

typedef struct gguf_tensor {
    gguf_string name;
    int type;            /* a quant type that quant_find knows */
    int n_dims;          /* 1 to 4 */
    int64_t ne[4];       /* sizes, fastest dimension first; 1 beyond n_dims */
    uint64_t n_elements;
    uint64_t n_bytes;
    const uint8_t *data; /* in the mapping, n_bytes of it are there */
    int part;            /* which file of a split model */
    uint64_t offset;     /* of data in that file */
} gguf_tensor;

typedef struct gguf gguf;

/* Opens path; for the first part of a split model (NAME-00001-of-0000N.gguf) opens the others too. */
gguf *gguf_open(const char *path, err *e);
void gguf_close(gguf *g);

int gguf_version(const gguf *g);
uint32_t gguf_alignment(const gguf *g);
uint64_t gguf_file_bytes(const gguf *g); /* of all parts */
int gguf_n_parts(const gguf *g);
const char *gguf_part_path(const gguf *g, int part);
const file_id *gguf_part_id(const gguf *g, int part); /* the state of the file when it was opened */
bool gguf_unchanged(const gguf *g); /* false when a file was written to, replaced or removed since */

size_t gguf_n_kv(const gguf *g);
const gguf_kv *gguf_kv_at(const gguf *g, size_t i);
const gguf_kv *gguf_find(const gguf *g, const char *key); /* NULL when there is none */

size_t gguf_n_tensors(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i);
const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name); /* constant time */

const char *gguf_type_name(gguf_type t);

/* Typed reads of a scalar entry. Each returns false when the key is missing (e untouched) or when it has
 * a type or value that does not fit (e set, naming the key). Any integer type is accepted for integers if the value
 * fits, any number type for floats. *out is left alone unless true is returned. */
bool gguf_get_u64(const gguf *g, const char *key, uint64_t *out, err *e);
bool gguf_get_i64(const gguf *g, const char *key, int64_t *out, err *e);
bool gguf_get_f64(const gguf *g, const char *key, double *out, err *e);
bool gguf_get_bool(const gguf *g, const char *key, bool *out, err *e);
bool gguf_get_string(const gguf *g, const char *key, gguf_string *out, err *e);
/* The entry when it is an array whose items are of type item (GGUF_TYPES: any), else NULL as above. */
const gguf_kv *gguf_get_array(const gguf *g, const char *key, gguf_type item, err *e);

/* Item i of an entry (0 for a scalar), i < count. The type must be as asked; numbers are converted. */
double gguf_item_f64(const gguf_kv *kv, uint64_t i);
int64_t gguf_item_i64(const gguf_kv *kv, uint64_t i); /* for unsigned 64-bit: the same bits */
/* Strings have no fixed size: walk them. Start with cursor = kv->data; returns the next string. */
gguf_string gguf_next_string(const uint8_t **cursor);
/* The same for arrays in an array (item is GGUF_ARRAY): an entry without a key. They nest at most 8 deep. */
gguf_kv gguf_next_array(const uint8_t **cursor);

#endif
