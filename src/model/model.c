#include "model/model.h"

#include "quant/quant.h"

void *model_own(model *m, size_t count, size_t size, err *e) {
    if (m->n_owned == m->cap_owned) {
        size_t cap = m->cap_owned * 2 + 16;
        void **owned = mem_realloc(m->owned, cap, sizeof *owned, e);
        if (!owned) return NULL;
        m->owned = owned;
        m->cap_owned = cap;
    }
    void *p = mem_aligned(count, size, e);
    if (p) m->owned[m->n_owned++] = p;
    return p;
}

/* Latent attention keeps one compressed row per token for all heads; its values are the front of its keys. */
static bool lay_out_kv(model *m, int k_type, int v_type, err *e) {
    const model_params *p = &m->params;
    bool latent = (p->arch->traits & ARCH_LATENT) != 0;
    if (!kv_layout_init(&m->kv, p->n_layers, k_type, v_type, e)) return false;
    for (int full = 0; full < 2; full++) { /* windowed layers lie first */
        for (int i = 0; i < p->n_layers; i++) {
            if (full == p->layers[i].windowed) continue;
            bool ok = latent ? kv_layout_set(&m->kv, i, 1, p->kv_rank + p->n_rot, p->kv_rank, true, e)
                             : kv_layout_set(&m->kv, i, p->layers[i].n_kv_heads, p->k_dim, p->v_dim, false, e);
            if (!ok) return false;
        }
        if (!full && m->kv.n_set) kv_layout_window(&m->kv, p->window);
    }
    return true;
}

/* Attention's own products: an error in a query or key is one in an exponent. Of weights of eight bits also those that write to the stream: what bytes lose there is
 * large beside what the type itself lost. docs/kernels.md has what it costs to leave this out. */
static void choose_precision(model *m) {
    for (int i = 0; i < m->params.n_layers; i++) {
        model_layer *l = &m->layers[i];
        weight *const fine[] = {&l->q, &l->k, &l->v, &l->qkv, &l->q_a, &l->q_b, &l->kv_a, &l->kv_b, &l->k_b, &l->v_b};
        weight *const writing[] = {&l->out, &l->down, &l->down_exps, &l->down_shared};
        for (size_t j = 0; j < sizeof fine / sizeof *fine; j++) fine[j]->mat.fine = true;
        for (size_t j = 0; j < sizeof writing / sizeof *writing; j++) writing[j]->mat.fine = writing[j]->mat.type == QUANT_Q8_0;
    }
}

bool model_load(model *m, const gguf *g, const kernels *k, int k_type, int v_type, err *e) {
    *m = (model){.file = g, .kern = k};
    bool ok = model_params_read(&m->params, g, e) && model_load_tensors(m, e) && model_load_rope(m, e) && lay_out_kv(m, k_type, v_type, e);
    if (!ok) model_free(m);
    else choose_precision(m);
    return ok;
}

void model_free(model *m) {
    for (size_t i = 0; i < m->n_owned; i++) mem_free(m->owned[i]);
    mem_free(m->owned);
    mem_free(m->layers);
    kv_layout_free(&m->kv);
    model_params_free(&m->params);
    *m = (model){0};
}

void model_run_free(model_run *r) {
    kern_scratch_free(&r->scratch);
    mem_free(r->memory);
    mem_free(r->pass);
    *r = (model_run){0};
}
