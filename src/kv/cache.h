/* cache.h: the blocks in memory. Every block that a sequence of this cache holds is counted against one budget; full ones, and the tails of ended
 * conversations, stay in a prefix tree after their last user has gone, until their room is needed.
 *
 * Who goes first: of the blocks that nobody holds and nothing in memory builds on, the one that saves the least compute per byte, aged by use: a block's worth is
 * the clock at its last use plus what computing it again would cost; the clock is the worth of the last one that went. A block in use never goes. A need
 * beyond the budget is served all the same, and what is over is given back as soon as it is free.
 *
 * The window part of a block (kv_layout) can go before the rest: first of all go the window parts that conversations have moved past and that nobody needs, the longest passed ones
 * first. What an ended conversation's next token would see is not among them.
 *
 * May be used from several threads. */
#ifndef KV_CACHE_H
#define KV_CACHE_H

#include <limits.h>
#include <stdatomic.h>

#include "kv/kv.h"

/* What bytes belong to when they are not the block's own, such as a mapped file. They may still be arriving, layer after layer in the order of the model:
 * whoever needs a layer first waits until it has come and checks it, and only then may it be read. */
enum { KV_LOST = -1, KV_ALL = INT_MAX };
typedef struct kv_owner {
    void (*release)(struct kv_owner *owner);
    /* Checks the next layer and returns the one after it: KV_ALL when it was the last, KV_LOST when it is damaged. Never by two threads at a time. */
    int (*check)(struct kv_owner *owner);
    _Atomic int come;       /* the layers below this one have come, ... */
    _Atomic int layers;     /* ... and those below this one were checked and may be read; KV_LOST: one is damaged */
    bool checking, awaited; /* someone checks a layer, someone waits; under the cache's lock */
} kv_owner;

struct kv_block {
    kv_name name;           /* once it is in the tree */
    uint8_t *data;          /* the keys and values outside the window part, then KV_BLOCK tokens; NULL for a root */
    uint8_t *window;        /* the window part; NULL: it is gone, or there is none in this layout */
    kv_owner *owner, *window_owner; /* NULL: data, window are the block's own */
    kv_block *parent, *first_child, *next, *previous; /* the tree; siblings with the last used one first */
    kv_block *same_slot;    /* the table */
    double worth;
    kv_block *older, *newer; /* among those whose window part was passed; NULL for the ends */
    uint32_t refs;
    uint32_t window_refs;   /* who needs the window part */
    uint32_t index;         /* which block of the conversation */
    uint32_t heap_at;       /* place among those that may go, plus one; 0: may not */
    uint16_t hits;
    uint8_t n_tokens;
    bool in_tree, durable;  /* durable: it is on disk too */
    bool passed, listed;    /* a conversation has moved past the window part; it may go */
};

/* budget: bytes of all blocks and of the tree. NULL on failure. The layout must outlive the cache. */
kv_cache *kv_cache_new(const kv_layout *l, uint64_t budget, err *e);
/* Everything held must have been dropped. Accepts NULL. */
void kv_cache_free(kv_cache *c);

/* A block with room for KV_BLOCK tokens, held once by the caller; c may be NULL. With an owner data is its bytes, and its window part is not there yet. On failure the
 * owner is left alone. */
kv_block *kv_block_new(kv_cache *c, const kv_layout *l, err *e);
kv_block *kv_block_mapped(kv_cache *c, const kv_layout *l, const uint8_t *data, kv_owner *owner, err *e);
/* Gives a held block its window part back; when it is there already the owner is released. */
void kv_block_put_window(kv_cache *c, kv_block *b, const uint8_t *window, kv_owner *owner);
/* More layers of what belongs to this owner have come. */
void kv_cache_come(kv_cache *c, kv_owner *owner, int layers);
/* Waits until that layer of a held block (window: of its window part, which is held, too) has come. */
void kv_block_await(kv_cache *c, const kv_block *b, bool window, int layer);
/* The same, and checks it. Returns the layer below which all may be read, or KV_LOST: the block is damaged, and nobody finds it any more, nor what builds on
 * it (of a window part: only that goes). Who holds it learns of it here too. */
