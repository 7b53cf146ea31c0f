/* spm.h: SentencePiece encoding of one stretch of text: starting from single characters, the two neighbours that
 * together are the token with the best score are joined until none are; what is no token then is spelt in bytes. */
#ifndef TEXT_SPM_H
#define TEXT_SPM_H

#include "text/heap.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

typedef struct spm {
    const vocab *v;
    uint64_t *powers;      /* of the hash base, up to the longest piece */
    int32_t byte_ids[256]; /* -1: the vocabulary has no token for this byte */
    int32_t unknown;       /* for characters that cannot be spelt; -1 only when all can */
    bool add_space;        /* a space is put before the text */
    bool trim;             /* spaces at both ends are dropped and runs of them count as one */
} spm;

/* The settings above are in m already. */
bool spm_load(spm *m, const vocab *v, err *e);
void spm_free(spm *m);

/* What one thread needs; grows to the longest text seen. Zero-initialised is empty. */
typedef struct spm_symbol {
    int32_t id, previous, next; /* next: index of the following one, the number of symbols at the end; -1 once merged away */
    uint32_t start;             /* in text */
    uint64_t hash;              /* of all text before it */
} spm_symbol;
typedef struct spm_scratch {
    buf text; /* with U+2581 for spaces */
    spm_symbol *symbols;
    size_t cap;
    heap queue;
} spm_scratch;
void spm_scratch_free(spm_scratch *s);

/* Appends the tokens of text, any bytes, at most INT32_MAX / 4 of them. */
bool spm_encode(const spm *m, spm_scratch *s, const char *text, size_t len, token_list *out, err *e);

#endif
