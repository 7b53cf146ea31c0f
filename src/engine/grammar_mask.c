/* grammar_mask.c: masks, made of parts that are remembered.
 *
 * Trying all tokens takes a walk over the whole trie. But what lies deep in the stack rarely matters: inside a JSON string nearly every
 * token is allowed or not whatever comes after the string. So the items of a config are cut off after their topmost frames and put into
 * groups with the same rest; each group, with an unknown rest, is a config of its own, whose tokens are found once and remembered. Tokens
 * that leave it (those with a quote in them) are tried with the real rest each time; they are few. Where they are not, one more frame is
 * kept. */
#include "engine/grammar_mask.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_OPEN = 16384, /* nodes of the trie that may be left to the rest */
    MAX_FRAMES = 16,  /* frames looked at before any number is left to the rest */
    MAX_CHAIN = 64,
};

bool grammar_masks_make(grammar_masks *k, const grammar_vocab *v, grammar_machine *m, err *e) {
    *k = (grammar_masks){.vocab = v, .machine = m};
    k->scratch = mem_zalloc(grammar_mask_words(v), sizeof *k->scratch, e);
    return k->scratch != NULL;
}

void grammar_masks_forget(grammar_masks *k) {
    for (size_t i = 0; i < k->n_known; i++) {
        mem_free(k->known[i].bits);
        mem_free(k->known[i].tokens);
        mem_free(k->known[i].leaves);
    }
    k->n_known = k->bytes = 0;
}

void grammar_masks_free(grammar_masks *k) {
    grammar_masks_forget(k);
    mem_free(k->known);
    mem_free(k->scratch);
    mem_free(k->leaves);
    *k = (grammar_masks){0};
}

/* ---- walks ---- */

static void set_tokens(const grammar_vocab *v, int32_t token, uint64_t *bits) {
    for (; token >= 0; token = v->same_bytes[token]) bits[token / 64] |= 1ull << (token % 64);
}

/* Tries the nodes from first up to end, all of them below a node of that depth at which the text is at config. */
static bool walk(grammar_masks *k, uint32_t first, uint32_t end, uint32_t depth, int32_t config, uint64_t *bits, err *e) {
    const grammar_vocab *v = k->vocab;
    grammar_machine *m = k->machine;
    const grammar_net *net = m->net;
    int32_t at[GRAMMAR_MAX_TOKEN + 1];
    at[depth] = config;
    for (uint32_t i = first; i < end;) {
        const grammar_trie *t = &v->nodes[i];
        int32_t next = grammar_machine_step(m, at[t->depth - 1], net->class_of[t->byte], e);
        if (next < 0) {
            if (next == CONFIG_FAILED) return false;
            i = t->skip;
            continue;
        }
        at[t->depth] = next;
        if (t->token >= 0) set_tokens(v, t->token, bits);
        i++;
    }
    return true;
}

/* The same over the whole trie, for tokens longer than that; the places where the fragment may be left are added to the n_leaves in
 * k->leaves. *open counts the nodes below those; it ends early past max_open. */
static bool walk_open(grammar_masks *k, int32_t config, uint32_t longer_than, uint32_t max_open, uint32_t *n_leaves, uint32_t *open,
                      err *e) {
    const grammar_vocab *v = k->vocab;
    grammar_machine *m = k->machine;
    const grammar_net *net = m->net;
    int32_t at[GRAMMAR_MAX_TOKEN + 1];
    at[0] = config;
    for (uint32_t i = 0; i < v->n_nodes;) {
        const grammar_trie *t = &v->nodes[i];
        if (v->deepest[i] <= longer_than) {
            i = t->skip;
            continue;
        }
        int32_t next = grammar_machine_step(m, at[t->depth - 1], net->class_of[t->byte], e);
        if (next < 0) {
            if (next == CONFIG_FAILED) return false;
            i = t->skip;
            continue;
        }
        at[t->depth] = next;
        i++;
        if (t->depth <= longer_than) continue;
        if (t->token >= 0) set_tokens(v, t->token, k->scratch);
        if (!(m->config_flags[next] & CONFIG_LEAVES) || t->skip == i) continue;
        *open += t->skip - i;
        if (*open > max_open) return true;
        if (!grammar_grow(&k->leaves, &k->cap_leaves, *n_leaves, sizeof *k->leaves, e)) return false;
        k->leaves[(*n_leaves)++] = i - 1;
    }
    return true;
}

