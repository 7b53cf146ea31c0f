/* tensorfile.h: safetensors files with a checksum over every byte. A file is an 8-byte little-endian length, a JSON header of that length padded with spaces so
 * that the data starts at a multiple of 64, and the data without gaps. The first entry of the header's "__metadata__" is "checksum": 16 hexadecimal digits of
 * a hash of all other bytes of the file; or of the header's, where an entry "sums" has 16 digits for the bytes of each tensor, so that each can be checked by itself.
 * docs/store.md has the offset table. */
#ifndef STORE_TENSORFILE_H
#define STORE_TENSORFILE_H

#include <jansson.h>

#include "base/file.h"

/* Where things lie in every file. */
#define TENSOR_START "{\"__metadata__\":{\"checksum\":\""
enum { TENSOR_SUM_AT = 8 + sizeof TENSOR_START - 1, TENSOR_SUM_DIGITS = 16, TENSOR_ALIGN = 64 };

/* A header in the making. Zero-initialised; text is freed with buf_free. */
typedef struct tensor_header {
    buf text;        /* with the length in front, once ended */
    uint64_t offset; /* bytes of data so far */
    bool in_data;
    size_t sums_at;  /* where the digits of the tensors' own checksums are; 0: there are none */
} tensor_header;
/* Metadata first, then tensors in the order of their bytes, then the end. Keys and plain values must need no escape; any text may hold any UTF-8. */
bool tensor_meta(tensor_header *h, const char *key, const char *value, err *e);
bool tensor_meta_any(tensor_header *h, const char *key, const char *value, err *e);
/* Each of the n tensors that come has a checksum of its own, filled in later. */
bool tensor_sums(tensor_header *h, size_t n, err *e);
bool tensor_add(tensor_header *h, const char *name, const char *dtype, int n_dims, const int64_t *dims, size_t item, err *e);
bool tensor_end(tensor_header *h, err *e);

/* Fills in the checksum of tensor i. */
void tensor_set_sum(tensor_header *h, size_t i, const void *data, size_t len);
/* Whether these bytes have that checksum: 16 digits. */
bool tensor_is_sum(const char *digits, const void *data, size_t len);

/* Writes header (ended; its checksum is filled in) and data to path: whole and durable, or not at all. */
bool tensor_write(const char *path, tensor_header *h, const void *data, err *e);
/* The same with the data in parts, which together have as many bytes as the tensors. */
typedef struct tensor_part {
    const void *data;
    size_t len;
} tensor_part;
bool tensor_write_parts(const char *path, tensor_header *h, const tensor_part *parts, size_t n, err *e);

/* Checks all of a file that is mapped and whose tensors have no checksums of their own: HEARTH_FORMAT with a reason when it is not whole. *header_end is where
 * the data starts. */
bool tensor_check(const file_map *m, size_t *header_end, err *e);
/* Checks the header of a file whose tensors have their own, and then these, with the header as it was parsed. */
bool tensor_check_header(const file_map *m, size_t *header_end, err *e);
bool tensor_check_sums(const file_map *m, size_t header_end, const json_t *root, err *e);
/* Only the sizes and first words: no more than the start of the file is read. */
bool tensor_check_start(const file_map *m, size_t *header_end, err *e);
/* The header as JSON, freed with json_decref; n_data bytes follow it. Every rule of the format holds for what is returned: metadata is text, and the tensors, in
 * the order of the header, cover the data without a gap. NULL with HEARTH_FORMAT otherwise. */
json_t *tensor_parse(const void *data, size_t header_end, size_t n_data, err *e);
/* Adds all tensors of a header that was parsed. */
bool tensor_add_all(tensor_header *h, const json_t *root, err *e);

#endif
