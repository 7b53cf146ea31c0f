#include "engine/recall.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "quant/quant.h"
#include "weights/folder.h"
#include "weights/inner.h"

/* ---- which model it is ---- */

/* The weights alone do not tell: scales, windows and rotation come from elsewhere in the file. */
static bool add_parameters(const model *m, buf *out, err *e) {
    const model_params *p = &m->params;
    size_t half = (size_t)p->n_rot / 2;
    bool ok = buf_addf(out, e, "%s eps %a window %d rot %d original %d scales %a %a %a cap %a experts %d %d %d %d %d %a factor %a\n", p->arch->name, (double)p->eps, p->window,
                       p->n_rot, p->original_context, (double)p->embed_scale, (double)p->residual_scale, (double)p->attention_scale, (double)p->attention_cap,
                       p->n_used, p->n_groups, p->n_groups_used, (int)p->gating, (int)p->norm_chosen, (double)p->expert_scale, (double)m->rope.factor);
    for (int i = 0; ok && i < p->n_layers; i++) {
        const layer_params *l = &p->layers[i];
        ok = buf_addf(out, e, "%d %d%d%d ", l->n_heads, l->windowed, l->rotated, l->experts);
    }
    const float *tables[] = {m->rope.full, m->rope.window, m->rope.full_long};
    for (size_t i = 0; ok && i < 3; i++)
        if (tables[i]) ok = buf_add(out, tables[i], half * sizeof(float), e);
    return ok;
}

/* The hash of all weights, from the record of an earlier start where the file has not changed. */
static bool find_weights(hearth_engine *en, const hearth_engine_options *o, hash128 *out, err *e) {
    hash128 table = fingerprint_table(en->file);
    char *folder = o->cache ? folder_path(o->cache_dir, NULL) : NULL;
    bool ok = folder && folder_source_find(folder, en->file, table, out);
    if (!ok) {
        int64_t from = folder_now_ns();
        ok = fingerprint_weights(en->file, en->pool, out, e);
        if (ok && folder) folder_source_record(folder, en->file, table, *out, from, NULL);
    }
    mem_free(folder);
    return ok;
}

static bool identify(hearth_engine *en, const hearth_engine_options *o, err *e) {
    hash128 weights_hash = {0};
    buf parameters = {0};
    /* In memory there is only this model. */
    bool ok = (!o->store || find_weights(en, o, &weights_hash, e)) && add_parameters(&en->model, &parameters, e) && kv_layout_describe(&en->model.kv, &en->kv_format, e);
    /* What the exact kernels keep as floats is theirs by its type; what they keep as others do must not be mixed with it. */
    if (ok && en->model.kv.k_type != QUANT_F32 && strcmp(en->model.kern->name, "ref") == 0) ok = buf_adds(&en->kv_format, " exact", e);
    if (ok) {
        crypto_generichash_state h;
        uint8_t id[16];
        crypto_generichash_init(&h, NULL, 0, sizeof id);
        crypto_generichash_update(&h, (const unsigned char *)&weights_hash, sizeof weights_hash);
        crypto_generichash_update(&h, (const unsigned char *)parameters.data, parameters.len);
        crypto_generichash_final(&h, id, sizeof id);
        sodium_bin2hex(en->kv_model, sizeof en->kv_model, id, sizeof id);
    }
    buf_free(&parameters);
    return ok;
}

/* ---- opening ---- */

char *recall_folder(const char *given, err *e) {
    if (given && *given) return mem_strndup(given, strlen(given), e);
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    buf b = {0};
    bool ok = data && *data == '/' ? buf_addf(&b, e, "%s/hearth/kv", data)
              : home && *home == '/' ? buf_addf(&b, e, "%s/.local/share/hearth/kv", home)
                                     : err_set(e, HEARTH_IO, "there is no folder for conversations: neither XDG_DATA_HOME nor HOME is set");
    if (ok) return b.data;
    buf_free(&b);
    return NULL;
}

enum { MOST_WAITING = 1 << 30 }; /* bytes */

