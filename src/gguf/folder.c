#include "gguf/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 4, MOST = 10000, PART_LEN = 15 /* -00001-of-00002 */ };

static size_t stem_length(const char *name) {
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".gguf") == 0 ? n - 5 : n;
}

static bool digits(const char *s, int n, int *out) {
    *out = 0;
    for (int i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        *out = *out * 10 + (s[i] - '0');
    }
    return true;
}

bool gguf_is_part(const char *path, int *number, int *count) {
    size_t n = stem_length(path);
    if (n < PART_LEN || !path[n]) return false;
    const char *p = path + n - PART_LEN;
    return p[0] == '-' && digits(p + 1, 5, number) && strncmp(p + 6, "-of-", 4) == 0 && digits(p + 10, 5, count);
}

char *gguf_model_name(const char *path, char *out, size_t cap) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int number, count;
    size_t n = stem_length(name);
    if (gguf_is_part(name, &number, &count) && n > PART_LEN) n -= PART_LEN;
    snprintf(out, cap, "%.*s", (int)n, name);
    return out;
}

uint64_t gguf_model_bytes(const char *path) {
    file_id id;
    bool there = false;
    if (!file_look(path, &there, &id, NULL) || !there) return 0;
    uint64_t sum = id.size;
    int number, count;
    if (!gguf_is_part(path, &number, &count)) return sum;
    char *other = mem_strndup(path, strlen(path), NULL);
    char *digit = other ? other + stem_length(path) - PART_LEN + 1 : NULL;
    for (int i = number + 1; other && i <= count; i++) {
        char text[8];
        snprintf(text, sizeof text, "%05d", i % 100000);
        memcpy(digit, text, 5);
        if (!file_look(other, &there, &id, NULL) || !there) break;
        sum += id.size;
    }
    mem_free(other);
    return sum;
}

/* ---- scanning ---- */

typedef struct walk {
    gguf_folder *out;
    const char *folder; /* where it began */
    const char *at;     /* where it is */
    int depth;
    err *e;
    bool failed;
} walk;

static bool add(walk *w, const char *path) {
    gguf_folder *f = w->out;
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 16;
        gguf_found *items = mem_realloc(f->items, cap, sizeof *items, w->e);
        if (!items) return false;
        f->items = items;
        f->cap = cap;
    }
    char name[256];
    gguf_model_name(path, name, sizeof name);
    const char *below = path + strlen(w->folder) + 1, *slash = strrchr(below, '/');
    buf relative = {0};
    gguf_found g = {.path = mem_strndup(path, strlen(path), w->e), .name = mem_strndup(name, strlen(name), w->e), .bytes = gguf_model_bytes(path)};
    bool ok = g.path && g.name && (!slash || buf_add(&relative, below, (size_t)(slash - below + 1), w->e)) && buf_adds(&relative, name, w->e);
    g.relative = relative.data;
    f->items[f->n++] = g;
    return ok;
}

static bool visit(void *user, const char *name) {
    walk *w = user;
    if (name[0] == '.') return true;
    size_t n = strlen(name);
    int number, count;
    buf path = {0};
    bool ok = buf_addf(&path, w->e, "%s/%s", w->at, name);
    if (ok && n > 5 && strcmp(name + n - 5, ".gguf") == 0) {
        if ((!gguf_is_part(name, &number, &count) || number == 1) && w->out->n < MOST) ok = add(w, path.data);
    } else if (ok && w->depth < DEEPEST) {
        /* What is no folder cannot be listed, which is no trouble here. */
        walk below = *w;
        below.at = path.data;
        below.depth++;
        file_list(path.data, visit, &below, NULL);
        ok = !below.failed;
    }
    buf_free(&path);
    w->failed = !ok;
    return ok;
}

static int by_relative(const void *a, const void *b) { return strcmp(((const gguf_found *)a)->relative, ((const gguf_found *)b)->relative); }

bool gguf_folder_scan(gguf_folder *out, const char *folder, err *e) {
    *out = (gguf_folder){0};
    bool there = false;
    file_id id;
    if (!file_look(folder, &there, &id, e)) return false;
    walk w = {.out = out, .folder = folder, .at = folder, .e = e};
    if (there && (!file_list(folder, visit, &w, e) || w.failed)) {
        gguf_folder_free(out);
        return false;
    }
    if (out->n) qsort(out->items, out->n, sizeof *out->items, by_relative);
    return true;
}

void gguf_folder_free(gguf_folder *f) {
    for (size_t i = 0; i < f->n; i++) mem_free(f->items[i].path), mem_free(f->items[i].name), mem_free(f->items[i].relative);
    mem_free(f->items);
    *f = (gguf_folder){0};
}

const gguf_found *gguf_folder_find(const gguf_folder *f, const char *name, bool *several) {
    *several = false;
    const gguf_found *found = NULL;
    size_t n = stem_length(name);
    for (size_t i = 0; i < f->n; i++) {
        const gguf_found *g = &f->items[i];
        if (strlen(g->relative) == n && memcmp(g->relative, name, n) == 0) {
            *several = false;
            return g;
        }
        if (strlen(g->name) != n || memcmp(g->name, name, n) != 0) continue;
        *several = found != NULL;
        if (!found) found = g;
    }
    return *several ? NULL : found;
}
