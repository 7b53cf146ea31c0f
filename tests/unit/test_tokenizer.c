/* Tokenizers on small vocabularies built here: what they make of text, and of files that are damaged. */
#include "tools/support.h"

#include <pthread.h>

#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text/vocab.h"

/* ---- building a vocabulary-only file ---- */

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

typedef struct model {
    buf keys;
    uint64_t n_keys;
    buf tokens, types, scores, merges;
    uint64_t n_tokens, n_types, n_scores, n_merges;
} model;

static void put32(buf *b, uint32_t v) { buf_add(b, &v, 4, NULL); }
static void put64(buf *b, uint64_t v) { buf_add(b, &v, 8, NULL); }
static void put_text(buf *b, const char *s, size_t len) {
    put64(b, len);
    buf_add(b, s, len, NULL);
}
static void put_key(model *m, const char *key, uint32_t type) {
    put_text(&m->keys, key, strlen(key));
    put32(&m->keys, type);
    m->n_keys++;
}
static void key_text(model *m, const char *key, const char *value) {
    put_key(m, key, 8);
    put_text(&m->keys, value, strlen(value));
}
static void key_u32(model *m, const char *key, uint32_t value) {
    put_key(m, key, 4);
    put32(&m->keys, value);
}
static void key_bool(model *m, const char *key, bool value) {
    put_key(m, key, 7);
    buf_addc(&m->keys, (char)value, NULL);
}
static void key_array(model *m, const char *key, uint32_t item, uint64_t n, const buf *items) {
    put_key(m, key, 9);
    put32(&m->keys, item);
    put64(&m->keys, n);
    if (items->len) buf_add(&m->keys, items->data, items->len, NULL);
}
static void token_n(model *m, const char *text, size_t len, int type, float score) {
    put_text(&m->tokens, text, len);
    put32(&m->types, (uint32_t)type);
    buf_add(&m->scores, &score, 4, NULL);
    m->n_tokens++, m->n_types++, m->n_scores++;
}
static void token(model *m, const char *text, int type, float score) { token_n(m, text, strlen(text), type, score); }
static void merge(model *m, const char *text) {
    put_text(&m->merges, text, strlen(text));
    m->n_merges++;
}

/* Writes the file, opens the tokenizer from it and forgets the model. NULL with e set when refused. */
static gguf *open_model(model *m, err *e) {
    if (m->n_tokens) key_array(m, "tokenizer.ggml.tokens", 8, m->n_tokens, &m->tokens);
    if (m->n_types) key_array(m, "tokenizer.ggml.token_type", 5, m->n_types, &m->types);
    if (m->n_scores) key_array(m, "tokenizer.ggml.scores", 6, m->n_scores, &m->scores);
    if (m->n_merges) key_array(m, "tokenizer.ggml.merges", 8, m->n_merges, &m->merges);
    buf file = {0};
    buf_add(&file, "GGUF", 4, NULL);
    put32(&file, 3);
    put64(&file, 0);
    put64(&file, m->n_keys);
    buf_add(&file, m->keys.data, m->keys.len, NULL);
    char path[128];
    snprintf(path, sizeof path, "%s/vocab.gguf", temp_dir());
    spew(path, file.data, file.len);
    buf *all[] = {&file, &m->keys, &m->tokens, &m->types, &m->scores, &m->merges};
    for (int i = 0; i < 6; i++) buf_free(all[i]);
    *m = (model){0};
    return gguf_open(path, e);
}

static tokenizer *try_load(model *m, err *e) {
    gguf *g = open_model(m, e);
    if (!g) fail_msg("%s", e->text);
    tokenizer *t = tokenizer_new(g, e);
    gguf_close(g);
    return t;
}

static tokenizer *load(model *m) {
    err e = {0};
    tokenizer *t = try_load(m, &e);
    if (!t) fail_msg("%s", e.text);
    return t;
}

/* Ids: 0 to 255 the bytes in order, then the tokens of the merges, then these specials. */
enum { HE = 256, LL, LLO, HELLO, SPACE_A, DIGITS, DIGITS3, SPACES, ACUTE, E_ACUTE, IM_START, IM_END, THINK, THINK_LONG, BPE_TOKENS };

