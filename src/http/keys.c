/* keys.c: the keys that requests bring: whose they are, and how much each may ask for. Only hashes are kept, and a given key is compared with all of them in a
 * time that depends on neither. */
#include <math.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "http/inner.h"

enum { HASH = 32, MOST_KEYS = 4096 };

/* A minute's worth that refills steadily. May be overdrawn. */
typedef struct bucket {
    double size, level;
    uint64_t when;
} bucket;

struct key_entry {
    unsigned char hash[HASH];
    char *tenant; /* or NULL */
    bool admin, api;
    bucket requests, tokens;
};

struct http_keys {
    pthread_mutex_t lock; /* of the buckets */
    unsigned char salt[crypto_generichash_KEYBYTES];
    key_entry **items;
    size_t n, cap;
};

static void hash_key(const http_keys *k, const char *key, size_t len, unsigned char out[HASH]) {
    crypto_generichash(out, HASH, (const unsigned char *)key, len, k->salt, sizeof k->salt);
}

http_keys *http_keys_new(err *e) {
    http_keys *k = sodium_init() < 0 ? NULL : mem_zalloc(1, sizeof *k, e);
    if (!k) {
        err_set(e, HEARTH_IO, "the library that compares keys cannot be used");
        return NULL;
    }
    randombytes_buf(k->salt, sizeof k->salt);
    pthread_mutex_init(&k->lock, NULL);
    return k;
}

void http_keys_free(http_keys *k) {
    if (!k) return;
    for (size_t i = 0; i < k->n; i++) mem_free(k->items[i]->tenant), mem_free(k->items[i]);
    mem_free(k->items);
    pthread_mutex_destroy(&k->lock);
    mem_free(k);
}

bool http_keys_add(http_keys *k, const http_key *given, err *e) {
    if (!given->key || !*given->key) return err_set(e, HEARTH_ARGUMENT, "a key must not be empty");
    if (k->n >= MOST_KEYS) return err_set(e, HEARTH_ARGUMENT, "more than %d keys are given", MOST_KEYS);
    unsigned char hash[HASH];
    hash_key(k, given->key, strlen(given->key), hash);
    if (keys_find(k, given->key)) return err_set(e, HEARTH_ARGUMENT, "a key is given twice");
    if (k->n == k->cap) {
        size_t cap = k->cap ? k->cap * 2 : 8;
        key_entry **items = mem_realloc(k->items, cap, sizeof *items, e);
        if (!items) return false;
        k->items = items;
        k->cap = cap;
    }
    key_entry *x = mem_zalloc(1, sizeof *x, e);
    if (!x) return false;
    memcpy(x->hash, hash, HASH);
    x->admin = given->admin;
    x->api = !given->only_admin;
    x->requests = (bucket){.size = given->requests, .level = given->requests};
    x->tokens = (bucket){.size = given->tokens, .level = given->tokens};
    k->items[k->n++] = x;
    return !given->tenant || (x->tenant = mem_strndup(given->tenant, strlen(given->tenant), e)) != NULL;
}

/* ---- the file ---- */

static bool read_number(const char *text, double *out, const char *word, err *e) {
    char *end;
    *out = strtod(text, &end);
    if (*text >= '0' && *text <= '9' && *end == 0 && *out > 0 && *out <= 1e12) return true;
    char quoted[80];
    return err_set(e, HEARTH_FORMAT, "'%s' needs a number that is greater than 0", err_quote(quoted, sizeof quoted, word, strlen(word)));
}

static bool read_word(http_key *key, const char *word, err *e) {
    if (strcmp(word, "admin") == 0) {
        key->admin = true;
        return true;
    }
    if (strncmp(word, "tenant=", 7) == 0 && word[7]) {
        key->tenant = word + 7;
        return true;
    }
    if (strncmp(word, "requests=", 9) == 0) return read_number(word + 9, &key->requests, word, e);
    if (strncmp(word, "tokens=", 7) == 0) return read_number(word + 7, &key->tokens, word, e);
    char quoted[80];
    return err_set(e, HEARTH_FORMAT, "'%s' is none of tenant=NAME, requests=N, tokens=N and admin", err_quote(quoted, sizeof quoted, word, strlen(word)));
}

