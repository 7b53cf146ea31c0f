/* The GGUF reader on files that are right and on files that are wrong in one way each. */
#include "tools/support.h"

#include <dirent.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "unit/gguf_builder.h"
#include "quant/quant.h"

static gguf *open_built(builder *b) {
    err e = {0};
    const char *path = finish_file(b, "built.gguf");
    gguf *g = gguf_open(path, &e);
    if (!g) fail_msg("%s", e.text);
    return g;
}

static void refused(const char *path, const char *words) {
    err e = {0};
    gguf *g = gguf_open(path, &e);
    assert_null(g);
    assert_int_not_equal(e.code, HEARTH_OK);
    if (!strstr(e.text, words)) fail_msg("the message lacks '%s': %s", words, e.text);
}

static void refused_built(builder *b, const char *words) { refused(finish_file(b, "wrong.gguf"), words); }

/* ---- what is read ---- */

static void every_metadata_type_is_read(void **state) {
    (void)state;
    builder b = {0};
    put_u8(add_kv(&b, "u8", GGUF_U8), 200);
    put_u8(add_kv(&b, "i8", GGUF_I8), (uint8_t)-3);
    put_u16(add_kv(&b, "u16", GGUF_U16), 65000);
    put_u16(add_kv(&b, "i16", GGUF_I16), (uint16_t)-1000);
    add_u32(&b, "u32", 4000000000u);
    put_u32(add_kv(&b, "i32", GGUF_I32), (uint32_t)-7);
    put_f32(add_kv(&b, "f32", GGUF_F32), 0.5f);
    put_u8(add_kv(&b, "yes", GGUF_BOOL), 1);
    add_text(&b, "text", "hello");
    put_u64(add_kv(&b, "u64", GGUF_U64), UINT64_MAX);
    put_u64(add_kv(&b, "i64", GGUF_I64), (uint64_t)INT64_MIN);
    double pi = 3.25;
    put(add_kv(&b, "f64", GGUF_F64), &pi, 8);
    gguf *g = open_built(&b);
    err e = {0};
    uint64_t u = 0;
    int64_t i = 0;
    double f = 0;
    bool yes = false;
    gguf_string s = {0};
    assert_true(gguf_get_u64(g, "u8", &u, &e) && u == 200);
    assert_true(gguf_get_i64(g, "i8", &i, &e) && i == -3);
    assert_true(gguf_get_u64(g, "u16", &u, &e) && u == 65000);
    assert_true(gguf_get_i64(g, "i16", &i, &e) && i == -1000);
    assert_true(gguf_get_i64(g, "u32", &i, &e) && i == 4000000000);
    assert_true(gguf_get_i64(g, "i32", &i, &e) && i == -7);
    assert_true(gguf_get_f64(g, "f32", &f, &e) && f == 0.5);
    assert_true(gguf_get_f64(g, "i32", &f, &e) && f == -7);
    assert_true(gguf_get_bool(g, "yes", &yes, &e) && yes);
    assert_true(gguf_get_string(g, "text", &s, &e) && s.len == 5 && memcmp(s.data, "hello", 5) == 0);
    assert_true(gguf_get_u64(g, "u64", &u, &e) && u == UINT64_MAX);
    assert_true(gguf_get_f64(g, "u64", &f, &e) && f == 0x1p64);
    assert_true(gguf_get_i64(g, "i64", &i, &e) && i == INT64_MIN);
    assert_true(gguf_get_f64(g, "f64", &f, &e) && f == 3.25);
    assert_int_equal(e.code, HEARTH_OK);
    gguf_close(g);
}

static void typed_reads_refuse_what_does_not_fit(void **state) {
    (void)state;
    builder b = {0};
    put_u32(add_kv(&b, "negative", GGUF_I32), (uint32_t)-7);
    put_u64(add_kv(&b, "huge", GGUF_U64), UINT64_MAX);
    add_text(&b, "text", "hello");
    put_u32(add_array(&b, "array", GGUF_U32, 1), 1);
    gguf *g = open_built(&b);
    uint64_t u = 11;
    int64_t i = 11;
    double f = 11;
    bool yes = false;
    gguf_string s = {0};
    err e = {0};
    assert_false(gguf_get_u64(g, "missing", &u, &e));
    assert_int_equal(e.code, HEARTH_OK);
    assert_false(gguf_get_u64(g, "negative", &u, &e));
    assert_non_null(strstr(e.text, "negative"));
    err_clear(&e);
    assert_false(gguf_get_i64(g, "huge", &i, &e));
    assert_non_null(strstr(e.text, "huge"));
    err_clear(&e);
    assert_false(gguf_get_u64(g, "text", &u, &e));
    assert_non_null(strstr(e.text, "text"));
    err_clear(&e);
    assert_false(gguf_get_f64(g, "array", &f, &e));
    assert_int_equal(e.code, HEARTH_FORMAT);
    err_clear(&e);
    assert_false(gguf_get_bool(g, "negative", &yes, &e));
    assert_int_equal(e.code, HEARTH_FORMAT);
    err_clear(&e);
    assert_false(gguf_get_string(g, "huge", &s, &e));
    assert_int_equal(e.code, HEARTH_FORMAT);
    err_clear(&e);
    assert_null(gguf_get_array(g, "array", GGUF_STRING, &e));
    assert_non_null(strstr(e.text, "array of u32"));
    err_clear(&e);
    assert_null(gguf_get_array(g, "text", GGUF_TYPES, &e));
    assert_int_equal(e.code, HEARTH_FORMAT);
    assert_true(u == 11 && i == 11 && f == 11 && !yes && !s.data);
    gguf_close(g);
}

