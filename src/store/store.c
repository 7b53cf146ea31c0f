#include "store/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "store/blockfile.h"

/* Something to be written: a block or an agent. */
typedef struct job {
    struct job *next;
    kv_block *block;
    agent_record agent;
    uint64_t number;
    double asked; /* when */
} job;

struct store {
    store_options o;
    kv_cache *cache;
    const kv_layout *layout;
    shelf *shelf;
    char model[65];
    size_t block_file_bytes;

    pthread_t writer;
    bool writer_runs;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* the queue, or how writing goes */
    job *first, *last;      /* the first is being written */
    bool writing, stop, hurry;
    uint64_t queued_bytes, n_jobs;
    err problem;            /* of the last write that failed */
    double retry_at, retry_after;
    store_stats stats;
};

static void warn(store *s, const char *format, const char *a, const char *b) {
    char sentence[1200];
    snprintf(sentence, sizeof sentence, format, a, b);
    if (s->o.warn) s->o.warn(s->o.warn_user, sentence);
}

/* ---- writing ---- */

static shelf_key key_of(const kv_block *b) { return shelf_key_make(&b->name, &b->parent->name, b->index); }

static bool write_block(store *s, kv_block *b, err *e) {
    const shelf_key key = key_of(b);
    if (shelf_there(s->shelf, &key)) {
        kv_cache_set_durable(s->cache, b);
        return true;
    }
    tensor_header h = {0};
    char *path = shelf_block_path(s->shelf, &key, e);
    bool ok = path && blockfile_header(&h, s->layout, s->model, &key, &b->parent->name, e);
    uint64_t bytes = h.text.len + h.offset;
    err why = {0};
    bool room = ok && shelf_reserve(s->shelf, bytes, &key, &why);
    if (ok && !room) {
        ok = why.code == HEARTH_OK;
        if (!ok && e) *e = why;
        pthread_mutex_lock(&s->lock);
        s->stats.skipped += ok;
        pthread_mutex_unlock(&s->lock);
    } else if (ok) {
        double start = clock_seconds();
        ok = shelf_make_folder(s->shelf, &key, e) && blockfile_write(path, &h, b, e);
        shelf_put_done(s->shelf, &key, bytes, ok);
        if (ok) kv_cache_set_durable(s->cache, b);
        double took = clock_seconds() - start;
        pthread_mutex_lock(&s->lock);
        if (ok) s->stats.written_blocks++, s->stats.written_bytes += bytes;
        s->stats.write_seconds += took;
        if (took > s->stats.longest_write) s->stats.longest_write = took;
        pthread_mutex_unlock(&s->lock);
    }
    buf_free(&h.text);
    mem_free(path);
    return ok;
}