/* ---- what is known ---- */

/* Moves the bits in scratch to the entry, and clears them. */
static bool keep_bits(grammar_masks *k, grammar_known *x, err *e) {
    const size_t words = grammar_mask_words(k->vocab);
    size_t n = 0;
    for (size_t i = 0; i < words; i++) n += (size_t)__builtin_popcountll(k->scratch[i]);
    bool many = n > 2 * words;
    if (many) x->bits = mem_alloc(words, sizeof *x->bits, e);
    else x->tokens = mem_alloc(n, sizeof *x->tokens, e);
    if (many ? !x->bits : !x->tokens) return false;
    if (many) memcpy(x->bits, k->scratch, words * sizeof *x->bits);
    else
        for (size_t i = 0; i < words; i++)
            for (uint64_t w = k->scratch[i]; w; w &= w - 1) x->tokens[x->n_tokens++] = (int32_t)(64 * i) + __builtin_ctzll(w);
    k->bytes += many ? words * sizeof *x->bits : n * sizeof *x->tokens;
    return true;
}

static bool keep_leaves(grammar_masks *k, grammar_known *x, uint32_t n, err *e) {
    x->leaves = mem_alloc(n, sizeof *x->leaves, e);
    if (!x->leaves) return false;
    if (n) memcpy(x->leaves, k->leaves, n * sizeof *x->leaves);
    x->n_leaves = n;
    k->bytes += n * sizeof *x->leaves;
    return true;
}

/* A token is at most so long, and every pass of the loop takes a byte: further from both bounds than that, all counts are alike. */
static uint32_t even_count(const grammar_net *net, uint32_t fragment, uint32_t count, uint32_t longest) {
    const grammar_fragment *f = &net->fragments[fragment];
    const uint64_t reach = (uint64_t)longest + 1;
    if (f->nullable) return count;
    if (count + reach < f->min) return 1;
    if (count >= f->min && count + reach < f->max) return f->min > 1 ? f->min : 1;
    return count;
}

/* The config with all counts in its stacks made even for texts of that length: up to it the two are alike. */
static int32_t even_config(grammar_masks *k, int32_t config, uint32_t length, err *e) {
    grammar_machine *m = k->machine;
    const size_t n = m->configs[config].n;
    uint64_t *items = mem_alloc(n, sizeof *items, e);
    if (!items) return CONFIG_FAILED;
    memcpy(items, m->items + m->configs[config].first, n * sizeof *items);
    bool changed = false, ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        uint32_t chain[MAX_CHAIN + 1], frame = item_frame(items[i]);
        int depth = 0;
        for (; frame >= FRAME_FIRST; frame = m->frames[frame].parent) chain[depth++] = frame;
        while (ok && depth > 0) {
            grammar_frame f = m->frames[chain[--depth]];
            uint32_t count = f.node & FRAME_LOOP ? even_count(m->net, f.node & ~FRAME_LOOP, f.count, length) : f.count;
            changed = changed || count != f.count;
            f.count = count;
            f.parent = frame;
            frame = grammar_machine_frame(m, f, e);
            ok = frame != UINT32_MAX;
        }
        items[i] = item_of(item_node(items[i]), frame);
    }
    if (ok && changed) config = grammar_machine_config(m, items, n, e);
    mem_free(items);
    return ok ? config : CONFIG_FAILED;
}

