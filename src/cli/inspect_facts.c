/* inspect_facts.c: reads out of the metadata what people ask about a model. It knows names of entries, not architectures. */
#include <stdio.h>
#include <string.h>

#include "cli/inspect.h"

typedef struct source {
    const gguf *g;
    gguf_string arch;
} source;

static void complain(const err *e) {
    if (e->code != HEARTH_OK) fprintf(stderr, "hearth: %s\n", e->text);
}

/* "llama" and "attention.head_count" make "llama.attention.head_count"; NULL when the architecture is unknown. */
static const char *arch_key(const source *s, const char *suffix, char key[200]) {
    if (!s->arch.data || s->arch.len > 100) return NULL;
    snprintf(key, 200, "%.*s.%s", (int)s->arch.len, s->arch.data, suffix);
    return key;
}

static uint64_t number(const source *s, const char *suffix) {
    char key[200];
    uint64_t value = 0;
    err e = {0};
    if (arch_key(s, suffix, key)) gguf_get_u64(s->g, key, &value, &e);
    complain(&e);
    return value;
}

static double real(const source *s, const char *suffix) {
    char key[200];
    double value = 0;
    err e = {0};
    if (arch_key(s, suffix, key)) gguf_get_f64(s->g, key, &value, &e);
    complain(&e);
    return value;
}

static gguf_string text(const gguf *g, const char *key) {
    gguf_string value = {0};
    err e = {0};
    if (key) gguf_get_string(g, key, &value, &e);
    complain(&e);
    return value;
}

/* ---- tensors ---- */

static void gather_tensors(inspect_facts *f, const gguf *g) {
    uint64_t experts = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        inspect_type *sum = &f->types[t->type];
        sum->tensors++;
        sum->elements += t->n_elements;
        sum->bytes += t->n_bytes;
        f->parameters += t->n_elements;
        f->tensor_bytes += t->n_bytes;
        if (memmem(t->name.data, t->name.len, "_exps", 5)) experts += t->n_elements;
    }
    f->active_parameters = f->parameters;
    if (f->experts > 0 && f->experts_used <= f->experts)
        f->active_parameters -= experts - (uint64_t)((double)experts * (double)f->experts_used / (double)f->experts);
}

/* ---- attention ---- */

typedef struct head_counts {
    uint64_t least, most, sum;
} head_counts;

/* head_count and head_count_kv are one number, or one for each layer. */
static head_counts gather_heads(const source *s, const char *suffix, uint64_t layers) {
    char key[200];
    head_counts h = {0};
    if (!arch_key(s, suffix, key)) return h;
    const gguf_kv *kv = gguf_find(s->g, key);
    if (!kv) return h;
    if (kv->type != GGUF_ARRAY) {
        uint64_t n = number(s, suffix), sum;
        return __builtin_mul_overflow(n, layers, &sum) ? (head_counts){0} : (head_counts){n, n, sum};
    }
    if (kv->item == GGUF_STRING || kv->item == GGUF_ARRAY) return h;
    for (uint64_t i = 0; i < kv->count && i < layers; i++) {
        int64_t n = gguf_item_i64(kv, i);
        if (n < 0 || __builtin_add_overflow(h.sum, (uint64_t)n, &h.sum)) return (head_counts){0};
        if (i == 0 || (uint64_t)n < h.least) h.least = (uint64_t)n;
        if ((uint64_t)n > h.most) h.most = (uint64_t)n;
    }
    return h;
}

static uint64_t kv_bytes(const inspect_facts *f, uint64_t kv_heads_sum) {
    uint64_t values, bytes;
    if (f->latent) {
        /* MLA keeps one latent and one rotated key for all heads. */
        if (__builtin_add_overflow(f->latent, f->rope_dims, &values) || __builtin_mul_overflow(values, f->layers, &values)) return 0;
    } else {
        if (__builtin_add_overflow(f->key_length, f->value_length, &values) || __builtin_mul_overflow(values, kv_heads_sum, &values)) return 0;
    }
    return __builtin_mul_overflow(values, 2, &bytes) ? 0 : bytes;
}

