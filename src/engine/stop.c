#include "engine/stop.h"

#include <string.h>

static bool open_string(stop_string *s, const char *text, err *e) {
    s->len = strlen(text);
    if (s->len == 0) return err_set(e, HEARTH_ARGUMENT, "a stop string must not be empty");
    s->text = mem_strndup(text, s->len, e);
    s->fallback = s->text ? mem_zalloc(s->len, sizeof *s->fallback, e) : NULL;
    if (!s->fallback) return false;
    for (size_t i = 1, k = 0; i < s->len; i++) {
        while (k > 0 && text[i] != text[k]) k = s->fallback[k - 1];
        if (text[i] == text[k]) k++;
        s->fallback[i] = k;
    }
    return true;
}

bool stop_open(stop_filter *f, const char *const *strings, err *e) {
    *f = (stop_filter){0};
    size_t n = 0;
    while (strings && strings[n]) n++;
    if (n == 0) return true;
    f->strings = mem_zalloc(n, sizeof *f->strings, e);
    if (!f->strings) return false;
    f->n = n;
    for (size_t i = 0; i < n; i++) {
        if (open_string(&f->strings[i], strings[i], e)) continue;
        stop_close(f);
        return false;
    }
    return true;
}

void stop_close(stop_filter *f) {
    for (size_t i = 0; i < f->n; i++) {
        mem_free(f->strings[i].text);
        mem_free(f->strings[i].fallback);
    }
    mem_free(f->strings);
    buf_free(&f->held);
    *f = (stop_filter){0};
}

/* Takes one more byte into account; true when the string is complete. */
static bool advance(stop_string *s, char byte) {
    while (s->matched > 0 && s->text[s->matched] != byte) s->matched = s->fallback[s->matched - 1];
    if (s->text[s->matched] == byte) s->matched++;
    return s->matched == s->len;
}

/* Passes on the first n held bytes. */
static bool release(stop_filter *f, size_t n, buf *out, err *e) {
    if (!utf8_stream_add(&f->characters, f->held.data, n, out, e)) return false;
    memmove(f->held.data, f->held.data + n, f->held.len - n);
    f->held.len -= n;
    return true;
}

bool stop_add(stop_filter *f, const char *bytes, size_t len, buf *out, err *e) {
    if (f->found || len == 0) return true;
    size_t base = f->held.len;
    if (!buf_add(&f->held, bytes, len, e)) return false;
    size_t longest = 0; /* the longest stop string that is complete, else the longest beginning of one */
    for (size_t i = base; i < f->held.len && !f->found; i++) {
        longest = 0;
        for (size_t k = 0; k < f->n; k++) {
            bool complete = advance(&f->strings[k], f->held.data[i]);
            if (complete && !f->found) longest = 0;
            f->found = f->found || complete;
            if ((complete || !f->found) && f->strings[k].matched > longest) longest = f->strings[k].matched;
        }
        if (f->found) f->held.len = i + 1;
    }
    if (!release(f, f->held.len - longest, out, e)) return false;
    if (!f->found) return true;
    f->held.len = 0;
    return utf8_stream_end(&f->characters, out, e);
}

bool stop_end(stop_filter *f, buf *out, err *e) {
    if (f->held.len && !release(f, f->held.len, out, e)) return false;
    return utf8_stream_end(&f->characters, out, e);
}
