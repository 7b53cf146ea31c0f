/* tokenizer.c: puts the parts together: special tokens are cut out of the text first, what lies between them goes to
 * BPE or SentencePiece. */
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/spm.h"
#include "text/unicode.h"
#include "text/vocab.h"

struct tokenizer {
    vocab vocab;
    pretokenizer *pre; /* byte-level BPE when there is one, SentencePiece when not */
    bpe bpe;
    spm spm;
    int32_t bos, eos;
    bool wants_bos, wants_eos;
    bool *ends; /* by id */
    char kind[48];
};

/* So that no index overflows 31 bits even when every byte becomes three. */
static const size_t MOST_TEXT = INT32_MAX / 4;

/* ---- lists of tokens ---- */

bool token_list_add(token_list *l, int32_t id, err *e) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        int32_t *ids = mem_realloc(l->ids, cap, sizeof *ids, e);
        if (!ids) return false;
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return true;
}

void token_list_free(token_list *l) {
    mem_free(l->ids);
    *l = (token_list){0};
}

/* ---- loading ---- */

static bool same(gguf_string s, const char *text) { return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0; }

/* Leaves *flag alone when the key is missing. */
static bool read_flag(const gguf *g, const char *key, bool *flag, err *e) {
    err own = {0};
    return gguf_get_bool(g, key, flag, &own) || own.code == HEARTH_OK || err_set(e, own.code, "%s", own.text);
}

/* Leaves *id alone when the key is missing; -1, also as an unsigned number, means none. */
static bool read_id(const tokenizer *t, const gguf *g, const char *key, int32_t *id, err *e) {
    int64_t value;
    err own = {0};
    if (!gguf_get_i64(g, key, &value, &own)) return own.code == HEARTH_OK || err_set(e, own.code, "%s", own.text);
    if (value == -1 || value == UINT32_MAX) {
        *id = HEARTH_TOKEN_NONE;
        return true;
    }
    if (value < 0 || value >= t->vocab.n)
        return err_set(e, HEARTH_FORMAT, "%s is %lld, but the vocabulary has %d tokens", key, (long long)value, t->vocab.n);
    *id = (int32_t)value;
    return true;
}

/* Whether there is a special token spelt like this. A user-defined </s> is a tag in a web page. */
static bool is_special(const vocab *v, const char *text, int32_t *id) {
    *id = vocab_find(v, text, strlen(text));
    uint8_t type = *id >= 0 ? v->tokens[*id].type : VOCAB_NORMAL;
    return type == VOCAB_CONTROL || (type == VOCAB_USER && strcmp(text, "</s>") != 0);
}

/* The file names at most three tokens that end an answer; models use more. These are known by their text. */
static bool find_ends(tokenizer *t, const gguf *g, err *e) {
    static const char *const texts[] = {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<end_of_turn>", "<|endoftext|>", "</s>",
        "<eos>", "<|eom_id|>", "<EOT>", "_<EOT>", "\xE2\x96\x81<EOT>", "<|EOT|>", "[EOT]", "[EOS]", "<|end_of_text|>", "<|endofturn|>",
        "<|end_of_turn|>", "<|eos|>", "<end_of_utterance>", "<turn|>", "[e~[", "<|END_OF_TURN_TOKEN|>", "<|end_of_sentence|>",
        "<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", /* DeepSeek */
        "<|fim_pad|>", "<fim_pad>", "<|repo_name|>", "<|file_sep|>", /* another file begins */
    };
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    const vocab *v = &t->vocab;
    t->ends = mem_zalloc((size_t)v->n, sizeof *t->ends, e);
    if (!t->ends) return false;
    int32_t id;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (is_special(v, texts[i], &id)) t->ends[id] = true;
    /* Where an answer ends with <|return|> or <|call|> it consists of several messages, and <|end|> ends only one of them. */
    bool harmony = (is_special(v, "<|return|>", &id) || is_special(v, "<|flush|>", &id)) &&
                   (is_special(v, "<|call|>", &id) || is_special(v, "<|calls|>", &id));
    if (harmony && is_special(v, "<|end|>", &id)) t->ends[id] = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        id = i == 0 ? t->eos : HEARTH_TOKEN_NONE;
        if (!read_id(t, g, keys[i], &id, e)) return false;
        if (id >= 0) t->ends[id] = true;
    }
    return true;
}

/* The Phi-3 models drop white space after their special tokens, all but three; the file does not say so. */
static void mark_space_eaters(vocab *v) {
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (uint32_t i = 0; i < v->specials.n; i++) {
        vocab_token *token = &v->tokens[v->specials.ids[i]];
        token->eats_space = token->type != VOCAB_UNKNOWN;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int32_t id = vocab_find(v, others[i], strlen(others[i]));
        if (id >= 0) v->tokens[id].eats_space = false;
    }
}

