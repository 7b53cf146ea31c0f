/* unicode.h: the little Unicode that tokenizers need: characters in arbitrary bytes, white space, normal form C. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include "base/mem.h"

/* Length of the valid UTF-8 character that starts at s, 0 when there is none (len > 0). */
size_t unicode_char(const char *s, size_t len);
/* How many bytes from s on are valid UTF-8. */
size_t unicode_valid(const char *s, size_t len);
/* Length of the white space character that starts at s, 0 when there is none. */
size_t unicode_space(const char *s, size_t len);

/* Appends s, which must be valid UTF-8, in normal form C. Linear in len whatever s holds. */
bool unicode_nfc(const char *s, size_t len, buf *out, err *e);

#endif