static void open_store(hearth_engine *en, const hearth_engine_options *o) {
    err *why = &en->store_problem;
    char *folder = recall_folder(o->store_dir, why);
    if (folder) {
        /* What waits to be written is in memory beyond what is in use: it must leave room for that. */
        uint64_t quarter = kv_cache_stats(en->kv_cache).budget / 4, queue = quarter < MOST_WAITING ? quarter + 1 : MOST_WAITING;
        store_options so = {.folder = folder, .disk = o->kv_disk, .queue_bytes = queue, .warn = o->warn, .warn_user = o->warn_user};
        en->store = store_open(&so, en->kv_cache, &en->model.kv, en->kv_model, why);
    }
    mem_free(folder);
    if (en->store || !o->warn) return;
    char sentence[600];
    snprintf(sentence, sizeof sentence, "conversations are kept in memory only: %s", why->text);
    o->warn(o->warn_user, sentence);
}

bool recall_open(hearth_engine *en, const hearth_engine_options *o, err *e) {
    if (o->kv_memory == 0 && !o->store) return true;
    uint64_t memory = o->kv_memory == HEARTH_AUTO ? spare_memory() / 4 : o->kv_memory;
    en->kv_cache = kv_cache_new(&en->model.kv, memory, e);
    if (!en->kv_cache || !identify(en, o, e)) return false;
    if (o->store) open_store(en, o);
    return true;
}

void recall_close(hearth_engine *en) {
    store_close(en->store);
    kv_cache_free(en->kv_cache);
    buf_free(&en->kv_format);
}

/* ---- sequences ---- */

void recall_start(hearth_engine *en, kv_seq *seq, const char *tenant, bool long_context) {
    *seq = (kv_seq){.layout = &en->model.kv, .cache = en->kv_cache};
    if (en->kv_cache) seq->chain = kv_chain_make(tenant, en->kv_model, strlen(en->kv_model), en->kv_format.data, long_context);
}

/* Conversations part where what was known ends, and go on from where a prompt ended: when a sequence gets there the window parts are in memory, and may not be later. */
static void put_reached(hearth_engine *en, const kv_seq *seq, size_t before) {
    const size_t places[] = {seq->found, seq->asked};
    for (size_t i = 0; en->store && i < 2; i++)
        if (before < places[i] / KV_BLOCK) store_put_place(en->store, seq, places[i]);
}

size_t recall_find(hearth_engine *en, kv_seq *seq, const int32_t *tokens, size_t n, bool disk) {
    const kv_source from = store_source(en->store);
    const size_t before = seq->n_sealed, found = kv_seq_find(seq, tokens, n, en->store && disk ? &from : NULL);
    put_reached(en, seq, before);
    return found;
}

/* Few tokens at once cost more each than the many of a prompt. */
enum { LEAST_PREFILL = 16 };

void recall_computed(hearth_engine *en, size_t n, uint64_t ns) {
    if (n < LEAST_PREFILL) return;
    en->prefill_tokens += n;
    en->prefill_ns += ns;
}

double recall_token_seconds(const hearth_engine *en) {
    const uint64_t n = en->prefill_tokens;
    return n ? (double)en->prefill_ns * 1e-9 / (double)n : 0;
}

void recall_keep(hearth_engine *en, kv_seq *seq, const int32_t *tokens) {
    uint64_t start = clock_ns();
    size_t before = seq->n_sealed;
    kv_seq_seal(seq, tokens);
    for (size_t i = before; en->store && i < seq->n_sealed; i++) store_put(en->store, seq->held[i]);
    put_reached(en, seq, before);
    en->kv_stall_ns += clock_ns() - start;
}

/* What could not be written when it was reached is tried again. */
static void put_places(hearth_engine *en, const kv_seq *seq) {
    put_reached(en, seq, 0);
    if (en->store) store_put_place(en->store, seq, seq->length);
}

void recall_end(hearth_engine *en, kv_seq *seq, const int32_t *tokens) {
    recall_keep(en, seq, tokens);
    put_places(en, seq);
    kv_seq_keep_tail(seq, tokens);
    kv_seq_free(seq);
}

