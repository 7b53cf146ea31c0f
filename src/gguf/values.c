/* values.c: typed reads of metadata. The parser has checked that the bytes are there; what is left is types and ranges. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gguf/parts.h"

const char *gguf_type_name(gguf_type t) {
    static const char *const names[GGUF_TYPES] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                  "bool", "string", "array", "u64", "i64", "f64"};
    return (unsigned)t < GGUF_TYPES ? names[t] : "unknown";
}

/* ---- single values ---- */

int64_t gguf_item_i64(const gguf_kv *kv, uint64_t i) {
    const uint8_t *p = kv->data + i * gguf_type_size(kv->item);
    switch (kv->item) {
    case GGUF_U8:
    case GGUF_BOOL: return p[0];
    case GGUF_I8: return (int8_t)p[0];
    case GGUF_U16: return p[0] | p[1] << 8;
    case GGUF_I16: return (int16_t)(p[0] | p[1] << 8);
    case GGUF_U32: return gguf_read_u32(p);
    case GGUF_I32: return (int32_t)gguf_read_u32(p);
    case GGUF_U64:
    case GGUF_I64: return (int64_t)gguf_read_u64(p);
    default: return 0;
    }
}

double gguf_item_f64(const gguf_kv *kv, uint64_t i) {
    const uint8_t *p = kv->data + i * gguf_type_size(kv->item);
    if (kv->item == GGUF_F32) {
        uint32_t bits = gguf_read_u32(p);
        float f;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    if (kv->item == GGUF_F64) {
        uint64_t bits = gguf_read_u64(p);
        double f;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    if (kv->item == GGUF_U64) return (double)gguf_read_u64(p);
    return (double)gguf_item_i64(kv, i);
}

gguf_string gguf_next_string(const uint8_t **cursor) {
    gguf_string s = {(const char *)*cursor + 8, (size_t)gguf_read_u64(*cursor)};
    *cursor += 8 + s.len;
    return s;
}

/* Steps over one array; the parser has bounded how deep they nest. */
static const uint8_t *array_end(const uint8_t *p) {
    gguf_type item = (gguf_type)gguf_read_u32(p);
    uint64_t count = gguf_read_u64(p + 4);
    p += 12;
    if (gguf_type_size(item)) return p + count * gguf_type_size(item);
    for (uint64_t i = 0; i < count; i++) {
        if (item == GGUF_STRING) gguf_next_string(&p);
        else p = array_end(p);
    }
    return p;
}

gguf_kv gguf_next_array(const uint8_t **cursor) {
    const uint8_t *p = *cursor;
    *cursor = array_end(p);
    return (gguf_kv){
        .type = GGUF_ARRAY, .item = (gguf_type)gguf_read_u32(p), .count = gguf_read_u64(p + 4), .data = p + 12, .end = *cursor};
}

/* ---- by key ---- */

static bool wrong_type(const gguf_kv *kv, const char *want, err *e) {
    char quoted[100];
    return err_set(e, HEARTH_FORMAT, "the metadata entry '%s' is of type %s, not %s",
                   err_quote(quoted, sizeof quoted, kv->key.data, kv->key.len), gguf_type_name(kv->type), want);
}

static bool is_integer(gguf_type t) { return (t <= GGUF_I32 || t == GGUF_U64 || t == GGUF_I64) && t >= 0; }
static bool is_signed(gguf_type t) { return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64; }

bool gguf_kv_u64(const gguf_kv *kv, uint64_t *out, err *e) {
    char quoted[100];
    if (!is_integer(kv->type)) return wrong_type(kv, "a whole number", e);
    int64_t v = gguf_item_i64(kv, 0);
    if (is_signed(kv->type) && v < 0)
        return err_set(e, HEARTH_FORMAT, "the metadata entry '%s' is negative: %" PRId64,
                       err_quote(quoted, sizeof quoted, kv->key.data, kv->key.len), v);
    *out = (uint64_t)v;
    return true;
}

bool gguf_get_u64(const gguf *g, const char *key, uint64_t *out, err *e) {
    const gguf_kv *kv = gguf_find(g, key);
    return kv && gguf_kv_u64(kv, out, e);
}

bool gguf_get_i64(const gguf *g, const char *key, int64_t *out, err *e) {
    const gguf_kv *kv = gguf_find(g, key);
    if (!kv) return false;
    if (!is_integer(kv->type)) return wrong_type(kv, "a whole number", e);
    int64_t v = gguf_item_i64(kv, 0);
    char quoted[100];
    if (kv->type == GGUF_U64 && v < 0)
        return err_set(e, HEARTH_FORMAT, "the metadata entry '%s' is too large: %" PRIu64,
                       err_quote(quoted, sizeof quoted, kv->key.data, kv->key.len), (uint64_t)v);
    *out = v;
    return true;
}

bool gguf_get_f64(const gguf *g, const char *key, double *out, err *e) {
    const gguf_kv *kv = gguf_find(g, key);
    if (!kv) return false;
    if (!is_integer(kv->type) && kv->type != GGUF_F32 && kv->type != GGUF_F64) return wrong_type(kv, "a number", e);
    *out = gguf_item_f64(kv, 0);
    return true;
}

bool gguf_get_bool(const gguf *g, const char *key, bool *out, err *e) {
    const gguf_kv *kv = gguf_find(g, key);
    if (!kv) return false;
    if (kv->type != GGUF_BOOL) return wrong_type(kv, "bool", e);
    *out = kv->data[0] != 0;
    return true;
}

bool gguf_get_string(const gguf *g, const char *key, gguf_string *out, err *e) {
    const gguf_kv *kv = gguf_find(g, key);
    if (!kv) return false;
    if (kv->type != GGUF_STRING) return wrong_type(kv, "string", e);
    const uint8_t *cursor = kv->data;
    *out = gguf_next_string(&cursor);
    return true;
}

const gguf_kv *gguf_get_array(const gguf *g, const char *key, gguf_type item, err *e) {
    const gguf_kv *kv = gguf_find(g, key);
    if (!kv) return NULL;
    if (kv->type != GGUF_ARRAY) {
        wrong_type(kv, "array", e);
        return NULL;
    }
    if (item != GGUF_TYPES && kv->item != item) {
        char quoted[100];
        err_set(e, HEARTH_FORMAT, "the metadata entry '%s' is an array of %s, not of %s", err_quote(quoted, sizeof quoted, kv->key.data, kv->key.len),
                gguf_type_name(kv->item), gguf_type_name(item));
        return NULL;
    }
    return kv;
}