static void arrays_are_read_also_nested_and_empty(void **state) {
    (void)state;
    builder b = {0};
    buf *kv = add_array(&b, "words", GGUF_STRING, 3);
    put_text(kv, "a");
    put_text(kv, "");
    put_text(kv, "ccc");
    kv = add_array(&b, "numbers", GGUF_I16, 2);
    put_u16(kv, 5);
    put_u16(kv, (uint16_t)-5);
    add_array(&b, "empty", GGUF_STRING, 0);
    kv = add_array(&b, "nested", GGUF_ARRAY, 2);
    put_u32(kv, GGUF_STRING), put_u64(kv, 1), put_text(kv, "x");
    put_u32(kv, GGUF_F32), put_u64(kv, 2), put_f32(kv, 1), put_f32(kv, 2);
    add_u32(&b, "after", 1);
    gguf *g = open_built(&b);
    err e = {0};
    const gguf_kv *a = gguf_get_array(g, "words", GGUF_STRING, &e);
    assert_non_null(a);
    assert_int_equal(a->count, 3);
    const uint8_t *cursor = a->data;
    assert_int_equal(gguf_next_string(&cursor).len, 1);
    assert_int_equal(gguf_next_string(&cursor).len, 0);
    assert_memory_equal(gguf_next_string(&cursor).data, "ccc", 3);
    assert_ptr_equal(cursor, a->end);
    a = gguf_get_array(g, "numbers", GGUF_TYPES, &e);
    assert_int_equal(gguf_item_i64(a, 1), -5);
    assert_true(gguf_item_f64(a, 0) == 5);
    a = gguf_get_array(g, "empty", GGUF_STRING, &e);
    assert_int_equal(a->count, 0);
    a = gguf_get_array(g, "nested", GGUF_ARRAY, &e);
    cursor = a->data;
    gguf_kv first = gguf_next_array(&cursor), second = gguf_next_array(&cursor);
    assert_ptr_equal(cursor, a->end);
    assert_int_equal(first.item, GGUF_STRING);
    assert_int_equal(second.count, 2);
    assert_true(gguf_item_f64(&second, 1) == 2);
    assert_non_null(gguf_find(g, "after"));
    gguf_close(g);
}

static void tensors_are_found_with_their_data(void **state) {
    (void)state;
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 8) {
        builder b = {.alignment = alignment};
        add_u32(&b, "general.alignment", alignment);
        char name[32];
        for (int i = 0; i < 300; i++) {
            float values[8] = {(float)i};
            snprintf(name, sizeof name, "blk.%d.weight", i);
            add_tensor(&b, name, QUANT_F32, 4, 2, values, sizeof values);
        }
        uint8_t q8[34 * 4] = {1, 2, 3};
        add_tensor(&b, "q8", QUANT_Q8_0, 64, 2, q8, sizeof q8);
        gguf *g = open_built(&b);
        assert_int_equal(gguf_alignment(g), alignment);
        assert_int_equal(gguf_n_tensors(g), 301);
        for (int i = 0; i < 300; i++) {
            snprintf(name, sizeof name, "blk.%d.weight", i);
            const gguf_tensor *t = gguf_find_tensor(g, name);
            assert_non_null(t);
            float value;
            memcpy(&value, t->data, 4);
            assert_true(value == (float)i);
            assert_true(t->n_dims == 2 && t->ne[0] == 4 && t->ne[1] == 2 && t->ne[2] == 1 && t->ne[3] == 1);
        }
        const gguf_tensor *t = gguf_find_tensor(g, "q8");
        assert_int_equal(t->n_bytes, sizeof q8);
        assert_int_equal(t->n_elements, 128);
        assert_memory_equal(t->data, q8, sizeof q8);
        assert_null(gguf_find_tensor(g, "q"));
        assert_null(gguf_find_tensor(g, ""));
        gguf_close(g);
    }
}

