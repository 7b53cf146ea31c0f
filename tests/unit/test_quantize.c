/* hearth quantize: which tensor gets which format, that the numbers survive, and that the output is whole or absent. */
#include "tools/support.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include "gguf/quantize.h"
#include "gguf/write.h"
#include "quant/quant.h"
#include "unit/gguf_builder.h"

enum { LAYERS = 8 };

/* The path lives as long as the program. */
static const char *temp_file(const char *name) {
    static char paths[64][256];
    static int used;
    char path[256];
    snprintf(path, sizeof path, "%s/%s", temp_dir(), name);
    for (int i = 0; i < used; i++)
        if (strcmp(paths[i], path) == 0) return paths[i];
    assert_true(used < 64);
    return strcpy(paths[used++], path);
}

static void add_random(builder *b, const char *name, uint64_t columns, uint64_t rows, uint64_t *rng) {
    float *v = test_malloc(columns * rows * sizeof *v);
    for (uint64_t i = 0; i < columns * rows; i++) v[i] = (float)(0.05 * rng_normal(rng));
    add_tensor(b, name, QUANT_F32, columns, rows, v, columns * rows * sizeof *v);
    test_free(v);
}

/* A model with every role a tensor can have, and rows of all kinds of lengths. */
static void build_model(builder *b, uint64_t *rng) {
    static const struct {
        const char *name;
        uint64_t columns, rows;
    } parts[] = {
        {"attn_norm.weight", 256, 1}, {"attn_q.weight", 256, 4},       {"attn_k.weight", 256, 2},     {"attn_v.weight", 256, 2},
        {"attn_output.weight", 256, 4}, {"ffn_gate_inp.weight", 256, 4}, {"ffn_up.weight", 256, 3},     {"ffn_down.weight", 512, 2},
        {"odd32.weight", 96, 3},      {"odd.weight", 40, 3},           {"ffn_up.bias", 3, 1},
    };
    add_text(b, "general.architecture", "llama");
    add_u32(b, "general.file_type", 0);
    add_u32(b, "llama.attention.head_count", 4);
    add_u32(b, "llama.attention.head_count_kv", 2);
    put_text(add_array(b, "words", GGUF_STRING, 1), "kept");
    add_random(b, "token_embd.weight", 256, 40, rng);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s", layer, parts[i].name);
            add_random(b, name, parts[i].columns, parts[i].rows, rng);
        }
    }
    add_random(b, "output.weight", 256, 40, rng);
    const int32_t ids[4] = {1, -2, 3, -4};
    add_tensor(b, "table.weight", QUANT_I32, 2, 2, ids, sizeof ids);
}

static const char *model_file(const char *name) {
    builder b = {0};
    uint64_t rng = 7;
    build_model(&b, &rng);
    finish_file(&b, name);
    return temp_file(name);
}

static gguf *must_open(const char *path) {
    err e = {0};
    gguf *g = gguf_open(path, &e);
    if (!g) fail_msg("%s", e.text);
    return g;
}

static bool quantize(const char *in, const char *out, const char *mix, int threads, gguf_quantize_report *r, err *e) {
    gguf_quantize_options o = {.mix = gguf_mix_find(mix, e), .threads = threads};
    gguf_quantize_report mine;
    gguf *g = must_open(in);
    assert_non_null(o.mix);
    bool ok = gguf_quantize(g, out, &o, r ? r : &mine, e);
    gguf_close(g);
    return ok;
}

static void must_quantize(const char *in, const char *out, const char *mix, int threads) {
    err e = {0};
    if (!quantize(in, out, mix, threads, NULL, &e)) fail_msg("%s: %s", mix, e.text);
}

static float *decode(const gguf_tensor *t) {
    float *v = test_malloc(t->n_elements * sizeof *v);
    quant_find(t->type)->decode(v, t->data, (int64_t)t->n_elements);
    return v;
}

static double relative_error(const gguf_tensor *a, const gguf_tensor *b) {
    float *x = decode(a), *y = decode(b);
    double error = 0, sum = 0;
    for (uint64_t i = 0; i < a->n_elements; i++) error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]), sum += (double)x[i] * x[i];
    test_free(x);
    test_free(y);
    return sqrt(error / sum);
}

