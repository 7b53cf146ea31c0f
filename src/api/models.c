/* models.c: a thread of its own loads and unloads, one model at a time, so that nobody else ever waits for a disk while holding the lock.
 *
 *   COLD -> LOADING -> READY -> UNLOADING -> COLD
 *
 * A model that is READY and leaving takes no new requests: they wait until it has left and is loaded again. So a model that is busy without end cannot keep
 * another one out. */
#include "api/models.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "api/inner.h"
#include "gguf/folder.h"

typedef enum model_state { COLD, LOADING, READY, UNLOADING } model_state;
typedef enum news { STILL, GOES, FAILS } news;
typedef struct use use;

typedef struct entry {
    struct entry *next;
    char *name, *path;
    uint64_t bytes;     /* of the file, or as loaded last */
    model_state state;
    bool leaving;       /* to be unloaded as soon as nothing runs */
    bool ordered;       /* by someone who waits for that, not for want of room */
    int running;
    use *waiting;       /* those that wait for it to be loaded */
    uint64_t used, asked; /* when, by m->clock; asked: by the first of those that wait */
    err error;          /* why it could not be loaded last time */
    hearth_engine *engine;
    loop *loop;
    api *api;
} entry;

struct models {
    models_options o;
    api *front;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* anything below */
    pthread_t keeper;
    bool has_keeper, ending;
    entry *first, *standard; /* standard: the default one */
    uint64_t clock;
    loop_stats past;         /* of those that were unloaded */
    hearth_weights_stats past_weights;
    hearth_kv_stats past_kv;
};

/* A request and its model. */
struct use {
    models *m;
    entry *model;
    news news;
    err error;
    use *next;          /* that waits too */
    json_t *body;       /* until a route takes it */
    route *run;
    api_style style;
    buf *out;           /* while the stream has begun before the route ran */
    bool ended;
};

/* ---- names ---- */

static entry *find_name(const models *m, const char *name) {
    for (entry *x = m->first; x; x = x->next)
        if (strcmp(x->name, name) == 0) return x;
    return NULL;
}

static bool is_standard(const models *m, const char *name) {
    if (!name || !*name || strcmp(name, "default") == 0) return true;
    for (const char *const *other = m->o.api.aliases; other && *other; other++)
        if (strcmp(*other, name) == 0) return true;
    return false;
}

/* With the lock held. */
static bool add(models *m, const char *name, const char *path, err *e) {
    entry *x = mem_zalloc(1, sizeof *x, e);
    if (!x) return false;
    x->name = mem_strndup(name, strlen(name), e);
    x->path = mem_strndup(path, strlen(path), e);
    if (!x->name || !x->path) {
        mem_free(x->name), mem_free(x->path), mem_free(x);
        return false;
    }
    x->bytes = gguf_model_bytes(path);
    entry **at = &m->first;
    while (*at) at = &(*at)->next;
    *at = x;
    if (!m->standard) m->standard = x;
    return true;
}

/* Looks for models that are new in the folder. A file that is gone keeps its name: loading it says what is wrong. */
static void look_again(models *m) {
    if (!m->o.folder) return;
    gguf_folder f;
    if (!gguf_folder_scan(&f, m->o.folder, NULL)) return;
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < f.n; i++) {
        const gguf_found *g = &f.items[i];
        bool several, known = false;
        const char *name = gguf_folder_find(&f, g->name, &several) ? g->name : g->relative;
        for (const entry *x = m->first; x && !known; x = x->next) known = strcmp(x->path, g->path) == 0 || strcmp(x->name, name) == 0;
        if (!known) add(m, name, g->path, NULL);
    }
    pthread_mutex_unlock(&m->lock);
    gguf_folder_free(&f);
}

/* The model that a request means, or NULL. */
static entry *resolve(models *m, const char *name) {
    for (int round = 0;; round++) {
        pthread_mutex_lock(&m->lock);
        entry *x = is_standard(m, name) ? m->standard : find_name(m, name);
        pthread_mutex_unlock(&m->lock);
        if (x || round == 1) return x;
        look_again(m);
    }
}

