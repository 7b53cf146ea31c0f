/* store_house.h: a process's worth of hearth for the tests of the store: a cache, a store, and agents that talk without a model. Include tools/support.h first. */
#ifndef TESTS_STORE_HOUSE_H
#define TESTS_STORE_HOUSE_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store.h"
#include "unit/kv_talk.h"

typedef struct house {
    kv_layout layout;
    kv_cache *cache;
    store *store;
    char warning[2000];
    int warnings;
} house;

static inline void take_warning(void *user, const char *sentence) {
    house *h = user;
    h->warnings++;
    snprintf(h->warning, sizeof h->warning, "%s", sentence);
}

/* What every house is opened with: small_layout or windowed_layout. */
static kv_layout (*house_layout)(void) = small_layout;

static inline bool is_windowed(void) { return house_layout == windowed_layout; }

static inline bool open_house_with(house *h, const char *folder, uint64_t disk, uint64_t memory, err *e) {
    *h = (house){.layout = house_layout()};
    h->cache = kv_cache_new(&h->layout, memory, e);
    store_options o = {.folder = folder, .disk = disk, .queue_bytes = memory / 4, .warn = take_warning, .warn_user = h, .retry_seconds = 0.01};
    h->store = h->cache ? store_open(&o, h->cache, &h->layout, "0123456789abcdef", e) : NULL;
    return h->store != NULL;
}

static inline bool open_house(house *h, const char *folder, uint64_t disk, err *e) { return open_house_with(h, folder, disk, 1 << 30, e); }

static inline void close_house(house *h) {
    store_close(h->store);
    kv_cache_free(h->cache);
    kv_layout_free(&h->layout);
}

/* A killed process loses nothing that the kernel has, so memory will do for a disk, and it is quick. */
static char base[] = "/dev/shm/hearth-test-XXXXXX";
static const char *base_dir;

static inline int make_base(void **state) {
    (void)state;
    base_dir = mkdtemp(base) ? base : temp_dir();
    return 0;
}

/* For the same tests once more, with a windowed layer. */
static inline int make_windowed_base(void **state) {
    house_layout = windowed_layout;
    strcpy(base + strlen(base) - 6, "XXXXXX");
    return make_base(state);
}

static inline int remove_base(void **state) {
    (void)state;
    if (base_dir != base) return 0;
    run_program((const char *const[]){"rm", "-rf", base, NULL}, NULL, 0, NULL, NULL, 60);
    return 0;
}

static inline char *fresh_folder(void) {
    static int number;
    static char path[8][600];
    char *out = path[number % 8];
    snprintf(out, 600, "%s/store%d", base_dir, number++);
    return out;
}

/* The token at a place of an agent's text: the first 100 are common to all. */
static inline int32_t token_at(int who, size_t position) { return (int32_t)(position < 100 ? position * 7 : mix((uint32_t)who, (uint32_t)position) % 50000); }

static inline void start_talk(house *h, talk *t, const char *tenant) {
    *t = (talk){.kv = {.layout = &h->layout, .cache = h->cache, .chain = chain_of(tenant)}};
}

static inline size_t say(house *h, talk *t, int who, size_t n, uint32_t seed) {
    int32_t tokens[2000];
    for (size_t i = 0; i < n; i++) tokens[i] = token_at(who, t->n + i);
    const kv_source from = store_source(h->store);
    size_t before = t->kv.n_sealed, found = append_with(t, tokens, n, seed, &from);
    for (size_t i = before; i < t->kv.n_sealed; i++) store_put(h->store, t->kv.held[i]);
    store_put_place(h->store, &t->kv, t->kv.found);
    store_put_place(h->store, &t->kv, t->kv.asked);
    return found;
}