static model bpe_model(const char *pre) {
    model m = {0};
    key_text(&m, "general.architecture", "llama");
    key_text(&m, "tokenizer.ggml.model", "gpt2");
    if (pre) key_text(&m, "tokenizer.ggml.pre", pre);
    key_u32(&m, "tokenizer.ggml.eos_token_id", IM_END);
    for (int b = 0; b < 256; b++) {
        char letter[2];
        token_n(&m, letter, vocab_letter((unsigned char)b, letter), NORMAL, 0);
    }
    static const char *const merged[] = {"he", "ll", "llo", "hello", "\xC4\xA0" "a", "12", "123", "\xC4\xA0\xC4\xA0",
                                         "\xC3\x8C\xC4\xA3", "\xC3\x83\xC2\xA9"};
    for (int i = 0; i < 10; i++) token(&m, merged[i], NORMAL, 0);
    token(&m, "<|im_start|>", CONTROL, 0);
    token(&m, "<|im_end|>", CONTROL, 0);
    token(&m, "<think>", USER, 0);
    token(&m, "<think>\n", USER, 0);
    static const char *const merges[] = {"l l", "h e", "ll o", "he llo", "\xC4\xA0 a", "1 2", "12 3", "\xC4\xA0 \xC4\xA0",
                                         "\xC3\x8C \xC4\xA3", "\xC3\x83 \xC2\xA9"};
    for (int i = 0; i < 10; i++) merge(&m, merges[i]);
    m.n_scores = 0;
    return m;
}

/* Ids: <unk> <s> </s>, the 256 bytes, then these. */
enum { UNK, BOS, EOS, BYTE0, SPM_SPACE = BYTE0 + 256, SPM_A, SPM_B, SPM_AB, SPM_SPACE_A, SPM_SPACE_AB, SPM_ABA, SPM_SPACES, SPM_E_ACUTE,
       SPM_USER, SPM_TOKENS };

static model spm_model(void) {
    model m = {0};
    key_text(&m, "general.architecture", "llama");
    key_text(&m, "tokenizer.ggml.model", "llama");
    key_text(&m, "tokenizer.ggml.pre", "default");
    token(&m, "<unk>", UNKNOWN, 0);
    token(&m, "<s>", CONTROL, 0);
    token(&m, "</s>", CONTROL, 0);
    for (int b = 0; b < 256; b++) {
        char piece[8];
        snprintf(piece, sizeof piece, "<0x%02X>", b);
        token(&m, piece, BYTE, 0);
    }
    token(&m, "\xE2\x96\x81", NORMAL, -10);
    token(&m, "a", NORMAL, -11);
    token(&m, "b", NORMAL, -12);
    token(&m, "ab", NORMAL, -2);
    token(&m, "\xE2\x96\x81" "a", NORMAL, -3);
    token(&m, "\xE2\x96\x81" "ab", NORMAL, -4);
    token(&m, "aba", NORMAL, -1);
    token(&m, "\xE2\x96\x81\xE2\x96\x81", NORMAL, -5);
    token(&m, "\xC3\xA9", NORMAL, -13);
    token(&m, "<tool>", USER, 0);
    return m;
}

/* ---- checks ---- */

static void expect(const tokenizer *t, const char *text, size_t len, bool parse_special, const int32_t *ids, size_t n) {
    err e = {0};
    token_list got = {0};
    if (!tokenizer_encode(t, text, len, parse_special, &got, &e)) fail_msg("%s", e.text);
    bool same = got.n == n && (n == 0 || memcmp(got.ids, ids, n * sizeof *ids) == 0);
    for (size_t i = 0; !same && i < got.n; i++) print_message("%d ", got.ids[i]);
    if (!same) fail_msg("'%.*s' is encoded differently", (int)len, text);
    token_list_free(&got);
}
#define EXPECT(t, text, special, ...) \
    expect(t, text, sizeof text - 1, special, (const int32_t[]){__VA_ARGS__}, sizeof(const int32_t[]){__VA_ARGS__} / sizeof(int32_t))

static void survives(const tokenizer *t, const char *text, size_t len, bool parse_special) {
    err e = {0};
    token_list ids = {0};
    buf back = {0};
    if (!tokenizer_encode(t, text, len, parse_special, &ids, &e)) fail_msg("%s", e.text);
    assert_true(tokenizer_decode(t, ids.ids, ids.n, true, &back, &e));
    if (back.len != len || (len && memcmp(back.data, text, len) != 0)) {
        for (size_t i = 0; i < len && i < 200; i++) print_message("%02x", (unsigned char)text[i]);
        fail_msg(" does not come back");
    }
    token_list_free(&ids);
    buf_free(&back);
}

