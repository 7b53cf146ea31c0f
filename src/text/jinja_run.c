/* jinja_run.c: the arena of a run, its limits, its one way out, and texts that grow in it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_unicode.h"

void jinja_fail(jrun *r, hearth_code code, const char *format, ...) {
    char text[sizeof((err *)0)->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (code == HEARTH_MEMORY || r->line == 0) err_set(r->e, code, "%s", text);
    else err_set(r->e, code, "line %u: %s", r->line, text);
    longjmp(*r->fail, 1);
}

void jinja_raise(jrun *r, const jstr *text) {
    size_t len = text->len, most = sizeof((err *)0)->text - 1;
    if (len > most) { /* cut between characters */
        len = most + 1;
        while (len > most) len = uni_back(text->data, len);
    }
    err_set(r->e, HEARTH_ARGUMENT, "%.*s", (int)len, text->data);
    longjmp(*r->fail, 1);
}

void jinja_release(jchunk *c) {
    while (c) {
        jchunk *next = c->next;
        mem_free(c);
        c = next;
    }
}

static void new_chunk(jrun *r, size_t bytes) {
    size_t size = r->memory < ((size_t)1 << 20) ? (size_t)32 << 10 : (size_t)512 << 10;
    if (size < bytes) size = bytes;
    if (size > JINJA_MAX_MEMORY - r->memory) size = bytes;
    if (bytes > JINJA_MAX_MEMORY - r->memory)
        jinja_fail(r, HEARTH_LIMIT, "the template needs more than the limit of %zu MiB of memory", JINJA_MAX_MEMORY >> 20);
    err e = {0};
    jchunk *c = mem_alloc(1, sizeof *c + size, &e);
    if (!c) jinja_fail(r, e.code, "%s", e.text);
    *c = (jchunk){.next = r->chunks, .size = size};
    r->chunks = c;
    r->memory += size;
}

void *jinja_alloc(jrun *r, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > JINJA_MAX_MEMORY) bytes = JINJA_MAX_MEMORY + 1;
    else bytes = (bytes + 15) & ~(size_t)15;
    if (!r->chunks || bytes > r->chunks->size - r->chunks->used) new_chunk(r, bytes);
    void *p = r->chunks->data + r->chunks->used;
    r->chunks->used += bytes;
    return p;
}

void *jinja_grow(jrun *r, void *old, size_t old_count, size_t new_count, size_t size) {
    size_t have = (old_count * size + 15) & ~(size_t)15, want;
    jchunk *c = r->chunks;
    if (old && c && (char *)old + have == c->data + c->used && !__builtin_mul_overflow(new_count, size, &want) && want < JINJA_MAX_MEMORY) {
        want = (want + 15) & ~(size_t)15;
        if (want <= have) return old;
        if (want - have <= c->size - c->used) {
            c->used += want - have;
            return old;
        }
    }
    void *p = jinja_alloc(r, new_count, size);
    if (old_count) memcpy(p, old, old_count * size);
    return p;
}

void jinja_check_stack(jrun *r) {
    const char *here = __builtin_frame_address(0);
    size_t used = here < r->stack ? (size_t)(r->stack - here) : (size_t)(here - r->stack);
    if (used > JINJA_MAX_STACK) jinja_fail(r, HEARTH_LIMIT, "the template or its data is nested too deeply");
}

void jinja_step(jrun *r, uint64_t n) {
    if (n > JINJA_MAX_STEPS || (r->steps += n) > JINJA_MAX_STEPS)
        jinja_fail(r, HEARTH_LIMIT, "the template takes more than the limit of %u steps", JINJA_MAX_STEPS);
}

static void sink_reserve(jrun *r, jsink *s, size_t extra) {
    if (extra > JINJA_MAX_OUTPUT || s->len + extra > JINJA_MAX_OUTPUT)
        jinja_fail(r, HEARTH_LIMIT, "the template makes a text larger than the limit of %zu MiB", JINJA_MAX_OUTPUT >> 20);
    size_t need = s->len + extra;
    if (need <= s->cap) return;
    size_t cap = s->cap ? s->cap * 2 : 48;
    if (cap < need) cap = need;
    s->data = jinja_grow(r, s->data, s->cap, cap, 1);
    s->cap = cap;
}

void jinja_add(jrun *r, jsink *s, const char *data, size_t len) {
    sink_reserve(r, s, len);
    if (len) memcpy(s->data + s->len, data, len);
    s->len += len;
}

void jinja_addc(jrun *r, jsink *s, char c) { jinja_add(r, s, &c, 1); }
void jinja_adds(jrun *r, jsink *s, const char *text) { jinja_add(r, s, text, strlen(text)); }

void jinja_add_char(jrun *r, jsink *s, int32_t codepoint) {
    char bytes[4];
    jinja_add(r, s, bytes, uni_encode(codepoint, bytes));
}

void jinja_add_repeated(jrun *r, jsink *s, const char *data, size_t len, size_t times) {
    size_t total;
    if (len == 0 || times == 0) return;
    if (__builtin_mul_overflow(len, times, &total)) total = SIZE_MAX;
    sink_reserve(r, s, total);
    jinja_scan(r, total);
    for (size_t i = 0; i < times; i++) memcpy(s->data + s->len + i * len, data, len);
    s->len += total;
}

jval jinja_sink_str(jrun *r, const jsink *s) { return jinja_str(r, s->data ? s->data : "", s->len); }
