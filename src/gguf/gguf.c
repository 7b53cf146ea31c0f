/* gguf.c: a model as one or several files, and the tables over them. */
#include "gguf/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gguf/parts.h"

struct gguf {
    gguf_part *parts;
    int n_parts;
    gguf_tensors tensors;
    gguf_index tensor_index;
};

/* ---- split models ---- */

/* "-00001-of-00003.gguf": the form of the names' ends, with five digits each. */
enum { SUFFIX = 20, MAX_PARTS = 99999 };

static const char *split_suffix(const char *path) {
    size_t len = strlen(path);
    if (len <= SUFFIX) return NULL;
    const char *s = path + len - SUFFIX;
    const char *form = "-#####-of-#####.gguf";
    for (int i = 0; i < SUFFIX; i++)
        if (form[i] == '#' ? s[i] < '0' || s[i] > '9' : s[i] != form[i]) return NULL;
    return s;
}

static char *part_path(const char *first, int number, uint64_t count, err *e) {
    buf b = {0};
    bool ok = buf_add(&b, first, strlen(first) - SUFFIX, e) && buf_addf(&b, e, "-%05d-of-%05d.gguf", number + 1, (int)count);
    if (!ok) buf_free(&b);
    return b.data;
}

static bool part_number(const gguf_part *p, const char *key, uint64_t *out, err *e) {
    const gguf_kv *kv = gguf_part_find(p, key);
    if (!kv) return err_set(e, HEARTH_FORMAT, "the part of a split model lacks the metadata entry '%s'", key);
    return gguf_kv_u64(kv, out, e);
}

static bool open_part(gguf *g, const char *first, int number, uint64_t count, err *e) {
    char *path = part_path(first, number, count, e);
    if (!path) return false;
    gguf_part *more = mem_realloc(g->parts, (size_t)number + 1, sizeof *g->parts, e);
    bool ok = more != NULL;
    if (ok) {
        g->parts = more;
        g->n_parts = number + 1;
        gguf_part *p = &g->parts[number];
        uint64_t its_number, its_count;
        ok = gguf_part_open(p, path, number, &g->tensors, e);
        if (!ok) {
            err_prefix(e, "part %d of %" PRIu64 " of the model cannot be used", number + 1, count);
        } else {
            ok = part_number(p, "split.no", &its_number, e) && part_number(p, "split.count", &its_count, e);
            if (ok && (its_number != (uint64_t)number || its_count != count))
                ok = err_set(e, HEARTH_FORMAT, "its metadata says that it is part %" PRIu64 " of %" PRIu64 ", its name says otherwise", its_number + 1, its_count);
            if (!ok) err_prefix(e, "%s", path);
        }
    }
    mem_free(path);
    return ok;
}

/* Opens what belongs to the first file; a model in one file has nothing more. */
static bool open_rest(gguf *g, const char *path, err *e) {
    uint64_t count = 0, number = 0, tensors;
    const gguf_kv *kv = gguf_part_find(&g->parts[0], "split.count");
    if (!kv) return true;
    if (!gguf_kv_u64(kv, &count, e)) return err_prefix(e, "%s", path);
    if (count <= 1) return true;
    if (!part_number(&g->parts[0], "split.no", &number, e)) return err_prefix(e, "%s", path);
    if (count > MAX_PARTS) return err_set(e, HEARTH_FORMAT, "%s: a model cannot be split into %" PRIu64 " parts", path, count);
    const char *suffix = split_suffix(path);
    char form[32];
    snprintf(form, sizeof form, "-%05d-of-%05d.gguf", (int)(number % MAX_PARTS) + 1, (int)count);
    if (number != 0)
        return err_set(e, HEARTH_ARGUMENT, "%s: this is part %" PRIu64 " of %" PRIu64 " of a split model; open the first part (...-00001-of-%05d.gguf)",
                       path, number + 1, count, (int)count);
    if (!suffix || strcmp(suffix, form) != 0)
        return err_set(e, HEARTH_FORMAT, "%s: this is part 1 of a model split into %" PRIu64 " files, so its name must end in %s for the others to be found",
                       path, count, form);
    for (int i = 1; i < (int)count; i++)
        if (!open_part(g, path, i, count, e)) return false;
    kv = gguf_part_find(&g->parts[0], "split.tensors.count");
    if (!kv) return true;
    if (!gguf_kv_u64(kv, &tensors, e)) return err_prefix(e, "%s", path);
    if (tensors == g->tensors.n) return true;
    return err_set(e, HEARTH_FORMAT, "%s: the parts hold %zu tensors together, but split.tensors.count says %" PRIu64, path, g->tensors.n, tensors);
}

/* ---- open and close ---- */

gguf *gguf_open(const char *path, err *e) {
    gguf *g = mem_zalloc(1, sizeof *g, e);
    if (!g) return NULL;
    g->parts = mem_zalloc(1, sizeof *g->parts, e);
    bool ok = g->parts != NULL;
    if (ok) {
        g->n_parts = 1;
        ok = gguf_part_open(&g->parts[0], path, 0, &g->tensors, e) && open_rest(g, path, e);
    }
    if (ok && !gguf_index_build(&g->tensor_index, g->tensors.items, sizeof *g->tensors.items, g->tensors.n, "tensor", e))
        ok = err_prefix(e, "%s", path);
    if (ok) return g;
    gguf_close(g);
    return NULL;
}

void gguf_close(gguf *g) {
    if (!g) return;
    for (int i = 0; i < g->n_parts; i++) gguf_part_close(&g->parts[i]);
    mem_free(g->parts);
    mem_free(g->tensors.items);
    gguf_index_free(&g->tensor_index);
    mem_free(g);
}

/* ---- what is there ---- */

int gguf_version(const gguf *g) { return g->parts[0].version; }
uint32_t gguf_alignment(const gguf *g) { return g->parts[0].alignment; }
int gguf_n_parts(const gguf *g) { return g->n_parts; }
const char *gguf_part_path(const gguf *g, int part) { return g->parts[part].path; }

const file_id *gguf_part_id(const gguf *g, int part) { return &g->parts[part].map.id; }

bool gguf_unchanged(const gguf *g) {
    for (int i = 0; i < g->n_parts; i++) {
        file_id now;
        if (!file_examine(g->parts[i].path, &now, NULL) || !file_id_equal(&now, &g->parts[i].map.id)) return false;
    }
    return true;
}

uint64_t gguf_file_bytes(const gguf *g) {
    uint64_t sum = 0;
    for (int i = 0; i < g->n_parts; i++) sum += g->parts[i].map.size;
    return sum;
}

size_t gguf_n_kv(const gguf *g) { return g->parts[0].n_kv; }
const gguf_kv *gguf_kv_at(const gguf *g, size_t i) { return &g->parts[0].kv[i]; }
const gguf_kv *gguf_find(const gguf *g, const char *key) { return gguf_part_find(&g->parts[0], key); }

size_t gguf_n_tensors(const gguf *g) { return g->tensors.n; }
const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i) { return &g->tensors.items[i]; }
const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name) {
    return gguf_index_find(&g->tensor_index, g->tensors.items, sizeof *g->tensors.items, name, strlen(name));
}
