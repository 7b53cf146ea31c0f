/* vocab.h: the table of tokens behind both kinds of tokenizer: their text, type and score, finding a token by its
 * text, and finding special tokens in running text. Read from the file once, never changed afterwards. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include "base/mem.h"
#include "gguf/gguf.h"

/* The types as they are numbered in the file. */
typedef enum vocab_type {
    VOCAB_UNDEFINED,
    VOCAB_NORMAL,
    VOCAB_UNKNOWN,
    VOCAB_CONTROL,
    VOCAB_USER, /* recognised in text before anything else */
    VOCAB_UNUSED,
    VOCAB_BYTE,
    VOCAB_TYPES,
} vocab_type;

/* Longer tokens are refused. The longest in use is a few hundred bytes. */
enum { VOCAB_MAX_TOKEN = 65535 };

typedef struct vocab_token {
    uint32_t piece, bytes; /* where they start in vocab.pieces and vocab.bytes */
    uint16_t piece_len, bytes_len;
    uint8_t type;
    bool eats_space; /* white space after it is dropped */
    float score;
} vocab_token;

/* Tokens recognised in running text, ordered by their bytes. */
typedef struct vocab_specials {
    int32_t *ids;
    uint32_t n;
    uint32_t first[257]; /* those that start with byte b are ids[first[b]] up to ids[first[b + 1]] */
} vocab_specials;

typedef struct vocab {
    int32_t n;
    vocab_token *tokens;
    char *pieces; /* the tokens as they stand in the file */
    char *bytes;  /* the bytes they stand for */
    uint32_t *slots; /* open addressing over pieces: id + 1, 0 is free */
    int slot_bits;
    uint32_t max_piece;
    vocab_specials user;     /* user-defined only */
    vocab_specials specials; /* user-defined, control and unknown */
} vocab;

/* byte_level: the pieces are spelt in the byte alphabet of GPT-2; else U+2581 stands for a space and <0xNN> for a byte. */
bool vocab_load(vocab *v, const gguf *g, bool byte_level, err *e);
void vocab_free(vocab *v);

static inline const char *vocab_piece(const vocab *v, int32_t id) { return v->pieces + v->tokens[id].piece; }
static inline const char *vocab_bytes(const vocab *v, int32_t id) { return v->bytes + v->tokens[id].bytes; }

/* Whether text may turn into this token without being asked to parse special tokens. */
static inline bool vocab_plain(const vocab *v, int32_t id) {
    return v->tokens[id].type != VOCAB_CONTROL && v->tokens[id].type != VOCAB_UNKNOWN && v->tokens[id].type != VOCAB_BYTE;
}

/* The hash of a piece is a polynomial over its bytes modulo 2^61 - 1, so that the hash of any part of a text follows from
 * the hashes of two of its prefixes. */
uint64_t vocab_hash(uint64_t hash, const char *text, size_t len); /* continues hash, which starts as 0 */
uint64_t vocab_hash_shift(uint64_t hash, uint64_t power);         /* hash * power */
uint64_t vocab_hash_cut(uint64_t whole, uint64_t shifted_prefix); /* the hash of what follows the prefix */
uint64_t vocab_hash_base(void);                                   /* the power of one byte */

/* The token spelt like this, or -1. Of equal ones the first counts. */
int32_t vocab_find(const vocab *v, const char *piece, size_t len);
int32_t vocab_find_hashed(const vocab *v, const char *piece, size_t len, uint64_t hash);

/* The longest token of the list that text (len > 0) starts with, or -1. */
int32_t vocab_match(const vocab *v, const vocab_specials *list, const char *text, size_t len);

/* The letter of GPT-2's byte alphabet for a byte, as UTF-8 of 1 or 2 bytes; returns its length. */
size_t vocab_letter(unsigned char byte, char out[2]);
/* The byte of <0xNN>, or -1. */
int vocab_hex_byte(const char *piece, size_t len);

#endif
