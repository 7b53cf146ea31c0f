#include "text/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* ---- the patterns, as the models' authors published them ---- */

/* \s is spelt out as Unicode's White_Space: PCRE's own also holds U+180E. */
#define SPACE "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define S "[" SPACE "]"
#define NOT_S "[^" SPACE "]"

#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE_WORD "[^\\r\\n\\p{L}\\p{N}]?"
#define SPACES S "+(?!" NOT_S ")|" S "+"
#define LINES_AND_SPACES "|" S "*[\\r\\n]+|" SPACES
#define SIGNS "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" SPACES
#define GPT4(digits) SUFFIX "|" BEFORE_WORD "\\p{L}+|" digits SIGNS LINES_AND_SPACES
#define GPT4O(suffix, digits)                                                                                              \
    BEFORE_WORD UPPER "*" LOWER "+" suffix "|" BEFORE_WORD UPPER "+" LOWER "*" suffix "|" digits                           \
                      "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n/]*" LINES_AND_SPACES
#define NOT_HAN(class) "(?:(?!\\p{Han})" class ")"
#define CJK "[\\x{800}-\\x{9FA5}\\x{AC00}-\\x{D7FF}]+"
#define BLOOM " ?[^(" SPACE "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"

/* The cased letters that DeepSeek LLM counts as words. */
#define DEEPSEEK_LETTERS \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}" \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}" \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}" \
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}" \
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}" \
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}" \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}" \
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}" \
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}" \
    "\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}" \
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}" \
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}" \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}" \
    "\\x{1E900}-\\x{1E943}"

enum { MOST_STAGES = 6 };

/* Each pattern cuts the parts that the one before it left; what it does not match stays as it is. */
typedef const char *const stages[MOST_STAGES + 1];

