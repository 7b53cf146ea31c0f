#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *hearth_code_text(hearth_code code) {
    static const char *const texts[] = {
#define X(name, text) text,
        HEARTH_CODES(X)
#undef X
    };
    if ((unsigned)code >= sizeof texts / sizeof *texts) return "unknown error";
    return texts[code];
}

const char *hearth_version(void) { return HEARTH_VERSION; }

bool err_set(err *e, hearth_code code, const char *format, ...) {
    if (!e || e->code != HEARTH_OK) return false;
    e->code = code;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    return false;
}

bool err_prefix(err *e, const char *format, ...) {
    if (!e || e->code == HEARTH_OK) return false;
    char prefix[sizeof e->text];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix - 2, format, args);
    va_end(args);
    strcat(prefix, ": ");
    size_t n = strlen(prefix), keep = strlen(e->text);
    if (n + keep >= sizeof e->text) keep = sizeof e->text - 1 - n; /* the end of the message gives way */
    memmove(e->text + n, e->text, keep);
    memcpy(e->text, prefix, n);
    e->text[n + keep] = 0;
    return false;
}

bool err_nomem(err *e, size_t bytes) {
    return err_set(e, HEARTH_MEMORY, "out of memory: %zu bytes could not be allocated", bytes);
}

void err_clear(err *e) {
    if (!e) return;
    e->code = HEARTH_OK;
    e->text[0] = 0;
}

/* Length of the character at s that is safe to show, 0 when there is none: valid UTF-8 and no control character. */
static size_t shown_length(const unsigned char *s, size_t len) {
    size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : 0;
    if (n == 0 || n > len) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    bool control = s[0] < 0x20 || s[0] == 0x7F || (s[0] == 0xC2 && s[1] < 0xA0);
    bool overlong = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xF0 && s[1] < 0x90);
    bool outside = (s[0] == 0xED && s[1] >= 0xA0) || (s[0] == 0xF4 && s[1] >= 0x90); /* surrogates, beyond U+10FFFF */
    return control || overlong || outside ? 0 : n;
}

char *err_quote(char *out, size_t cap, const char *text, size_t len) {
    size_t used = 0, i = 0;
    if (cap == 0) return out;
    while (i < len) {
        const unsigned char *s = (const unsigned char *)text + i;
        size_t n = shown_length(s, len - i);
        bool plain = n > 0;
        size_t need = plain ? n : 4;
        if (used + need + 4 > cap) {
            snprintf(out + used, cap - used, "...");
            return out;
        }
        if (plain) memcpy(out + used, s, n);
        else snprintf(out + used, 5, "\\x%02X", s[0]);
        used += need;
        i += plain ? n : 1;
    }
    out[used] = 0;
    return out;
}