static void bpe_merges_in_the_order_of_the_list(void **state) {
    (void)state;
    model m = bpe_model("gpt-2");
    tokenizer *t = load(&m);
    assert_int_equal(tokenizer_size(t), BPE_TOKENS);
    assert_string_equal(tokenizer_kind(t), "BPE (gpt-2)");
    EXPECT(t, "hello", false, HELLO);
    EXPECT(t, "helllo", false, HE, LL, 'l', 'o');
    EXPECT(t, "hellllo", false, HE, LL, LLO);
    EXPECT(t, "hello a", false, HELLO, SPACE_A);
    EXPECT(t, "12 123", false, DIGITS, ' ', DIGITS3);
    EXPECT(t, "\xFF\x80h\xC3", false, 0xFF, 0x80, 'h', 0xC3);
    expect(t, "", 0, false, NULL, 0);
    tokenizer_free(t);
}

static void specials_are_recognised_when_they_should_be(void **state) {
    (void)state;
    model m = bpe_model("gpt-2");
    tokenizer *t = load(&m);
    EXPECT(t, "<|im_end|>", true, IM_END);
    EXPECT(t, "<|im_start|>hello<|im_end|>", true, IM_START, HELLO, IM_END);
    EXPECT(t, "<<|im_end|>>", true, '<', IM_END, '>');
    EXPECT(t, "hello<think>he", false, HELLO, THINK, HE);
    EXPECT(t, "<think>\n", false, THINK_LONG);
    EXPECT(t, "<think><think", true, THINK, '<', 't', 'h', 'i', 'n', 'k');
    token_list ids = {0};
    err e = {0};
    assert_true(tokenizer_encode(t, "<|im_end|>", 10, false, &ids, &e));
    for (size_t i = 0; i < ids.n; i++) assert_true(ids.ids[i] < 256);
    token_list_free(&ids);

    size_t len;
    assert_string_equal(tokenizer_bytes(t, IM_END, false, &len), "");
    assert_memory_equal(tokenizer_bytes(t, IM_END, true, &len), "<|im_end|>", 10);
    assert_memory_equal(tokenizer_bytes(t, THINK, false, &len), "<think>", 7);
    assert_memory_equal(tokenizer_bytes(t, SPACE_A, false, &len), " a", 2);
    assert_int_equal(len, 2);
    assert_memory_equal(tokenizer_piece(t, SPACE_A, &len), "\xC4\xA0" "a", 3);
    assert_null(tokenizer_bytes(t, -1, true, &len));
    assert_null(tokenizer_bytes(t, BPE_TOKENS, true, &len));
    assert_null(tokenizer_piece(t, INT32_MAX, &len));
    assert_true(tokenizer_ends(t, IM_END));
    assert_false(tokenizer_ends(t, IM_START));
    assert_false(tokenizer_ends(t, -1));
    assert_int_equal(tokenizer_eos(t), IM_END);
    assert_int_equal(tokenizer_bos(t), HEARTH_TOKEN_NONE);
    assert_false(tokenizer_wants_bos(t));
    tokenizer_free(t);
}

static void qwen_composes_characters_first(void **state) {
    (void)state;
    model m = bpe_model("qwen2");
    tokenizer *t = load(&m);
    EXPECT(t, "e\xCC\x81", false, E_ACUTE);
    EXPECT(t, "\xFF" "e\xCC\x81\xFF", false, 0xFF, E_ACUTE, 0xFF);
    tokenizer_free(t);
    m = bpe_model("llama-bpe");
    t = load(&m);
    EXPECT(t, "e\xCC\x81", false, 'e', ACUTE);
    tokenizer_free(t);
}

static void spm_joins_the_best_score_first(void **state) {
    (void)state;
    model m = spm_model();
    tokenizer *t = load(&m);
    assert_true(tokenizer_adds_space(t));
    assert_true(tokenizer_wants_bos(t));
    assert_int_equal(tokenizer_bos(t), BOS);
    assert_int_equal(tokenizer_eos(t), EOS);
    EXPECT(t, "ab", false, SPM_SPACE_AB);
    EXPECT(t, "ba", false, SPM_SPACE, SPM_B, SPM_A);
    EXPECT(t, "aba", false, SPM_SPACE, SPM_ABA);
    EXPECT(t, "abab", false, SPM_SPACE, SPM_ABA, SPM_B); /* of equals, the leftmost */
    EXPECT(t, "a  a", false, SPM_SPACE_A, SPM_SPACE, SPM_SPACE_A);
    EXPECT(t, "\xC3\xA9\xC3\xA8", false, SPM_SPACE, SPM_E_ACUTE, BYTE0 + 0xC3, BYTE0 + 0xA8);
    EXPECT(t, "\xFF", false, SPM_SPACE, BYTE0 + 0xFF);
    EXPECT(t, "<s>a", true, BOS, SPM_SPACE_A);
    EXPECT(t, "a<tool>a", false, SPM_SPACE_A, SPM_USER, SPM_SPACE_A);
    survives(t, "<s> a<tool>  b</s>", 18, true);
    survives(t, "  a<tool> ", 10, false);
    tokenizer_free(t);

    m = spm_model();
    key_bool(&m, "tokenizer.ggml.add_space_prefix", false);
    key_bool(&m, "tokenizer.ggml.add_bos_token", false);
    t = load(&m);
    assert_false(tokenizer_adds_space(t));
    assert_false(tokenizer_wants_bos(t));
    EXPECT(t, "ab", false, SPM_AB);
    EXPECT(t, " ", false, SPM_SPACE);
    tokenizer_free(t);

    m = spm_model();
    key_bool(&m, "tokenizer.ggml.remove_extra_whitespaces", true);
    t = load(&m);
    EXPECT(t, "  a   b ", false, SPM_SPACE_A, SPM_SPACE, SPM_B);
    expect(t, "  ", 2, false, NULL, 0);
    tokenizer_free(t);
}

