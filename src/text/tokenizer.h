/* tokenizer.h: text to tokens and back, from the tokenizer.* metadata of a GGUF file. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/mem.h"
#include "gguf/gguf.h"

typedef struct tokenizer tokenizer;

/* Reads the vocabulary; g may be closed afterwards. An unknown kind or pre-tokenizer is refused by name. */
tokenizer *tokenizer_new(const gguf *g, err *e);
void tokenizer_free(tokenizer *t);

int32_t tokenizer_size(const tokenizer *t);

/* Appends the tokens of text to out. Any bytes are accepted, valid UTF-8 or not. parse_special: control
 * tokens written in the text are recognised; user-defined ones always are. No BOS is added. Bytes that the vocabulary
 * has no token for (Falcon lacks some control characters) are left out. */
typedef struct token_list {
    int32_t *ids;
    size_t n, cap;
} token_list;
bool token_list_add(token_list *l, int32_t id, err *e);
void token_list_free(token_list *l);
bool tokenizer_encode(const tokenizer *t, const char *text, size_t len, bool parse_special, token_list *out, err *e);

/* The exact bytes a token stands for, owned by the tokenizer. Control tokens (and unknown) are empty unless special is true.
 * NULL when id is out of range. */
const char *tokenizer_bytes(const tokenizer *t, int32_t id, bool special, size_t *len);

/* Appends the exact bytes of n tokens: what was encoded comes back. With special, control tokens appear as their text.
 * The spaces that SentencePiece put at the start and after special tokens are taken out again. */
bool tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool special, buf *out, err *e);

/* The piece as it stands in the file (before byte decoding), for printing. */
const char *tokenizer_piece(const tokenizer *t, int32_t id, size_t *len);

/* SentencePiece puts a space before the first word: whether text decoded from the first token on has one too many. */
bool tokenizer_adds_space(const tokenizer *t);

int32_t tokenizer_bos(const tokenizer *t); /* HEARTH_TOKEN_NONE when there is none */
int32_t tokenizer_eos(const tokenizer *t);
bool tokenizer_wants_bos(const tokenizer *t); /* BOS is to be added by default */
bool tokenizer_wants_eos(const tokenizer *t); /* EOS ends a text that is embedded */
bool tokenizer_ends(const tokenizer *t, int32_t id); /* end of text, end of turn, end of message */

const char *tokenizer_kind(const tokenizer *t); /* for `inspect`: "BPE (llama-bpe)", "SentencePiece" */

/* Streaming decode: feed token bytes, take out whole characters. Bytes that can no longer become a
 * character are passed on unchanged. Zero-initialised is empty. */
typedef struct utf8_stream {
    unsigned char held[4];
    int n;
} utf8_stream;
/* Appends to out what is certain after these bytes. */
bool utf8_stream_add(utf8_stream *s, const char *bytes, size_t len, buf *out, err *e);
/* Appends what is still held (the end of the text). */
bool utf8_stream_end(utf8_stream *s, buf *out, err *e);

#endif