static bool load_bpe(tokenizer *t, const gguf *g, err *e) {
    gguf_string name;
    if (!gguf_get_string(g, "tokenizer.ggml.pre", &name, e))
        return err_set(e, HEARTH_FORMAT, "the file does not say how its tokenizer splits text into words: tokenizer.ggml.pre is missing, "
                                         "as in files converted before May 2024; get a newer conversion of the model");
    t->pre = pretokenizer_new(name, e);
    if (!t->pre || !vocab_load(&t->vocab, g, true, e)) return false;
    snprintf(t->kind, sizeof t->kind, "BPE (%s)", pretokenizer_name(t->pre));
    t->wants_bos = pretokenizer_wants_bos(t->pre);
    return bpe_load(&t->bpe, g, &t->vocab, pretokenizer_whole_words(t->pre), e);
}

static bool load_spm(tokenizer *t, const gguf *g, err *e) {
    if (!vocab_load(&t->vocab, g, false, e)) return false;
    snprintf(t->kind, sizeof t->kind, "SentencePiece");
    t->wants_bos = true;
    /* SentencePiece's own defaults, for files that do not say. */
    t->spm = (spm){.unknown = 0, .add_space = true};
    t->bos = t->vocab.n > 1 ? 1 : HEARTH_TOKEN_NONE;
    t->eos = t->vocab.n > 2 ? 2 : HEARTH_TOKEN_NONE;
    gguf_string architecture;
    if (gguf_get_string(g, "general.architecture", &architecture, NULL) && same(architecture, "phi3")) mark_space_eaters(&t->vocab);
    return read_id(t, g, "tokenizer.ggml.unknown_token_id", &t->spm.unknown, e) &&
           read_flag(g, "tokenizer.ggml.add_space_prefix", &t->spm.add_space, e) &&
           read_flag(g, "tokenizer.ggml.remove_extra_whitespaces", &t->spm.trim, e) && spm_load(&t->spm, &t->vocab, e);
}

static bool load(tokenizer *t, const gguf *g, err *e) {
    gguf_string kind;
    if (!gguf_get_string(g, "tokenizer.ggml.model", &kind, e))
        return err_set(e, HEARTH_FORMAT, "the file has no tokenizer: tokenizer.ggml.model is missing");
    char quoted[64];
    if (same(kind, "gpt2")) {
        if (!load_bpe(t, g, e)) return false;
    } else if (same(kind, "llama")) {
        if (!load_spm(t, g, e)) return false;
    } else {
        return err_set(e, HEARTH_UNSUPPORTED, "unknown tokenizer kind '%s'; known: gpt2 (byte-level BPE), llama (SentencePiece)",
                       err_quote(quoted, sizeof quoted, kind.data, kind.len));
    }
    if (!read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos, e)) return false;
    if (!read_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos, e)) return false;
    if (!read_flag(g, "tokenizer.ggml.add_bos_token", &t->wants_bos, e)) return false;
    if (!read_flag(g, "tokenizer.ggml.add_eos_token", &t->wants_eos, e)) return false;
    if (t->bos < 0) t->wants_bos = false;
    if (t->eos < 0) t->wants_eos = false;
    return find_ends(t, g, e);
}

tokenizer *tokenizer_new(const gguf *g, err *e) {
    tokenizer *t = mem_zalloc(1, sizeof *t, e);
    if (!t) return NULL;
    t->bos = t->eos = HEARTH_TOKEN_NONE;
    if (load(t, g, e)) return t;
    tokenizer_free(t);
    return NULL;
}

void tokenizer_free(tokenizer *t) {
    if (!t) return;
    bpe_free(&t->bpe);
    spm_free(&t->spm);
    pretokenizer_free(t->pre);
    vocab_free(&t->vocab);
    mem_free(t->ends);
    mem_free(t);
}

/* ---- encoding ---- */

typedef struct encoding {
    const tokenizer *t;
    token_list *out;
    pretokenizer_scratch *pre;
    bpe_scratch bpe;
    spm_scratch spm;
    buf normal;
} encoding;

static bool encode_word(void *context, const char *word, size_t len, err *e) {
    encoding *c = context;
    return bpe_encode(&c->t->bpe, &c->bpe, word, len, c->out, e);
}

