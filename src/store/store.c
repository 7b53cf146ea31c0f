/* store.c: the thread that writes, its queue, agents. */
#include "store/store_inner.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"

void store_warn(store *s, const char *format, const char *a, const char *b) {
    char sentence[1200];
    snprintf(sentence, sizeof sentence, format, a, b);
    if (s->o.warn) s->o.warn(s->o.warn_user, sentence);
}

/* ---- writing ---- */

/* Where a full block of the tree stands; false: it does not any more. */
static bool find_place(const store *s, const kv_block *b, shelf_key *key, kv_name *parent) {
    if (!kv_block_place(s->cache, b, parent)) return false;
    *key = shelf_key_make(&b->name, parent, b->index);
    return true;
}

/* Writes a block or its window part. *there: it is on disk now; false without a failure when there is no room for it. */
static bool write_one(store *s, kv_block *b, bool window, bool *there, err *e) {
    shelf_file f = {.reach = window ? (unsigned)kv_window_reach(s->layout) : 0};
    kv_name parent;
    *there = false;
    /* What came from the disk is checked before it is written again under a checksum that would be right. */
    if (!find_place(s, b, &f.key, &parent) || kv_block_check(s->cache, b, window, KV_ALL - 1) == KV_LOST) return true;
    tensor_header h = {0};
    char *path = shelf_path(s->shelf, &f.key, f.reach, e);
    bool ok = path && blockfile_header(&h, s->layout, s->model, &f.key, &parent, window, e);
    uint64_t bytes = h.text.len + h.offset;
    err why = {0};
    bool room = ok && shelf_reserve(s->shelf, bytes, &f, &why);
    if (ok && !room) {
        ok = why.code == HEARTH_OK;
        if (!ok && e) *e = why;
        pthread_mutex_lock(&s->lock);
        s->stats.skipped += ok;
        pthread_mutex_unlock(&s->lock);
    } else if (ok) {
        double start = clock_seconds();
        ok = shelf_make_folder(s->shelf, &f.key, e) && blockfile_write(path, &h, s->layout, b, window, e);
        shelf_put_done(s->shelf, &f, bytes, ok);
        if (ok && !window) kv_cache_set_durable(s->cache, b);
        *there = ok;
        double took = clock_seconds() - start;
        pthread_mutex_lock(&s->lock);
        if (ok) *(window ? &s->stats.written_windows : &s->stats.written_blocks) += 1, s->stats.written_bytes += bytes;
        s->stats.write_seconds += took;
        if (took > s->stats.longest_write) s->stats.longest_write = took;
        pthread_mutex_unlock(&s->lock);
    }
    buf_free(&h.text);
    mem_free(path);
    return ok;
}

/* What was written once may have been evicted since, by another process too: what the block builds on is written again first. */
static bool write_block(store *s, kv_block *b, bool *there, err *e) {
    shelf_key key;
    kv_name parent;
    kv_block **chain = mem_alloc((size_t)b->index + 1, sizeof *chain, e), *x = b;
    size_t n = 0;
    *there = false;
    if (!chain) return false;
    kv_block_hold(s->cache, b);
    while (x && find_place(s, x, &key, &parent) && !(*there = shelf_there(s->shelf, &key))) {
        chain[n++] = x;
        x = kv_block_above(s->cache, x);
    }
    if (x == b && *there) kv_cache_set_durable(s->cache, b);
    if (x) kv_block_drop(s->cache, x);
    *there = *there || n > 0;
    bool ok = true;
    for (; n > 0; n--) {
        if (ok && *there) ok = write_one(s, chain[n - 1], false, there, e);
        kv_block_drop(s->cache, chain[n - 1]);
    }
    mem_free(chain);
    return ok;
}

/* After the block that it is part of. */
static bool write_window(store *s, kv_block *b, err *e) {
    shelf_key key;
    kv_name parent;
    bool there;
    if (!find_place(s, b, &key, &parent) || shelf_window_known(s->shelf, &key, true)) return true;
    return write_block(s, b, &there, e) && (!there || write_one(s, b, true, &there, e));
}

static bool write_job(store *s, job *j, err *e) {
    bool there;
    if (j->block) return j->window ? write_window(s, j->block, e) : write_block(s, j->block, &there, e);
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
    if (j->window) kv_block_give_window(s->cache, j->block, KV_READ);
    if (j->block) kv_block_drop(s->cache, j->block);
    agent_free(&j->agent);
    mem_free(j);
}

/* What a job holds in memory while it waits. */
static uint64_t job_bytes(const store *s, const job *j) { return !j->block ? 0 : j->window ? s->layout->window_bytes : kv_rest_bytes(s->layout); }

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
        s->queued_bytes -= job_bytes(s, j);
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
    if (first) store_warn(s, "conversations are kept in memory only for now: %s%s", why->text, "");
    if (rest) store_warn(s, "the last turn of an agent could not be saved: %s%s", why->text, "");
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
    if (again) store_warn(s, "conversations are kept on disk again%s%s", "", "");
    pthread_mutex_lock(&s->lock);
    s->stats.degraded = false;
    s->wrote_at = clock_seconds();
    s->first = j->next;
    if (!s->first) s->last = NULL;
    s->queued_bytes -= job_bytes(s, j);
    s->stats.waiting--;
    s->writing = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    free_job(s, j);
}