int kv_block_check(kv_cache *c, kv_block *b, bool window, int layer);

void kv_block_hold(kv_cache *c, kv_block *b);
void kv_block_drop(kv_cache *c, kv_block *b);
static inline size_t kv_rest_bytes(const kv_layout *l) { return l->block_bytes - l->window_bytes; } /* before the tokens */
static inline int32_t *kv_block_tokens(const kv_layout *l, const kv_block *b) { return (int32_t *)(void *)(b->data + kv_rest_bytes(l)); }

/* Whether the caller, who holds it and uses its first n tokens, may write behind them: nobody else holds or can find it. A tail that only the caller holds, and
 * that has no more than a token behind those, is taken out of the tree for this; a longer one is another conversation's. */
bool kv_block_writable(kv_cache *c, kv_block *b, size_t n);

/* Holds the window part of a block that the caller holds; false: it is gone. And gives it back. A new block's window part is its maker's. reads: only for
 * a while, not as a conversation. */
typedef enum kv_leave {
    KV_PASSED, /* the conversation has moved on */
    KV_ENDS,   /* or ends: it may go on from here one day */
    KV_READ,
} kv_leave;
bool kv_block_take_window(kv_cache *c, kv_block *b, bool reads);
bool kv_block_has_window(kv_cache *c, kv_block *b);
void kv_block_give_window(kv_cache *c, kv_block *b, kv_leave why);

/* Puts a held block with its tokens into the tree below its parent (the root's name for the first). When the name is there already the block is dropped and
 * the one that is there is held in its place: returned is the one to use. It is b itself, not in the tree, when memory is short or others hold b too; it has
 * its name then all the same. Whether the caller holds the window part does not change; where it was gone from the one that is there it gets that of b. */
kv_block *kv_cache_insert(kv_cache *c, kv_block *b, const kv_name *name, const kv_name *parent, uint32_t index, int n_tokens);
/* The name of the block that a full block in the tree builds on (a root's for the first); false: it is not in the tree, or not full. */
bool kv_block_place(kv_cache *c, const kv_block *b, kv_name *parent);
/* That block itself, held; NULL: b is the first, or not in the tree. */
kv_block *kv_block_above(kv_cache *c, const kv_block *b);
/* The block of that name, held, or NULL. */
kv_block *kv_cache_find(kv_cache *c, const kv_name *name);
/* Of the blocks below parent the one that shares most first tokens, at least `least`, with these n; held, or NULL. *matched is how many. Only the last
 * KV_SIBLINGS used ones are looked at, so that the time is bounded. */
enum { KV_SIBLINGS = 64 };
kv_block *kv_cache_find_part(kv_cache *c, const kv_name *parent, const int32_t *tokens, size_t n, size_t least, size_t *matched);
/* Whether a block or tail of that name is there. This is no use of it. */
bool kv_cache_has(kv_cache *c, const kv_name *name);
/* Lets go of the block of that name, of what builds on it, and of the blocks before it as far as no other full block builds on them. What somebody holds stays, with what it
 * builds on. Returns how many went. */
size_t kv_cache_forget(kv_cache *c, const kv_name *name);
/* Lets go of everything that nobody holds. Returns how many blocks went. */
size_t kv_cache_clear(kv_cache *c);
/* The block is on disk too, so that losing it costs less. */
void kv_cache_set_durable(kv_cache *c, kv_block *b);
bool kv_cache_durable(kv_cache *c, const kv_block *b);

typedef struct kv_stats {
    uint64_t budget, bytes;      /* bytes of all blocks and of the tree */
    uint64_t blocks, in_use;     /* blocks that can be found; blocks that someone holds, tails too */
    uint64_t tree_bytes;
    uint64_t lookups, hits;      /* calls of kv_seq_find, and those that found something */
    uint64_t hot_hits;           /* those that found something in memory */
    uint64_t tokens_asked, tokens_found, tokens_loaded; /* loaded: found by the load function */
    uint64_t evictions, window_evictions;
} kv_stats;
kv_stats kv_cache_stats(kv_cache *c);
/* For kv_seq_find. */
void kv_cache_count(kv_cache *c, size_t asked, size_t found, size_t loaded);

#endif