/* Bytes that are not valid UTF-8 are words of their own between the valid parts. */
static bool encode_bpe(encoding *c, const char *text, size_t len, err *e) {
    const pretokenizer *pre = c->t->pre;
    while (len) {
        size_t valid = unicode_valid(text, len);
        const char *part = text;
        size_t part_len = valid;
        if (pretokenizer_nfc(pre)) {
            c->normal.len = 0;
            if (!unicode_nfc(text, valid, &c->normal, e)) return false;
            part = c->normal.data;
            part_len = c->normal.len;
        }
        if (!pretokenizer_split(pre, c->pre, part, part_len, encode_word, c, e)) return false;
        size_t broken = valid;
        while (broken < len && unicode_char(text + broken, len - broken) == 0) broken++;
        if (broken > valid && !encode_word(c, text + valid, broken - valid, e)) return false;
        text += broken;
        len -= broken;
    }
    return true;
}

static bool encode_part(encoding *c, const char *text, size_t len, err *e) {
    if (len == 0) return true;
    return c->t->pre ? encode_bpe(c, text, len, e) : spm_encode(&c->t->spm, &c->spm, text, len, c->out, e);
}

static bool encode_all(encoding *c, const char *text, size_t len, bool parse_special, err *e) {
    const vocab *v = &c->t->vocab;
    const vocab_specials *specials = parse_special ? &v->specials : &v->user;
    size_t done = 0;
    for (size_t i = 0; i < len;) {
        int32_t id = vocab_match(v, specials, text + i, len - i);
        if (id < 0) {
            i++;
            continue;
        }
        if (!encode_part(c, text + done, i - done, e) || !token_list_add(c->out, id, e)) return false;
        i += v->tokens[id].bytes_len;
        for (size_t space = 1; v->tokens[id].eats_space && space; i += space) space = unicode_space(text + i, len - i);
        done = i;
    }
    return encode_part(c, text + done, len - done, e);
}

bool tokenizer_encode(const tokenizer *t, const char *text, size_t len, bool parse_special, token_list *out, err *e) {
    if (len > MOST_TEXT)
        return err_set(e, HEARTH_LIMIT, "the text is %zu bytes long, more than the %zu that can be tokenized at once", len, MOST_TEXT);
    encoding c = {.t = t, .out = out};
    if (t->pre && !(c.pre = pretokenizer_scratch_new(t->pre, e))) return false;
    bool ok = encode_all(&c, text, len, parse_special, e);
    pretokenizer_scratch_free(c.pre);
    bpe_scratch_free(&c.bpe);
    spm_scratch_free(&c.spm);
    buf_free(&c.normal);
    return ok;
}

/* ---- decoding ---- */

const char *tokenizer_bytes(const tokenizer *t, int32_t id, bool special, size_t *len) {
    *len = 0;
    if (id < 0 || id >= t->vocab.n) return NULL;
    uint8_t type = t->vocab.tokens[id].type;
    if (!special && (type == VOCAB_CONTROL || type == VOCAB_UNKNOWN)) return "";
    *len = t->vocab.tokens[id].bytes_len;
    return vocab_bytes(&t->vocab, id);
}

const char *tokenizer_piece(const tokenizer *t, int32_t id, size_t *len) {
    *len = 0;
    if (id < 0 || id >= t->vocab.n) return NULL;
    *len = t->vocab.tokens[id].piece_len;
    return vocab_piece(&t->vocab, id);
}

bool tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool special, buf *out, err *e) {
    bool added_space = tokenizer_adds_space(t);
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, ids[i], special, &len);
        if (!bytes) return err_set(e, HEARTH_ARGUMENT, "%d is not a token: the vocabulary has 0 to %d", ids[i], t->vocab.n - 1);
        uint8_t type = t->vocab.tokens[ids[i]].type;
        bool cut_out = type == VOCAB_CONTROL || type == VOCAB_UNKNOWN || type == VOCAB_USER;
        if (cut_out) {
            added_space = tokenizer_adds_space(t);
        } else if (len) {
            if (added_space && bytes[0] == ' ') bytes++, len--;
            added_space = false;
        }
        if (!buf_add(out, bytes, len, e)) return false;
    }
    return true;
}

/* ---- facts ---- */

int32_t tokenizer_size(const tokenizer *t) { return t->vocab.n; }
bool tokenizer_adds_space(const tokenizer *t) { return !t->pre && t->spm.add_space; }
int32_t tokenizer_bos(const tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const tokenizer *t) { return t->eos; }
bool tokenizer_wants_bos(const tokenizer *t) { return t->wants_bos; }
bool tokenizer_wants_eos(const tokenizer *t) { return t->wants_eos; }
bool tokenizer_ends(const tokenizer *t, int32_t id) { return id >= 0 && id < t->vocab.n && t->ends[id]; }
const char *tokenizer_kind(const tokenizer *t) { return t->kind; }