static void file_without_anything_is_fine(void **state) {
    (void)state;
    builder b = {0};
    gguf *g = open_built(&b);
    assert_int_equal(gguf_n_kv(g), 0);
    assert_int_equal(gguf_n_tensors(g), 0);
    assert_null(gguf_find(g, "x"));
    assert_null(gguf_find_tensor(g, "x"));
    assert_int_equal(gguf_file_bytes(g), 24);
    gguf_close(g);
}

/* ---- what is refused ---- */

static void wrong_headers_are_refused_by_name(void **state) {
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/header.gguf", temp_dir());
    static const struct {
        const char *bytes;
        size_t len;
        const char *words;
    } cases[] = {
        {"", 0, "empty"},
        {"GG", 2, "not a GGUF file"},
        {"PK\3\4aaaaaaaaaaaaaaaaaaaaaaaa", 28, "not a GGUF file"},
        {"tjgg\3\0\0\0aaaaaaaaaaaaaaaaaaaa", 28, "before GGUF"},
        {"GGUF", 4, "ends inside the header"},
        {"GGUF\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, "big-endian"},
        {"GGUF\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, "version 1"},
        {"GGUF\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, "version 0"},
        {"GGUF\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, "version 4"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16, "ends inside the header"},
        {"GGUF\3\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0\0\0\0\0", 24, "promises 18446744073709551615 tensors"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80", 24, "promises 9223372036854775808 metadata"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spew(path, cases[i].bytes, cases[i].len);
        refused(path, cases[i].words);
    }
    refused("/nonexistent/file.gguf", "/nonexistent/file.gguf");
    refused(temp_dir(), "not a regular file");
}

static void version_2_is_read(void **state) {
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/v2.gguf", temp_dir());
    builder b = {0};
    add_u32(&b, "a", 1);
    buf out = finish(&b, 2);
    spew(path, out.data, out.len);
    buf_free(&out);
    gguf *g = gguf_open(path, NULL);
    assert_non_null(g);
    assert_int_equal(gguf_version(g), 2);
    gguf_close(g);
}

static void wrong_metadata_is_refused_by_name(void **state) {
    (void)state;
    builder b = {0};
    add_kv(&b, "odd", 13), put_u64(&b.kv, 0);
    refused_built(&b, "'odd' has the unknown type 13");
    put_u64(add_array(&b, "odd", 99, 1), 0);
    refused_built(&b, "'odd' has the unknown type 99");
    add_u32(&b, "same", 1), add_u32(&b, "other", 1), add_u32(&b, "same", 2);
    refused_built(&b, "'same' is there twice");
    put_u8(add_kv(&b, "maybe", GGUF_BOOL), 2), put_u64(&b.kv, 0);
    refused_built(&b, "'maybe' has a truth value");
    put_u8(add_array(&b, "maybe", GGUF_BOOL, 2), 1), put_u8(&b.kv, 77);
    refused_built(&b, "'maybe' has a truth value");
    add_u32(&b, "", 1);
    refused_built(&b, "no name");
    put_u64(add_kv(&b, "long", GGUF_STRING), UINT64_MAX);
    refused_built(&b, "ends inside the metadata");
    put_u64(add_array(&b, "long", GGUF_U64, 0x2000000000000001), 1); /* times 8 is 8 */
    refused_built(&b, "ends inside the metadata");
    put_u64(add_array(&b, "long", GGUF_STRING, 1ull << 61), 0);
    refused_built(&b, "ends inside the metadata");
    buf *kv = add_array(&b, "deep", GGUF_ARRAY, 1);
    for (int i = 0; i < 100; i++) put_u32(kv, GGUF_ARRAY), put_u64(kv, 1);
    refused_built(&b, "'deep' nests arrays too deeply");
    add_u32(&b, "bell\a\n\x1B[2J", 1), add_u32(&b, "bell\a\n\x1B[2J", 1);
    refused_built(&b, "'bell\\x07\\x0A\\x1B[2J'");
    char *name = test_malloc(70001);
    memset(name, 'a', 70000);
    name[70000] = 0;
    add_u32(&b, name, 1);
    refused_built(&b, "longer than 65535");
    test_free(name);
    static const uint32_t alignments[] = {0, 1, 4, 24, 33, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        add_u32(&b, "general.alignment", alignments[i]);
        refused_built(&b, "general.alignment");
    }
    add_text(&b, "general.alignment", "32");
    refused_built(&b, "general.alignment");
}

static void wrong_tensors_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        uint32_t n_dims;
        uint64_t ne[5];
        uint32_t type;
        uint64_t offset;
        const char *words;
    } cases[] = {
        {0, {1}, 0, 0, "1 to 4 dimensions"},
        {5, {1, 1, 1, 1, 1}, 0, 0, "1 to 4 dimensions"},
        {2, {4, 0}, 0, 0, "size 0"},
        {1, {UINT64_MAX}, 0, 0, "more elements"},
        {1, {1ull << 63}, 0, 0, "more elements"},
        {2, {1ull << 32, 1ull << 32}, 0, 0, "more elements"},
        {3, {1ull << 31, 1ull << 31, 4}, 0, 0, "more elements"},
        {2, {1ull << 31, 1ull << 31}, 0, 0, "larger than the file"},
        {1, {INT64_MAX}, QUANT_F64, 0, "larger than the file"},
        {1, {4}, 4, 0, "unknown type 4"},
        {1, {4}, 5, 0, "unknown type 5"},
        {1, {4}, 41, 0, "unknown type 41"},
        {1, {4}, 0x80000000u, 0, "unknown type 2147483648"},
        {1, {33}, QUANT_Q8_0, 0, "rows of 33"},
        {2, {32, 8}, QUANT_Q4_K, 0, "rows of 32"},
        {1, {4}, 0, 16, "multiple of the file's alignment"},
        {1, {4}, 0, 64, "past the end"},
        {1, {17}, 0, 0, "past the end"},
        {1, {1}, 0, UINT64_MAX - 31, "past the end"},
        {1, {1}, 0, 1ull << 63, "past the end"},
    };
    uint8_t data[64] = {0};
    builder b = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        add_info(&b, "bad", cases[i].n_dims, cases[i].ne, cases[i].type, cases[i].offset);
        put(&b.data, data, 64);
        refused_built(&b, cases[i].words);
    }
    add_tensor(&b, "same", QUANT_F32, 4, 1, data, 16);
    add_tensor(&b, "same", QUANT_F32, 4, 1, data, 16);
    refused_built(&b, "'same' is there twice");
    add_tensor(&b, "", QUANT_F32, 4, 1, data, 16);
    refused_built(&b, "no name");
    add_tensor(&b, "a-name-of-sixty-five-bytes-is-one-more-than-the-format-will-allow", QUANT_F32, 4, 1, data, 16);
    refused_built(&b, "longer than 64");
    /* No tensor data at all. */
    const uint64_t four = 4;
    add_info(&b, "lost", 1, &four, QUANT_F32, 0);
    refused_built(&b, "past the end");
}

static void overlapping_tensors_are_refused_in_any_order(void **state) {
    (void)state;
    const uint64_t sixteen = 16, eight = 8; /* 64 and 32 bytes */
    static const uint64_t offsets[][3] = {{0, 32, 96}, {64, 0, 128}, {32, 64, 0}, {0, 0, 64}};
    uint8_t data[160] = {0};
    builder b = {0};
    for (size_t i = 0; i < 4; i++) {
        add_info(&b, "a", 1, &sixteen, QUANT_F32, offsets[i][0]);
        add_info(&b, "b", 1, &sixteen, QUANT_F32, offsets[i][1]);
        add_info(&b, "c", 1, &eight, QUANT_F32, offsets[i][2]);
        put(&b.data, data, sizeof data);
        if (i == 1) { /* out of order and with gaps, but apart */
            gguf *g = open_built(&b);
            gguf_close(g);
        } else {
            refused_built(&b, "overlap");
        }
    }
}

/* ---- split models ---- */

static void write_part(const char *stem, int number, int count, uint16_t says_no, uint16_t says_count, int says_tensors, const char *tensor) {
    builder b = {0};
    char name[64];
    float value[2] = {(float)number};
    put_u16(add_kv(&b, "split.no", GGUF_U16), says_no);
    put_u16(add_kv(&b, "split.count", GGUF_U16), says_count);
    put_u32(add_kv(&b, "split.tensors.count", GGUF_I32), (uint32_t)says_tensors);
    add_tensor(&b, tensor, QUANT_F32, 2, 1, value, sizeof value);
    snprintf(name, sizeof name, "%s-%05d-of-%05d.gguf", stem, number + 1, count);
    finish_file(&b, name);
}

static const char *first_part(const char *stem, int count) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s-00001-of-%05d.gguf", temp_dir(), stem, count);
    return path;
}

static void split_models_are_read_as_one(void **state) {
    (void)state;
    char name[16];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "t%d", i);
        write_part("good", i, 3, (uint16_t)i, 3, 3, name);
    }
    err e = {0};
    gguf *g = gguf_open(first_part("good", 3), &e);
    if (!g) fail_msg("%s", e.text);
    assert_int_equal(gguf_n_parts(g), 3);
    assert_int_equal(gguf_n_tensors(g), 3);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "t%d", i);
        const gguf_tensor *t = gguf_find_tensor(g, name);
        float value;
        memcpy(&value, t->data, 4);
        assert_true(value == (float)i);
        assert_int_equal(t->part, i);
    }
    gguf_close(g);
    char second[256];
    snprintf(second, sizeof second, "%s/good-00002-of-00003.gguf", temp_dir());
    refused(second, "open the first part");
    unlink(second);
    refused(first_part("good", 3), "good-00002-of-00003.gguf");
    char renamed[256];
    snprintf(renamed, sizeof renamed, "%s/renamed.gguf", temp_dir());
    assert_int_equal(rename(first_part("good", 3), renamed), 0);
    refused(renamed, "its name must end in -00001-of-00003.gguf");
}

