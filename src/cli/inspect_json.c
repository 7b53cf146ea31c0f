/* inspect_json.c: `hearth inspect --json`: all metadata and all tensors as one JSON object. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "cli/inspect.h"

/* JSON holds only valid UTF-8: bytes that are none become U+FFFD. In keys so does NUL, which jansson takes as their end. */
static bool clean(buf *out, gguf_string s, bool key, err *e) {
    for (size_t i = 0; i < s.len;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t left = s.len - i < 8 ? (utf8proc_ssize_t)(s.len - i) : 8;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)s.data + i, left, &c);
        bool good = n > 0 && !(key && c == 0);
        if (!(good ? buf_add(out, s.data + i, (size_t)n, e) : buf_adds(out, "\xEF\xBF\xBD", e))) return false;
        i += n > 0 ? (size_t)n : 1;
    }
    return buf_reserve(out, 0, e);
}

static json_t *json_text(gguf_string s) {
    buf b = {0};
    json_t *j = clean(&b, s, false, NULL) ? json_stringn(b.data ? b.data : "", b.len) : NULL;
    buf_free(&b);
    return j;
}

/* JSON has no infinities, and jansson's whole numbers are signed: what does not fit is a string. */
static json_t *json_f64(double v) {
    if (isfinite(v)) return json_real(v);
    return json_string(isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity");
}

static json_t *json_u64(uint64_t v) {
    char digits[24];
    if (v <= INT64_MAX) return json_integer((json_int_t)v);
    snprintf(digits, sizeof digits, "%" PRIu64, v);
    return json_string(digits);
}

static json_t *json_items(const gguf_kv *kv);

static json_t *json_item(const gguf_kv *kv, uint64_t i, const uint8_t **cursor) {
    switch (kv->item) {
    case GGUF_STRING: return json_text(gguf_next_string(cursor));
    case GGUF_ARRAY: {
        gguf_kv nested = gguf_next_array(cursor);
        return json_items(&nested);
    }
    case GGUF_BOOL: return json_boolean(gguf_item_i64(kv, i));
    case GGUF_F32:
    case GGUF_F64: return json_f64(gguf_item_f64(kv, i));
    case GGUF_U64: return json_u64((uint64_t)gguf_item_i64(kv, i));
    default: return json_integer((json_int_t)gguf_item_i64(kv, i));
    }
}

static json_t *json_items(const gguf_kv *kv) {
    const uint8_t *cursor = kv->data;
    json_t *array = json_array();
    for (uint64_t i = 0; array && i < kv->count; i++) {
        if (json_array_append_new(array, json_item(kv, i, &cursor)) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *json_metadata(const gguf *g) {
    json_t *all = json_object();
    for (size_t i = 0; all && i < gguf_n_kv(g); i++) {
        const gguf_kv *kv = gguf_kv_at(g, i);
        const uint8_t *cursor = kv->data;
        json_t *value = kv->type == GGUF_ARRAY ? json_items(kv) : json_item(kv, 0, &cursor);
        buf key = {0};
        bool ok = clean(&key, kv->key, true, NULL);
        if (!ok) json_decref(value);
        ok = ok && json_object_set_new(all, key.data, value) == 0;
        buf_free(&key);
        if (ok) continue;
        json_decref(all);
        return NULL;
    }
    return all;
}

static json_t *json_tensors(const gguf *g) {
    json_t *all = json_array();
    for (size_t i = 0; all && i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        json_t *shape = json_array();
        for (int d = 0; d < t->n_dims; d++) json_array_append_new(shape, json_integer((json_int_t)t->ne[d]));
        json_t *one = json_pack("{so ss so so so so si}", "name", json_text(t->name), "type", inspect_type_name(t->type), "shape", shape, "elements",
                                json_u64(t->n_elements), "bytes", json_u64(t->n_bytes), "offset", json_u64(t->offset), "part", t->part);
        if (json_array_append_new(all, one) == 0) continue;
        json_decref(all);
        return NULL;
    }
    return all;
}

static json_t *json_types(const inspect_facts *f) {
    json_t *all = json_object();
    for (int i = 0; i < QUANT_TYPE_END; i++) {
        const inspect_type *t = &f->types[i];
        if (t->tensors == 0) continue;
        json_object_set_new(all, inspect_type_name(i),
                            json_pack("{so so so sf}", "tensors", json_u64(t->tensors), "elements", json_u64(t->elements), "bytes", json_u64(t->bytes),
                                      "bits_per_weight", inspect_bits(t->bytes, t->elements)));
    }
    return all;
}

static json_t *json_parts(const gguf *g) {
    json_t *all = json_array();
    for (int i = 0; i < gguf_n_parts(g); i++) {
        const char *path = gguf_part_path(g, i);
        json_array_append_new(all, json_text((gguf_string){path, strlen(path)}));
    }
    return all;
}

static json_t *text_or_null(gguf_string s) { return s.data ? json_text(s) : json_null(); }
static json_t *number_or_null(uint64_t n) { return n ? json_u64(n) : json_null(); }

/* 0 stands for "the file does not say", which JSON has a word for. */
static bool add_facts(json_t *all, const inspect_facts *f) {
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"context_length", f->context},      {"layers", f->layers},           {"embedding_length", f->width},     {"feed_forward_length", f->feed_forward},
        {"heads", f->heads},                 {"kv_heads", f->kv_heads_most},  {"key_length", f->key_length},      {"value_length", f->value_length},
        {"kv_lora_rank", f->latent},         {"experts", f->experts},         {"experts_used", f->experts_used},  {"sliding_window", f->window},
        {"kv_bytes_per_token", f->kv_bytes}, {"vocabulary", f->tokens ? f->tokens : f->vocabulary},
    };
    bool ok = true;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        ok = ok && json_object_set_new(all, numbers[i].name, number_or_null(numbers[i].value)) == 0;
    return ok && json_object_set_new(all, "tokenizer", text_or_null(f->tokenizer)) == 0 &&
           json_object_set_new(all, "pre_tokenizer", text_or_null(f->pre)) == 0 &&
           json_object_set_new(all, "chat_template", text_or_null(f->template)) == 0 &&
           json_object_set_new(all, "bos", f->bos < 0 ? json_null() : json_integer(f->bos)) == 0 &&
           json_object_set_new(all, "eos", f->eos < 0 ? json_null() : json_integer(f->eos)) == 0;
}

bool inspect_print_json(const gguf *g, const inspect_facts *f, err *e) {
    json_t *all = json_pack("{so so so so si si so so so sf so}", "files", json_parts(g), "architecture", text_or_null(f->arch), "name",
                            text_or_null(f->name), "file_bytes", json_u64(gguf_file_bytes(g)), "version", gguf_version(g), "alignment",
                            (int)gguf_alignment(g), "parameters", json_u64(f->parameters), "active_parameters", json_u64(f->active_parameters),
                            "tensor_bytes", json_u64(f->tensor_bytes), "bits_per_weight", inspect_bits(f->tensor_bytes, f->parameters), "types",
                            json_types(f));
    bool ok = all && add_facts(all, f) && json_object_set_new(all, "metadata", json_metadata(g)) == 0 &&
              json_object_set_new(all, "tensors", json_tensors(g)) == 0;
    if (!ok) err_set(e, HEARTH_MEMORY, "out of memory while making JSON of the file");
    else if (json_dumpf(all, stdout, JSON_INDENT(2)) != 0 || putchar('\n') == EOF || fflush(stdout) != 0)
        ok = err_set(e, HEARTH_IO, "the output could not be written");
    json_decref(all);
    return ok;
}