/* More than the usual error of the format on normal numbers, less than what a mistake makes. */
static double tolerance(int type) {
    switch (type) {
    case QUANT_F32: return 0;
    case QUANT_F16: return 0.001;
    case QUANT_BF16: return 0.005;
    case QUANT_Q8_0: return 0.01;
    case QUANT_Q6_K: return 0.03;
    case QUANT_Q5_0: case QUANT_Q5_1: case QUANT_Q5_K: return 0.06;
    case QUANT_Q3_K: return 0.24;
    case QUANT_Q2_K: return 0.42;
    case QUANT_MXFP4: return 0.16;
    case QUANT_TQ1_0: case QUANT_TQ2_0: return 1.2; /* three values hold no normal numbers */
    default: return 0.12;
    }
}

static const gguf_tensor *find(const gguf *g, gguf_string name) {
    char text[65] = "";
    memcpy(text, name.data, name.len);
    return gguf_find_tensor(g, text);
}

static void every_mix_keeps_the_numbers(void **state) {
    (void)state;
    const char *in_path = model_file("in.gguf");
    gguf *in = must_open(in_path);
    const gguf_mix *mix;
    for (size_t m = 0; (mix = gguf_mix_at(m)); m++) {
        const char *out_path = temp_file("out.gguf");
        must_quantize(in_path, out_path, mix->name, 2);
        gguf *out = must_open(out_path);
        uint64_t number = 0;
        assert_true(gguf_get_u64(out, "general.file_type", &number, NULL) && number == (uint64_t)mix->file_type);
        assert_true(gguf_get_u64(out, "general.quantization_version", &number, NULL) && number == 2);
        assert_int_equal(gguf_n_kv(out), gguf_n_kv(in) + 1);
        assert_int_equal(gguf_n_tensors(out), gguf_n_tensors(in));
        for (size_t i = 0; i < gguf_n_tensors(in); i++) {
            const gguf_tensor *a = gguf_tensor_at(in, i), *b = find(out, a->name);
            assert_non_null(b);
            assert_memory_equal(a->ne, b->ne, sizeof a->ne);
            if (a->type == b->type) {
                assert_memory_equal(a->data, b->data, a->n_bytes);
                continue;
            }
            double error = relative_error(a, b);
            if (!(error <= tolerance(b->type))) fail_msg("%s: %.*s as %s is off by %g", mix->name, (int)a->name.len, a->name.data, quant_find(b->type)->name, error);
        }
        gguf_close(out);
    }
    gguf_close(in);
}

static void expect_type(const char *mix_name, const gguf *g, const char *tensor, int type) {
    gguf_mix_facts f = gguf_mix_facts_of(g);
    bool squeezed;
    int is = gguf_mix_type(gguf_mix_find(mix_name, NULL), &f, gguf_find_tensor(g, tensor), &squeezed);
    if (is != type) fail_msg("%s: %s is %s, not %s", mix_name, tensor, quant_find(is)->name, quant_find(type)->name);
}