static void spm_without_byte_tokens_uses_the_unknown_one(void **state) {
    (void)state;
    model m = {0};
    key_text(&m, "tokenizer.ggml.model", "llama");
    token(&m, "<unk>", UNKNOWN, 0);
    token(&m, "a", NORMAL, 0);
    token(&m, "\xE2\x96\x81", NORMAL, 0);
    tokenizer *t = load(&m);
    EXPECT(t, "axyza", false, 2, 1, 0, 1);
    tokenizer_free(t);
}

static void phi3_drops_white_space_after_special_tokens(void **state) {
    (void)state;
    model m = spm_model();
    buf_free(&m.keys);
    m.n_keys = 0;
    key_text(&m, "general.architecture", "phi3");
    key_text(&m, "tokenizer.ggml.model", "llama");
    tokenizer *t = load(&m);
    EXPECT(t, "</s>\n \xE3\x80\x80" "a", true, EOS, SPM_SPACE_A);
    EXPECT(t, "<s> a", true, BOS, SPM_SPACE, SPM_SPACE_A);
    EXPECT(t, "</s>\n", true, EOS);
    tokenizer_free(t);
}

static void harmony_answers_have_several_messages(void **state) {
    (void)state;
    model m = bpe_model("gpt-4o");
    token(&m, "<|return|>", CONTROL, 0);
    token(&m, "<|end|>", CONTROL, 0);
    m.n_scores = 0;
    tokenizer *t = load(&m);
    assert_true(tokenizer_ends(t, BPE_TOKENS));
    assert_true(tokenizer_ends(t, BPE_TOKENS + 1));
    tokenizer_free(t);
    m = bpe_model("gpt-4o");
    token(&m, "<|return|>", CONTROL, 0);
    token(&m, "<|end|>", CONTROL, 0);
    token(&m, "<|call|>", CONTROL, 0);
    m.n_scores = 0;
    t = load(&m);
    assert_true(tokenizer_ends(t, BPE_TOKENS));
    assert_false(tokenizer_ends(t, BPE_TOKENS + 1));
    assert_true(tokenizer_ends(t, BPE_TOKENS + 2));
    tokenizer_free(t);
}

/* ---- any bytes, any length ---- */

/* One name for every set of patterns; the last two compose characters. */
static const char *const pres[] = {"llama-bpe", "gpt-4o", "tekken", "deepseek-v3", "deepseek-llm", "deepseek-coder", "kimi-k2",
                                   "bailingmoe", "seed-coder", "gpt-2", "starcoder", "falcon", "bloom", "viking", "default",
                                   "qwen2", "qwen35"};
enum { PRES = sizeof pres / sizeof *pres, NOT_COMPOSING = PRES - 2 };

static size_t random_text(uint64_t *rng, char *out, size_t cap) {
    static const char *const bits[] = {" ", "  ", "\n", "\r\n", "\t", "a", "Ab", "hello", "'s", "'LL", "123", "!", "<|im_end|>", "<think>",
                                       "<|im", "<s>", "\xC3\xA9", "e\xCC\x81", "\xE4\xB8\xAD", "\xE2\x96\x81", "\xF0\x9F\x98\x80",
                                       "\xE0\xA4\x95\xE0\xA5\x8D", "\xC2\xA0", "\xE2\x80\x8D", "\xED\xA0\x80", "\xC0\x80"};
    size_t n = 0, want = rng_next(rng) % cap;
    while (n + 16 < want) {
        if (rng_next(rng) % 4 == 0) {
            out[n++] = (char)rng_next(rng);
        } else {
            const char *s = bits[rng_next(rng) % (sizeof bits / sizeof *bits)];
            memcpy(out + n, s, strlen(s));
            n += strlen(s);
        }
    }
    return n;
}