static void gather_attention(inspect_facts *f, const source *s) {
    head_counts q = gather_heads(s, "attention.head_count", f->layers), kv = gather_heads(s, "attention.head_count_kv", f->layers);
    char key[200];
    if (arch_key(s, "attention.head_count_kv", key) && !gguf_find(s->g, key)) kv = q;
    f->heads = q.most;
    f->kv_heads_least = kv.least;
    f->kv_heads_most = kv.most;
    uint64_t usual = q.most ? f->width / q.most : 0;
    f->key_length = number(s, "attention.key_length");
    f->value_length = number(s, "attention.value_length");
    if (!f->key_length) f->key_length = usual;
    if (!f->value_length) f->value_length = usual;
    f->latent = number(s, "attention.kv_lora_rank");
    f->rope_dims = number(s, "rope.dimension_count");
    f->window = number(s, "attention.sliding_window");
    f->kv_bytes = kv_bytes(f, kv.sum);
}

static void gather_rope(inspect_facts *f, const source *s) {
    char key[200];
    f->rope_base = real(s, "rope.freq_base");
    f->rope_factor = real(s, "rope.scaling.factor");
    f->rope_scaling = text(s->g, arch_key(s, "rope.scaling.type", key));
    f->rope_original = number(s, "rope.scaling.original_context_length");
}

/* ---- text ---- */

static int64_t token_id(const gguf *g, const char *key) {
    uint64_t id;
    err e = {0};
    bool there = gguf_get_u64(g, key, &id, &e);
    complain(&e);
    return there && id <= INT32_MAX ? (int64_t)id : -1;
}

gguf_string inspect_token(const gguf *g, int64_t id) {
    const gguf_kv *tokens = gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, NULL);
    gguf_string s = {0};
    if (!tokens || id < 0 || (uint64_t)id >= tokens->count) return s;
    const uint8_t *cursor = tokens->data;
    for (int64_t i = 0; i <= id; i++) s = gguf_next_string(&cursor);
    return s;
}

static void gather_text(inspect_facts *f, const gguf *g) {
    err e = {0};
    f->tokenizer = text(g, "tokenizer.ggml.model");
    f->pre = text(g, "tokenizer.ggml.pre");
    const gguf_kv *tokens = gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &e);
    complain(&e);
    f->tokens = tokens ? tokens->count : 0;
    f->bos = token_id(g, "tokenizer.ggml.bos_token_id");
    f->eos = token_id(g, "tokenizer.ggml.eos_token_id");
    f->template = text(g, "tokenizer.chat_template");
}

/* ---- the whole ---- */

void inspect_gather(inspect_facts *f, const gguf *g) {
    *f = (inspect_facts){.arch = text(g, "general.architecture"), .name = text(g, "general.name")};
    const source s = {g, f->arch};
    f->context = number(&s, "context_length");
    f->layers = number(&s, "block_count");
    f->width = number(&s, "embedding_length");
    /* Like the heads, one number or one for each layer. */
    f->feed_forward = gather_heads(&s, "feed_forward_length", f->layers).most;
    f->vocabulary = number(&s, "vocab_size");
    f->experts = number(&s, "expert_count");
    f->experts_used = number(&s, "expert_used_count");
    f->experts_shared = number(&s, "expert_shared_count");
    gather_attention(f, &s);
    gather_rope(f, &s);
    gather_text(f, g);
    gather_tensors(f, g);
}

const char *inspect_type_name(int type) {
    switch (type) {
#define X(name, number, block, bytes) \
    case number: return #name;
        QUANT_TYPES(X)
#undef X
    default: return "unknown";
    }
}

double inspect_bits(uint64_t bytes, uint64_t elements) { return elements ? 8.0 * (double)bytes / (double)elements : 0; }
