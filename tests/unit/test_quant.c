/* The number formats without the kit: conversions against their definition, layouts, error bounds, hostile numbers. */
#include "tools/support.h"

#include <math.h>

#include "quant/quant.h"

enum { BLOCKS = 64, N = 256 * BLOCKS };

static float from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static uint32_t to_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* What the standard says a half is worth. */
static double half_value(unsigned h) {
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -magnitude : magnitude;
}

static void every_half_has_its_value_and_comes_back(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        const float f = quant_f16_to_f32((uint16_t)h);
        if ((h & 0x7C00) == 0x7C00) {
            if (h & 0x3FF) assert_true(isnan(f));
            else assert_true(isinf(f) && (f < 0) == (h >> 15));
            assert_int_equal(quant_f32_to_f16(f), h & 0x3FF ? h | 0x200 : h);
        } else {
            assert_true((double)f == half_value(h));
            assert_int_equal(signbit(f) != 0, h >> 15);
            assert_int_equal(quant_f32_to_f16(f), h);
        }
    }
}

static void floats_round_to_the_nearest_half_and_ties_to_even(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x7BFF; h++) {
        const float middle = (float)((half_value(h) + half_value(h + 1)) / 2); /* exact */
        assert_int_equal(quant_f32_to_f16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(quant_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(quant_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(quant_f32_to_f16(-middle), 0x8000 | (h & 1 ? h + 1 : h));
    }
    assert_int_equal(quant_f32_to_f16(65504.0f), 0x7BFF);
    assert_int_equal(quant_f32_to_f16(nextafterf(65520.0f, 0)), 0x7BFF);
    assert_int_equal(quant_f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(quant_f32_to_f16(3e38f), 0x7C00);
    assert_int_equal(quant_f32_to_f16(-INFINITY), 0xFC00);
    assert_int_equal(quant_f32_to_f16(from_bits(0x7F800001)), 0x7E00); /* a NaN whose low bits are lost stays a NaN */
    assert_int_equal(quant_f32_to_f16(from_bits(1)), 0);
    assert_int_equal(quant_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(quant_f32_to_f16(0x1.8p-25f), 1);
}

static void every_bf16_comes_back_and_ties_go_to_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float f = quant_bf16_to_f32((uint16_t)h);
        assert_int_equal(to_bits(f), h << 16);
        const bool nan = (h & 0x7FFF) > 0x7F80;
        assert_int_equal(quant_f32_to_bf16(f), nan ? h | 0x40 : h);
        if ((h & 0x7FFF) >= 0x7F80) continue;
        assert_int_equal(quant_f32_to_bf16(from_bits(h << 16 | 0x7FFF)), h);
        assert_int_equal(quant_f32_to_bf16(from_bits(h << 16 | 0x8000)), h + (h & 1));
        assert_int_equal(quant_f32_to_bf16(from_bits(h << 16 | 0x8001)), h + 1);
    }
    assert_int_equal(quant_f32_to_bf16(from_bits(0x7F800001)), 0x7FC0);
}

static void the_table_finds_types_by_number_and_name(void **state) {
    (void)state;
    assert_null(quant_find(-1));
    assert_null(quant_find(4)); /* a number that was given up */
    assert_null(quant_find(QUANT_TYPE_END));
    assert_null(quant_find(1 << 30));
    assert_null(quant_find_name(""));
    assert_null(quant_find_name("Q4"));
    assert_ptr_equal(quant_find_name("iq2_xxs"), quant_find(16));
    assert_ptr_equal(quant_find_name("Q4_k"), quant_find(12));
#define X(n, number, elements, size)                                                                                                   \
    {                                                                                                                                  \
        const quant_info *q = quant_find(number);                                                                                      \
        assert_non_null(q);                                                                                                            \
        assert_string_equal(q->name, #n);                                                                                              \
        assert_int_equal(q->type, number);                                                                                             \
        assert_int_equal(q->block, elements);                                                                                          \
        assert_int_equal(q->bytes, size);                                                                                              \
        assert_ptr_equal(quant_find_name(#n), q);                                                                                      \
        assert_int_equal(q->decode != NULL, #n[0] != 'I' || #n[1] == 'Q');                                                             \
    }
    QUANT_TYPES(X)
#undef X
    assert_int_equal(quant_bytes(quant_find_name("Q4_K"), 4096), 16 * 144);
}

static void blocks_written_by_hand_decode(void **state) {
    (void)state;
    float out[256];
    unsigned char q4_0[18] = {0x00, 0x3C, 0x80, 0xF9}; /* scale 1 */
    quant_find(QUANT_Q4_0)->decode(out, q4_0, 32);
    assert_true(out[0] == -8 && out[1] == 1 && out[16] == 0 && out[17] == 7 && out[31] == -8);
    unsigned char q8_0[34] = {0x00, 0xC0, 0x01, 0xFF}; /* scale -2 */
    quant_find(QUANT_Q8_0)->decode(out, q8_0, 32);
    assert_true(out[0] == -2 && out[1] == 2 && out[2] == 0);
    unsigned char mxfp4[17] = {128, 0xA7}; /* 2^1; codes 6 and -1 */
    quant_find(QUANT_MXFP4)->decode(out, mxfp4, 32);
    assert_true(out[0] == 12 && out[16] == -2);
    unsigned char nvfp4[36] = {0x38, [4] = 0xA7}; /* scale 1 for the first 16 */
    quant_find(QUANT_NVFP4)->decode(out, nvfp4, 64);
    assert_true(out[0] == 6 && out[8] == -1 && out[16] == 0);
    unsigned char q4_k[144] = {0x00, 0x3C, 0x00, 0x38, [4] = 3, [8] = 2, [16] = 0x0F}; /* scales 1 and 1/2; 3 * 15 - 2 / 2 */
    quant_find(QUANT_Q4_K)->decode(out, q4_k, 256);
    assert_true(out[0] == 44 && out[1] == -1 && out[32] == 0);
    unsigned char q6_k[210] = {[0] = 0x05, [128] = 0x03, [192] = 0xFE, [209] = 0x3C}; /* -2 * (0x35 - 32) */
    quant_find(QUANT_Q6_K)->decode(out, q6_k, 256);
    assert_true(out[0] == -42 && out[1] == 64 && out[16] == 0);
    const double third = 1.0 / 3;
    quant_find(QUANT_F64)->decode(out, &third, 1);
    assert_true(out[0] == (float)third);
}

static bool encodable(int type) { return quant_find(type) && quant_find(type)->encode; }

/* Encodes and decodes; the packed bytes sit between guards and off alignment. */
static void there_and_back(const quant_info *q, float *out, const float *in, int64_t n) {
    const size_t bytes = quant_bytes(q, (uint64_t)n);
    unsigned char *packed = malloc(bytes + 2);
    packed[0] = packed[bytes + 1] = 0xA5;
    q->encode(packed + 1, in, n);
    q->decode(out, packed + 1, n);
    assert_int_equal(packed[0], 0xA5);
    assert_int_equal(packed[bytes + 1], 0xA5);
    free(packed);
}

static double relative_error(const float *x, const float *y, int n) {
    double miss = 0, all = 0;
    for (int i = 0; i < n; i++) {
        miss += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        all += (double)x[i] * x[i];
    }
    return sqrt(miss / all);
}

static void encoding_loses_no_more_than_the_format_must(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double gauss, tails; /* relative error for normal numbers, and for their cubes */
    } bounds[] = {
        {"F32", 0, 0},          {"F16", 0.0003, 0.0003}, {"BF16", 0.002, 0.002},  {"Q8_0", 0.0065, 0.011}, {"Q4_0", 0.098, 0.16},
        {"Q4_1", 0.086, 0.13},  {"Q5_0", 0.049, 0.08},   {"Q5_1", 0.042, 0.062},  {"Q2_K", 0.278, 0.33},   {"Q3_K", 0.150, 0.22},
        {"Q4_K", 0.073, 0.105}, {"Q5_K", 0.0358, 0.052}, {"Q6_K", 0.0173, 0.029}, {"IQ4_NL", 0.0763, 0.11}, {"IQ4_XS", 0.077, 0.115},
        {"TQ1_0", 0.85, 0.99},  {"TQ2_0", 0.85, 0.99},   {"MXFP4", 0.122, 0.165},
    };
    static float x[N], y[N];
    uint64_t rng = test_seed();
    int types = 0;
    for (int type = 0; type < QUANT_TYPE_END; type++) types += encodable(type);
    assert_int_equal(types, sizeof bounds / sizeof *bounds);
    for (int tails = 0; tails < 2; tails++) {
        for (int i = 0; i < N; i++) {
            const double g = rng_normal(&rng);
            x[i] = (float)(0.02 * (tails ? g * g * g : g));
        }
        for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
            there_and_back(quant_find_name(bounds[i].name), y, x, N);
            const double error = relative_error(x, y, N), bound = tails ? bounds[i].tails : bounds[i].gauss;
            if (error > bound)
                fail_msg("%s loses %.5f of the %s numbers, more than %.5f", bounds[i].name, error, tails ? "cubed" : "normal", bound);
        }
    }
}

static void an_element_comes_back_where_it_was(void **state) {
    (void)state;
    for (int type = 0; type < QUANT_TYPE_END; type++) {
        if (!encodable(type)) continue;
        for (int at = 0; at < 256; at++)
            for (int sign = -1; sign <= 1; sign += 2) {
                float x[256] = {0}, y[256];
                x[at] = (float)sign * 3.0f;
                there_and_back(quant_find(type), y, x, 256);
                for (int i = 0; i < 256; i++) {
                    const float miss = fabsf(y[i] - x[i]);
                    if (miss > (i == at ? 0.3f : 0.05f))
                        fail_msg("%s: %g at %d makes %g at %d", quant_find(type)->name, x[at], at, y[i], i);
                }
            }
    }
}

static void zeros_and_constants_survive(void **state) {
    (void)state;
    static const float constants[] = {0, 1, -1, 0.37f, -0.0123f, 250.0f, -1000.0f};
    for (int type = 0; type < QUANT_TYPE_END; type++) {
        if (!encodable(type)) continue;
        for (size_t c = 0; c < sizeof constants / sizeof *constants; c++) {
            float x[256], y[256];
            for (int i = 0; i < 256; i++) x[i] = constants[c];
            there_and_back(quant_find(type), y, x, 256);
            for (int i = 0; i < 256; i++)
                if (fabsf(y[i] - x[i]) > fabsf(x[i]) * 0.27f) /* MXFP4 has only 4 and 6 times powers of two at the top */
                    fail_msg("%s: %g becomes %g", quant_find(type)->name, x[i], y[i]);
        }
    }
}

/* Every block is its own: encoding many gives the same bytes as encoding one by one. */
static void blocks_do_not_see_each_other(void **state) {
    (void)state;
    static float x[N];
    uint64_t rng = test_seed() + 1;
    for (int i = 0; i < N; i++) x[i] = (float)(rng_normal(&rng) * exp2((double)(i / 256 % 13) - 6));
    for (int type = 0; type < QUANT_TYPE_END; type++) {
        if (!encodable(type)) continue;
        const quant_info *q = quant_find(type);
        const size_t bytes = quant_bytes(q, N);
        unsigned char *whole = malloc(bytes), *parts = malloc(bytes);
        q->encode(whole, x, N);
        for (int i = 0; i < N / q->block; i++) q->encode(parts + (size_t)i * (size_t)q->bytes, x + i * q->block, q->block);
        assert_memory_equal(whole, parts, bytes);
        free(whole);
        free(parts);
    }
}

static void hostile_numbers_encode_to_finite_ones(void **state) {
    (void)state;
    static const float hostile[] = {NAN,    INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-45f, -1e-45f, 1e-38f,
                                    1e-30f, 65504,    1e9f,      -1e20f,  0,        1,      -0.0f};
    const uint64_t count = sizeof hostile / sizeof *hostile;
    uint64_t rng = test_seed() + 2;
    for (int type = 0; type < QUANT_TYPE_END; type++) {
        if (!encodable(type) || quant_find(type)->block == 1) continue;
        for (int round = 0; round < 400; round++) {
            float x[256], y[256];
            /* all of them, or only a few neighbours in the list */
            const uint64_t kinds = round % 2 ? count : 1 + rng_next(&rng) % 4, first = rng_next(&rng) % (count - kinds + 1);
            for (int i = 0; i < 256; i++) x[i] = hostile[first + rng_next(&rng) % kinds];
            there_and_back(quant_find(type), y, x, 256);
            for (int i = 0; i < 256; i++)
                if (!isfinite(y[i])) fail_msg("%s: %g becomes %g", quant_find(type)->name, x[i], y[i]);
        }
    }
}

/* Near the least half a scale is coarse. The worst is Q8_0, whose scale is the top element's 127th part and may round to zero. */
static void tiny_numbers_lose_only_what_halves_cannot_hold(void **state) {
    (void)state;
    uint64_t rng = test_seed() + 3;
    for (int type = 0; type < QUANT_TYPE_END; type++) {
        if (!encodable(type)) continue;
        for (int exponent = -140; exponent < -10; exponent++) {
            float x[256], y[256], top = 0;
            for (int i = 0; i < 256; i++) x[i] = (float)ldexp(2 * rng_double(&rng) - 1, exponent);
            there_and_back(quant_find(type), y, x, 256);
            for (int i = 0; i < 256; i++) top = fmaxf(top, fabsf(x[i] - y[i]));
            if (!(top <= 0.67f * ldexpf(1, exponent) + 0x1p-18f))
                fail_msg("%s: loses %g of numbers up to %g", quant_find(type)->name, top, ldexp(1, exponent));
        }
    }
}

static void any_bytes_decode(void **state) {
    (void)state;
    uint64_t rng = test_seed() + 4;
    for (int type = 0; type < QUANT_TYPE_END; type++) {
        const quant_info *q = quant_find(type);
        if (!q || !q->decode) continue;
        const size_t bytes = quant_bytes(q, 1024);
        unsigned char *packed = malloc(bytes);
        float *out = malloc(1024 * sizeof *out);
        for (int round = 0; round < 50; round++) {
            for (size_t i = 0; i < bytes; i++) packed[i] = round == 0 ? 0xFF : round == 1 ? 0 : (unsigned char)rng_next(&rng);
            q->decode(out, packed, 1024);
            if (round == 1)
                for (int i = 0; i < 1024; i++) assert_true(fabsf(out[i]) < 1e-30f); /* MXFP4's zero exponent is not zero */
        }
        free(out);
        free(packed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_has_its_value_and_comes_back),
        cmocka_unit_test(floats_round_to_the_nearest_half_and_ties_to_even),
        cmocka_unit_test(every_bf16_comes_back_and_ties_go_to_even),
        cmocka_unit_test(the_table_finds_types_by_number_and_name),
        cmocka_unit_test(blocks_written_by_hand_decode),
        cmocka_unit_test(encoding_loses_no_more_than_the_format_must),
        cmocka_unit_test(an_element_comes_back_where_it_was),
        cmocka_unit_test(zeros_and_constants_survive),
        cmocka_unit_test(blocks_do_not_see_each_other),
        cmocka_unit_test(hostile_numbers_encode_to_finite_ones),
        cmocka_unit_test(tiny_numbers_lose_only_what_halves_cannot_hold),
        cmocka_unit_test(any_bytes_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
