/* kv.h: keys and values of conversations, in fixed runs of tokens (blocks) that hold every layer.
 *
 *   kv.c      where things lie in a block
 *   name.c    the names of blocks
 *   cache.c   the blocks in memory: the prefix tree, sharing, the budget
 *   seq.c     one conversation: a list of blocks */
#ifndef KV_KV_H
#define KV_KV_H

#include "base/mem.h"
#include "base/pool.h"
#include "kv/name.h"

enum { KV_BLOCK = 64 }; /* tokens per block */

/* Where a layer's keys and values lie: [head][token][dimension]. A block has two parts, each with its own memory and on disk its own file: the window part with the layers that see
 * only the last so many positions, which is kept only where a conversation may go on, and the rest. Without such layers there is no window part. A row of a quantized type is whole blocks of 32 numbers as in a GGUF file; the last one
 * is filled up with zeros. */
typedef struct kv_layer {
    int n_heads, k_dim, v_dim;
    bool shared_values;          /* the values are part of the keys */
    bool windowed;               /* it lies in the window part */
    size_t k_offset, v_offset;   /* of the first head, in bytes from the start of its part */
    size_t k_stride, v_stride;   /* between tokens */
    size_t k_head, v_head;       /* between heads */
} kv_layer;

typedef struct kv_layout {
    int k_type, v_type; /* QUANT_F32, QUANT_F16, QUANT_Q8_0 or QUANT_Q4_0 */
    int n_layers;
    kv_layer *layers;
    int *order, n_set;   /* layers in the order in which they lie in a block: windowed ones first */
    size_t block_bytes;  /* of the keys and values of a block, both parts */
    int window;          /* positions that windowed layers see; 0: there are none */
    size_t window_bytes; /* of the window part */
} kv_layout;

/* "f16", "q8_0", "q4_0", or two of them with a comma between: keys, values. */
bool kv_types_parse(const char *text, int *k_type, int *v_type, err *e);
/* The name of a type, as it is parsed. */
const char *kv_type_name(int type);
/* The bytes of n numbers in a row. */
size_t kv_row_bytes(int type, int n);

/* shared_values: the values are the first v_dim dimensions of the keys (latent attention) and take no room; both types must then be the same. */
bool kv_layout_init(kv_layout *l, int n_layers, int k_type, int v_type, err *e);
bool kv_layout_set(kv_layout *l, int layer, int n_heads, int k_dim, int v_dim, bool shared_values, err *e);
/* The layers that were set so far see only the last `window` positions. */
void kv_layout_window(kv_layout *l, int window);
/* The first block whose window part the next token of a sequence of that length needs. */
static inline size_t kv_window_block(const kv_layout *l, size_t length) { return length < (size_t)l->window ? 0 : (length - (size_t)l->window + 1) / KV_BLOCK; }
/* How many full blocks before a place have window parts that are kept for it: enough to go on from there, from the start of the block that it is in, and from a token before. */
static inline size_t kv_window_reach(const kv_layout *l) { return ((size_t)l->window + KV_BLOCK - 1) / KV_BLOCK; }
static inline size_t kv_window_kept(const kv_layout *l, size_t length) { return length / KV_BLOCK < kv_window_reach(l) ? 0 : length / KV_BLOCK - kv_window_reach(l); }
void kv_layout_free(kv_layout *l);
size_t kv_bytes_per_token(const kv_layout *l);
/* The layout in words: part of the names of blocks, so that only blocks of one layout are ever taken for each other. */
bool kv_layout_describe(const kv_layout *l, buf *out, err *e);
/* The bytes of n tokens of every layer one after the other, without gaps: [layer][keys, values][head][token][dimension], layers in their order. */
size_t kv_packed_bytes(const kv_layout *l, int n);

typedef struct kv_cache kv_cache;
typedef struct kv_block kv_block;

