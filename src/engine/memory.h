/* memory.h: what the loop remembers of conversations that do not run now. A request finds the longest prefix of its tokens by itself;
 * nothing has to be configured. Used by the loop's thread only; the counts may be read by any. */
#ifndef ENGINE_MEMORY_H
#define ENGINE_MEMORY_H

#include <stdatomic.h>

#include "kv/kv.h"

typedef struct memory memory;

typedef struct memory_stats {
    uint64_t hits, misses;         /* requests that found a prefix, or none */
    uint64_t tokens_reused;
    uint64_t evictions;
    uint64_t bytes, conversations; /* now */
} memory_stats;

/* layout must outlive it. */
memory *memory_new(const kv_layout *layout, err *e);
void memory_free(memory *m);

/* Puts keys and values for a prefix of tokens (n - 1 of them at most: the last one is computed for its logits) into kv, which is
 * empty. kv may share nothing, or all, of what was kept. also: conversations that run now, which may lend a copy; may be NULL. Only what was computed with the same long_context fits. Finding
 * nothing is no failure: kv stays empty. */
typedef struct memory_lender {
    const kv_seq *kv;
    const int32_t *tokens; /* at least kv->length */
    bool long_context;
} memory_lender;
void memory_recall(memory *m, const int32_t *tokens, size_t n, bool long_context, const memory_lender *also, int n_also, kv_seq *kv);

/* Takes kv over (it is empty afterwards) together with a copy of its kv->length tokens. What does not fit in memory is forgotten. */
void memory_keep(memory *m, kv_seq *kv, const int32_t *tokens, bool long_context);

/* Forgets the least recently used until at most this many bytes are kept. */
void memory_shrink(memory *m, uint64_t bytes);

uint64_t memory_bytes(const memory *m);
memory_stats memory_count(const memory *m);

#endif
