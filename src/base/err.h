/* err.h: the one way to fail. A function that can fail takes an `err *` as its last argument and
 * returns false, NULL or -1; the err holds one sentence for the user. A NULL err is allowed. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "hearth.h"

typedef hearth_error err;

/* Sets code and message; returns false so that callers can `return err_set(...)`. The first
 * message wins: an err that is already set is left alone. */
bool err_set(err *e, hearth_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Puts "prefix: " before the message that is there, e.g. a file name. Returns false. */
bool err_prefix(err *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool err_nomem(err *e, size_t bytes);
void err_clear(err *e);
/* Writes text to out with control characters and broken UTF-8 shown as \xNN, cut with "..." to fit;
 * for putting names from hostile files into messages. Returns out. */
char *err_quote(char *out, size_t cap, const char *text, size_t len);

#endif
