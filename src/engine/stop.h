/* stop.h: from token bytes to text that may be shown. Holds back what could still become a stop string or is only half
 * a UTF-8 character. What comes out does not depend on where the borders between tokens lie. */
#ifndef ENGINE_STOP_H
#define ENGINE_STOP_H

#include "text/tokenizer.h"

/* One stop string on its way to being found (Knuth, Morris and Pratt). */
typedef struct stop_string {
    char *text;
    size_t len;
    size_t *fallback; /* fallback[i]: longest proper prefix of text that text[0..i] ends with */
    size_t matched;   /* how much of it the bytes so far end with */
} stop_string;

/* Zero-initialised can be freed. */
typedef struct stop_filter {
    stop_string *strings;
    size_t n;
    buf held;
    utf8_stream characters;
    bool found;
} stop_filter;

/* strings is NULL-terminated, or NULL for none; they are copied. An empty one is refused. */
bool stop_open(stop_filter *f, const char *const *strings, err *e);
void stop_close(stop_filter *f);

/* Appends to out what is certain after these bytes. Once a stop string is complete f->found is true: the text before it
 * is in out, the stop string and all that follows are dropped. The one that is complete first wins. */
bool stop_add(stop_filter *f, const char *bytes, size_t len, buf *out, err *e);

/* The end of the text: appends all that is held back. */
bool stop_end(stop_filter *f, buf *out, err *e);

#endif
