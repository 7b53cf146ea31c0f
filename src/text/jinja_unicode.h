/* jinja_unicode.h: code points of valid UTF-8, and Python's notions of blank, letter and case. */
#ifndef TEXT_JINJA_UNICODE_H
#define TEXT_JINJA_UNICODE_H

#include "text/jinja_value.h"

bool uni_valid(const char *s, size_t len);
/* Length of the character that starts with this byte; the text must be valid. */
static inline size_t uni_size(char first) {
    unsigned char c = (unsigned char)first;
    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}
int32_t uni_decode(const char *s, size_t *size);
/* The start of the character that ends before s + at. */
size_t uni_back(const char *s, size_t at);
size_t uni_encode(int32_t c, char out[4]);
size_t uni_count(const char *s, size_t len);
/* Byte offset of the nth character, at most len. */
size_t uni_offset(const char *s, size_t len, size_t n);
/* Byte offset of the nth character from the end. */
size_t uni_offset_back(const char *s, size_t len, size_t n);

bool uni_space(int32_t c);
bool uni_line_break(int32_t c);
bool uni_alpha(int32_t c);
bool uni_decimal(int32_t c);
bool uni_numeric(int32_t c);
bool uni_digit(int32_t c);
bool uni_printable(int32_t c);
bool uni_lower(int32_t c);
bool uni_upper(int32_t c);
bool uni_cased(int32_t c);

/* Full case mappings, as Python's str methods. */
typedef enum uni_case { UNI_LOWER, UNI_UPPER, UNI_TITLE, UNI_FOLD } uni_case;
/* Appends the character at s[at] in the other case; s as a whole decides how a final sigma looks. */
void uni_add_case(jrun *r, jsink *out, const jstr *s, size_t at, uni_case how);
jval uni_map_case(jrun *r, const jstr *s, uni_case how);

/* Bounds of the text without blanks (or the characters of chars) at either end. */
typedef enum uni_side { UNI_LEFT = 1, UNI_RIGHT = 2, UNI_BOTH = 3 } uni_side;
void uni_strip(const jstr *s, const jstr *chars, uni_side side, size_t *start, size_t *end);

#endif