static void any_bytes_survive(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    char text[400];
    for (int p = 0; p <= NOT_COMPOSING; p++) {
        model m = p < NOT_COMPOSING ? bpe_model(pres[p]) : spm_model();
        tokenizer *t = load(&m);
        for (int round = 0; round < 300; round++) {
            size_t n = random_text(&rng, text, sizeof text);
            /* SentencePiece cannot tell U+2581 from a space. */
            char *low;
            while (p == NOT_COMPOSING && (low = memmem(text, n, "\xE2\x96\x81", 3))) *low = '.';
            survives(t, text, n, round & 1);
        }
        tokenizer_free(t);
    }
}

static void composing_changes_nothing_else(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    model m = bpe_model("qwen2");
    tokenizer *t = load(&m);
    char text[400];
    for (int round = 0; round < 300; round++) {
        size_t n = random_text(&rng, text, sizeof text);
        for (size_t i = 0; i < n; i++) /* up to U+02FF nothing composes */
            if ((unsigned char)text[i] >= 0xCC && (unsigned char)text[i] < 0xF8) text[i] = '.';
        survives(t, text, n, round & 1);
    }
    tokenizer_free(t);
}

static void long_runs_take_no_long(void **state) {
    (void)state;
    static const char *const units[] = {" ", "a", "A", "\n", "1", "!", "<", " a", "\x01", "\xFF", "\xE4\xB8\xAD", "\xCC\x81\xCC\xA3",
                                        " \n", "Aa", "'s", "\xE0\xA4\x95\xE0\xA5\x8D"};
    enum { LENGTH = 1 << 16 };
    char *text = malloc(LENGTH + 8);
    for (int p = 0; p <= PRES; p++) {
        model m = p < PRES ? bpe_model(pres[p]) : spm_model();
        tokenizer *t = load(&m);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t k = strlen(units[u]), n = 0;
            while (n + k <= LENGTH) memcpy(text + n, units[u], k), n += k;
            text[n] = 'x'; /* what a look ahead over the whole run finds */
            if (p < NOT_COMPOSING || p == PRES) survives(t, text, n + 1, false);
            else {
                token_list ids = {0};
                err e = {0};
                assert_true(tokenizer_encode(t, text, n + 1, false, &ids, &e));
                token_list_free(&ids);
            }
        }
        tokenizer_free(t);
    }
    free(text);
}

/* ---- damaged and hostile vocabularies ---- */

static void refused(model *m, const char *words) {
    err e = {0};
    tokenizer *t = try_load(m, &e);
    if (t) fail_msg("not refused: %s", words);
    assert_true(e.code == HEARTH_FORMAT || e.code == HEARTH_UNSUPPORTED);
    if (!strstr(e.text, words)) fail_msg("'%s' does not say '%s'", e.text, words);
}

static void unknown_names_are_refused(void **state) {
    (void)state;
    model m = bpe_model("no-such-thing");
    err e = {0};
    assert_null(try_load(&m, &e));
    assert_non_null(strstr(e.text, "'no-such-thing'"));
    assert_non_null(strstr(e.text, " llama-bpe "));
    assert_non_null(strstr(e.text, " default")); /* the list is whole */
    m = bpe_model(NULL);
    refused(&m, "tokenizer.ggml.pre");
    static const char *const kinds[] = {"bert", "t5", "rwkv", "plamo2", "no_vocab", "", "gpt2\n"};
    for (int i = 0; i < 7; i++) {
        m = (model){0};
        key_text(&m, "tokenizer.ggml.model", kinds[i]);
        token(&m, "a", NORMAL, 0);
        refused(&m, i < 4 ? kinds[i] : "kind");
    }
    m = (model){0};
    key_text(&m, "general.architecture", "llama");
    refused(&m, "no tokenizer");
}