bool models_is(models *m, const char *name, const api *a) {
    if (is_standard(m, name)) return true;
    const entry *x = resolve(m, name);
    return x && (a == m->front || x->api == a);
}

const char *models_default(models *m) {
    pthread_mutex_lock(&m->lock);
    const char *name = m->standard ? m->standard->name : "";
    pthread_mutex_unlock(&m->lock);
    return name;
}

/* ---- loading and unloading: the keeper's ---- */

static void tell(const models *m, const char *format, const char *name, double seconds) {
    char sentence[400];
    snprintf(sentence, sizeof sentence, format, name, seconds);
    if (m->o.tell) m->o.tell(m->o.tell_user, sentence);
}

static void free_loaded(entry *x) {
    api_free(x->api);
    loop_free(x->loop);
    hearth_engine_close(x->engine);
    x->api = NULL, x->loop = NULL, x->engine = NULL;
}

/* Those that wait run from now on, whenever they notice, or fail: nothing can come between. */
static void answer_waiting(models *m, entry *x, const err *failure) {
    for (use *u = x->waiting; u; u = u->next) {
        u->news = failure ? FAILS : GOES;
        if (failure) err_set(&u->error, failure->code, "The model '%s' cannot be loaded: %s", x->name, failure->text);
        else x->running++;
    }
    x->waiting = NULL;
    x->used = ++m->clock;
    pthread_cond_broadcast(&m->changed);
}

static void load(models *m, entry *x) {
    x->state = LOADING;
    pthread_mutex_unlock(&m->lock);
    err e = {0};
    double start = clock_seconds();
    api_options o = m->o.api;
    o.model = x->name;
    o.responses_dir = NULL; /* the front has them */
    x->engine = hearth_engine_open(x->path, &m->o.engine, &e);
    x->loop = x->engine ? loop_new(x->engine, &m->o.loop, &e) : NULL;
    x->api = x->loop ? api_new(x->engine, x->loop, &o, &e) : NULL;
    bool ok = x->api != NULL;
    if (ok) {
        x->api->models = m;
        x->api->statuses = m->front->statuses;
        x->api->responses = m->front->responses;
        x->api->started = m->front->started;
        tell(m, "loaded %s in %.2f s", x->name, clock_seconds() - start);
    } else {
        free_loaded(x);
        tell(m, "%s cannot be loaded", x->name, 0);
    }
    pthread_mutex_lock(&m->lock);
    x->state = ok ? READY : COLD;
    x->error = e;
    if (ok) {
        hearth_weights_stats w = hearth_engine_weights(x->engine);
        x->bytes = w.packed_bytes + w.raw_bytes;
    }
    answer_waiting(m, x, ok ? NULL : &e);
}

static void add_histogram(loop_histogram *to, const loop_histogram *from) {
    for (int i = 0; i <= LOOP_BUCKETS; i++) to->counts[i] += from->counts[i];
    to->sum += from->sum;
}

/* What only grows: of a model that is gone, this is what is left. */
static void add_counts(loop_stats *to, const loop_stats *s) {
    to->requests += s->requests, to->refused += s->refused, to->finished += s->finished, to->failed += s->failed, to->cancelled += s->cancelled;
    to->prompt_tokens += s->prompt_tokens, to->computed_tokens += s->computed_tokens, to->completion_tokens += s->completion_tokens;
    to->passes += s->passes, to->pass_tokens += s->pass_tokens, to->late += s->late, to->preemptions += s->preemptions;
    to->hits += s->hits, to->misses += s->misses, to->hot_tokens += s->hot_tokens, to->warm_tokens += s->warm_tokens;
    to->hot_saved_s += s->hot_saved_s, to->warm_saved_s += s->warm_saved_s;
    add_histogram(&to->first_token, &s->first_token);
    add_histogram(&to->between_tokens, &s->between_tokens);
    add_histogram(&to->pass, &s->pass);
    add_histogram(&to->total, &s->total);
}

static void add_gauges(loop_stats *to, const loop_stats *s) {
    to->running += s->running, to->waiting += s->waiting;
    to->kv_bytes += s->kv_bytes, to->kv_budget += s->kv_budget;
    if (s->chunk > to->chunk) to->chunk = s->chunk;
}