/* One conversation. With a cache its full blocks are shared with other conversations and outlive it; without one they are its own. */
typedef struct kv_seq {
    const kv_layout *layout;
    kv_cache *cache;   /* or NULL */
    kv_chain chain;    /* where the names start; set with the cache */
    uint8_t **blocks;  /* the bytes of each block */
    uint8_t **windows; /* of its window part, as long as that is held */
    kv_block **held;   /* the blocks */
    bool *taken;       /* their window parts are held too */
    size_t first_taken; /* not before this one */
    size_t n_blocks, cap;
    size_t n_sealed;   /* blocks from the start that are full, named and never written again */
    size_t length;     /* tokens */
    bool arriving;     /* some blocks may be: kv_seq_wait is needed before they are read */
    size_t found, asked; /* where what others know of the last prompt ended, and the prompt itself: who goes on may do so from there */
} kv_seq;

/* Makes room for n more tokens that may be written. The sequence is unchanged on failure; HEARTH_FORMAT: a block that was to be copied is damaged (kv_seq_mend). */
bool kv_seq_reserve(kv_seq *s, size_t n, err *e);
/* Forgets every token from length on. With windowed layers more may have to go, so that what the next token sees is there: look at the length afterwards. */
void kv_seq_truncate(kv_seq *s, size_t length);
/* Waits until that layer of all blocks has come from the disk, and checks it where nobody has, in parallel when there is a pool. False with HEARTH_FORMAT when
 * a block is damaged: kv_seq_mend. */
bool kv_seq_wait(kv_seq *s, int layer, pool *p, err *e);
/* Forgets every token from the first damaged block on; with windowed layers more may have to go. False: no block is damaged. */
bool kv_seq_mend(kv_seq *s);
void kv_seq_free(kv_seq *s);
/* An independent sequence with the same content; no keys or values are copied. to is overwritten. */
bool kv_seq_fork(kv_seq *to, const kv_seq *from, err *e);
/* Names the blocks that became full and shows them to others. tokens are those of the whole sequence. */
void kv_seq_seal(kv_seq *s, const int32_t *tokens);
/* Shows the partial last block to others too, for when this sequence ends. */
void kv_seq_keep_tail(kv_seq *s, const int32_t *tokens);

/* Where blocks that are not in memory come from. Of blocks [first, first + n), names[i + 1] is the name of block first + i, names[0] that of the parent of the first. */
typedef struct kv_source {
    void *user;
    /* Fills out[0..] with held blocks without their window parts, their tokens after their bytes, and returns how many from the start it has. */
    size_t (*load)(void *user, const kv_name *names, size_t first, size_t n, kv_block **out);
    /* Whether it has the window part of a block, as far as can be told without reading it. */
    bool (*has_window)(void *user, const kv_name *name, const kv_name *parent, size_t index);
    /* Gives blocks, which are held, their window parts back (kv_block_put_window); those that have theirs are left alone. */
    void (*load_windows)(void *user, const kv_name *names, size_t first, size_t n, kv_block *const *blocks);
} kv_source;
/* Takes what the cache or from (may be NULL) knows of these n tokens in place of computing it; the sequence holds the first `length` of them. Returns by how many tokens
 * the sequence has grown. */
size_t kv_seq_find(kv_seq *s, const int32_t *tokens, size_t n, const kv_source *from);
/* The same without counting it as a use; *loaded: how many blocks were not in memory. */
size_t kv_seq_match(kv_seq *s, const int32_t *tokens, size_t n, const kv_source *from, size_t *loaded);
/* The first n tokens of block i of a sequence, to and from packed bytes. */
void kv_pack(const kv_seq *s, size_t i, int n, uint8_t *out);
void kv_unpack(const kv_seq *s, size_t i, int n, const uint8_t *packed);

/* Where the parts of block i that this layer lies in start; NULL for a window part that is not held. */
static inline uint8_t *kv_part(const kv_seq *s, const kv_layer *l, size_t i) { return (l->windowed ? s->windows : s->blocks)[i]; }
static inline uint8_t *kv_key(const kv_seq *s, int layer, int head, size_t position) {
    const kv_layer *l = &s->layout->layers[layer];
    return kv_part(s, l, position / KV_BLOCK) + l->k_offset + (size_t)head * l->k_head + position % KV_BLOCK * l->k_stride;
}
static inline uint8_t *kv_value(const kv_seq *s, int layer, int head, size_t position) {
    const kv_layer *l = &s->layout->layers[layer];
    return kv_part(s, l, position / KV_BLOCK) + l->v_offset + (size_t)head * l->v_head + position % KV_BLOCK * l->v_stride;
}

#endif