static void damaged_vocabularies_are_refused(void **state) {
    (void)state;
    model m = {0};
    key_text(&m, "tokenizer.ggml.model", "llama");
    refused(&m, "tokenizer.ggml.tokens");
    m = (model){0};
    key_text(&m, "tokenizer.ggml.model", "llama");
    key_array(&m, "tokenizer.ggml.tokens", 8, 0, &m.tokens);
    refused(&m, "empty");
    m = (model){0};
    key_text(&m, "tokenizer.ggml.model", "llama");
    key_u32(&m, "tokenizer.ggml.tokens", 7);
    refused(&m, "tokenizer.ggml.tokens");
    m = spm_model();
    put32(&m.types, 1), m.n_types++;
    refused(&m, "token_type");
    m = spm_model();
    m.types.len -= 4, m.n_types--;
    refused(&m, "token_type");
    m = spm_model();
    m.types.data[40] = 77;
    refused(&m, "token 10");
    m = spm_model();
    m.n_scores = 0;
    refused(&m, "scores");
    m = spm_model();
    m.scores.len -= 8, m.n_scores -= 2;
    refused(&m, "scores");
    m = spm_model();
    memcpy(m.scores.data + 20, "\xFF\xFF\xFF\x7F", 4);
    refused(&m, "token 5");
    m = spm_model();
    key_u32(&m, "tokenizer.ggml.bos_token_id", SPM_TOKENS);
    refused(&m, "bos_token_id");
    m = spm_model();
    key_u32(&m, "tokenizer.ggml.unknown_token_id", 1u << 31);
    refused(&m, "unknown_token_id");
    m = spm_model();
    key_text(&m, "tokenizer.ggml.eos_token_id", "2");
    refused(&m, "eos_token_id");
    m = spm_model();
    key_u32(&m, "tokenizer.ggml.eot_token_id", 1000000);
    refused(&m, "eot_token_id");
    m = spm_model();
    key_text(&m, "tokenizer.ggml.add_bos_token", "yes");
    refused(&m, "add_bos_token");
    m = spm_model();
    key_u32(&m, "tokenizer.ggml.unknown_token_id", UINT32_MAX);
    m.types.data[4 * (BYTE0 + 7)] = NORMAL;
    refused(&m, "lacks 1 of");
    m = bpe_model("gpt-2");
    m.n_merges = 0;
    refused(&m, "merges");
    static const char *const bad[] = {"hell", "", " ", "x ", " x", "q q", "he nosuch", "nosuch he", "h e l"};
    for (int i = 0; i < 9; i++) {
        m = bpe_model("gpt-2");
        merge(&m, bad[i]);
        refused(&m, "entry 10");
    }
    m = spm_model();
    char *long_token = calloc(1, 70000);
    token_n(&m, long_token, 70000, NORMAL, 0);
    free(long_token);
    refused(&m, "70000 bytes long");
}

static void odd_vocabularies_work(void **state) {
    (void)state;
    model m = spm_model();
    token(&m, "ab", NORMAL, 100);                      /* a double: the first counts */
    token(&m, "", NORMAL, 0);                          /* empty ones are never found */
    token(&m, "", CONTROL, 0);
    token(&m, "", USER, 0);
    token(&m, "\xFF\xFE", NORMAL, 50);                 /* invalid UTF-8 */
    token(&m, "<tool>", CONTROL, 0);                   /* a double special */
    token(&m, "<0xZZ>", BYTE, 0);
    key_u32(&m, "tokenizer.ggml.bos_token_id", UINT32_MAX);
    tokenizer *t = load(&m);
    EXPECT(t, "ab", false, SPM_SPACE_AB);
    EXPECT(t, "\xFF\xFE", false, SPM_SPACE, SPM_TOKENS + 4);
    EXPECT(t, "<tool>", true, SPM_USER);
    assert_int_equal(tokenizer_bos(t), HEARTH_TOKEN_NONE);
    assert_false(tokenizer_wants_bos(t));
    size_t len;
    assert_non_null(tokenizer_bytes(t, SPM_TOKENS + 1, false, &len));
    assert_int_equal(len, 0);
    tokenizer_free(t);

    m = spm_model(); /* without types, bytes are known by their text */
    m.n_types = 0;
    t = load(&m);
    EXPECT(t, "\n", false, SPM_SPACE, BYTE0 + '\n');
    tokenizer_free(t);

    m = bpe_model("gpt-2"); /* a merge never makes a control token out of text; a double merge is the first one */
    token(&m, "xy", CONTROL, 0);
    merge(&m, "x y");
    merge(&m, "l l");
    m.n_scores = 0;
    t = load(&m);
    EXPECT(t, "xy", false, 'x', 'y');
    EXPECT(t, "xy", true, BPE_TOKENS);
    EXPECT(t, "hello", false, HELLO);
    tokenizer_free(t);

    m = bpe_model("gpt-2"); /* a byte without a token is left out */
    m.types.data[4 * 'q'] = CONTROL;
    t = load(&m);
    EXPECT(t, "lql", false, LL);
    expect(t, "q", 1, false, NULL, 0);
    tokenizer_free(t);
}