/* Whether blocks can wait: streams run, nobody waits for them to be written, no agent stands behind them, and there is room for many more. */
static bool takes_its_time(const store *s) {
    if (!s->gently || s->flushing || s->stop || s->queued_bytes > s->o.queue_bytes / 4) return false;
    for (const job *j = s->first; j; j = j->next)
        if (!j->block) return false;
    return true;
}

/* How long the first job has to wait yet. */
static double wait_seconds(const store *s) {
    if (s->stats.degraded) return s->hurry || s->stop ? 0 : s->retry_at - clock_seconds();
    return takes_its_time(s) ? s->wrote_at + s->o.pause_seconds - clock_seconds() : 0;
}

/* Waits until there is a job whose time has come; NULL at the end. Under the lock. */
static job *next_job(store *s) {
    for (;;) {
        const double wait = wait_seconds(s);
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
        const bool sweeps = !j->block || j->window;
        if (write_job(s, j, &why)) went_well(s, j);
        else went_wrong(s, &why);
        /* A disk that fails tells who writes. */
        if (sweeps && why.code == HEARTH_OK && shelf_sweep_due(s->shelf)) shelf_sweep(s->shelf, SHELF_GRACE, NULL);
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

static bool put(store *s, kv_block *b, bool window) {
    job *j = mem_zalloc(1, sizeof *j, NULL);
    if (j) j->block = b, j->window = window;
    pthread_mutex_lock(&s->lock);
    bool take = j && s->queued_bytes + job_bytes(s, j) <= s->o.queue_bytes && (!s->stats.degraded || clock_seconds() >= s->retry_at) &&
                (!window || kv_block_take_window(s->cache, b, true));
    if (take) {
        kv_block_hold(s->cache, b);
        s->queued_bytes += job_bytes(s, j);
        enqueue(s, j);
    }
    s->stats.skipped += !take;
    pthread_mutex_unlock(&s->lock);
    if (!take) mem_free(j);
    return take;
}

bool store_put(store *s, kv_block *b) {
    shelf_key key;
    kv_name parent;
    return !find_place(s, b, &key, &parent) || (kv_cache_durable(s->cache, b) && shelf_known(s->shelf, &key)) || put(s, b, false);
}

void store_put_place(store *s, const kv_seq *seq, size_t length) {
    const size_t end = length / KV_BLOCK;
    shelf_key key;
    kv_name parent;
    if (!s->layout->window || end > seq->n_sealed) return;
    /* Only all of them are of use. */
    for (size_t i = kv_window_kept(s->layout, length); i < end; i++)
        if (!find_place(s, seq->held[i], &key, &parent) || (!shelf_window_known(s->shelf, &key, false) && !kv_block_has_window(s->cache, seq->held[i]))) return;
    for (size_t i = kv_window_kept(s->layout, length); i < end; i++) {
        if (!find_place(s, seq->held[i], &key, &parent)) return;
        if (!shelf_window_known(s->shelf, &key, true) && !put(s, seq->held[i], true)) return;
    }
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

void store_gently(store *s, bool gently) {
    pthread_mutex_lock(&s->lock);
    if (s->gently != gently) pthread_cond_broadcast(&s->changed);
    s->gently = gently;
    pthread_mutex_unlock(&s->lock);
}

bool store_flush(store *s, err *e) {
    pthread_mutex_lock(&s->lock);
    uint64_t until = s->n_jobs, failures = s->stats.failures;
    s->hurry = true;
    s->flushing++;
    pthread_cond_broadcast(&s->changed);
    while (s->first && s->first->number <= until && s->stats.failures == failures) pthread_cond_wait(&s->changed, &s->lock);
    s->flushing--;
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
    if (s->o.pause_seconds <= 0) s->o.pause_seconds = 0.1;
    s->wrote_at = clock_seconds() - s->o.pause_seconds;
    s->cache = c;
    s->layout = l;
    snprintf(s->model, sizeof s->model, "%s", model);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->arrive_lock, NULL);
    pthread_cond_init(&s->arrive_more, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    s->shelf = shelf_open(o->folder, o->disk, e);
    if (s->shelf) {
        s->writer_runs = pthread_create(&s->writer, NULL, writer_main, s) == 0;
        if (!s->writer_runs) err_set(e, HEARTH_MEMORY, "the thread that writes conversations cannot be started");
        if (s->writer_runs && arrive_start(s, e)) return s;
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
    arrive_end(s);
    shelf_close(s->shelf);
    pthread_cond_destroy(&s->arrive_more);
    pthread_mutex_destroy(&s->arrive_lock);
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

/* ---- agents ---- */

/* What still waits to be written is newer than what is on disk. */
static bool take_waiting(store *s, const char *name, const char *tag, agent_record *out, err *e) {
    agent_record wanted = {.name = (char *)name};
    snprintf(wanted.tag, sizeof wanted.tag, "%s", tag);
    bool ok = true;
    pthread_mutex_lock(&s->lock);
    for (const job *j = s->first; ok && j; j = j->next) {
        if (!same_agent(j, &wanted)) continue;
        agent_free(out);
        ok = agent_copy(out, &j->agent, e);
    }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

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
            store_warn(s, "the agent %s was set aside and starts anew: %s", path, why.text);
        } else if (!ok && e) {
            *e = why;
        }
    }
    ok = ok && take_waiting(s, name, tag, out, e);
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
