#include "text/vocab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the byte alphabet ---- */

/* Printable Latin-1 stands for itself; the other 68 bytes, in order, are U+0100 and up. */
static bool stands_for_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

static unsigned letter_of(unsigned byte) {
    if (stands_for_itself(byte)) return byte;
    unsigned letter = 0x100;
    for (unsigned b = 0; b < byte; b++) letter += !stands_for_itself(b);
    return letter;
}

size_t vocab_letter(unsigned char byte, char out[2]) {
    unsigned letter = letter_of(byte);
    if (letter < 0x80) {
        out[0] = (char)letter;
        return 1;
    }
    out[0] = (char)(0xC0 | letter >> 6);
    out[1] = (char)(0x80 | (letter & 0x3F));
    return 2;
}

/* bytes_of[letter] is the byte, or -1. */
static void invert_alphabet(int16_t bytes_of[0x180]) {
    for (int i = 0; i < 0x180; i++) bytes_of[i] = -1;
    for (unsigned b = 0; b < 256; b++) bytes_of[letter_of(b)] = (int16_t)b;
}

/* Letters outside the alphabet are kept as they are. Never longer than the piece. */
static size_t decode_letters(const int16_t bytes_of[0x180], const char *piece, size_t len, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        unsigned c = (unsigned char)piece[i];
        unsigned letter = c;
        size_t k = 1;
        if (c >= 0xC2 && c <= 0xC5 && i + 1 < len && ((unsigned char)piece[i + 1] & 0xC0) == 0x80) {
            letter = (c & 0x1F) << 6 | ((unsigned char)piece[i + 1] & 0x3F);
            k = 2;
        } else if (c >= 0x80) {
            letter = 0; /* not in the alphabet */
        }
        if (letter < 0x180 && bytes_of[letter] >= 0) {
            out[n++] = (char)bytes_of[letter];
        } else {
            memcpy(out + n, piece + i, k);
            n += k;
        }
        i += k;
    }
    return n;
}