static stages gpt2 = {GPT2};
static stages gpt4 = {GPT4("\\p{N}{1,3}")};
static stages qwen2 = {GPT4("\\p{N}")};
static stages qwen35 = {SUFFIX "|" BEFORE_WORD "[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES_AND_SPACES};
static stages gpt4o = {GPT4O(SUFFIX "?", "\\p{N}{1,3}")};
static stages tekken = {GPT4O("", "\\p{N}")};
static stages starcoder = {"\\p{N}", GPT2};
static stages falcon = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"};
static stages fallback = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"};
static stages bloom = {BLOOM};
static stages viking = {BLOOM, "\\p{N}"};
static stages deepseek3 = {
    "\\p{N}{1,3}",
    "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+",
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" LINES_AND_SPACES,
};
static stages deepseek_coder = {"[\\r\\n]", S "?\\p{L}+", S "?\\p{P}+", CJK, "\\p{N}"};
static stages deepseek_llm = {
    "[\\r\\n]",
    S "?[" DEEPSEEK_LETTERS "]+",
    S "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
    "(?<!" S ")" S "++$", /* the look back, which changes nothing else, keeps it linear */
    CJK,
    "\\p{N}+",
};
static stages bailing = {"'(?i:[sdmt]|ll|ve|re)|" BEFORE_WORD "\\p{L}+|\\p{N}" SIGNS "|" S "*[\\r\\n]|" SPACES};
static stages seed_coder = {SUFFIX "|" BEFORE_WORD "\\p{L}+|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}\\r\\n]+" LINES_AND_SPACES};
static stages kimi = {
    "\\p{Han}+|" BEFORE_WORD NOT_HAN(UPPER) "*" NOT_HAN(LOWER) "+" SUFFIX "?|" BEFORE_WORD NOT_HAN(UPPER) "+" NOT_HAN(LOWER) "*" SUFFIX "?"
    "|\\p{N}{1,3}" SIGNS LINES_AND_SPACES,
};

enum { WHOLE_WORDS = 1, BOS = 2, NFC = 4 };

typedef struct family {
    const char *name;
    stages *patterns;
    unsigned flags;
} family;

static const family families[] = {
    {"llama-bpe", &gpt4, WHOLE_WORDS | BOS},
    {"llama3", &gpt4, WHOLE_WORDS | BOS},
    {"llama-v3", &gpt4, WHOLE_WORDS | BOS},
    {"falcon3", &gpt4, WHOLE_WORDS | BOS},
    {"falcon-h1", &gpt4, WHOLE_WORDS | BOS},
    {"pixtral", &gpt4, WHOLE_WORDS | BOS},
    {"lfm2", &gpt4, WHOLE_WORDS | BOS},
    {"smaug-bpe", &gpt4, 0},
    {"dbrx", &gpt4, 0},
    {"glm4", &gpt4, 0},
    {"chatglm-bpe", &gpt4, 0},
    {"llama4", &gpt4o, 0},
    {"gpt-4o", &gpt4o, 0},
    {"minimax-m2", &gpt4o, 0},
    {"tekken", &tekken, WHOLE_WORDS | BOS},
    {"qwen2", &qwen2, NFC},
    {"deepseek-r1-qwen", &qwen2, NFC},
    {"megrez", &qwen2, NFC},
    {"qwen35", &qwen35, NFC},
    {"stablelm2", &qwen2, NFC},
    {"hunyuan", &qwen2, 0},
    {"grok-2", &qwen2, 0},
    {"solar-open", &qwen2, 0},
    {"deepseek-v3", &deepseek3, 0},
    {"hunyuan-dense", &deepseek3, 0},
    {"deepseek-llm", &deepseek_llm, 0},
    {"deepseek-coder", &deepseek_coder, 0},
    {"kimi-k2", &kimi, 0},
    {"bailingmoe", &bailing, 0},
    {"bailingmoe2", &bailing, 0},
    {"seed-coder", &seed_coder, 0},
    {"gpt-2", &gpt2, 0},
    {"phi-2", &gpt2, 0},
    {"exaone4", &gpt2, 0},
    {"mellum", &gpt2, 0},
    {"olmo", &gpt2, NFC},
    {"mpt", &gpt2, NFC},
    {"starcoder", &starcoder, 0},
    {"refact", &starcoder, 0},
    {"smollm", &starcoder, 0},
    {"codeshell", &starcoder, 0},
    {"exaone", &starcoder, 0},
    {"minerva-7b", &starcoder, 0},
    {"command-r", &starcoder, NFC},
    {"falcon", &falcon, 0},
    {"bloom", &bloom, 0},
    {"poro-chat", &bloom, 0},
    {"viking", &viking, 0},
    {"default", &fallback, 0},
};
enum { FAMILIES = sizeof families / sizeof *families };

struct pretokenizer {
    const family *family;
    pcre2_general_context *general;
    pcre2_match_context *limits;
    pcre2_code *code[MOST_STAGES];
    int n;
};

/* One per stage: a stage goes on matching after the next ones have run on a part. */
struct pretokenizer_scratch {
    pcre2_match_data *match[MOST_STAGES];
    int n;
};

static void *pcre_alloc(size_t size, void *unused) {
    (void)unused;
    return mem_alloc(size, 1, NULL);
}
static void pcre_free(void *p, void *unused) {
    (void)unused;
    mem_free(p);
}

static bool no_memory(err *e) { return err_set(e, HEARTH_MEMORY, "out of memory while preparing the pre-tokenizer"); }

static bool refuse(gguf_string name, err *e) {
    char quoted[48], known[480];
    err_quote(quoted, sizeof quoted, name.data, name.len);
    size_t n = 0;
    known[0] = 0;
    for (int i = 0; i < FAMILIES && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? " " : "", families[i].name);
    return err_set(e, HEARTH_UNSUPPORTED, "unknown pre-tokenizer '%s'; known: %s", quoted, known);
}

static bool compile(pretokenizer *p, const char *pattern, err *e) {
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *c = pcre2_compile_context_create(p->general);
    if (!c) return no_memory(e);
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &code, &at, c);
    pcre2_compile_context_free(c);
    if (!compiled) {
        if (code == PCRE2_ERROR_HEAP_FAILED) return no_memory(e);
        return err_set(e, HEARTH_UNSUPPORTED, "this PCRE2 cannot compile the pre-tokenizer '%s' (error %d at %zu)", p->family->name, code,
                       at);
    }
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* without it (hardened systems) matching is slower */
    p->code[p->n++] = compiled;
    return true;
}

