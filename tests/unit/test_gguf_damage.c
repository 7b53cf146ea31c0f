/* Damaged GGUF files: cut anywhere, bits and bytes flipped, lengths replaced by extreme ones. Whatever comes, the parser says no in one
 * sentence or hands out tables whose every byte can be read. The bytes lie in an exact heap block, where the address sanitizer sees an
 * overrun of one byte; a mapping would hide it up to the end of its page. */
#include "tools/support.h"

#include "gguf/parts.h"
#include "quant/quant.h"
#include "unit/gguf_builder.h"

static volatile uint64_t sink;

static void read_string(gguf_string s) {
    for (size_t i = 0; i < s.len; i++) sink += (uint8_t)s.data[i];
}

static void read_entry(const gguf_kv *kv) {
    const uint8_t *cursor = kv->data;
    for (uint64_t i = 0; i < kv->count; i++) {
        if (kv->item == GGUF_STRING) {
            read_string(gguf_next_string(&cursor));
        } else if (kv->item == GGUF_ARRAY) {
            gguf_kv nested = gguf_next_array(&cursor);
            read_entry(&nested);
        } else {
            sink += (uint64_t)gguf_item_i64(kv, i);
            sink += gguf_item_f64(kv, i) > 0;
        }
    }
    assert_true(cursor <= kv->end);
}

/* Parses a copy of the bytes and reads all that it gives. Returns whether it was accepted. */
static bool survive(const void *bytes, size_t len) {
    unsigned char *copy = malloc(len ? len : 1);
    memcpy(copy, bytes, len);
    err e = {0};
    gguf_part p = {.map = {copy, len}};
    gguf_tensors tensors = {0};
    gguf_index index = {0};
    bool ok = gguf_part_parse(&p, 0, &tensors, &e) && gguf_index_build(&index, tensors.items, sizeof *tensors.items, tensors.n, "tensor", &e);
    if (ok) {
        for (size_t i = 0; i < p.n_kv; i++) {
            read_string(p.kv[i].key);
            read_entry(&p.kv[i]);
        }
        for (size_t i = 0; i < tensors.n; i++) {
            const gguf_tensor *t = &tensors.items[i];
            read_string(t->name);
            for (uint64_t k = 0; k < t->n_bytes; k += 1 + t->n_bytes / 64) sink += t->data[k];
            sink += t->data[t->n_bytes - 1];
            assert_ptr_equal(gguf_index_find(&index, tensors.items, sizeof *t, t->name.data, t->name.len), t);
        }
    } else {
        assert_int_not_equal(e.code, HEARTH_OK);
        assert_true(strlen(e.text) > 10);
    }
    gguf_index_free(&index);
    mem_free(tensors.items);
    p.map = (file_map){0};
    gguf_part_close(&p);
    free(copy);
    return ok;
}

/* A file with every kind of entry. Where its lengths and counts are is remembered. */
static size_t fields[64];
static int n_fields;

static buf sample(void) {
    builder b = {0};
    static const uint32_t fixed[] = {GGUF_U8, GGUF_I8, GGUF_BOOL, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_U64, GGUF_I64, GGUF_F64};
    n_fields = 0;
    fields[n_fields++] = 8;
    fields[n_fields++] = 16;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        char key[16];
        snprintf(key, sizeof key, "scalar%zu", i);
        fields[n_fields++] = 24 + b.kv.len;
        uint64_t one = 1;
        put(add_kv(&b, key, fixed[i]), &one, gguf_type_size((gguf_type)fixed[i]));
    }
    add_u32(&b, "general.alignment", 16);
    b.alignment = 16;
    fields[n_fields++] = 24 + b.kv.len + 8 + 7 + 4;
    add_text(&b, "text.it", "some text");
    buf *kv = add_array(&b, "words", GGUF_STRING, 2);
    fields[n_fields++] = 24 + b.kv.len - 8;
    fields[n_fields++] = 24 + b.kv.len;
    put_text(kv, "first");
    put_text(kv, "second");
    kv = add_array(&b, "nested", GGUF_ARRAY, 2);
    put_u32(kv, GGUF_F32), put_u64(kv, 1), put_f32(kv, 1);
    put_u32(kv, GGUF_ARRAY), put_u64(kv, 1);
    fields[n_fields++] = 24 + b.kv.len - 8;
    put_u32(kv, GGUF_U8), put_u64(kv, 0);
    fields[n_fields++] = 24 + b.kv.len - 8;
    uint8_t data[144] = {0};
    size_t infos = 24 + b.kv.len;
    add_tensor(&b, "one", QUANT_F32, 4, 1, data, 16);
    for (size_t at = 0; at + 8 <= b.infos.len; at += at == 0 ? 15 : 12) fields[n_fields++] = infos + at;
    add_tensor(&b, "two", QUANT_Q8_0, 64, 2, data, 136);
    add_tensor(&b, "three", QUANT_Q4_K, 256, 1, data, 144);
    fields[n_fields++] = infos + b.infos.len - 8;
    return finish(&b, 3);
}