static bool read_line(http_keys *k, char *line, err *e) {
    char *rest = NULL;
    http_key key = {.key = strtok_r(line, " \t\r", &rest)};
    if (!key.key || key.key[0] == '#') return true;
    for (char *word; (word = strtok_r(NULL, " \t\r", &rest)) && word[0] != '#';)
        if (!read_word(&key, word, e)) return false;
    return http_keys_add(k, &key, e);
}

bool http_keys_read(http_keys *k, const char *path, err *e) {
    buf text = {0};
    bool ok = file_read(path, 1 << 20, &text, e);
    size_t before = k->n;
    if (ok && text.len != strlen(text.data ? text.data : "")) ok = err_set(e, HEARTH_FORMAT, "%s holds a NUL and is no file of keys", path);
    char *line = text.data;
    for (int number = 1; ok && line; number++) {
        char *end = strchr(line, '\n');
        if (end) *end = 0;
        ok = read_line(k, line, e) || err_prefix(e, "%s, line %d", path, number);
        line = end ? end + 1 : NULL;
    }
    if (ok && k->n == before) ok = err_set(e, HEARTH_ARGUMENT, "%s holds no key: write one per line", path);
    if (text.data) sodium_memzero(text.data, text.cap);
    buf_free(&text);
    return ok;
}

/* ---- in use ---- */

bool keys_asked(const http_keys *k) {
    for (size_t i = 0; k && i < k->n; i++)
        if (k->items[i]->api) return true;
    return false;
}

bool http_keys_admin(const http_keys *k) {
    for (size_t i = 0; k && i < k->n; i++)
        if (k->items[i]->admin) return true;
    return false;
}

key_entry *keys_find(const http_keys *k, const char *given) {
    unsigned char hash[HASH];
    key_entry *found = NULL;
    if (!k || !given) return NULL;
    hash_key(k, given, strlen(given), hash);
    for (size_t i = 0; i < k->n; i++)
        if (sodium_memcmp(hash, k->items[i]->hash, HASH) == 0) found = k->items[i];
    return found;
}

bool key_opens_api(const key_entry *x) { return x->api; }
bool key_is_admin(const key_entry *x) { return x->admin; }
const char *key_tenant(const key_entry *x) { return x->tenant; }

static void refill(bucket *b, uint64_t now) {
    if (b->when) b->level += (double)(now - b->when) * 1e-9 * b->size / 60;
    if (b->level > b->size) b->level = b->size;
    b->when = now;
}

/* Seconds until there is as much as wanted in it; 0: there is. */
static double wait_for(const bucket *b, double wanted) { return b->size <= 0 || b->level >= wanted ? 0 : (wanted - b->level) * 60 / b->size; }

int key_take(http_keys *k, key_entry *x, uint64_t now) {
    pthread_mutex_lock(&k->lock);
    refill(&x->requests, now);
    refill(&x->tokens, now);
    /* A limit below one a minute lets one through whenever the bucket is full. */
    double one = x->requests.size < 1 ? x->requests.size : 1;
    double wait = fmax(wait_for(&x->requests, one), wait_for(&x->tokens, fmin(1, x->tokens.size)));
    if (wait <= 0) x->requests.level -= 1;
    pthread_mutex_unlock(&k->lock);
    return wait <= 0 ? 0 : (int)fmin(ceil(wait), 86400);
}

void key_charge(http_keys *k, key_entry *x, double tokens) {
    pthread_mutex_lock(&k->lock);
    x->tokens.level -= tokens;
    pthread_mutex_unlock(&k->lock);
}