static void add_weights(hearth_weights_stats *to, const hearth_weights_stats *w, bool gone) {
    to->requests += w->requests, to->hits += w->hits, to->misses += w->misses, to->evictions += w->evictions;
    to->saved_seconds += w->saved_seconds;
    if (gone) return;
    to->packed_bytes += w->packed_bytes, to->mapped_bytes += w->mapped_bytes, to->raw_bytes += w->raw_bytes;
}

static void keep_most(uint64_t *to, uint64_t x) {
    if (x > *to) *to = x;
}

/* Memory is each model's own; on disk all of them share one folder, of which each sees all. */
static void add_kv(hearth_kv_stats *to, const hearth_kv_stats *k, bool gone) {
    to->hot_evictions += k->hot_evictions, to->warm_evictions += k->warm_evictions;
    to->written_blocks += k->written_blocks, to->written_bytes += k->written_bytes, to->saves += k->saves, to->skipped += k->skipped;
    to->failures += k->failures, to->damaged += k->damaged, to->write_seconds += k->write_seconds, to->load_seconds += k->load_seconds;
    to->load_wait_seconds += k->load_wait_seconds;
    if (gone) return;
    to->hot_blocks += k->hot_blocks, to->hot_bytes += k->hot_bytes, to->hot_budget += k->hot_budget, to->blocks_in_use += k->blocks_in_use;
    to->waiting += k->waiting, to->store |= k->store, to->degraded |= k->degraded;
    keep_most(&to->warm_blocks, k->warm_blocks), keep_most(&to->warm_bytes, k->warm_bytes), keep_most(&to->warm_budget, k->warm_budget), keep_most(&to->agents, k->agents);
}

void models_count(models *m, loop_stats *loops, hearth_weights_stats *weights, hearth_kv_stats *kv) {
    pthread_mutex_lock(&m->lock);
    *loops = m->past;
    *weights = m->past_weights;
    *kv = m->past_kv;
    for (const entry *x = m->first; x; x = x->next) {
        if (x->state != READY) continue;
        loop_stats s = loop_count(x->loop);
        hearth_weights_stats w = hearth_engine_weights(x->engine);
        hearth_kv_stats k = hearth_engine_kv(x->engine);
        add_kv(kv, &k, false);
        add_counts(loops, &s);
        add_gauges(loops, &s);
        add_weights(weights, &w, false);
    }
    pthread_mutex_unlock(&m->lock);
}

static void unload(models *m, entry *x) {
    loop_stats s = loop_count(x->loop);
    hearth_weights_stats w = hearth_engine_weights(x->engine);
    add_counts(&m->past, &s);
    add_weights(&m->past_weights, &w, true);
    hearth_kv_stats k = hearth_engine_kv(x->engine);
    add_kv(&m->past_kv, &k, true);
    x->state = UNLOADING;
    pthread_mutex_unlock(&m->lock);
    free_loaded(x);
    tell(m, "unloaded %s", x->name, 0);
    pthread_mutex_lock(&m->lock);
    x->state = COLD;
    x->leaving = x->ordered = false;
    pthread_cond_broadcast(&m->changed);
}

/* Of those that could leave, the idle before the busy, and of those the one that was not used for longest. */
static entry *choose_leaver(const models *m) {
    entry *best = NULL;
    for (entry *x = m->first; x; x = x->next) {
        if (x->state != READY || x->leaving) continue;
        if (!best || (x->running == 0) > (best->running == 0) || ((x->running == 0) == (best->running == 0) && x->used < best->used)) best = x;
    }
    return best;
}

/* Whether there is room for one more now; else some are leaving. */
static bool make_room(models *m, const entry *in) {
    uint64_t all = 0, staying = 0;
    for (const entry *x = m->first; x; x = x->next) {
        if (x->state == READY) all += x->bytes;
        if (x->state == READY && !x->leaving) staying += x->bytes;
    }
    for (entry *x; staying > 0 && staying + in->bytes > m->o.memory && (x = choose_leaver(m));) {
        x->leaving = true;
        staying -= x->bytes;
    }
    return all == 0 || all + in->bytes <= m->o.memory;
}

