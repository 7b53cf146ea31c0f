/* pretokenize.h: cuts text into the words within which a byte-level BPE tokenizer merges. Each model family published
 * its own patterns; the file names them in tokenizer.ggml.pre. */
#ifndef TEXT_PRETOKENIZE_H
#define TEXT_PRETOKENIZE_H

#include "gguf/gguf.h"

typedef struct pretokenizer pretokenizer;
typedef struct pretokenizer_scratch pretokenizer_scratch;

/* An unknown name is refused with the list of known ones. */
pretokenizer *pretokenizer_new(gguf_string name, err *e);
void pretokenizer_free(pretokenizer *p);

const char *pretokenizer_name(const pretokenizer *p);
bool pretokenizer_whole_words(const pretokenizer *p); /* a word that is a token is taken as it is, without merging */
bool pretokenizer_wants_bos(const pretokenizer *p);   /* when the file does not say */
bool pretokenizer_nfc(const pretokenizer *p);         /* the text is put into normal form C first */

/* What one thread needs while splitting. */
pretokenizer_scratch *pretokenizer_scratch_new(const pretokenizer *p, err *e);
void pretokenizer_scratch_free(pretokenizer_scratch *s);

/* Calls word for each part of text, in order; together they are the text. text must be valid UTF-8. Stops when word returns false. */
typedef bool pretokenizer_word(void *context, const char *word, size_t len, err *e);
bool pretokenizer_split(const pretokenizer *p, pretokenizer_scratch *s, const char *text, size_t len, pretokenizer_word *word,
                        void *context, err *e);

#endif
