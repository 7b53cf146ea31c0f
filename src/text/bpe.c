#include "text/bpe.h"

#include <string.h>

static const char MERGES[] = "tokenizer.ggml.merges";

static size_t slot_of(const bpe *b, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key ^= key >> 29;
    key *= 0xBF58476D1CE4E5B9u;
    key ^= key >> 32;
    return (key * 0x9E3779B97F4A7C15u) >> (64 - b->slot_bits);
}

/* The place of this pair in the list of merges, or -1. */
static int64_t find_merge(const bpe *b, int32_t left, int32_t right) {
    size_t mask = ((size_t)1 << b->slot_bits) - 1;
    for (size_t slot = slot_of(b, left, right); b->slots[slot]; slot = (slot + 1) & mask) {
        uint32_t i = b->slots[slot] - 1;
        if (b->merges[i].left == left && b->merges[i].right == right) return i;
    }
    return -1;
}

static void add_merge(bpe *b, bpe_merge merge) {
    if (find_merge(b, merge.left, merge.right) >= 0) return;
    size_t mask = ((size_t)1 << b->slot_bits) - 1;
    size_t slot = slot_of(b, merge.left, merge.right);
    while (b->slots[slot]) slot = (slot + 1) & mask;
    b->merges[b->n] = merge;
    b->slots[slot] = ++b->n;
}

/* "left right", each a token, and both together too. The space is searched from the second byte on. joined has room for
 * the longest piece. */
static bool read_merge(const bpe *b, gguf_string s, char *joined, bpe_merge *merge) {
    const char *space = s.len > 1 ? memchr(s.data + 1, ' ', s.len - 1) : NULL;
    if (!space) return false;
    size_t left = (size_t)(space - s.data), right = s.len - left - 1;
    if (left + right > b->v->max_piece) return false;
    memcpy(joined, s.data, left);
    memcpy(joined + left, space + 1, right);
    merge->left = vocab_find(b->v, joined, left);
    merge->right = vocab_find(b->v, joined + left, right);
    merge->result = vocab_find(b->v, joined, left + right);
    return merge->left >= 0 && merge->right >= 0 && merge->result >= 0;
}

static bool read_merges(bpe *b, const gguf_kv *merges, char *joined, err *e) {
    const uint8_t *cursor = merges->data;
    for (uint64_t i = 0; i < merges->count; i++) {
        gguf_string s = gguf_next_string(&cursor);
        bpe_merge merge;
        if (!read_merge(b, s, joined, &merge)) {
            char quoted[64];
            return err_set(e, HEARTH_FORMAT, "entry %llu of %s, '%s', does not join two tokens of the vocabulary into a third",
                           (unsigned long long)i, MERGES, err_quote(quoted, sizeof quoted, s.data, s.len));
        }
        /* Ordinary text must never become a control token. */
        if (vocab_plain(b->v, merge.result)) add_merge(b, merge);
    }
    return true;
}

static bool load_merges(bpe *b, const gguf *g, err *e) {
    const gguf_kv *merges = gguf_get_array(g, MERGES, GGUF_STRING, e);
    if (!merges) return err_set(e, HEARTH_FORMAT, "the byte-level vocabulary has no merges: %s is missing", MERGES);
    if (merges->count > INT32_MAX)
        return err_set(e, HEARTH_FORMAT, "%s has too many entries: %llu", MERGES, (unsigned long long)merges->count);
    size_t n = (size_t)merges->count;
    b->slot_bits = 4;
    while ((size_t)1 << b->slot_bits < 2 * n) b->slot_bits++;
    b->merges = mem_alloc(n, sizeof *b->merges, e);
    b->slots = b->merges ? mem_zalloc((size_t)1 << b->slot_bits, sizeof *b->slots, e) : NULL;
    char *joined = b->slots ? mem_alloc(b->v->max_piece, 1, e) : NULL;
    bool ok = joined && read_merges(b, merges, joined, e);
    mem_free(joined);
    return ok;
}

