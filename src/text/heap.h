/* heap.h: the queue of possible merges: a growable binary heap of 64-bit keys, smallest first. The upper half of a key
 * is how urgent the merge is, the lower half where it is, so that of equals the leftmost comes first. */
#ifndef TEXT_HEAP_H
#define TEXT_HEAP_H

#include "base/mem.h"

typedef struct heap {
    uint64_t *keys;
    size_t n, cap;
} heap;

static inline bool heap_push(heap *h, uint64_t key, err *e) {
    if (h->n == h->cap) {
        size_t cap = h->cap ? h->cap * 2 : 64;
        uint64_t *keys = mem_realloc(h->keys, cap, sizeof *keys, e);
        if (!keys) return false;
        h->keys = keys;
        h->cap = cap;
    }
    size_t i = h->n++;
    while (i > 0 && h->keys[(i - 1) / 2] > key) {
        h->keys[i] = h->keys[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h->keys[i] = key;
    return true;
}

/* The heap must not be empty. */
static inline uint64_t heap_pop(heap *h) {
    uint64_t top = h->keys[0], key = h->keys[--h->n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n) break;
        if (child + 1 < h->n && h->keys[child + 1] < h->keys[child]) child++;
        if (h->keys[child] >= key) break;
        h->keys[i] = h->keys[child];
        i = child;
    }
    h->keys[i] = key;
    return top;
}

static inline void heap_free(heap *h) { mem_free(h->keys); }

#endif