static size_t decode_spaces(const char *piece, size_t len, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        if (len - i >= 3 && memcmp(piece + i, "\xE2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = piece[i++];
        }
    }
    return n;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

int vocab_hex_byte(const char *p, size_t len) {
    if (len != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>') return -1;
    int high = hex_digit(p[3]), low = hex_digit(p[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* ---- finding by text ---- */

static const uint64_t HASH_PRIME = ((uint64_t)1 << 61) - 1;
static const uint64_t HASH_BASE = 0x0A3B195354A39B71u;

static uint64_t multiply(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    uint64_t sum = ((uint64_t)product & HASH_PRIME) + (uint64_t)(product >> 61);
    return sum >= HASH_PRIME ? sum - HASH_PRIME : sum;
}

uint64_t vocab_hash(uint64_t hash, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        hash = multiply(hash, HASH_BASE) + (unsigned char)text[i] + 1;
        if (hash >= HASH_PRIME) hash -= HASH_PRIME;
    }
    return hash;
}

uint64_t vocab_hash_shift(uint64_t hash, uint64_t power) { return multiply(hash, power); }
uint64_t vocab_hash_cut(uint64_t whole, uint64_t prefix) { return whole >= prefix ? whole - prefix : whole + HASH_PRIME - prefix; }
uint64_t vocab_hash_base(void) { return HASH_BASE; }

static size_t slot_of(const vocab *v, uint64_t hash) { return (hash * 0x9E3779B97F4A7C15u) >> (64 - v->slot_bits); }

int32_t vocab_find_hashed(const vocab *v, const char *piece, size_t len, uint64_t hash) {
    size_t mask = ((size_t)1 << v->slot_bits) - 1;
    for (size_t slot = slot_of(v, hash); v->slots[slot]; slot = (slot + 1) & mask) {
        int32_t id = (int32_t)(v->slots[slot] - 1);
        if (v->tokens[id].piece_len == len && memcmp(vocab_piece(v, id), piece, len) == 0) return id;
    }
    return -1;
}

int32_t vocab_find(const vocab *v, const char *piece, size_t len) {
    if (len == 0 || len > v->max_piece) return -1;
    return vocab_find_hashed(v, piece, len, vocab_hash(0, piece, len));
}

static bool index_pieces(vocab *v, err *e) {
    v->slot_bits = 4;
    while ((size_t)1 << v->slot_bits < 2 * (size_t)v->n) v->slot_bits++;
    v->slots = mem_zalloc((size_t)1 << v->slot_bits, sizeof *v->slots, e);
    if (!v->slots) return false;
    size_t mask = ((size_t)1 << v->slot_bits) - 1;
    for (int32_t id = 0; id < v->n; id++) {
        size_t len = v->tokens[id].piece_len;
        if (len == 0) continue;
        uint64_t hash = vocab_hash(0, vocab_piece(v, id), len);
        if (vocab_find_hashed(v, vocab_piece(v, id), len, hash) >= 0) continue;
        size_t slot = slot_of(v, hash);
        while (v->slots[slot]) slot = (slot + 1) & mask;
        v->slots[slot] = (uint32_t)id + 1;
    }
    return true;
}

/* ---- special tokens ---- */

static int compare_ids(const void *a, const void *b, void *context) {
    const vocab *v = context;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    size_t nx = v->tokens[x].bytes_len, ny = v->tokens[y].bytes_len;
    int order = memcmp(vocab_bytes(v, x), vocab_bytes(v, y), nx < ny ? nx : ny);
    if (order) return order;
    return nx != ny ? (nx < ny ? -1 : 1) : x < y ? -1 : x > y;
}

static bool list_specials(vocab *v, vocab_specials *list, bool user_only, err *e) {
    for (int pass = 0; pass < 2; pass++) {
        uint32_t n = 0;
        for (int32_t id = 0; id < v->n; id++) {
            uint8_t type = v->tokens[id].type;
            bool listed = type == VOCAB_USER || (!user_only && (type == VOCAB_CONTROL || type == VOCAB_UNKNOWN));
            if (!listed || v->tokens[id].bytes_len == 0) continue;
            if (pass == 1) list->ids[n] = id;
            n++;
        }
        if (pass == 0 && !(list->ids = mem_alloc(n, sizeof *list->ids, e))) return false;
        list->n = n;
    }
    qsort_r(list->ids, list->n, sizeof *list->ids, compare_ids, v);
    uint32_t i = 0;
    for (int b = 0; b <= 256; b++) {
        while (i < list->n && (unsigned char)vocab_bytes(v, list->ids[i])[0] < b) i++;
        list->first[b] = i;
    }
    return true;
}

/* The first of ids[low..high) whose byte at depth is not below b; all of them are longer than depth. */
static uint32_t lower_bound(const vocab *v, const vocab_specials *list, uint32_t low, uint32_t high, size_t depth, int b) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((unsigned char)vocab_bytes(v, list->ids[middle])[depth] < b) low = middle + 1;
        else high = middle;
    }
    return low;
}

int32_t vocab_match(const vocab *v, const vocab_specials *list, const char *text, size_t len) {
    int b = (unsigned char)text[0];
    uint32_t low = list->first[b], high = list->first[b + 1];
    int32_t best = -1;
    /* All of [low, high) start with the first depth bytes of text; the one that ends there comes first. */
    for (size_t depth = 1; low < high; depth++) {
        if (v->tokens[list->ids[low]].bytes_len == depth) best = list->ids[low];
        while (low < high && v->tokens[list->ids[low]].bytes_len == depth) low++;
        if (depth == len) break;
        b = (unsigned char)text[depth];
        low = lower_bound(v, list, low, high, depth, b);
        high = lower_bound(v, list, low, high, depth, b + 1);
    }
    return best;
}

/* ---- loading ---- */

static bool load_tokens(vocab *v, const gguf *g, err *e) {
    const gguf_kv *tokens = gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, e);
    if (!tokens) return err_set(e, HEARTH_FORMAT, "the file has no tokens: tokenizer.ggml.tokens is missing");
    if (tokens->count == 0) return err_set(e, HEARTH_FORMAT, "the vocabulary is empty: tokenizer.ggml.tokens has no entries");
    if (tokens->count > INT32_MAX)
        return err_set(e, HEARTH_FORMAT, "the vocabulary is too large: %llu tokens", (unsigned long long)tokens->count);
    v->n = (int32_t)tokens->count;
    uint64_t total = 0;
    const uint8_t *cursor = tokens->data;
    for (int32_t id = 0; id < v->n; id++) {
        gguf_string s = gguf_next_string(&cursor);
        if (s.len > VOCAB_MAX_TOKEN)
            return err_set(e, HEARTH_FORMAT, "token %d is %zu bytes long, more than the %d that a token may have", id, s.len,
                           VOCAB_MAX_TOKEN);
        if (s.len > v->max_piece) v->max_piece = (uint32_t)s.len;
        total += s.len;
    }
    if (total > UINT32_MAX) return err_set(e, HEARTH_FORMAT, "the vocabulary is too large: %llu bytes of text", (unsigned long long)total);
    v->tokens = mem_zalloc((size_t)v->n, sizeof *v->tokens, e);
    v->pieces = v->tokens ? mem_alloc(total, 1, e) : NULL;
    v->bytes = v->pieces ? mem_alloc(total, 1, e) : NULL;
    if (!v->bytes) return false;
    uint32_t at = 0;
    cursor = tokens->data;
    for (int32_t id = 0; id < v->n; id++) {
        gguf_string s = gguf_next_string(&cursor);
        if (s.len) memcpy(v->pieces + at, s.data, s.len);
        v->tokens[id].piece = at;
        v->tokens[id].piece_len = (uint16_t)s.len;
        at += (uint32_t)s.len;
    }
    return true;
}

static bool right_count(const vocab *v, const char *key, const gguf_kv *array, err *e) {
    if (array->count == (uint64_t)v->n) return true;
    return err_set(e, HEARTH_FORMAT, "%s has %llu entries for a vocabulary of %d tokens", key, (unsigned long long)array->count, v->n);
}

static bool load_types(vocab *v, const gguf *g, bool byte_level, err *e) {
    static const char key[] = "tokenizer.ggml.token_type";
    const gguf_kv *types = gguf_find(g, key);
    if (types && (types->type != GGUF_ARRAY || (types->item != GGUF_I32 && types->item != GGUF_U32)))
        return err_set(e, HEARTH_FORMAT, "%s is not an array of 32-bit integers", key);
    if (types && !right_count(v, key, types, e)) return false;
    for (int32_t id = 0; id < v->n; id++) {
        int64_t type = types ? gguf_item_i64(types, (uint64_t)id) : VOCAB_NORMAL;
        if (!types && !byte_level && vocab_hex_byte(vocab_piece(v, id), v->tokens[id].piece_len) >= 0) type = VOCAB_BYTE;
        if (type < 0 || type >= VOCAB_TYPES)
            return err_set(e, HEARTH_FORMAT, "token %d has the unknown type %lld in %s", id, (long long)type, key);
        v->tokens[id].type = (uint8_t)type;
    }
    return true;
}

/* Byte-level vocabularies are ordered by merges and need no scores. */
static bool load_scores(vocab *v, const gguf *g, err *e) {
    static const char key[] = "tokenizer.ggml.scores";
    const gguf_kv *scores = gguf_find(g, key);
    if (!scores) return err_set(e, HEARTH_FORMAT, "the SentencePiece vocabulary has no scores: %s is missing", key);
    if (scores->type != GGUF_ARRAY || (scores->item != GGUF_F32 && scores->item != GGUF_I32))
        return err_set(e, HEARTH_FORMAT, "%s is not an array of 32-bit numbers", key);
    if (!right_count(v, key, scores, e)) return false;
    for (int32_t id = 0; id < v->n; id++) {
        double score = scores->item == GGUF_F32 ? gguf_item_f64(scores, (uint64_t)id) : (double)gguf_item_i64(scores, (uint64_t)id);
        if (isnan(score)) return err_set(e, HEARTH_FORMAT, "the score of token %d in %s is not a number", id, key);
        v->tokens[id].score = (float)score;
    }
    return true;
}

static void decode_pieces(vocab *v, bool byte_level) {
    int16_t bytes_of[0x180];
    invert_alphabet(bytes_of);
    uint32_t at = 0;
    for (int32_t id = 0; id < v->n; id++) {
        vocab_token *t = &v->tokens[id];
        const char *piece = vocab_piece(v, id);
        char *out = v->bytes + at;
        size_t n = t->piece_len;
        int byte = t->type == VOCAB_BYTE ? vocab_hex_byte(piece, n) : -1;
        bool verbatim = t->type == VOCAB_CONTROL || t->type == VOCAB_UNKNOWN || (byte_level && t->type == VOCAB_USER);
        if (byte >= 0) {
            out[0] = (char)byte;
            n = 1;
        } else if (verbatim) {
            memcpy(out, piece, n);
        } else {
            n = byte_level ? decode_letters(bytes_of, piece, n, out) : decode_spaces(piece, n, out);
        }
        t->bytes = at;
        t->bytes_len = (uint16_t)n;
        at += (uint32_t)n;
    }
}

bool vocab_load(vocab *v, const gguf *g, bool byte_level, err *e) {
    if (!load_tokens(v, g, e) || !load_types(v, g, byte_level, e)) return false;
    if (!byte_level && !load_scores(v, g, e)) return false;
    decode_pieces(v, byte_level);
    return index_pieces(v, e) && list_specials(v, &v->user, true, e) && list_specials(v, &v->specials, false, e);
}

void vocab_free(vocab *v) {
    mem_free(v->tokens);
    mem_free(v->pieces);
    mem_free(v->bytes);
    mem_free(v->slots);
    mem_free(v->user.ids);
    mem_free(v->specials.ids);
}