static void split_models_that_disagree_are_refused(void **state) {
    (void)state;
    write_part("twice", 0, 2, 0, 2, 2, "t");
    write_part("twice", 1, 2, 1, 2, 2, "t");
    refused(first_part("twice", 2), "'t' is there twice");
    write_part("order", 0, 2, 0, 2, 2, "a");
    write_part("order", 1, 2, 0, 2, 2, "b");
    refused(first_part("order", 2), "part 1 of 2, its name says otherwise");
    write_part("count", 0, 2, 0, 2, 5, "a");
    write_part("count", 1, 2, 1, 2, 5, "b");
    refused(first_part("count", 2), "split.tensors.count says 5");
    write_part("short", 0, 2, 0, 2, 2, "a");
    char second[256];
    snprintf(second, sizeof second, "%s/short-00002-of-00002.gguf", temp_dir());
    spew(second, "GGUF\3\0\0\0", 8);
    refused(first_part("short", 2), "part 2 of 2");
    write_part("many", 0, 60000, 0, 60000, 2, "a");
    refused(first_part("many", 60000), "many-00002-of-60000.gguf");
}

/* ---- shortage and the kit ---- */

static void every_allocation_and_call_may_fail(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) write_part("nth", i, 2, (uint16_t)i, 2, 2, i ? "b" : "a");
    for (int which = 0; which < 2; which++) {
        for (long n = 1;; n++) {
            err e = {0};
            if (which == 0) mem_fail_nth(n);
            else file_fail_nth(n);
            gguf *g = gguf_open(first_part("nth", 2), &e);
            mem_fail_nth(0);
            file_fail_nth(0);
            if (g) {
                gguf_close(g);
                assert_true(n > 3);
                break;
            }
            assert_int_equal(e.code, which == 0 ? HEARTH_MEMORY : HEARTH_IO);
        }
    }
}