static void a_file_cut_anywhere_is_refused(void **state) {
    (void)state;
    buf b = sample();
    assert_true(survive(b.data, b.len));
    for (size_t len = 0; len < b.len; len++) assert_false(survive(b.data, len));
    buf_free(&b);
}

static void every_bit_may_flip(void **state) {
    (void)state;
    buf b = sample();
    for (size_t i = 0; i < b.len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            b.data[i] ^= (char)(1 << bit);
            survive(b.data, b.len);
            b.data[i] ^= (char)(1 << bit);
        }
    }
    assert_true(survive(b.data, b.len));
    buf_free(&b);
}

static void extreme_lengths_are_survived(void **state) {
    (void)state;
    static const uint64_t values[] = {
        0, 1, 2, 255, 1u << 20, INT32_MAX, 1ull << 31, UINT32_MAX, 1ull << 32, (1ull << 32) + 1, 1ull << 60, 1ull << 61, (1ull << 61) + 1, 1ull << 62,
        INT64_MAX, 1ull << 63, (1ull << 63) + 1, UINT64_MAX - 31, UINT64_MAX - 15, UINT64_MAX - 8, UINT64_MAX - 7, UINT64_MAX - 1, UINT64_MAX,
    };
    buf b = sample();
    buf wrong = {0};
    put(&wrong, b.data, b.len);
    for (int f = 0; f < n_fields; f++) {
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            memcpy(wrong.data, b.data, b.len);
            memcpy(wrong.data + fields[f], &values[v], 8);
            survive(wrong.data, wrong.len);
        }
    }
    /* And at every place, whatever it is. */
    for (size_t at = 4; at + 8 <= b.len; at++) {
        for (size_t v = 8; v < sizeof values / sizeof *values; v += 3) {
            memcpy(wrong.data, b.data, b.len);
            memcpy(wrong.data + at, &values[v], 8);
            survive(wrong.data, wrong.len);
        }
    }
    buf_free(&wrong);
    buf_free(&b);
}

static void damage(buf *b, size_t reach, uint64_t *rng) {
    int n = 1 + (int)(rng_next(rng) % 8);
    for (int i = 0; i < n; i++) {
        size_t at = rng_next(rng) % reach;
        switch (rng_next(rng) % 4) {
        case 0: b->data[at] ^= (char)(1 << rng_next(rng) % 8); break;
        case 1: b->data[at] = (char)rng_next(rng); break;
        case 2: { /* copy a stretch elsewhere */
            size_t from = rng_next(rng) % reach, len = 1 + rng_next(rng) % 24;
            size_t room = reach - (at > from ? at : from);
            memmove(b->data + at, b->data + from, len < room ? len : room);
            break;
        }
        default: b->data[at] = (char)(rng_next(rng) % 2 ? 0xFF : 0); break;
        }
    }
}

static void random_damage_is_survived(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    buf b = sample();
    buf wrong = {0};
    put(&wrong, b.data, b.len);
    for (int i = 0; i < 20000; i++) {
        memcpy(wrong.data, b.data, b.len);
        damage(&wrong, b.len, &rng);
        survive(wrong.data, wrong.len);
    }
    buf_free(&wrong);
    buf_free(&b);
}

static void damaged_models_of_the_kit_are_survived(void **state) {
    (void)state;
    need_kit();
    uint64_t rng = test_seed();
    static const char *const names[] = {"models/llama.gguf", "models/gpt-oss.gguf", "tokenizers/llamacpp-gpt-2/vocab.gguf"};
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        buf b = slurp(kit_path(names[f]));
        /* Only the first stretch matters to the parser, so a short file serves as well. */
        size_t head = b.len < 300000 ? b.len : 300000, reach = head < 60000 ? head : 60000;
        buf wrong = {0};
        put(&wrong, b.data, head);
        for (int i = 0; i < 150; i++) {
            memcpy(wrong.data, b.data, head);
            damage(&wrong, i % 2 ? reach : 2000, &rng);
            survive(wrong.data, i % 3 ? wrong.len : rng_next(&rng) % wrong.len);
        }
        assert_true(survive(b.data, b.len));
        buf_free(&wrong);
        buf_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(every_bit_may_flip),
        cmocka_unit_test(extreme_lengths_are_survived),
        cmocka_unit_test(random_damage_is_survived),
        cmocka_unit_test(damaged_models_of_the_kit_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
