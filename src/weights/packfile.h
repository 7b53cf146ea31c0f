/* packfile.h: the file of packed forms. docs/weights.md has the offset table. A file is complete or it is not there (the writer of base/file.h), and
 * everything in it is under a checksum: the header and the index when it is opened, each matrix before its first use. */
#ifndef WEIGHTS_PACKFILE_H
#define WEIGHTS_PACKFILE_H

#include "base/file.h"

typedef struct hash128 {
    uint64_t low, high;
} hash128;
static inline bool hash_equal(hash128 a, hash128 b) { return a.low == b.low && a.high == b.high; }

/* One matrix. */
typedef struct pack_item {
    const char *name; /* in the mapping when read; not NUL-terminated there */
    uint32_t name_len;
    int32_t slice;    /* -1: not one of several */
    int32_t type;
    int64_t rows, cols;
    uint64_t offset, bytes; /* in the file */
    uint64_t sum;
    uint64_t make_ns; /* what making it cost when the file was written */
} pack_item;

typedef struct pack_key {
    hash128 table, fingerprint, layout;
    char variant[32];
} pack_key;

typedef struct packfile {
    file_map map;
    pack_key key;
    pack_item *items;
    size_t n;
} packfile;

#define PACK_VERSION 1u
#define PACK_CHUNK ((size_t)4 << 20) /* a checksum is over the checksums of pieces of this size, so that several threads can share it */

/* Maps and checks all but the matrices' bytes. Errors are HEARTH_FORMAT when the file is damaged, else the system's. */
bool packfile_open(packfile *p, const char *path, err *e);
void packfile_close(packfile *p);
/* Compares the bytes of one matrix with its checksum. */
bool packfile_check(const packfile *p, size_t item);

uint64_t pack_sum(const void *data, size_t bytes);
/* The same in steps: the sum of piece i, then of all n sums (a single one is the result itself). */
size_t pack_pieces(size_t bytes);
uint64_t pack_piece_sum(const void *data, size_t bytes, size_t piece);
uint64_t pack_join_sums(const uint64_t *sums, size_t n);

/* Writes a file: begin with all items (offsets are filled in, sums not yet known), then the bytes of each in order, then end. */
typedef struct packwriter {
    file_writer file;
    pack_key key;
    pack_item *items;
    size_t n, next;
    uint64_t data_end, index_bytes;
    uint8_t *block; /* what goes to the file next; large writes at even places give large pages */
    size_t filled;
} packwriter;
bool packwriter_begin(packwriter *w, const char *path, const pack_key *key, pack_item *items, size_t n, err *e);
bool packwriter_add(packwriter *w, const void *data, uint64_t make_ns, err *e);
bool packwriter_end(packwriter *w, err *e);
void packwriter_abort(packwriter *w);
/* Bytes the file will have. */
uint64_t packwriter_bytes(const pack_item *items, size_t n);

#endif