static void every_model_of_the_kit_opens(void **state) {
    (void)state;
    need_kit();
    char folder[4096], path[8192];
    snprintf(folder, sizeof folder, "%s", kit_path("models"));
    DIR *d = opendir(folder);
    assert_non_null(d);
    int seen = 0;
    for (struct dirent *f; (f = readdir(d));) {
        if (!strstr(f->d_name, ".gguf")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        err e = {0};
        gguf *g = gguf_open(path, &e);
        if (!g) fail_msg("%s", e.text);
        gguf_string arch;
        assert_true(gguf_get_string(g, "general.architecture", &arch, &e));
        assert_non_null(gguf_find_tensor(g, "token_embd.weight"));
        gguf_close(g);
        seen++;
    }
    closedir(d);
    assert_true(seen > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_metadata_type_is_read),
        cmocka_unit_test(typed_reads_refuse_what_does_not_fit),
        cmocka_unit_test(arrays_are_read_also_nested_and_empty),
        cmocka_unit_test(tensors_are_found_with_their_data),
        cmocka_unit_test(file_without_anything_is_fine),
        cmocka_unit_test(wrong_headers_are_refused_by_name),
        cmocka_unit_test(version_2_is_read),
        cmocka_unit_test(wrong_metadata_is_refused_by_name),
        cmocka_unit_test(wrong_tensors_are_refused_by_name),
        cmocka_unit_test(overlapping_tensors_are_refused_in_any_order),
        cmocka_unit_test(split_models_are_read_as_one),
        cmocka_unit_test(split_models_that_disagree_are_refused),
        cmocka_unit_test(every_allocation_and_call_may_fail),
        cmocka_unit_test(every_model_of_the_kit_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