static inline bool save(house *h, talk *t, const char *name, const char *tenant, err *e) {
    agent_record a = {.name = mem_strndup(name, strlen(name), e), .root = t->kv.chain.root, .head = t->kv.chain.root, .created = 1700000000, .n_tokens = t->n};
    agent_tag(tenant, a.tag);
    snprintf(a.model, sizeof a.model, "%s", store_model(h->store));
    if (t->kv.n_sealed) a.head = t->kv.held[t->kv.n_sealed - 1]->name;
    a.n_tail = (int)(t->n % KV_BLOCK);
    a.tail_bytes = kv_packed_bytes(&h->layout, a.n_tail);
    a.tokens = mem_alloc(t->n + 1, sizeof *a.tokens, e);
    a.tail = mem_alloc(a.tail_bytes + 1, 1, e);
    a.note = mem_strndup("note", 4, e), a.note_len = 4;
    if (!a.name || !a.tokens || !a.tail || !a.note) {
        agent_free(&a);
        return false;
    }
    memcpy(a.tokens, t->tokens, t->n * sizeof *a.tokens);
    store_put_place(h->store, &t->kv, t->n);
    if (a.n_tail) kv_pack(&t->kv, t->n / KV_BLOCK, a.n_tail, a.tail);
    return store_save(h->store, &a, e);
}

/* Opens an agent as a session does. Returns how many tokens need no computing; the rest is computed. */
static inline size_t restore(house *h, talk *t, const char *name, const char *tenant, int who, uint32_t seed, err *e) {
    agent_record a;
    int lock;
    char tag[17];
    agent_tag(tenant, tag);
    start_talk(h, t, tenant);
    if (!store_take(h->store, name, tag, &a, &lock, e)) return 0;
    t->n = a.n_tokens;
    t->seed = seed;
    if (t->n) memcpy(t->tokens, a.tokens, t->n * sizeof *a.tokens);
    for (size_t i = 0; i < t->n; i++)
        if (t->tokens[i] != token_at(who, i)) fail_msg("token %zu of %s is not what was said", i, name);
    if (a.n_tokens) assert_true(a.note_len == 4 && memcmp(a.note, "note", 4) == 0 && a.created == 1700000000);
    const kv_source from = store_source(h->store);
    size_t found = kv_seq_find(&t->kv, t->tokens, a.tail ? t->n / KV_BLOCK * KV_BLOCK : t->n, &from);
    if (a.tail && t->kv.length / KV_BLOCK == t->n / KV_BLOCK && kv_seq_reserve(&t->kv, t->n - t->kv.length, e)) {
        kv_unpack(&t->kv, t->n / KV_BLOCK, a.n_tail, a.tail);
        t->kv.length = found = t->n;
    }
    for (bool disk = true; !kv_seq_wait(&t->kv, h->layout.n_layers - 1, NULL, NULL); disk = false) {
        assert_true(kv_seq_mend(&t->kv));
        kv_seq_find(&t->kv, t->tokens, t->n, disk ? &from : NULL);
        found = t->kv.length;
    }
    if (t->n > t->kv.length) compute_rest(t);
    if (t->kv.length == t->n) check_or_write(t, 0, false, seed);
    agent_free(&a);
    store_release(lock);
    return found;
}

/* Every file below a folder. */
typedef struct paths {
    char *items[4000];
    size_t n;
    uint64_t bytes;
} paths;

static inline void list_files(paths *p, const char *folder) {
    DIR *d = opendir(folder);
    if (!d) return;
    for (struct dirent *x; (x = readdir(d)) != NULL;) {
        if (x->d_name[0] == '.') continue;
        char path[1500];
        struct stat st;
        if (snprintf(path, sizeof path, "%s/%s", folder, x->d_name) >= (int)sizeof path || stat(path, &st) != 0) continue;
        if (S_ISDIR(st.st_mode)) list_files(p, path);
        else if (p->n < 4000) p->items[p->n++] = strdup(path), p->bytes += (uint64_t)st.st_size;
    }
    closedir(d);
}

static inline paths files_of(const char *folder, const char *part) {
    paths p = {0};
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, part);
    list_files(&p, path);
    return p;
}

static inline void free_paths(paths *p) {
    for (size_t i = 0; i < p->n; i++) free(p->items[i]);
}

static inline err *clear(err *e) {
    err_clear(e);
    return e;
}

#endif
