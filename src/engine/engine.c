/* engine.c: opens a model and answers questions about it and its text. */
#include "engine/engine.h"

#include <string.h>
#include <time.h>

#include "engine/recall.h"
#include "quant/quant.h"

hearth_engine_options hearth_engine_defaults(void) {
    const weights_options w = weights_defaults();
    return (hearth_engine_options){.weights_memory = w.memory, .weights_frequency = w.frequency, .weights_window = (float)w.window, .prefetch = w.prefetch,
                                   .prefetch_async = w.prefetch_async, .cache = w.persist, .cache_bytes = w.cache_bytes, .kv_memory = HEARTH_AUTO, .kv_disk = HEARTH_AUTO};
}

static bool parse_preload(const char *text, weights_preload *out, err *e) {
    static const char *const names[] = {"none", "critical", "all"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text ? text : "all", names[i]) == 0) {
            *out = (weights_preload)i;
            return true;
        }
    char quoted[48];
    return err_set(e, HEARTH_ARGUMENT, "weights can be preloaded as none, critical or all, not '%s'", err_quote(quoted, sizeof quoted, text, strlen(text)));
}

static bool open_weights(hearth_engine *en, const kernels *k, const hearth_engine_options *o, err *e) {
    weights_options w = weights_defaults();
    if (!parse_preload(o->preload, &w.preload, e)) return false;
    if (!(o->weights_window > 0)) return err_set(e, HEARTH_ARGUMENT, "the window over which the use of weights is counted must be longer than 0 seconds");
    w.memory = o->weights_memory;
    w.frequency = o->weights_frequency;
    w.window = (double)o->weights_window;
    w.prefetch = o->prefetch < 0 ? -1 : o->prefetch;
    w.prefetch_async = o->prefetch_async;
    w.persist = o->cache;
    w.cache_dir = o->cache_dir;
    w.cache_bytes = o->cache_bytes;
    w.progress = o->progress, w.progress_user = o->progress_user;
    w.warn = o->warn, w.warn_user = o->warn_user;
    en->cache = weights_open(en->file, k, en->pool, &w, e);
    return en->cache && model_use_cache(&en->model, en->cache, e) && weights_start(en->cache, e);
}

static char *copy_string(const gguf *g, const char *key, err *e) {
    gguf_string s = {"", 0};
    err ignored = {0};
    bool found = gguf_get_string(g, key, &s, &ignored);
    return found ? mem_strndup(s.data, s.len, e) : mem_strndup("", 0, e);
}

static bool open_text(hearth_engine *en, err *e) {
    en->tok = tokenizer_new(en->file, e);
    if (!en->tok) return false;
    gguf_string s;
    err missing = {0};
    if (!gguf_get_string(en->file, "tokenizer.chat_template", &s, &missing)) return true;
    en->template_text = mem_strndup(s.data, s.len, e);
    if (!en->template_text) return false;
    /* A template that does not parse spoils chatting, not the model. */
    en->template = jinja_parse(s.data, s.len, &en->template_error);
    return true;
}

static bool open_model(hearth_engine *en, const hearth_engine_options *o, err *e) {
    const kernels *k = kernels_find(o->cpu, e);
    if (!k) return false;
    /* The exact path keeps keys and values in float too, unless told otherwise. */
    int k_type = strcmp(k->name, "ref") == 0 ? QUANT_F32 : QUANT_F16, v_type = k_type;
    if (o->kv_type && !kv_types_parse(o->kv_type, &k_type, &v_type, e)) return false;
    if (!model_load(&en->model, en->file, k, k_type, v_type, e)) return false;
    en->has_model = true;
    const model_params *p = &en->model.params;
    if (tokenizer_size(en->tok) > p->n_vocab)
        return err_set(e, HEARTH_FORMAT, "the vocabulary has %d tokens but the embedding only %d rows", tokenizer_size(en->tok), p->n_vocab);
    en->n_context = p->n_context;
    if (o->context > 0 && o->context < p->n_context) en->n_context = o->context;
    if (o->context > p->n_context)
        return err_set(e, HEARTH_ARGUMENT, "a context of %d is more than the %d the model was trained for", o->context, p->n_context);
    en->pool = pool_new(o->threads, e);
    return en->pool && open_weights(en, k, o, e) && recall_open(en, o, e);
}

hearth_engine *hearth_engine_open(const char *path, const hearth_engine_options *options, hearth_error *error) {
    hearth_engine_options defaults = hearth_engine_defaults();
    const hearth_engine_options *o = options ? options : &defaults;
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    if (!path || o->threads < 0 || o->context < 0) {
        err_set(e, HEARTH_ARGUMENT, "a model needs a path, and threads and context that are not negative");
        return NULL;
    }
    hearth_engine *en = mem_zalloc(1, sizeof *en, e);
    if (!en) return NULL;
    pthread_mutex_init(&en->grammar_lock, NULL);
    en->file = gguf_open(path, e);
    bool ok = en->file != NULL;
    if (ok) {
        en->architecture = copy_string(en->file, "general.architecture", e);
        en->name = copy_string(en->file, "general.name", e);
        ok = en->architecture && en->name && open_text(en, e) && (o->vocab_only || open_model(en, o, e));
        if (!ok) err_prefix(e, "%s", path);
    }
    if (!ok) {
        hearth_engine_close(en);
        return NULL;
    }
    if (o->progress) o->progress(o->progress_user, "loading", gguf_file_bytes(en->file), gguf_file_bytes(en->file));
    return en;
}