static entry *longest_asked(const models *m) {
    entry *best = NULL;
    for (entry *x = m->first; x; x = x->next)
        if (x->state == COLD && x->waiting && (!best || x->asked < best->asked)) best = x;
    return best;
}

static void *keep(void *user) {
    models *m = user;
    pthread_mutex_lock(&m->lock);
    while (!m->ending) {
        entry *in = longest_asked(m), *out = m->first;
        bool room = in && make_room(m, in);
        /* Who was to make room for somebody who has gone may stay. */
        for (entry *x = m->first; x && !in; x = x->next) {
            if (!x->leaving || x->ordered) continue;
            x->leaving = false;
            answer_waiting(m, x, NULL);
        }
        while (out && !(out->state == READY && out->leaving && out->running == 0)) out = out->next;
        if (out) unload(m, out);
        else if (room) load(m, in);
        else pthread_cond_wait(&m->changed, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ---- using one ---- */

static void begin_use(use *u) {
    models *m = u->m;
    entry *x = u->model;
    pthread_mutex_lock(&m->lock);
    if (x->state == READY && !x->leaving) {
        u->news = GOES;
        x->running++;
        x->used = ++m->clock;
    } else {
        if (!x->waiting) x->asked = ++m->clock;
        u->next = x->waiting;
        x->waiting = u;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->lock);
}

/* Whether the model can be used now, waiting for that until a time. */
static news wait_for(use *u, uint64_t timeout_ns, err *e) {
    models *m = u->m;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + timeout_ns;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    pthread_mutex_lock(&m->lock);
    while (u->news == STILL && !m->ending && pthread_cond_timedwait(&m->changed, &m->lock, &until) == 0) {}
    news n = m->ending ? FAILS : u->news;
    if (m->ending) err_set(e, HEARTH_CANCELLED, "The server is stopping.");
    else if (n == FAILS) *e = u->error;
    pthread_mutex_unlock(&m->lock);
    return n;
}

static void use_free(void *thing) {
    use *u = thing;
    entry *x = u->model;
    pthread_mutex_lock(&u->m->lock);
    if (u->news == GOES) x->running--, x->used = ++u->m->clock;
    for (use **at = &x->waiting; u->news == STILL && *at; at = &(*at)->next)
        if (*at == u) {
            *at = u->next;
            break;
        }
    pthread_cond_broadcast(&u->m->changed);
    pthread_mutex_unlock(&u->m->lock);
    json_decref(u->body);
    mem_free(u);
}

json_t *models_body(const http_request *r) {
    use *u = http_attached(r);
    json_t *body = u ? u->body : NULL;
    if (u) u->body = NULL;
    return body;
}

void models_last_event(http_request *r, const char *event, json_t *json) {
    use *u = http_attached(r);
    if (!u || !u->out) {
        json_decref(json);
        return;
    }
    event_data(u->out, event, json);
    if (!event) buf_adds(u->out, "data: [DONE]\n\n", NULL);
    u->ended = true;
}

static void refuse_load(use *u, http_request *r, const err *e) {
    refusal f = {.status = e->code == HEARTH_CANCELLED || e->code == HEARTH_MEMORY ? 503 : 500, .e = *e};
    api_refuse(u->m->front, r, u->style, &f);
}

/* The stream until the model is there, with nothing in it but heartbeats. */
static http_more next_event(void *user, http_request *r, uint64_t timeout_ns, buf *out) {
    use *u = user;
    err e = {0};
    u->out = out;
    switch (wait_for(u, timeout_ns, &e)) {
    case STILL: return HTTP_IDLE;
    case FAILS: refuse_load(u, r, &e); break;
    case GOES: u->run(u->model->api, r); break; /* its events follow, or its refusal is the last */
    }
    return u->ended ? HTTP_END : HTTP_MORE;
}

static void no_done(void *user, http_request *r) {
    (void)user;
    (void)r;
}

/* The body is read here only when it must tell which model, or how to wait. */
static use *use_new(models *m, http_request *r, route *run, api_style style, refusal *f) {
    size_t len;
    http_body(r, &len);
    pthread_mutex_lock(&m->lock);
    const entry *only = m->first && !m->first->next && !m->o.folder ? m->first : NULL;
    bool look = !only || only->state != READY;
    pthread_mutex_unlock(&m->lock);
    json_t *body = NULL;
    if (look && len > 0 && !(body = api_body(r, f))) return NULL;
    const json_t *named = json_object_get(body, "model");
    const char *name = json_is_string(named) ? json_string_value(named) : http_query(r, "model");
    entry *x = resolve(m, name);
    use *u = x ? mem_zalloc(1, sizeof *u, &f->e) : NULL;
    if (!x) model_is_known(m->front, name, f);
    if (!u) {
        json_decref(body);
        return NULL;
    }
    *u = (use){.m = m, .model = x, .body = body, .run = run, .style = style};
    begin_use(u);
    http_note(r, "model", "%s", x->name);
    return u;
}

void models_run(models *m, http_request *r, route *run, api_style style) {
    refusal f = {0};
    use *u = use_new(m, r, run, style, &f);
    if (!u) {
        api_refuse(m->front, r, style, &f);
        return;
    }
    http_attach(r, u, use_free);
    bool streams = json_is_true(json_object_get(u->body, "stream"));
    err e = {0};
    news n = wait_for(u, 1000000000u, &e);
    if (n == STILL && streams) {
        http_stream(r, &(http_events){.next = next_event, .done = no_done, .user = u});
        return;
    }
    while (n == STILL && !http_gone(r)) n = wait_for(u, 250000000u, &e);
    if (n == GOES) run(u->model->api, r);
    if (n == FAILS) refuse_load(u, r, &e);
}

/* ---- for who owns it ---- */

models *models_new(const models_options *options, err *e) {
    models *m = mem_zalloc(1, sizeof *m, e);
    if (!m) return NULL;
    m->o = *options;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    m->front = api_new(NULL, NULL, &options->api, e);
    if (m->front) m->front->models = m;
    m->has_keeper = m->front && pthread_create(&m->keeper, NULL, keep, m) == 0;
    if (m->has_keeper) return m;
    err_set(e, HEARTH_IO, "a thread that loads models cannot be started");
    models_free(m);
    return NULL;
}

bool models_add(models *m, const char *name, const char *path, err *e) {
    pthread_mutex_lock(&m->lock);
    bool ok = !find_name(m, name) || err_set(e, HEARTH_ARGUMENT, "two models have the name '%s': give one of them another, as in NAME=%s", name, path);
    ok = ok && add(m, name, path, e);
    pthread_mutex_unlock(&m->lock);
    return ok;
}

static entry *must_find(models *m, const char *name, err *e) {
    entry *x = resolve(m, name);
    char quoted[100];
    if (!x) err_set(e, HEARTH_ARGUMENT, "there is no model '%s'", err_quote(quoted, sizeof quoted, name ? name : "", name ? strlen(name) : 0));
    return x;
}

bool models_set_default(models *m, const char *name, err *e) {
    entry *x = must_find(m, name, e);
    if (!x) return false;
    pthread_mutex_lock(&m->lock);
    m->standard = x;
    pthread_mutex_unlock(&m->lock);
    return true;
}

bool models_load(models *m, const char *name, err *e) {
    entry *x = must_find(m, name, e);
    use *u = x ? mem_zalloc(1, sizeof *u, e) : NULL;
    if (!u) return false;
    *u = (use){.m = m, .model = x};
    begin_use(u);
    news n;
    while ((n = wait_for(u, 1000000000u, e)) == STILL) {}
    use_free(u);
    return n == GOES;
}

bool models_unload(models *m, const char *name, err *e) {
    entry *x = must_find(m, name, e);
    if (!x) return false;
    pthread_mutex_lock(&m->lock);
    /* Once it has left it may be loaded again at once for others who wait: that it left is enough. */
    while (x->state == LOADING && !m->ending) pthread_cond_wait(&m->changed, &m->lock);
    if (x->state == READY) x->leaving = x->ordered = true;
    pthread_cond_broadcast(&m->changed);
    while (x->ordered && !m->ending) pthread_cond_wait(&m->changed, &m->lock);
    bool ok = !x->ordered || err_set(e, HEARTH_CANCELLED, "the server is stopping");
    pthread_mutex_unlock(&m->lock);
    return ok;
}

static int requests(const entry *x) {
    int n = x->running;
    for (const use *u = x->waiting; u; u = u->next) n++;
    return n;
}

static const char *state_name(const entry *x) {
    switch (x->state) {
    case READY: return x->leaving ? "unloading" : "loaded";
    case LOADING: return "loading";
    case UNLOADING: return "unloading";
    case COLD: break;
    }
    return x->waiting ? "loading" : x->error.code != HEARTH_OK ? "failed" : "unloaded";
}

/* With the lock held. */
static json_t *entry_json(const models *m, const entry *x, const char *name) {
    json_t *json = x->state == READY ? api_model_json(x->api, name)
                                     : json_pack("{s:s, s:s, s:I, s:s}", "id", name, "object", "model", "created", (json_int_t)m->front->started, "owned_by", "hearth");
    json_object_set_new(json, "state", json_string(state_name(x)));
    json_object_set_new(json, "default", json_boolean(x == m->standard));
    json_object_set_new(json, "bytes", json_integer((json_int_t)x->bytes));
    json_object_set_new(json, "requests", json_integer(requests(x)));
    if (x->error.code != HEARTH_OK) json_object_set_new(json, "error", text_json(x->error.text, strlen(x->error.text)));
    return json;
}

json_t *models_json(models *m, const char *name) {
    json_t *json = NULL;
    entry *one = name ? resolve(m, name) : NULL;
    if (!name) look_again(m);
    pthread_mutex_lock(&m->lock);
    if (one) json = entry_json(m, one, name);
    if (!name) {
        json = json_array();
        if (m->standard) json_array_append_new(json, entry_json(m, m->standard, m->standard->name));
        for (const char *const *other = m->o.api.aliases; m->standard && other && *other; other++) json_array_append_new(json, entry_json(m, m->standard, *other));
        for (const entry *x = m->first; x; x = x->next)
            if (x != m->standard) json_array_append_new(json, entry_json(m, x, x->name));
    }
    pthread_mutex_unlock(&m->lock);
    return json;
}

const hearth_engine_options *models_engine(const models *m) { return &m->o.engine; }
api *models_api(models *m) { return m->front; }

bool models_writing(models *m) {
    bool writing = false;
    pthread_mutex_lock(&m->lock);
    for (const entry *x = m->first; x; x = x->next) writing = writing || (x->state == READY && hearth_engine_weights(x->engine).writing);
    pthread_mutex_unlock(&m->lock);
    return writing;
}

int models_busy(models *m) {
    int n = 0;
    pthread_mutex_lock(&m->lock);
    for (const entry *x = m->first; x; x = x->next) n += requests(x);
    pthread_mutex_unlock(&m->lock);
    return n;
}

static void stop_keeper(models *m) {
    pthread_mutex_lock(&m->lock);
    m->ending = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    if (m->has_keeper) pthread_join(m->keeper, NULL);
    m->has_keeper = false;
}

/* Once the keeper has ended nothing is loaded or unloaded, so the loops stay where they are without the lock. */
void models_drain(models *m, uint64_t limit_ns) {
    uint64_t until = clock_ns() + limit_ns;
    stop_keeper(m);
    for (entry *x = m->first; x; x = x->next) {
        uint64_t now = clock_ns();
        if (x->loop) loop_drain(x->loop, now < until ? until - now : 0);
    }
}

void models_end(models *m) {
    stop_keeper(m);
    for (entry *x = m->first; x; x = x->next)
        if (x->loop) loop_end(x->loop);
}

void models_free(models *m) {
    if (!m) return;
    stop_keeper(m);
    for (entry *x = m->first, *next; x; x = next) {
        next = x->next;
        free_loaded(x);
        mem_free(x->name), mem_free(x->path), mem_free(x);
    }
    api_free(m->front);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}
