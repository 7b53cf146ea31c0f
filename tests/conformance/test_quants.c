/* Every number format against the golden blocks of the kit: decoding to the same bits, encoding to the same bytes. */
#include "tools/support.h"

#include "quant/quant.h"

static buf kit_file(const char *type, const char *suffix) {
    char name[64];
    snprintf(name, sizeof name, "quants/%s.%s", type, suffix);
    return slurp(kit_path(name));
}

static void decodes(const char *name) {
    const quant_info *q = quant_find_name(name);
    assert_non_null(q);
    assert_non_null(q->decode);
    buf packed = kit_file(name, "bin"), want = kit_file(name, "f32");
    const size_t n = want.len / 4;
    assert_int_equal(quant_bytes(q, n), packed.len);
    /* One byte off, so that nothing can rely on alignment. */
    unsigned char *moved = malloc(packed.len + 1);
    float *got = malloc(want.len);
    memcpy(moved + 1, packed.data, packed.len);
    q->decode(got, moved + 1, (int64_t)n);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], want.data + 4 * i, 4) != 0) {
            float w;
            memcpy(&w, want.data + 4 * i, 4);
            fail_msg("%s: element %zu is %a instead of %a", name, i, got[i], w);
        }
    free(got);
    free(moved);
    buf_free(&packed);
    buf_free(&want);
}

static void encodes(const char *name) {
    const quant_info *q = quant_find_name(name);
    assert_non_null(q);
    assert_non_null(q->encode);
    buf source = kit_file(name, "src.f32"), want = kit_file(name, "q.bin");
    const size_t n = source.len / 4;
    assert_int_equal(quant_bytes(q, n), want.len);
    unsigned char *got = malloc(want.len);
    float *values = malloc(source.len);
    memcpy(values, source.data, source.len);
    q->encode(got, values, (int64_t)n);
    for (size_t i = 0; i < want.len; i++)
        if (got[i] != (unsigned char)want.data[i])
            fail_msg("%s: block %zu, byte %zu is %02x instead of %02x", name, i / (size_t)q->bytes, i % (size_t)q->bytes, got[i],
                     (unsigned char)want.data[i]);
    free(values);
    free(got);
    buf_free(&source);
    buf_free(&want);
}

static void every_type_decodes_to_the_golden_bits(void **state) {
    (void)state;
    need_kit();
    static const char *const names[] = {
        "F16",     "BF16",   "Q4_0",  "Q4_1",    "Q5_0",  "Q5_1",  "Q8_0",  "Q2_K",   "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K", "TQ1_0",
        "TQ2_0",   "MXFP4",  "NVFP4", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) decodes(names[i]);
}

static void types_with_a_fixed_encoding_encode_to_the_golden_bytes(void **state) {
    (void)state;
    need_kit();
    static const char *const names[] = {"F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) encodes(names[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_decodes_to_the_golden_bits),
        cmocka_unit_test(types_with_a_fixed_encoding_encode_to_the_golden_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