void hearth_engine_close(hearth_engine *en) {
    if (!en) return;
    recall_close(en);
    weights_close(en->cache);
    pool_free(en->pool);
    if (en->has_model) model_free(&en->model);
    jinja_free(en->template);
    tokenizer_free(en->tok);
    gguf_close(en->file);
    mem_free(en->architecture);
    mem_free(en->name);
    mem_free(en->template_text);
    grammar_vocab_free(en->grammar_vocab);
    pthread_mutex_destroy(&en->grammar_lock);
    mem_free(en);
}

hearth_model_info hearth_engine_info(const hearth_engine *en) {
    hearth_model_info i = {.architecture = en->architecture, .name = en->name, .chat_template = en->template_text, .cpu = "", .n_vocab = tokenizer_size(en->tok)};
    for (size_t t = 0; t < gguf_n_tensors(en->file); t++) {
        const gguf_tensor *x = gguf_tensor_at(en->file, t);
        i.n_parameters += x->n_elements;
        i.n_weight_bytes += x->n_bytes;
    }
    if (!en->has_model) return i;
    const model_params *p = &en->model.params;
    i.cpu = en->model.kern->name;
    i.threads = pool_threads(en->pool);
    i.n_vocab = p->n_vocab;
    i.n_layers = p->n_layers;
    i.n_embd = p->n_embd;
    i.n_context = en->n_context;
    i.n_context_train = p->n_context;
    i.kv_bytes_per_token = kv_bytes_per_token(&en->model.kv);
    return i;
}

/* ---- kernel sets ---- */

const char *const *hearth_cpu_names(void) {
    static const char *names[16];
    const kernels *const *all = kernels_all();
    int n = 0;
    for (; all[n] && n < 15; n++) names[n] = all[n]->name;
    names[n] = NULL;
    return names;
}

bool hearth_cpu_usable(const char *name) {
    for (const kernels *const *k = kernels_all(); *k; k++)
        if (strcmp((*k)->name, name) == 0) return (*k)->usable();
    return false;
}

/* ---- text ---- */

int64_t hearth_tokenize(const hearth_engine *en, const char *text, size_t len, unsigned flags, int32_t *out, size_t cap, hearth_error *e) {
    err_clear(e);
    token_list list = {0};
    int32_t bos = tokenizer_bos(en->tok);
    bool ok = true;
    if ((flags & HEARTH_ADD_BOS) && tokenizer_wants_bos(en->tok) && bos != HEARTH_TOKEN_NONE) ok = token_list_add(&list, bos, e);
    ok = ok && tokenizer_encode(en->tok, text, len, (flags & HEARTH_PARSE_SPECIAL) != 0, &list, e);
    if ((flags & HEARTH_ADD_EOS) && tokenizer_wants_eos(en->tok)) ok = ok && token_list_add(&list, tokenizer_eos(en->tok), e);
    int64_t n = ok ? (int64_t)list.n : -1;
    if (ok && list.n) memcpy(out, list.ids, (list.n < cap ? list.n : cap) * sizeof *out);
    token_list_free(&list);
    return n;
}

const char *hearth_token_bytes(const hearth_engine *en, int32_t token, bool special, size_t *len) { return tokenizer_bytes(en->tok, token, special, len); }
int32_t hearth_token_bos(const hearth_engine *en) { return tokenizer_bos(en->tok); }
int32_t hearth_token_eos(const hearth_engine *en) { return tokenizer_eos(en->tok); }
bool hearth_token_ends(const hearth_engine *en, int32_t token) { return tokenizer_ends(en->tok, token); }

static bool set_token_text(const hearth_engine *en, json_t *variables, const char *key, int32_t token) {
    if (json_object_get(variables, key)) return true;
    size_t len = 0;
    const char *text = token == HEARTH_TOKEN_NONE ? "" : tokenizer_bytes(en->tok, token, true, &len);
    json_t *s = json_stringn(text ? text : "", text ? len : 0);
    if (!s) s = json_string(""); /* not UTF-8 */
    return json_object_set_new(variables, key, s) == 0;
}

char *hearth_chat_render(const hearth_engine *en, const char *variables_json, size_t *len, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    if (!en->template) {
        if (en->template_text) err_set(e, HEARTH_FORMAT, "the model's chat template cannot be used: %s", en->template_error.text);
        else err_set(e, HEARTH_UNSUPPORTED, "the model has no chat template");
        return NULL;
    }
    json_error_t je;
    json_t *variables = json_loads(variables_json, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    buf out = {0};
    bool ok = variables && json_is_object(variables);
    if (!ok) err_set(e, HEARTH_FORMAT, "the template's variables are no JSON object: %s", variables ? "another type" : je.text);
    else if (!set_token_text(en, variables, "bos_token", tokenizer_bos(en->tok)) || !set_token_text(en, variables, "eos_token", tokenizer_eos(en->tok)) ||
             (!json_object_get(variables, "add_generation_prompt") && json_object_set_new(variables, "add_generation_prompt", json_true()) != 0))
        ok = err_nomem(e, 0);
    if (ok) {
        time_t now = time(NULL);
        struct tm tm;
        localtime_r(&now, &tm);
        ok = jinja_render(en->template, variables, &tm, &out, e) && buf_add(&out, "", 0, e);
    }
    json_decref(variables);
    if (!ok) {
        buf_free(&out);
        return NULL;
    }
    if (len) *len = out.len;
    return out.data;
}