/* Random changes anywhere in the file: refused or not, nothing breaks. */
static void flipped_files_do_no_harm(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    for (int kind = 0; kind < 2; kind++) {
        err e = {0};
        model m = kind ? spm_model() : bpe_model("llama-bpe");
        gguf_close(open_model(&m, &e));
        char path[128];
        snprintf(path, sizeof path, "%s/vocab.gguf", temp_dir());
        buf file = slurp(path);
        for (int round = 0; round < 300; round++) {
            char *copy = malloc(file.len);
            memcpy(copy, file.data, file.len);
            for (uint64_t flips = 1 + rng_next(&rng) % 8; flips; flips--)
                copy[rng_next(&rng) % file.len] ^= (char)(1 << rng_next(&rng) % 8);
            size_t len = rng_next(&rng) % 8 ? file.len : rng_next(&rng) % file.len;
            snprintf(path, sizeof path, "%s/flipped.gguf", temp_dir());
            spew(path, copy, len);
            free(copy);
            e = (err){0};
            gguf *g = gguf_open(path, &e);
            tokenizer *t = g ? tokenizer_new(g, &e) : NULL;
            gguf_close(g);
            assert_true(t || (e.code != HEARTH_OK && e.text[0]));
            if (!t) continue;
            char text[200];
            token_list ids = {0};
            buf back = {0};
            size_t n = random_text(&rng, text, sizeof text);
            assert_true(tokenizer_encode(t, text, n, true, &ids, &e));
            assert_true(tokenizer_decode(t, ids.ids, ids.n, true, &back, &e));
            token_list_free(&ids);
            buf_free(&back);
            tokenizer_free(t);
        }
        buf_free(&file);
    }
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        err e = {0};
        model m = kind ? spm_model() : bpe_model("qwen2");
        gguf *g = open_model(&m, &e);
        assert_non_null(g);
        static const char text[] = "hello a\xCC\x81\xCC\xA3<|im_end|> \xFF\xFF caf\xC3\xA9";
        bool done = false;
        for (long n = 1; !done; n++) {
            e = (err){0};
            token_list ids = {0};
            buf back = {0};
            mem_fail_nth(n);
            tokenizer *t = tokenizer_new(g, &e);
            done = t && tokenizer_encode(t, text, sizeof text - 1, true, &ids, &e) && tokenizer_decode(t, ids.ids, ids.n, true, &back, &e);
            mem_fail_nth(0);
            if (!done) assert_int_equal(e.code, HEARTH_MEMORY);
            assert_true(n < 1000);
            token_list_free(&ids);
            buf_free(&back);
            tokenizer_free(t);
        }
        gguf_close(g);
    }
}

/* ---- threads ---- */

static void *encode_often(void *context) {
    for (int round = 0; round < 200; round++) {
        token_list ids = {0};
        tokenizer_encode(context, "hello 123 e\xCC\x81 <think>", 21, true, &ids, NULL);
        intptr_t n = (intptr_t)ids.n;
        token_list_free(&ids);
        if (n != 9) return (void *)n;
    }
    return NULL;
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    model m = bpe_model("qwen2");
    tokenizer *t = load(&m);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, encode_often, t), 0);
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, NULL);
    }
    tokenizer_free(t);
}

/* ---- characters ---- */

static void normal_form(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"", ""},
        {"plain", "plain"},
        {"e\xCC\x81", "\xC3\xA9"},
        {"\xC3\xA9\xCC\x81", "\xC3\xA9\xCC\x81"},
        {"q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87"},
        {"\xE2\x84\xAB", "\xC3\x85"},
        {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81"},
        {"\xEA\xB0\x80\xE1\x86\xA8", "\xEA\xB0\x81"},
        {"\xCC\x81", "\xCC\x81"},
        {"a e\xCC\xA3\xCC\x82 b", "a \xE1\xBB\x87 b"},
        {"\xE3\x81\x8B\xE3\x82\x99", "\xE3\x81\x8C"},
        {"\xC2\xBD\xCC\x81", "\xC2\xBD\xCC\x81"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        buf out = {0};
        err e = {0};
        assert_true(unicode_nfc(pairs[i][0], strlen(pairs[i][0]), &out, &e));
        assert_string_equal(out.data ? out.data : "", pairs[i][1]);
        buf_free(&out);
    }
}