/* Takes over what is known about short tokens from a config that is alike for them. */
static bool take_short(grammar_masks *k, const grammar_known *x, int length, uint32_t *n_leaves, uint32_t *open, err *e) {
    const grammar_vocab *v = k->vocab;
    for (size_t i = 0, words = grammar_mask_words(v); x->bits && i < words; i++) k->scratch[i] = x->bits[i] & v->short_tokens[length][i];
    for (uint32_t i = 0; i < x->n_tokens; i++) {
        const int32_t t = x->tokens[i];
        k->scratch[t / 64] |= v->short_tokens[length][t / 64] & 1ull << (t % 64);
    }
    for (uint32_t i = 0; i < x->n_leaves; i++) {
        const grammar_trie *t = &v->nodes[x->leaves[i]];
        if (t->depth > grammar_lengths[length]) continue;
        if (!grammar_grow(&k->leaves, &k->cap_leaves, *n_leaves, sizeof *k->leaves, e)) return false;
        k->leaves[(*n_leaves)++] = x->leaves[i];
        *open += t->skip - x->leaves[i] - 1;
    }
    return true;
}

static const grammar_known *look_up(grammar_masks *k, int32_t config, bool last, bool alike, err *e);

/* Counting states would each need a walk of their own. But one that is ten characters from its bound differs from those far away only in
 * tokens of ten bytes and more. */
static bool start_from_alike(grammar_masks *k, int32_t config, uint32_t *longer_than, uint32_t *n_leaves, uint32_t *open, err *e) {
    for (int i = 0; i < GRAMMAR_LENGTHS; i++) {
        int32_t other = even_config(k, config, grammar_lengths[i], e);
        if (other < 0) return false;
        if (other == config) continue;
        const grammar_known *x = look_up(k, other, false, false, e);
        if (!x) return false;
        if (x->too_open) return true;
        *longer_than = grammar_lengths[i];
        return take_short(k, x, i, n_leaves, open, e);
    }
    return true;
}

static bool learn(grammar_masks *k, int32_t config, uint32_t max_open, bool alike, grammar_known *x, err *e) {
    uint32_t n_leaves = 0, open = 0, longer_than = 0;
    *x = (grammar_known){0};
    bool ok = !alike || start_from_alike(k, config, &longer_than, &n_leaves, &open, e);
    ok = ok && walk_open(k, config, longer_than, max_open, &n_leaves, &open, e);
    if (ok && open > max_open) x->too_open = true;
    else if (ok) ok = keep_bits(k, x, e) && keep_leaves(k, x, n_leaves, e);
    memset(k->scratch, 0, grammar_mask_words(k->vocab) * sizeof *k->scratch);
    if (ok) return true;
    mem_free(x->bits);
    mem_free(x->tokens);
    return false;
}

/* What is known about a config, found now if need be. NULL on failure. last: however much is left open. alike: with the help of others. */
static const grammar_known *look_up(grammar_masks *k, int32_t config, bool last, bool alike, err *e) {
    int32_t at = k->machine->configs[config].mask;
    if (at >= 0 && !(last && k->known[at].too_open)) return &k->known[at];
    grammar_known x;
    if (!learn(k, config, last ? UINT32_MAX : MAX_OPEN, alike, &x, e)) return NULL;
    if (at < 0 && !grammar_grow(&k->known, &k->cap_known, k->n_known, sizeof *k->known, e)) {
        mem_free(x.bits);
        mem_free(x.tokens);
        mem_free(x.leaves);
        return NULL;
    }
    if (at < 0) at = (int32_t)k->n_known++;
    k->bytes += sizeof x;
    k->known[at] = x;
    k->machine->configs[config].mask = at;
    return &k->known[at];
}

static void add_known(const grammar_masks *k, const grammar_known *x, uint64_t *bits) {
    if (x->bits)
        for (size_t i = 0, words = grammar_mask_words(k->vocab); i < words; i++) bits[i] |= x->bits[i];
    else
        for (uint32_t i = 0; i < x->n_tokens; i++) bits[x->tokens[i] / 64] |= 1ull << (x->tokens[i] % 64);
}

/* ---- cutting stacks ---- */

typedef struct cut_item {
    uint64_t item; /* with its stack cut off */
    uint64_t whole;
    uint32_t rest; /* the frame that was cut off: FRAME_END when none was */
} cut_item;