static bool write_job(store *s, job *j, err *e) {
    if (j->block) return write_block(s, j->block, e);
    double start = clock_seconds();
    bool ok = agent_write(s->shelf, &j->agent, s->layout, e);
    pthread_mutex_lock(&s->lock);
    double now = clock_seconds();
    s->stats.write_seconds += now - start;
    if (ok) {
        s->stats.saves++;
        s->stats.save_seconds += now - j->asked;
        if (now - j->asked > s->stats.longest_save) s->stats.longest_save = now - j->asked;
    }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

static void free_job(store *s, job *j) {
    if (j->block) {
        kv_block_give_window(s->cache, j->block, KV_READ);
        kv_block_drop(s->cache, j->block);
    }
    agent_free(&j->agent);
    mem_free(j);
}

/* Takes jobs that match out of the queue, but not the one being written. Returns them as a list. */
static job *unqueue(store *s, bool (*match)(const job *j, const void *with), const void *with) {
    job *out = NULL, **at = s->writing ? &s->first->next : &s->first;
    job *last = s->writing ? s->first : NULL;
    while (*at) {
        job *j = *at;
        if (!match(j, with)) {
            last = j;
            at = &j->next;
            continue;
        }
        *at = j->next;
        if (j->block) s->queued_bytes -= s->layout->block_bytes;
        s->stats.waiting--;
        j->next = out;
        out = j;
    }
    s->last = last;
    return out;
}

static void free_jobs(store *s, job *list) {
    for (job *next; list; list = next) {
        next = list->next;
        free_job(s, list);
    }
}

static bool is_block(const job *j, const void *with) {
    (void)with;
    return j->block != NULL;
}

static bool is_any(const job *j, const void *with) {
    (void)j, (void)with;
    return true;
}

/* After a failure blocks are let go, so that they do not hold memory; agents wait for the disk to come back. Without the lock. */
static void went_wrong(store *s, const err *why) {
    pthread_mutex_lock(&s->lock);
    bool first = !s->stats.degraded;
    s->writing = false;
    job *blocks = unqueue(s, is_block, NULL), *rest = s->stop ? unqueue(s, is_any, NULL) : NULL;
    pthread_mutex_unlock(&s->lock);
    if (first) warn(s, "conversations are kept in memory only for now: %s%s", why->text, "");
    if (rest) warn(s, "the last turn of an agent could not be saved: %s%s", why->text, "");
    free_jobs(s, blocks);
    free_jobs(s, rest);
    pthread_mutex_lock(&s->lock);
    s->stats.failures++;
    s->stats.degraded = true;
    s->problem = *why;
    s->retry_after = first ? s->o.retry_seconds : s->retry_after < 16 * s->o.retry_seconds ? 2 * s->retry_after : 32 * s->o.retry_seconds;
    s->retry_at = clock_seconds() + s->retry_after;
    s->hurry = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void went_well(store *s, job *j) {
    pthread_mutex_lock(&s->lock);
    bool again = s->stats.degraded;
    pthread_mutex_unlock(&s->lock);
    if (again) warn(s, "conversations are kept on disk again%s%s", "", "");
    pthread_mutex_lock(&s->lock);
    s->stats.degraded = false;
    s->first = j->next;
    if (!s->first) s->last = NULL;
    if (j->block) s->queued_bytes -= s->layout->block_bytes;
    s->stats.waiting--;
    s->writing = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    free_job(s, j);
}

/* Waits until there is a job whose time has come; NULL at the end. Under the lock. */
static job *next_job(store *s) {
    for (;;) {
        double wait = s->stats.degraded && !s->hurry && !s->stop ? s->retry_at - clock_seconds() : 0;
        if (s->first && wait <= 0) return s->first;
        if (!s->first && s->stop) return NULL;
        if (!s->first) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        double at = (double)until.tv_sec + (double)until.tv_nsec * 1e-9 + wait;
        until = (struct timespec){.tv_sec = (time_t)at, .tv_nsec = (long)((at - (double)(time_t)at) * 1e9)};
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
    }
}

static void *writer_main(void *arg) {
    store *s = arg;
    pthread_mutex_lock(&s->lock);
    for (job *j; (j = next_job(s)) != NULL;) {
        s->writing = true;
        pthread_mutex_unlock(&s->lock);
        err why = {0};
        if (write_job(s, j, &why)) went_well(s, j);
        else went_wrong(s, &why);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the queue ---- */

static void enqueue(store *s, job *j) {
    j->number = ++s->n_jobs;
    if (s->last) s->last->next = j;
    else s->first = j;
    s->last = j;
    s->stats.waiting++;
    pthread_cond_broadcast(&s->changed);
}

void store_put(store *s, kv_block *b) {
    if (!b->in_tree || b->n_tokens != KV_BLOCK || kv_cache_durable(s->cache, b)) return;
    job *j = mem_zalloc(1, sizeof *j, NULL);
    pthread_mutex_lock(&s->lock);
    bool take = j && s->queued_bytes + s->layout->block_bytes <= s->o.queue_bytes && (!s->stats.degraded || clock_seconds() >= s->retry_at) && kv_block_take_window(s->cache, b, true);
    if (take) {
        j->block = b;
        kv_block_hold(s->cache, b);
        s->queued_bytes += s->layout->block_bytes;
        enqueue(s, j);
    }
    s->stats.skipped += !take;
    pthread_mutex_unlock(&s->lock);
    if (!take) mem_free(j);
}

static bool same_agent(const job *j, const void *with) {
    const agent_record *a = with;
    return !j->block && strcmp(j->agent.name, a->name) == 0 && strcmp(j->agent.tag, a->tag) == 0;
}

bool store_save(store *s, agent_record *a, err *e) {
    job *j = mem_zalloc(1, sizeof *j, e);
    if (!j) {
        agent_free(a);
        return false;
    }
    j->agent = *a;
    j->asked = clock_seconds();
    *a = (agent_record){0};
    pthread_mutex_lock(&s->lock);
    job *older = unqueue(s, same_agent, &j->agent);
    enqueue(s, j);
    pthread_mutex_unlock(&s->lock);
    free_jobs(s, older);
    return true;
}

bool store_flush(store *s, err *e) {
    pthread_mutex_lock(&s->lock);
    uint64_t until = s->n_jobs, failures = s->stats.failures;
    s->hurry = true;
    pthread_cond_broadcast(&s->changed);
    while (s->first && s->first->number <= until && s->stats.failures == failures) pthread_cond_wait(&s->changed, &s->lock);
    bool ok = s->stats.failures == failures;
    if (!ok) err_set(e, s->problem.code, "%s", s->problem.text);
    pthread_mutex_unlock(&s->lock);
    return ok;
}

/* ---- opening ---- */

store *store_open(const store_options *o, kv_cache *c, const kv_layout *l, const char *model, err *e) {
    store *s = mem_zalloc(1, sizeof *s, e);
    if (!s) return NULL;
    s->o = *o;
    if (!s->o.queue_bytes) s->o.queue_bytes = (uint64_t)1 << 30;
    if (s->o.queue_bytes < 2 * l->block_bytes) s->o.queue_bytes = 2 * l->block_bytes;
    if (s->o.retry_seconds <= 0) s->o.retry_seconds = 1;
    s->cache = c;
    s->layout = l;
    snprintf(s->model, sizeof s->model, "%s", model);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    s->shelf = shelf_open(o->folder, o->disk, e);
    if (s->shelf) {
        s->writer_runs = pthread_create(&s->writer, NULL, writer_main, s) == 0;
        if (s->writer_runs) return s;
        err_set(e, HEARTH_MEMORY, "the thread that writes conversations cannot be started");
    }
    store_close(s);
    return NULL;
}

void store_close(store *s) {
    if (!s) return;
    if (s->writer_runs) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->writer, NULL);
    }
    shelf_close(s->shelf);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

shelf *store_shelf(store *s) { return s->shelf; }
const char *store_model(const store *s) { return s->model; }

store_stats store_get_stats(store *s) {
    pthread_mutex_lock(&s->lock);
    store_stats out = s->stats;
    pthread_mutex_unlock(&s->lock);
    out.disk = shelf_get_stats(s->shelf);
    return out;
}

/* ---- loading ---- */

typedef struct loading {
    store *s;
    const kv_name *names;
    size_t first;
    kv_block **out;
} loading;

static void load_one(void *context, int64_t i, int thread) {
    (void)thread;
    loading *x = context;
    store *s = x->s;
    err why = {0};
    const shelf_key key = shelf_key_make(&x->names[i + 1], &x->names[i], (uint32_t)(x->first + (size_t)i));
    tensor_header h = {0};
    char *path = shelf_block_path(s->shelf, &key, &why);
    if (path && blockfile_header(&h, s->layout, s->model, &key, &x->names[i], &why)) x->out[i] = blockfile_read(path, &h, s->cache, s->layout, &why);
    buf_free(&h.text);
    if (x->out[i]) {
        kv_cache_set_durable(s->cache, x->out[i]);
        shelf_used(s->shelf, &key);
    } else if (path && why.code != HEARTH_MEMORY) {
        shelf_forget(s->shelf, &key);
        if (why.code == HEARTH_FORMAT && shelf_set_aside(s->shelf, path, why.text, NULL)) {
            warn(s, "%s was set aside and is computed again: %s", path, why.text);
            pthread_mutex_lock(&s->lock);
            s->stats.damaged++;
            pthread_mutex_unlock(&s->lock);
        }
    }
    mem_free(path);
}

size_t store_load(void *user, const kv_name *names, size_t first, size_t n, kv_block **out) {
    const store_loader *loader = user;
    store *s = loader->store;
    size_t there = 0, got = 0;
    while (there < n) {
        const shelf_key key = shelf_key_make(&names[there + 1], &names[there], (uint32_t)(first + there));
        if (!shelf_has(s->shelf, &key)) break;
        there++;
    }
    if (there == 0) {
        pthread_mutex_lock(&s->lock);
        s->stats.misses++;
        pthread_mutex_unlock(&s->lock);
        return 0;
    }
    double start = clock_seconds();
    loading x = {.s = s, .names = names, .first = first, .out = out};
    if (loader->pool) pool_run(loader->pool, (int64_t)there, load_one, &x);
    else
        for (size_t i = 0; i < there; i++) load_one(&x, (int64_t)i, 0);
    while (got < there && out[got]) got++;
    for (size_t i = got; i < there; i++)
        if (out[i]) kv_block_drop(s->cache, out[i]);
    double took = clock_seconds() - start;
    pthread_mutex_lock(&s->lock);
    s->stats.loads += got > 0;
    s->stats.misses += got == 0;
    if (took > s->stats.longest_load) s->stats.longest_load = took;
    s->stats.loaded_blocks += got;
    s->stats.loaded_bytes += got * s->layout->block_bytes;
    s->stats.load_seconds += took;
    pthread_mutex_unlock(&s->lock);
    return got;
}

/* ---- agents ---- */

bool store_take(store *s, const char *name, const char *tag, agent_record *out, int *lock, err *e) {
    *out = (agent_record){0};
    *lock = -1;
    char quoted[200];
    file_id id;
    bool there = false;
    char *path = shelf_agent_path(s->shelf, name, tag, ".safetensors", e), *lock_path = path ? shelf_agent_path(s->shelf, name, tag, ".lock", e) : NULL;
    bool ok = lock_path && file_lock_file(lock_path, lock, e);
    if (ok && *lock < 0) ok = err_set(e, HEARTH_LIMIT, "the agent '%s' is open elsewhere: end it there first", err_quote(quoted, sizeof quoted, name, strlen(name)));
    ok = ok && file_look(path, &there, &id, e);
    if (ok && there) {
        err why = {0};
        ok = agent_read(path, s->layout, out, &why);
        if (!ok && why.code == HEARTH_FORMAT) {
            ok = shelf_set_aside(s->shelf, path, why.text, e);
            warn(s, "the agent %s was set aside and starts anew: %s", path, why.text);
        } else if (!ok && e) {
            *e = why;
        }
    }
    mem_free(path), mem_free(lock_path);
    if (!ok) {
        store_release(*lock);
        *lock = -1;
        agent_free(out);
    }
    return ok;
}

void store_release(int lock) { file_unlock(lock); }

bool store_remove(store *s, const char *name, const char *tag, err *e) {
    agent_record gone = {.name = (char *)name};
    snprintf(gone.tag, sizeof gone.tag, "%s", tag);
    pthread_mutex_lock(&s->lock);
    while (s->writing && same_agent(s->first, &gone)) pthread_cond_wait(&s->changed, &s->lock);
    job *waiting = unqueue(s, same_agent, &gone);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    free_jobs(s, waiting);
    char *path = shelf_agent_path(s->shelf, name, tag, ".safetensors", e);
    file_id id;
    bool there = false, ok = path && file_look(path, &there, &id, e) && (!there || file_remove(path, e));
    if (ok && there) shelf_agent_bytes(s->shelf, id.size, 0, 0);
    mem_free(path);
    return ok && shelf_pin(s->shelf, name, tag, false, e);
}

bool store_fork(store *s, const char *from, const char *to, const char *tag, err *e) {
    agent_record wanted = {.name = (char *)from};
    snprintf(wanted.tag, sizeof wanted.tag, "%s", tag);
    pthread_mutex_lock(&s->lock);
    uint64_t until = 0, failures = s->stats.failures;
    for (const job *j = s->first; j; j = j->next)
        if (same_agent(j, &wanted)) until = j->number;
    while (s->first && s->first->number <= until && s->stats.failures == failures) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return agent_fork(s->shelf, from, to, tag, e);
}