static void streams_never_cut_a_character(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    char text[300];
    for (int round = 0; round < 500; round++) {
        size_t n = random_text(&rng, text, sizeof text), fed = 0;
        utf8_stream s = {0};
        buf out = {0};
        err e = {0};
        while (fed < n) {
            size_t k = 1 + rng_next(&rng) % 3;
            if (k > n - fed) k = n - fed;
            size_t before = out.len;
            assert_true(utf8_stream_add(&s, text + fed, k, &out, &e));
            fed += k;
            /* Each part starts where a character starts, and what is held back is the start of one. */
            size_t i = 0;
            while (i < before) {
                size_t c = unicode_char(text + i, n - i);
                i += c ? c : 1;
            }
            assert_int_equal(i, before);
            assert_true(s.n < 4 && out.len + (size_t)s.n == fed);
        }
        assert_true(utf8_stream_end(&s, &out, &e));
        assert_int_equal(out.len, n);
        assert_true(n == 0 || memcmp(out.data, text, n) == 0);
        buf_free(&out);
    }
    utf8_stream s = {0};
    buf out = {0};
    err e = {0};
    utf8_stream_add(&s, "\xF0\x9F\x98", 3, &out, &e);
    assert_int_equal(out.len, 0);
    utf8_stream_add(&s, "\x80", 1, &out, &e);
    assert_string_equal(out.data, "\xF0\x9F\x98\x80");
    utf8_stream_add(&s, "\xE2\x82", 2, &out, &e);
    utf8_stream_add(&s, "a", 1, &out, &e);
    assert_string_equal(out.data, "\xF0\x9F\x98\x80\xE2\x82" "a");
    buf_free(&out);
}

/* ---- the commands ---- */

static int debug(const char *form, const char *option, const void *input, size_t len, buf *out, buf *errors) {
    char path[128];
    snprintf(path, sizeof path, "%s/vocab.gguf", temp_dir());
    const char *argv[] = {hearth_program(), "debug", form, path, option, NULL};
    return run_program(argv, input, len, out, errors, 20);
}

static void commands(void **state) {
    (void)state;
    model m = bpe_model("gpt-2");
    err e = {0};
    gguf_close(open_model(&m, &e));
    buf out = {0}, errors = {0};
    assert_int_equal(debug("tokens", NULL, "hello\0<think>", 13, &out, &errors), 0);
    assert_string_equal(out.data, "259 0 268\n");
    buf back = {0};
    assert_int_equal(debug("text", NULL, out.data, out.len, &back, &errors), 0);
    assert_int_equal(back.len, 13);
    assert_memory_equal(back.data, "hello\0<think>", 13);
    out.len = back.len = 0;
    assert_int_equal(debug("tokens", NULL, "", 0, &out, &errors), 0);
    assert_string_equal(out.data, "\n");
    out.len = 0;
    assert_int_equal(debug("tokens", "--parse-special", "<|im_end|>", 10, &out, &errors), 0);
    assert_string_equal(out.data, "267\n");
    assert_int_equal(debug("text", NULL, out.data, out.len, &back, &errors), 0);
    assert_string_equal(back.data, "<|im_end|>");
    assert_true(errors.len == 0);
    assert_int_equal(debug("tokens", "--bos", "a", 1, NULL, &errors), 1);
    assert_non_null(strstr(errors.data, "begin-of-text"));
    static const char *const bad[] = {"1 x", "-1", "99999999999999999999", "12a", "1,2", "100000", "2147483648"};
    for (int i = 0; i < 7; i++) {
        errors.len = out.len = 0;
        assert_int_equal(debug("text", NULL, bad[i], strlen(bad[i]), &out, &errors), 1);
        assert_int_equal(out.len, 0);
        assert_ptr_equal(strchr(errors.data, '\n'), errors.data + errors.len - 1);
    }
    m = spm_model();
    gguf_close(open_model(&m, &e));
    out.len = back.len = 0;
    assert_int_equal(debug("tokens", "--bos", " ab", 3, &out, &errors), 0);
    assert_string_equal(out.data, "1 259 264\n");
    assert_int_equal(debug("text", NULL, "259 264", 7, &back, &errors), 0);
    assert_string_equal(back.data, " ab");
    buf_free(&out);
    buf_free(&back);
    buf_free(&errors);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_merges_in_the_order_of_the_list),
        cmocka_unit_test(specials_are_recognised_when_they_should_be),
        cmocka_unit_test(qwen_composes_characters_first),
        cmocka_unit_test(spm_joins_the_best_score_first),
        cmocka_unit_test(spm_without_byte_tokens_uses_the_unknown_one),
        cmocka_unit_test(phi3_drops_white_space_after_special_tokens),
        cmocka_unit_test(harmony_answers_have_several_messages),
        cmocka_unit_test(any_bytes_survive),
        cmocka_unit_test(composing_changes_nothing_else),
        cmocka_unit_test(long_runs_take_no_long),
        cmocka_unit_test(unknown_names_are_refused),
        cmocka_unit_test(damaged_vocabularies_are_refused),
        cmocka_unit_test(odd_vocabularies_work),
        cmocka_unit_test(flipped_files_do_no_harm),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(normal_form),
        cmocka_unit_test(streams_never_cut_a_character),
        cmocka_unit_test(commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
