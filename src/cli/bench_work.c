/* bench_work.c: the least that a case has to read and to multiply, from the shapes in the file. Weights count as they lie in the file and once
 * per pass, keys and values once per token that looks at them, and only what is visible from it. */
#include <math.h>
#include <string.h>

#include "cli/bench.h"
#include "engine/engine.h"

typedef struct weights_work {
    double layer_bytes, layer_products; /* all layers, one token; of experts those that it is sent to */
    double output_bytes, output_products;
} weights_work;

static bool name_is(const gguf_tensor *t, const char *name) { return t->name.len == strlen(name) && memcmp(t->name.data, name, t->name.len) == 0; }
static bool name_has(const gguf_tensor *t, const char *part) { return memmem(t->name.data, t->name.len, part, strlen(part)) != NULL; }

/* Which part of a layer's experts a pass of n tokens needs, when each goes to its own as if by chance. */
static double experts_used(const model_params *p, double tokens) {
    double one = (double)p->n_used / (double)p->n_experts;
    return 1 - pow(1 - one, tokens);
}

static weights_work count_weights(const hearth_engine *en, double tokens_per_pass) {
    const model_params *p = &en->model.params;
    weights_work w = {0};
    bool own_output = gguf_find_tensor(en->file, "output.weight") != NULL;
    for (size_t i = 0; i < gguf_n_tensors(en->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(en->file, i);
        double bytes = (double)t->n_bytes, products = t->n_dims > 1 ? (double)t->n_elements : 0;
        if (name_is(t, "output.weight") || (!own_output && name_is(t, "token_embd.weight"))) {
            w.output_bytes += bytes, w.output_products += products;
        } else if (name_is(t, "token_embd.weight")) {
            continue; /* only a row of it is read */
        } else if (name_has(t, "_exps.") && p->n_experts > 0) {
            w.layer_bytes += bytes * experts_used(p, tokens_per_pass);
            w.layer_products += products * (double)p->n_used / (double)p->n_experts;
        } else {
            w.layer_bytes += bytes, w.layer_products += products;
        }
    }
    return w;
}

/* Positions that n tokens after `depth` others see, all together. */
static double visible(const layer_params *l, int window, int depth, int n) {
    double total = 0;
    for (int i = 0; i < n; i++) {
        int sees = depth + i + 1;
        total += l->windowed && window > 0 && sees > window ? window : sees;
    }
    return total;
}

static void count_attention(const hearth_engine *en, const bench_case *c, double *bytes, double *products) {
    const model_params *p = &en->model.params;
    int n = c->n_prompt + c->n_gen;
    *bytes = *products = 0;
    for (int i = 0; i < p->n_layers; i++) {
        const kv_layer *l = &en->model.kv.layers[i];
        double seen = visible(&p->layers[i], p->window, c->depth, n);
        size_t row = l->k_stride + (l->v_offset == l->k_offset ? 0 : l->v_stride); /* latent attention keeps one row for both */
        *bytes += seen * (double)l->n_heads * (double)row;
        *products += seen * (double)p->layers[i].n_heads * (double)(l->k_dim + l->v_dim);
    }
}

void bench_work(const bench *b, bench_case *c) {
    const hearth_engine *en = b->engine;
    double n = c->n_prompt + c->n_gen, sequences = c->batch, tokens = n * sequences;
    double passes = c->n_gen ? n : ceil(n / MODEL_CHUNK) * sequences, outputs = c->n_gen ? tokens : sequences;
    weights_work w = count_weights(en, c->n_gen ? sequences : tokens / passes);
    double attention_bytes, attention_products;
    count_attention(en, c, &attention_bytes, &attention_products);
    /* A pass of many tokens reads the keys once for many of them: only for single tokens is the sum what is read. */
    double kv_bytes = c->n_gen ? attention_bytes * sequences : 0;
    c->bytes = passes * w.layer_bytes + (c->n_gen ? passes : sequences) * w.output_bytes + kv_bytes;
    c->operations = 2 * (tokens * w.layer_products + outputs * w.output_products + sequences * attention_products);
    const bench_limits *l = &b->limits;
    if (c->n_gen) {
        bool fits = l->read_shared > 0 && c->bytes / passes <= (double)l->shared_bytes;
        c->limit = tokens * (fits ? l->read_shared : l->read) / c->bytes;
        c->limit_name = fits ? "cache read" : "memory read";
    } else {
        const bench_unit *u = bench_limits_best(l);
        c->limit = u ? tokens * u->per_second / c->operations : 0;
        c->limit_name = u ? u->probe->name : "";
    }
}