bool bpe_load(bpe *b, const gguf *g, const vocab *v, bool whole_words, err *e) {
    b->v = v;
    b->whole_words = whole_words;
    for (int byte = 0; byte < 256; byte++) {
        b->letter_len[byte] = (uint8_t)vocab_letter((unsigned char)byte, b->letters[byte]);
        int32_t id = vocab_find(v, b->letters[byte], b->letter_len[byte]);
        /* A user-defined token stands for the letter itself, not for the byte it would spell. */
        if (id >= 0 && (v->tokens[id].bytes_len != 1 || !vocab_plain(v, id))) id = -1;
        b->byte_ids[byte] = id;
    }
    return load_merges(b, g, e);
}

void bpe_free(bpe *b) {
    mem_free(b->merges);
    mem_free(b->slots);
}

void bpe_scratch_free(bpe_scratch *s) {
    mem_free(s->symbols);
    heap_free(&s->queue);
}

/* The token that is the whole word, or -1. */
static int32_t find_word(const bpe *b, const char *word, size_t len) {
    char spelt[512];
    size_t n = 0;
    if (len > sizeof spelt / 2) return -1;
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)word[i];
        memcpy(spelt + n, b->letters[byte], 2);
        n += b->letter_len[byte];
    }
    int32_t id = vocab_find(b->v, spelt, n);
    return id >= 0 && vocab_plain(b->v, id) && b->v->tokens[id].type != VOCAB_USER ? id : -1;
}

static bool consider(const bpe *b, bpe_scratch *s, int32_t left, err *e) {
    if (left < 0 || s->symbols[left].next < 0) return true;
    int64_t merge = find_merge(b, s->symbols[left].id, s->symbols[s->symbols[left].next].id);
    return merge < 0 || heap_push(&s->queue, (uint64_t)merge << 32 | (uint32_t)left, e);
}

static bool merge_all(const bpe *b, bpe_scratch *s, int32_t n, err *e) {
    bpe_symbol *symbols = s->symbols;
    s->queue.n = 0;
    for (int32_t i = 0; i + 1 < n; i++)
        if (!consider(b, s, i, e)) return false;
    while (s->queue.n) {
        uint64_t key = heap_pop(&s->queue);
        const bpe_merge *merge = &b->merges[key >> 32];
        int32_t left = (int32_t)(uint32_t)key, right = symbols[left].next;
        /* Queued before one of the two changed: what they are now has its own entry. */
        if (right < 0 || symbols[left].id != merge->left || symbols[right].id != merge->right) continue;
        symbols[left].id = merge->result;
        symbols[left].next = symbols[right].next;
        if (symbols[right].next >= 0) symbols[symbols[right].next].previous = left;
        symbols[right].id = -1;
        symbols[right].next = -1;
        if (!consider(b, s, symbols[left].previous, e) || !consider(b, s, left, e)) return false;
    }
    return true;
}

bool bpe_encode(const bpe *b, bpe_scratch *s, const char *word, size_t len, token_list *out, err *e) {
    if (b->whole_words) {
        int32_t id = find_word(b, word, len);
        if (id >= 0) return token_list_add(out, id, e);
    }
    if (len > s->cap) {
        size_t cap = len + len / 2 + 64;
        bpe_symbol *symbols = mem_realloc(s->symbols, cap, sizeof *symbols, e);
        if (!symbols) return false;
        s->symbols = symbols;
        s->cap = cap;
    }
    int32_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int32_t id = b->byte_ids[(unsigned char)word[i]];
        if (id < 0) continue;
        s->symbols[n] = (bpe_symbol){id, n - 1, n + 1};
        n++;
    }
    if (n == 0) return true;
    s->symbols[n - 1].next = -1;
    if (!merge_all(b, s, n, e)) return false;
    for (int32_t i = 0; i >= 0; i = s->symbols[i].next)
        if (!token_list_add(out, s->symbols[i].id, e)) return false;
    return true;
}
