#include "gguf/write.h"

#include <assert.h>
#include <string.h>

#include "base/file.h"

struct gguf_writer {
    uint32_t alignment;
    buf kv, infos;
    uint64_t n_kv, n_tensors;
    uint64_t *ends;   /* where the data of each tensor ends, counted from the start of the data */
    size_t cap_ends;
    uint64_t offset;  /* where the next declared tensor starts */
    size_t current;   /* the tensor being written */
    uint64_t written; /* bytes of data, padding included */
    bool open;
    file_writer file;
};

gguf_writer *gguf_writer_new(uint32_t alignment, err *e) {
    gguf_writer *w = mem_zalloc(1, sizeof *w, e);
    if (w) w->alignment = alignment;
    return w;
}

void gguf_writer_free(gguf_writer *w) {
    if (!w) return;
    if (w->open) file_writer_abort(&w->file);
    buf_free(&w->kv);
    buf_free(&w->infos);
    mem_free(w->ends);
    mem_free(w);
}

/* ---- declaring ---- */

static bool add_number(buf *b, uint64_t value, int bytes, err *e) {
    uint8_t out[8];
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> 8 * i);
    return buf_add(b, out, (size_t)bytes, e);
}

static bool add_string(buf *b, const char *s, size_t len, err *e) { return add_number(b, len, 8, e) && buf_add(b, s, len, e); }

bool gguf_writer_copy(gguf_writer *w, const gguf_kv *kv, err *e) {
    bool ok = add_string(&w->kv, kv->key.data, kv->key.len, e) && add_number(&w->kv, kv->type, 4, e);
    if (kv->type == GGUF_ARRAY) ok = ok && add_number(&w->kv, kv->item, 4, e) && add_number(&w->kv, kv->count, 8, e);
    w->n_kv++;
    return ok && buf_add(&w->kv, kv->data, (size_t)(kv->end - kv->data), e);
}

bool gguf_writer_u32(gguf_writer *w, const char *key, uint32_t value, err *e) {
    w->n_kv++;
    return add_string(&w->kv, key, strlen(key), e) && add_number(&w->kv, GGUF_U32, 4, e) && add_number(&w->kv, value, 4, e);
}

static uint64_t align_up(uint64_t n, uint32_t alignment) { return (n + alignment - 1) / alignment * alignment; }

bool gguf_writer_tensor(gguf_writer *w, const gguf_tensor *shape, int type, uint64_t n_bytes, err *e) {
    bool ok = add_string(&w->infos, shape->name.data, shape->name.len, e) && add_number(&w->infos, (uint64_t)shape->n_dims, 4, e);
    for (int i = 0; i < shape->n_dims; i++) ok = ok && add_number(&w->infos, (uint64_t)shape->ne[i], 8, e);
    ok = ok && add_number(&w->infos, (uint64_t)type, 4, e) && add_number(&w->infos, w->offset, 8, e);
    if (ok && w->n_tensors == w->cap_ends) {
        size_t cap = w->cap_ends ? w->cap_ends * 2 : 64;
        uint64_t *more = mem_realloc(w->ends, cap, sizeof *more, e);
        if (!more) return false;
        w->ends = more;
        w->cap_ends = cap;
    }
    if (!ok) return false;
    w->ends[w->n_tensors++] = w->offset + n_bytes;
    w->offset = align_up(w->offset + n_bytes, w->alignment);
    return true;
}

/* ---- writing ---- */

static bool add_padding(gguf_writer *w, uint64_t n, err *e) {
    static const char zeros[4096];
    while (n > 0) {
        size_t piece = n < sizeof zeros ? (size_t)n : sizeof zeros;
        if (!file_writer_add(&w->file, zeros, piece, e)) return false;
        n -= piece;
    }
    return true;
}

bool gguf_writer_begin(gguf_writer *w, const char *path, err *e) {
    assert(!w->open);
    if (!file_writer_open(&w->file, path, e)) return false;
    w->open = true;
    buf head = {0};
    bool ok = buf_adds(&head, "GGUF", e) && add_number(&head, 3, 4, e) && add_number(&head, w->n_tensors, 8, e) && add_number(&head, w->n_kv, 8, e) &&
              file_writer_add(&w->file, head.data, head.len, e) && file_writer_add(&w->file, w->kv.data, w->kv.len, e) &&
              file_writer_add(&w->file, w->infos.data, w->infos.len, e);
    uint64_t at = head.len + w->kv.len + w->infos.len;
    buf_free(&head);
    return ok && (w->n_tensors == 0 || add_padding(w, align_up(at, w->alignment) - at, e));
}

bool gguf_writer_data(gguf_writer *w, const void *data, size_t len, err *e) {
    const char *p = data;
    while (len > 0) {
        assert(w->current < w->n_tensors);
        uint64_t end = w->ends[w->current];
        size_t piece = len < end - w->written ? len : (size_t)(end - w->written);
        if (!file_writer_add(&w->file, p, piece, e)) return false;
        p += piece;
        len -= piece;
        w->written += piece;
        if (w->written < end) continue;
        uint64_t next = align_up(end, w->alignment);
        if (!add_padding(w, next - end, e)) return false;
        w->written = next;
        w->current++;
    }
    return true;
}

bool gguf_writer_commit(gguf_writer *w, uint64_t *bytes, err *e) {
    assert(w->open && w->current == w->n_tensors);
    w->open = false; /* commit ends the file's writer either way */
    if (bytes) *bytes = w->file.written;
    return file_writer_commit(&w->file, e);
}
