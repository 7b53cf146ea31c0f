/* blockfile.h: the file of a block, and that of its window part. Its header is known to the byte from the block's name and the layout, so that reading is a comparison: a file that is not
 * exactly what this build would write for that block is not used. */
#ifndef STORE_BLOCKFILE_H
#define STORE_BLOCKFILE_H

#include "kv/cache.h"
#include "store/shelf.h"
#include "store/tensorfile.h"

/* Adds the keys and values of n tokens of every layer, in the order of a block. */
bool blockfile_tensors(tensor_header *h, const kv_layout *l, int n, err *e);

/* The header of a block's file, or of that of its window part. model is the fingerprint in digits. */
bool blockfile_header(tensor_header *h, const kv_layout *l, const char *model, const shelf_key *key, const kv_name *parent, bool window, err *e);
/* Writes block b or its window part; room must have been reserved. */
bool blockfile_write(const char *path, tensor_header *h, const kv_layout *l, const kv_block *b, bool window, err *e);
/* Whether the file that is mapped is the one with this header, and its tokens are whole: HEARTH_FORMAT when not. Of the layers nothing is read. */
bool blockfile_is(const file_map *m, const tensor_header *expected, const kv_layout *l, bool window, err *e);

/* A layer of a block or of its window part: keys, then values. They come in the order of the model. */
typedef struct blockfile_layer {
    int layer;                      /* of the model */
    int place;                      /* in the layout's order; n_layers: there is no more */
    size_t start, k_bytes, v_bytes; /* in the data */
    size_t tensor;                  /* the first of its tensors in the header */
} blockfile_layer;
blockfile_layer blockfile_first(const kv_layout *l, bool window);
bool blockfile_next(const kv_layout *l, bool window, blockfile_layer *at); /* false: there is no more */
/* sums: the digits of all tensors' checksums. HEARTH_FORMAT when the layer is damaged. */
bool blockfile_check_layer(const uint8_t *data, const char *sums, const blockfile_layer *at, err *e);

/* Checks one in memory without knowing the layout: that it is whole, sound, and the block of these KV_BLOCK tokens below that parent. tokens NULL: its window part, which is
 * needed reach blocks far. */
bool blockfile_check(const file_map *m, const shelf_key *key, const kv_name *parent, const char *model, const int32_t *tokens, unsigned reach, err *e);
/* Checks a file without knowing the model: that it is whole and says of itself what its name says. */
bool blockfile_verify(const char *path, const shelf_key *key, bool window, err *e);

#endif
