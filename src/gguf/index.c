/* index.c: finds keys and tensors by name in constant time. */
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "gguf/parts.h"

static uint32_t hash_name(uint64_t seed, const char *name, size_t len) {
    uint64_t h = seed;
    for (size_t i = 0; i < len; i++) {
        h = (h ^ (uint8_t)name[i]) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return (uint32_t)(h ^ h >> 32);
}

static const gguf_string *name_at(const void *items, size_t stride, size_t i) {
    return (const gguf_string *)((const char *)items + i * stride);
}

static gguf_slot *probe(const gguf_index *x, const void *items, size_t stride, uint32_t hash, const char *name, size_t len) {
    for (size_t i = hash & x->mask;; i = (i + 1) & x->mask) {
        gguf_slot *s = &x->slots[i];
        if (s->place == 0) return s;
        if (s->hash != hash) continue;
        const gguf_string *there = name_at(items, stride, s->place - 1);
        if (there->len == len && memcmp(there->data, name, len) == 0) return s;
    }
}

bool gguf_index_build(gguf_index *x, const void *items, size_t stride, size_t n, const char *what, err *e) {
    if (n > UINT32_MAX / 4) return err_set(e, HEARTH_LIMIT, "%zu names of a %s are more than hearth can index", n, what);
    size_t slots = 4;
    while (slots < n * 2) slots *= 2;
    x->slots = mem_zalloc(slots, sizeof *x->slots, e);
    if (!x->slots) return false;
    x->mask = slots - 1;
    if (getrandom(&x->seed, sizeof x->seed, GRND_NONBLOCK) != (ssize_t)sizeof x->seed) x->seed = clock_ns();
    for (size_t i = 0; i < n; i++) {
        const gguf_string *name = name_at(items, stride, i);
        uint32_t hash = hash_name(x->seed, name->data, name->len);
        gguf_slot *s = probe(x, items, stride, hash, name->data, name->len);
        if (s->place) {
            char quoted[100];
            return err_set(e, HEARTH_FORMAT, "the %s '%s' is there twice", what, err_quote(quoted, sizeof quoted, name->data, name->len));
        }
        *s = (gguf_slot){.hash = hash, .place = (uint32_t)i + 1};
    }
    return true;
}

const void *gguf_index_find(const gguf_index *x, const void *items, size_t stride, const char *name, size_t len) {
    if (!x->slots) return NULL;
    const gguf_slot *s = probe(x, items, stride, hash_name(x->seed, name, len), name, len);
    return s->place ? name_at(items, stride, s->place - 1) : NULL;
}

void gguf_index_free(gguf_index *x) {
    mem_free(x->slots);
    *x = (gguf_index){0};
}