static void mixes_give_more_bits_where_they_matter(void **state) {
    (void)state;
    static const struct {
        const char *mix, *tensor;
        int type;
    } cases[] = {
        {"Q4_K_M", "token_embd.weight", QUANT_Q4_K},        {"Q4_K_M", "output.weight", QUANT_Q6_K},
        {"Q4_K_M", "blk.0.attn_v.weight", QUANT_Q6_K},      {"Q4_K_M", "blk.1.attn_v.weight", QUANT_Q4_K},
        {"Q4_K_M", "blk.3.ffn_down.weight", QUANT_Q6_K},    {"Q4_K_M", "blk.4.ffn_down.weight", QUANT_Q4_K},
        {"Q4_K_M", "blk.7.ffn_down.weight", QUANT_Q6_K},    {"Q4_K_M", "blk.0.attn_norm.weight", QUANT_F32},
        {"Q4_K_M", "blk.0.ffn_gate_inp.weight", QUANT_F32}, {"Q4_K_M", "blk.0.ffn_up.bias", QUANT_F32},
        {"Q4_K_M", "blk.0.odd32.weight", QUANT_Q5_0},       {"Q4_K_M", "blk.0.odd.weight", QUANT_F16},
        {"Q4_K_M", "table.weight", QUANT_I32},              {"Q5_K_M", "blk.0.attn_v.weight", QUANT_Q6_K},
        {"Q5_K_M", "blk.0.odd32.weight", QUANT_Q5_1},       {"Q5_K_S", "blk.0.attn_v.weight", QUANT_Q5_K},
        {"Q4_K_S", "blk.3.attn_v.weight", QUANT_Q5_K},      {"Q4_K_S", "blk.4.attn_v.weight", QUANT_Q4_K},
        {"Q3_K_M", "blk.1.attn_v.weight", QUANT_Q5_K},      {"Q3_K_M", "blk.2.attn_v.weight", QUANT_Q4_K},
        {"Q3_K_L", "blk.2.attn_output.weight", QUANT_Q5_K}, {"Q2_K", "blk.2.ffn_down.weight", QUANT_Q3_K},
        {"Q2_K", "blk.2.attn_q.weight", QUANT_Q2_K},        {"Q2_K", "blk.0.odd32.weight", QUANT_Q4_0},
        {"Q6_K", "blk.0.odd32.weight", QUANT_Q8_0},         {"IQ4_XS", "blk.0.odd32.weight", QUANT_IQ4_NL},
        {"Q8_0", "output.weight", QUANT_Q8_0},              {"Q8_0", "blk.0.odd.weight", QUANT_F16},
        {"F16", "blk.0.odd.weight", QUANT_F16},             {"F16", "blk.0.attn_norm.weight", QUANT_F32},
    };
    gguf *g = must_open(model_file("mixes.gguf"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_type(cases[i].mix, g, cases[i].tensor, cases[i].type);
    gguf_close(g);
    /* Without an output matrix, the embeddings serve as one. */
    builder b = {0};
    uint64_t rng = 1;
    add_random(&b, "token_embd.weight", 256, 4, &rng);
    g = must_open(finish_file(&b, "tied.gguf"));
    expect_type("Q4_K_M", g, "token_embd.weight", QUANT_Q6_K);
    gguf_close(g);
}

static void names_of_mixes_are_known_in_any_case(void **state) {
    (void)state;
    err e = {0};
    assert_string_equal(gguf_mix_find("q4_k_m", &e)->name, "Q4_K_M");
    assert_null(gguf_mix_find("Q4_K_X", &e));
    assert_non_null(strstr(e.text, "Q4_K_X"));
    assert_non_null(strstr(e.text, "IQ4_XS"));
}

static void threads_do_not_change_the_result(void **state) {
    (void)state;
    uint64_t rng = 3;
    builder b = {0};
    add_random(&b, "big.weight", 512, 300, &rng); /* several chunks, the last one short */
    finish_file(&b, "threads.gguf");
    const char *in = temp_file("threads.gguf");
    for (int i = 0; i < 2; i++) {
        const char *mix = i ? "Q4_0" : "Q8_0";
        must_quantize(in, temp_file("one.gguf"), mix, 1);
        must_quantize(in, temp_file("three.gguf"), mix, 3);
        buf one = slurp(temp_file("one.gguf")), three = slurp(temp_file("three.gguf"));
        assert_int_equal(one.len, three.len);
        assert_memory_equal(one.data, three.data, one.len);
        buf_free(&one);
        buf_free(&three);
    }
}

static void quantized_input_is_decoded_first(void **state) {
    (void)state;
    gguf_quantize_report r;
    err e = {0};
    const char *in = model_file("again.gguf");
    must_quantize(in, temp_file("q8.gguf"), "Q8_0", 1);
    assert_true(quantize(temp_file("q8.gguf"), temp_file("back.gguf"), "F32", 1, &r, &e));
    assert_true(r.requantized > 0);
    assert_true(r.file_bytes_out > r.file_bytes_in);
    gguf *a = must_open(in), *b = must_open(temp_file("back.gguf"));
    assert_true(relative_error(gguf_find_tensor(a, "output.weight"), gguf_find_tensor(b, "output.weight")) < 0.01);
    gguf_close(a);
    gguf_close(b);
}

static void alignment_is_kept(void **state) {
    (void)state;
    uint64_t rng = 5;
    builder b = {.alignment = 256};
    add_u32(&b, "general.alignment", 256);
    add_random(&b, "a.weight", 32, 3, &rng);
    add_random(&b, "b.weight", 64, 3, &rng);
    finish_file(&b, "aligned.gguf");
    must_quantize(temp_file("aligned.gguf"), temp_file("aligned-out.gguf"), "Q8_0", 1);
    gguf *g = must_open(temp_file("aligned-out.gguf"));
    assert_int_equal(gguf_alignment(g), 256);
    assert_int_equal(gguf_tensor_at(g, 1)->offset % 256, 0);
    assert_int_equal(gguf_tensor_at(g, 1)->type, QUANT_Q8_0);
    gguf_close(g);
}

static void split_input_becomes_one_file(void **state) {
    (void)state;
    uint64_t rng = 5;
    for (int i = 0; i < 2; i++) {
        builder b = {0};
        put_u16(add_kv(&b, "split.no", GGUF_U16), (uint16_t)i);
        put_u16(add_kv(&b, "split.count", GGUF_U16), 2);
        put_u32(add_kv(&b, "split.tensors.count", GGUF_I32), 2);
        add_random(&b, i ? "b.weight" : "a.weight", 64, 2, &rng);
        finish_file(&b, i ? "parts-00002-of-00002.gguf" : "parts-00001-of-00002.gguf");
    }
    const char *first = temp_file("parts-00001-of-00002.gguf");
    must_quantize(first, temp_file("joined.gguf"), "Q8_0", 1);
    gguf *g = must_open(temp_file("joined.gguf"));
    assert_int_equal(gguf_n_parts(g), 1);
    assert_int_equal(gguf_n_tensors(g), 2);
    assert_null(gguf_find(g, "split.count"));
    gguf_close(g);
    err e = {0};
    assert_false(quantize(first, temp_file("parts-00002-of-00002.gguf"), "Q8_0", 1, NULL, &e));
    assert_non_null(strstr(e.text, "same file"));
}

/* ---- what must not be written ---- */

static int files_beside(void) {
    int n = 0;
    DIR *d = opendir(temp_dir());
    for (struct dirent *f; (f = readdir(d));) n += f->d_name[0] != '.';
    closedir(d);
    return n;
}

static void values_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const struct {
        float value;
        const char *mix, *words;
    } cases[] = {
        {NAN, "Q8_0", "no finite number"}, {INFINITY, "BF16", "no finite number"}, {-INFINITY, "Q4_0", "no finite number"},
        {1e6f, "F16", "too large for F16"},  {-1e30f, "Q8_0", "too large for Q8_0"}, {3.4e38f, "BF16", "too large for BF16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float values[128] = {0};
        values[77] = cases[i].value;
        builder b = {0};
        add_tensor(&b, "a.weight", QUANT_F32, 64, 2, values, sizeof values);
        finish_file(&b, "unfit.gguf");
        int before = files_beside();
        err e = {0};
        assert_false(quantize(temp_file("unfit.gguf"), temp_file("never.gguf"), cases[i].mix, 2, NULL, &e));
        if (!strstr(e.text, cases[i].words)) fail_msg("%s", e.text);
        assert_non_null(strstr(e.text, "a.weight"));
        assert_int_equal(files_beside(), before);
    }
}

static void the_source_is_never_overwritten(void **state) {
    (void)state;
    const char *in = model_file("source.gguf");
    buf before = slurp(in);
    assert_int_equal(link(in, temp_file("hard.gguf")), 0);
    assert_int_equal(symlink(in, temp_file("soft.gguf")), 0);
    static const char *const outs[] = {"source.gguf", "hard.gguf", "soft.gguf"};
    for (int i = 0; i < 3; i++) {
        err e = {0};
        assert_false(quantize(in, temp_file(outs[i]), "F16", 1, NULL, &e));
        assert_non_null(strstr(e.text, "same file"));
    }
    err e = {0};
    assert_false(quantize(in, temp_dir(), "F16", 1, NULL, &e));
    assert_non_null(strstr(e.text, "folder"));
    buf after = slurp(in);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, after.len);
    buf_free(&before);
    buf_free(&after);
}

static void output_is_whole_or_absent_when_anything_fails(void **state) {
    (void)state;
    uint64_t rng = 5;
    builder b = {0};
    add_text(&b, "general.architecture", "llama");
    add_random(&b, "a.weight", 64, 2, &rng);
    add_random(&b, "a.norm", 64, 1, &rng);
    finish_file(&b, "small.gguf");
    gguf *in = must_open(temp_file("small.gguf"));
    gguf_quantize_options o = {.mix = gguf_mix_find("Q8_0", NULL), .threads = 1};
    gguf_quantize_report r;
    const char *out = temp_file("whole.gguf");
    int before = files_beside();
    for (int which = 0; which < 2; which++) {
        for (long n = 1;; n++) {
            err e = {0};
            if (which == 0) mem_fail_nth(n);
            else file_fail_nth(n);
            bool ok = gguf_quantize(in, out, &o, &r, &e);
            mem_fail_nth(0);
            file_fail_nth(0);
            if (!ok) assert_int_equal(e.code, which == 0 ? HEARTH_MEMORY : HEARTH_IO);
            assert_true(ok || files_beside() == before || access(out, F_OK) == 0);
            if (access(out, F_OK) == 0) {
                gguf_close(must_open(out)); /* present means whole, also when the folder could not be synced */
                unlink(out);
            }
            assert_int_equal(files_beside(), before);
            if (ok) {
                assert_true(n > 5);
                break;
            }
        }
    }
    const int stop = 1;
    o.cancel = &stop;
    err e = {0};
    assert_false(gguf_quantize(in, out, &o, &r, &e));
    assert_int_equal(e.code, HEARTH_CANCELLED);
    assert_int_equal(files_beside(), before);
    gguf_close(in);
}

static void the_command_works(void **state) {
    (void)state;
    const char *in = model_file("cmd.gguf"), *out = temp_file("cmd-out.gguf");
    buf text = {0};
    const char *const good[] = {hearth_program(), "quantize", in, out, "q8_0", "--threads", "2", NULL};
    assert_int_equal(run_program(good, NULL, 0, &text, &text, 60), 0);
    assert_non_null(strstr(text.data, "bits per weight"));
    gguf_close(must_open(out));
    const char *const unknown[] = {hearth_program(), "quantize", in, temp_file("no.gguf"), "Q9", NULL};
    assert_int_equal(run_program(unknown, NULL, 0, NULL, &text, 60), 2);
    assert_non_null(strstr(text.data, "'Q9' is no known mix; known are F32"));
    const char *const same[] = {hearth_program(), "quantize", in, in, "F16", NULL};
    assert_int_equal(run_program(same, NULL, 0, NULL, &text, 60), 1);
    buf_free(&text);
}

static void models_of_the_kit_convert(void **state) {
    (void)state;
    need_kit();
    static const char *const names[] = {"models/deepseek3.gguf", "models/gpt-oss.gguf", "models/gemma3.gguf"};
    static const char *const mixes[] = {"Q4_K_M", "MXFP4_MOE"};
    for (int i = 0; i < 3; i++) {
        gguf *in = must_open(kit_path(names[i]));
        for (int m = 0; m < 2; m++) {
            must_quantize(kit_path(names[i]), temp_file("kit.gguf"), mixes[m], 2);
            gguf *out = must_open(temp_file("kit.gguf"));
            for (size_t t = 0; t < gguf_n_tensors(in); t++) {
                const gguf_tensor *a = gguf_tensor_at(in, t), *b = find(out, a->name);
                if (a->type != b->type) assert_true(relative_error(a, b) <= tolerance(b->type));
            }
            gguf_close(out);
        }
        gguf_close(in);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mix_keeps_the_numbers),
        cmocka_unit_test(mixes_give_more_bits_where_they_matter),
        cmocka_unit_test(names_of_mixes_are_known_in_any_case),
        cmocka_unit_test(threads_do_not_change_the_result),
        cmocka_unit_test(quantized_input_is_decoded_first),
        cmocka_unit_test(alignment_is_kept),
        cmocka_unit_test(split_input_becomes_one_file),
        cmocka_unit_test(values_that_do_not_fit_are_refused),
        cmocka_unit_test(the_source_is_never_overwritten),
        cmocka_unit_test(output_is_whole_or_absent_when_anything_fails),
        cmocka_unit_test(the_command_works),
        cmocka_unit_test(models_of_the_kit_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