pretokenizer *pretokenizer_new(gguf_string name, err *e) {
    const family *f = NULL;
    for (int i = 0; i < FAMILIES && !f; i++)
        if (strlen(families[i].name) == name.len && memcmp(families[i].name, name.data, name.len) == 0) f = &families[i];
    if (!f) {
        refuse(name, e);
        return NULL;
    }
    pretokenizer *p = mem_zalloc(1, sizeof *p, e);
    if (!p) return NULL;
    p->family = f;
    p->general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    p->limits = p->general ? pcre2_match_context_create(p->general) : NULL;
    bool ok = p->limits || no_memory(e);
    /* The patterns need linear time by themselves: a limit would only refuse long text. */
    if (ok) pcre2_set_match_limit(p->limits, UINT32_MAX);
    for (int i = 0; ok && (*f->patterns)[i]; i++) ok = compile(p, (*f->patterns)[i], e);
    if (ok) return p;
    pretokenizer_free(p);
    return NULL;
}

void pretokenizer_free(pretokenizer *p) {
    if (!p) return;
    for (int i = 0; i < p->n; i++) pcre2_code_free(p->code[i]);
    pcre2_match_context_free(p->limits);
    pcre2_general_context_free(p->general);
    mem_free(p);
}

const char *pretokenizer_name(const pretokenizer *p) { return p->family->name; }
bool pretokenizer_whole_words(const pretokenizer *p) { return p->family->flags & WHOLE_WORDS; }
bool pretokenizer_wants_bos(const pretokenizer *p) { return p->family->flags & BOS; }
bool pretokenizer_nfc(const pretokenizer *p) { return p->family->flags & NFC; }

pretokenizer_scratch *pretokenizer_scratch_new(const pretokenizer *p, err *e) {
    pretokenizer_scratch *s = mem_zalloc(1, sizeof *s, e);
    for (int i = 0; s && i < p->n; i++) {
        s->match[s->n] = pcre2_match_data_create(1, p->general);
        if (!s->match[s->n++]) {
            no_memory(e);
            pretokenizer_scratch_free(s);
            return NULL;
        }
    }
    return s;
}

void pretokenizer_scratch_free(pretokenizer_scratch *s) {
    if (!s) return;
    for (int i = 0; i < s->n; i++) pcre2_match_data_free(s->match[i]);
    mem_free(s);
}

typedef struct splitting {
    const pretokenizer *p;
    pretokenizer_scratch *scratch;
    pretokenizer_word *word;
    void *context;
} splitting;

/* 1 with the next match in [*from, *to), 0 when there is none, -1 on failure. */
static int next_match(const splitting *s, int stage, const char *text, size_t len, size_t start, size_t *from, size_t *to, err *e) {
    pcre2_match_data *match = s->scratch->match[stage];
    const pcre2_code *code = s->p->code[stage];
    int n = pcre2_match(code, (PCRE2_SPTR)text, len, start, PCRE2_NO_UTF_CHECK, match, s->p->limits);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(code, (PCRE2_SPTR)text, len, start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, s->p->limits);
    if (n == PCRE2_ERROR_NOMATCH) return 0;
    if (n == PCRE2_ERROR_NOMEMORY || n == PCRE2_ERROR_HEAPLIMIT) return err_nomem(e, len) - 1;
    if (n < 0) return err_set(e, HEARTH_LIMIT, "the text could not be split into words (PCRE2 error %d)", n) - 1;
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
    *from = found[0];
    *to = found[1];
    return found[1] > found[0]; /* no pattern here matches the empty string */
}

static bool split(const splitting *s, int stage, const char *text, size_t len, err *e) {
    if (len == 0) return true;
    if (stage == s->p->n) return s->word(s->context, text, len, e);
    size_t done = 0;
    while (done < len) {
        size_t from = len, to = len;
        if (next_match(s, stage, text, len, done, &from, &to, e) < 0) return false;
        if (!split(s, stage + 1, text + done, from - done, e)) return false;
        if (!split(s, stage + 1, text + from, to - from, e)) return false;
        done = to;
    }
    return true;
}

bool pretokenizer_split(const pretokenizer *p, pretokenizer_scratch *s, const char *text, size_t len, pretokenizer_word *word,
                        void *context, err *e) {
    const splitting run = {p, s, word, context};
    return split(&run, 0, text, len, e);
}
