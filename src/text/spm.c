#include "text/spm.h"

#include <stdio.h>
#include <string.h>

#include "text/unicode.h"

static const char SPACE[] = "\xE2\x96\x81"; /* U+2581 */

bool spm_load(spm *m, const vocab *v, err *e) {
    m->v = v;
    int missing = 0;
    for (int byte = 0; byte < 256; byte++) {
        char piece[8];
        snprintf(piece, sizeof piece, "<0x%02X>", byte);
        int32_t id = vocab_find(v, piece, 6);
        m->byte_ids[byte] = id >= 0 && v->tokens[id].type == VOCAB_BYTE ? id : -1;
        missing += m->byte_ids[byte] < 0;
    }
    if (missing && m->unknown < 0)
        return err_set(e, HEARTH_FORMAT, "the SentencePiece vocabulary lacks %d of the 256 byte tokens and has no unknown token either",
                       missing);
    m->powers = mem_alloc((size_t)v->max_piece + 1, sizeof *m->powers, e);
    if (!m->powers) return false;
    m->powers[0] = 1;
    for (uint32_t i = 1; i <= v->max_piece; i++) m->powers[i] = vocab_hash_shift(m->powers[i - 1], vocab_hash_base());
    return true;
}

void spm_free(spm *m) { mem_free(m->powers); }

void spm_scratch_free(spm_scratch *s) {
    buf_free(&s->text);
    mem_free(s->symbols);
    heap_free(&s->queue);
}

static bool escape_spaces(const spm *m, spm_scratch *s, const char *text, size_t len, err *e) {
    s->text.len = 0;
    while (m->trim && len && text[0] == ' ') text++, len--;
    while (m->trim && len && text[len - 1] == ' ') len--;
    if (!buf_reserve(&s->text, 3 * (len + 1), e)) return false;
    if (m->add_space && len && !buf_add(&s->text, SPACE, 3, e)) return false;
    for (size_t i = 0; i < len;) {
        const char *space = memchr(text + i, ' ', len - i);
        size_t plain = space ? (size_t)(space - text) - i : len - i;
        if (!buf_add(&s->text, text + i, plain, e)) return false;
        i += plain;
        if (!space) break;
        if (!buf_add(&s->text, SPACE, 3, e)) return false;
        do i++;
        while (m->trim && text[i] == ' '); /* the text does not end with a space then */
    }
    return true;
}

static uint32_t start_of(const spm_scratch *s, int32_t n, int32_t i) { return i < n ? s->symbols[i].start : (uint32_t)s->text.len; }

/* The token spelt by the symbols from first up to, not including, end; -1 when there is none. symbols[n] holds the hash of all. */
static int32_t find_token(const spm *m, const spm_scratch *s, int32_t n, int32_t first, int32_t end) {
    uint32_t start = s->symbols[first].start, len = start_of(s, n, end) - start;
    if (len > m->v->max_piece) return -1;
    uint64_t hash = vocab_hash_cut(s->symbols[end].hash, vocab_hash_shift(s->symbols[first].hash, m->powers[len]));
    int32_t id = vocab_find_hashed(m->v, s->text.data + start, len, hash);
    return id >= 0 && vocab_plain(m->v, id) ? id : -1;
}

/* Best score first. */
static uint32_t urgency(float score) {
    uint32_t bits;
    score += 0.0f; /* there is one zero */
    memcpy(&bits, &score, 4);
    return bits & 0x80000000u ? bits : ~bits & 0x7FFFFFFFu;
}

static int32_t find_pair(const spm *m, const spm_scratch *s, int32_t n, int32_t left) {
    int32_t right = s->symbols[left].next;
    return right < n ? find_token(m, s, n, left, s->symbols[right].next) : -1;
}

static bool consider(const spm *m, spm_scratch *s, int32_t n, int32_t left, err *e) {
    int32_t id = left < 0 ? -1 : find_pair(m, s, n, left);
    return id < 0 || heap_push(&s->queue, (uint64_t)urgency(m->v->tokens[id].score) << 32 | (uint32_t)left, e);
}

static bool merge_all(const spm *m, spm_scratch *s, int32_t n, err *e) {
    spm_symbol *symbols = s->symbols;
    s->queue.n = 0;
    for (int32_t i = 0; i + 1 < n; i++)
        if (!consider(m, s, n, i, e)) return false;
    while (s->queue.n) {
        uint64_t key = heap_pop(&s->queue);
        int32_t left = (int32_t)(uint32_t)key, right = symbols[left].next;
        if (right < 0 || right >= n) continue;
        /* An entry from before a neighbour changed counts only if what is there now is as urgent. */
        int32_t id = find_pair(m, s, n, left);
        if (id < 0 || urgency(m->v->tokens[id].score) != key >> 32) continue;
        symbols[left].id = id;
        symbols[left].next = symbols[right].next;
        if (symbols[right].next < n) symbols[symbols[right].next].previous = left;
        symbols[right].next = -1;
        if (!consider(m, s, n, symbols[left].previous, e) || !consider(m, s, n, left, e)) return false;
    }
    return true;
}

/* Cuts s->text into characters (a byte that is part of none stands alone). Returns how many, -1 on failure. */
static int32_t cut_characters(const spm *m, spm_scratch *s, err *e) {
    size_t len = s->text.len, count = 0;
    for (size_t i = 0; i < len; count++) {
        size_t k = unicode_char(s->text.data + i, len - i);
        i += k ? k : 1;
    }
    if (count + 1 > s->cap) {
        spm_symbol *symbols = mem_realloc(s->symbols, count + 1, sizeof *symbols, e);
        if (!symbols) return -1;
        s->symbols = symbols;
        s->cap = count + 1;
    }
    int32_t n = 0;
    uint64_t hash = 0;
    for (size_t i = 0; i < len;) {
        size_t k = unicode_char(s->text.data + i, len - i);
        if (k == 0) k = 1;
        s->symbols[n] = (spm_symbol){.id = -1, .previous = n - 1, .next = n + 1, .start = (uint32_t)i, .hash = hash};
        hash = vocab_hash(hash, s->text.data + i, k);
        i += k;
        n++;
    }
    s->symbols[n] = (spm_symbol){.next = -1, .hash = hash};
    for (int32_t i = 0; i < n; i++) s->symbols[i].id = find_token(m, s, n, i, i + 1);
    return n;
}

static bool spell(const spm *m, const char *bytes, size_t len, token_list *out, err *e) {
    for (size_t i = 0; i < len; i++) {
        int32_t id = m->byte_ids[(unsigned char)bytes[i]];
        if (id >= 0) {
            if (!token_list_add(out, id, e)) return false;
        } else if (out->n == 0 || out->ids[out->n - 1] != m->unknown) { /* a run of unknown ones counts once */
            if (!token_list_add(out, m->unknown, e)) return false;
        }
    }
    return true;
}

bool spm_encode(const spm *m, spm_scratch *s, const char *text, size_t len, token_list *out, err *e) {
    if (!escape_spaces(m, s, text, len, e)) return false;
    int32_t n = cut_characters(m, s, e);
    if (n < 0 || !merge_all(m, s, n, e)) return false;
    for (int32_t i = 0; i < n; i = s->symbols[i].next) {
        uint32_t start = s->symbols[i].start;
        bool ok = s->symbols[i].id >= 0 ? token_list_add(out, s->symbols[i].id, e)
                                        : spell(m, s->text.data + start, start_of(s, n, s->symbols[i].next) - start, out, e);
        if (!ok) return false;
    }
    return true;
}