size_t recall_warm(hearth_engine *en, const char *tenant, bool long_context, const int32_t *tokens, size_t n, bool whole) {
    if (!en->store || n < KV_BLOCK) return 0;
    kv_seq seq;
    size_t loaded = 0;
    const kv_source from = store_source(en->store);
    recall_start(en, &seq, tenant, long_context);
    const size_t found = kv_seq_match(&seq, tokens, n, &from, &loaded), hot = found - (loaded * KV_BLOCK < found ? loaded * KV_BLOCK : found);
    while (whole && !kv_seq_wait(&seq, KV_ALL - 1, NULL, NULL) && kv_seq_mend(&seq)) {}
    const size_t length = seq.length;
    kv_seq_free(&seq);
    return length > hot ? length - hot : 0;
}

/* ---- agents ---- */

bool recall_save(hearth_engine *en, const kv_seq *seq, const int32_t *tokens, size_t n, agent_record *a, err *e) {
    snprintf(a->model, sizeof a->model, "%s", en->kv_model);
    a->root = a->head = seq->chain.root;
    if (seq->n_sealed) a->head = seq->held[seq->n_sealed - 1]->name;
    a->n_tokens = n;
    a->n_tail = seq->length == n ? (int)(n % KV_BLOCK) : 0;
    /* It may be the start of a block that is still arriving, and damaged. */
    if (a->n_tail && kv_block_check(en->kv_cache, seq->held[n / KV_BLOCK], true, KV_ALL - 1) == KV_LOST) a->n_tail = 0;
    a->tail_bytes = kv_packed_bytes(seq->layout, a->n_tail);
    a->tokens = mem_alloc(n + 1, sizeof *a->tokens, e);
    a->tail = a->n_tail ? mem_alloc(a->tail_bytes, 1, e) : NULL;
    if (!a->tokens || (a->n_tail && !a->tail)) {
        agent_free(a);
        return false;
    }
    if (n) memcpy(a->tokens, tokens, n * sizeof *tokens);
    if (a->n_tail) kv_pack(seq, n / KV_BLOCK, a->n_tail, a->tail);
    /* What could not be written when it became full is tried again. */
    for (size_t i = 0; i < seq->n_sealed; i++) store_put(en->store, seq->held[i]);
    put_places(en, seq);
    return store_save(en->store, a, e);
}

size_t recall_tail(hearth_engine *en, const char *tenant, const agent_record *a) {
    kv_seq seq;
    const size_t full = a->n_tokens / KV_BLOCK * KV_BLOCK;
    bool long_context = false;
    recall_start(en, &seq, tenant, long_context);
    /* The other frequencies have another root. */
    if (!kv_name_equal(&a->root, &seq.chain.root)) recall_start(en, &seq, tenant, long_context = true);
    if (!a->tail || !kv_name_equal(&a->root, &seq.chain.root)) return 0;
    kv_name name = kv_name_next(&seq.chain, &a->head, a->tokens + full, a->n_tokens - full);
    if (kv_cache_has(en->kv_cache, &name)) return 0;
    size_t loaded = recall_warm(en, tenant, long_context, a->tokens, full, false);
    recall_find(en, &seq, a->tokens, full, true);
    if (seq.length == full && kv_seq_reserve(&seq, (size_t)a->n_tail, NULL)) {
        kv_unpack(&seq, full / KV_BLOCK, a->n_tail, a->tail);
        seq.length = a->n_tokens;
        loaded += (size_t)a->n_tail;
    }
    recall_end(en, &seq, a->tokens);
    return loaded;
}

bool recall_fits(hearth_engine *en, const char *tenant, const agent_record *a) {
    const kv_layout *l = &en->model.kv;
    const size_t end = a->n_tokens / KV_BLOCK;
    kv_seq seq;
    if (strcmp(a->model, en->kv_model) != 0) return true;
    recall_start(en, &seq, tenant, false);
    if (!kv_name_equal(&a->root, &seq.chain.root)) recall_start(en, &seq, tenant, true);
    return kv_name_equal(&a->root, &seq.chain.root) && (!l->window || shelf_windows(store_shelf(en->store), &a->head) >= end - kv_window_kept(l, a->n_tokens));
}