/* Keeps the topmost loops, n more frames, and the loops between and below those. */
static bool cut(grammar_masks *k, uint64_t item, int n, cut_item *out, err *e) {
    grammar_machine *m = k->machine;
    uint32_t chain[MAX_CHAIN], frame = item_frame(item);
    int length = 0;
    for (; frame >= FRAME_FIRST && length < MAX_CHAIN; frame = m->frames[frame].parent) {
        if (!(m->frames[frame].node & FRAME_LOOP) && n-- == 0) break;
        chain[length++] = frame;
    }
    out->whole = item;
    out->rest = frame;
    frame = frame == FRAME_END ? FRAME_END : FRAME_UNKNOWN;
    while (length > 0) {
        grammar_frame f = m->frames[chain[--length]];
        if (f.node & FRAME_LOOP) f.count = even_count(m->net, f.node & ~FRAME_LOOP, f.count, k->vocab->longest);
        f.parent = frame;
        frame = grammar_machine_frame(m, f, e);
        if (frame == UINT32_MAX) return false;
    }
    out->item = item_of(item_node(item), frame);
    return true;
}

static int by_rest(const void *a, const void *b) {
    uint32_t x = ((const cut_item *)a)->rest, y = ((const cut_item *)b)->rest;
    return x < y ? -1 : x > y;
}

static bool add_items(grammar_masks *k, const uint64_t *items, size_t n, int frames, uint64_t *bits, err *e);

/* Items with the same rest. */
static bool add_group(grammar_masks *k, const cut_item *group, size_t n, int frames, uint64_t *bits, err *e) {
    uint64_t *items = mem_alloc(n, sizeof *items, e);
    if (!items) return false;
    for (size_t i = 0; i < n; i++) items[i] = group[i].item;
    int32_t config = grammar_machine_config(k->machine, items, n, e);
    const grammar_known *x = config >= 0 ? look_up(k, config, frames >= MAX_FRAMES, true, e) : NULL;
    bool ok = x != NULL;
    if (ok && x->too_open) {
        for (size_t i = 0; i < n; i++) items[i] = group[i].whole;
        ok = add_items(k, items, n, frames + 1, bits, e);
    } else if (ok) {
        add_known(k, x, bits);
        int32_t rest = x->n_leaves ? grammar_machine_return(k->machine, group[0].rest, e) : CONFIG_DEAD;
        ok = rest != CONFIG_FAILED;
        for (uint32_t i = 0; ok && rest >= 0 && i < x->n_leaves; i++) {
            const grammar_trie *t = &k->vocab->nodes[x->leaves[i]];
            ok = walk(k, x->leaves[i] + 1, t->skip, t->depth, rest, bits, e);
        }
    }
    mem_free(items);
    return ok;
}

static bool add_items(grammar_masks *k, const uint64_t *items, size_t n, int frames, uint64_t *bits, err *e) {
    cut_item *list = mem_alloc(n, sizeof *list, e);
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < n; i++) ok = cut(k, items[i], frames, &list[i], e);
    if (ok) qsort(list, n, sizeof *list, by_rest);
    for (size_t i = 0, end; ok && i < n; i = end) {
        for (end = i + 1; end < n && list[end].rest == list[i].rest; end++) {}
        ok = add_group(k, list + i, end - i, frames, bits, e);
    }
    mem_free(list);
    return ok;
}

bool grammar_masks_of(grammar_masks *k, int32_t config, uint64_t *bits, err *e) {
    const size_t words = grammar_mask_words(k->vocab);
    const grammar_machine *m = k->machine;
    memset(bits, 0, words * sizeof *bits);
    if (m->config_flags[config] & CONFIG_ENDS)
        for (size_t i = 0; i < words; i++) bits[i] |= k->vocab->ends[i];
    /* The items move when configs are added. */
    const size_t n = m->configs[config].n;
    uint64_t *items = mem_alloc(n, sizeof *items, e);
    if (!items) return false;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t item = m->items[m->configs[config].first + i];
        if (item_node(item) != ITEM_DONE) items[kept++] = item;
    }
    bool ok = add_items(k, items, kept, 0, bits, e);
    mem_free(items);
    return ok;
}
