/* response_state.c: responses that later requests may go on from. The latest are kept in memory, as JSON text, within a bound; the oldest go first. */
#include <string.h>

#include "api/inner.h"

enum { MOST_RESPONSES = 4096, MOST_BYTES = 64 << 20 };

typedef struct kept_response {
    char *id, *text;
    size_t len;
    uint64_t used;
} kept_response;

struct response_state {
    pthread_mutex_t lock;
    kept_response *items;
    size_t n, cap, bytes;
    uint64_t clock;
};

response_state *response_state_new(err *e) {
    response_state *s = mem_zalloc(1, sizeof *s, e);
    if (s) pthread_mutex_init(&s->lock, NULL);
    return s;
}

static void drop(response_state *s, size_t i) {
    kept_response *k = &s->items[i];
    s->bytes -= k->len;
    mem_free(k->id);
    mem_free(k->text);
    *k = s->items[--s->n];
}

void response_state_free(response_state *s) {
    if (!s) return;
    while (s->n > 0) drop(s, s->n - 1);
    mem_free(s->items);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

static size_t oldest(const response_state *s) {
    size_t best = 0;
    for (size_t i = 1; i < s->n; i++)
        if (s->items[i].used < s->items[best].used) best = i;
    return best;
}

static bool add(response_state *s, const char *id, const char *text, size_t len, err *e) {
    while (s->n > 0 && (s->n >= MOST_RESPONSES || s->bytes + len > MOST_BYTES)) drop(s, oldest(s));
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        kept_response *items = mem_realloc(s->items, cap, sizeof *items, e);
        if (!items) return false;
        s->items = items;
        s->cap = cap;
    }
    kept_response k = {.id = mem_strndup(id, strlen(id), e), .text = mem_strndup(text, len, e), .len = len, .used = ++s->clock};
    if (!k.id || !k.text) {
        mem_free(k.id);
        mem_free(k.text);
        return false;
    }
    s->items[s->n++] = k;
    s->bytes += len;
    return true;
}

bool response_state_put(response_state *s, const char *id, const json_t *record, err *e) {
    char *text = json_dumps(record, JSON_COMPACT);
    if (!text) return err_nomem(e, 0);
    pthread_mutex_lock(&s->lock);
    bool ok = add(s, id, text, strlen(text), e);
    pthread_mutex_unlock(&s->lock);
    free(text);
    return ok;
}

static size_t find(const response_state *s, const char *id) {
    size_t i = 0;
    while (i < s->n && strcmp(s->items[i].id, id) != 0) i++;
    return i;
}

json_t *response_state_get(response_state *s, const char *id) {
    json_t *record = NULL;
    pthread_mutex_lock(&s->lock);
    size_t i = find(s, id);
    if (i < s->n) {
        s->items[i].used = ++s->clock;
        record = json_loadb(s->items[i].text, s->items[i].len, JSON_ALLOW_NUL, NULL);
    }
    pthread_mutex_unlock(&s->lock);
    return record;
}

bool response_state_drop(response_state *s, const char *id) {
    pthread_mutex_lock(&s->lock);
    size_t i = find(s, id);
    bool found = i < s->n;
    if (found) drop(s, i);
    pthread_mutex_unlock(&s->lock);
    return found;
}
