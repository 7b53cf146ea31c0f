/* hearth inspect: the numbers people ask for, JSON that parses whatever the file holds, and a terminal that stays unharmed. */
#include "tools/support.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>

#include "quant/quant.h"
#include "unit/gguf_builder.h"

static int inspect(const char *path, const char *option, buf *out, buf *error) {
    const char *argv[] = {hearth_program(), "inspect", path, option, NULL};
    return run_program(argv, NULL, 0, out, error, 60);
}

static json_t *inspect_json(const char *path) {
    buf out = {0}, error = {0};
    int status = inspect(path, "--json", &out, &error);
    if (status != 0) fail_msg("status %d: %s", status, error.data);
    json_error_t e;
    json_t *j = json_loadb(out.data, out.len, JSON_ALLOW_NUL, &e);
    if (!j) fail_msg("%s at line %d", e.text, e.line);
    buf_free(&out);
    buf_free(&error);
    return j;
}

static json_int_t number(const json_t *j, const char *key) { return json_integer_value(json_object_get(j, key)); }

static void expect_words(const char *path, const char *option, const char *const *words) {
    buf out = {0};
    assert_int_equal(inspect(path, option, &out, &out), 0);
    for (; *words; words++)
        if (!strstr(out.data, *words)) fail_msg("'%s' is missing in:\n%s", *words, out.data);
    buf_free(&out);
}

static void add_shape(builder *b, const char *arch, uint32_t layers, uint32_t width, uint32_t heads) {
    char key[100];
    add_text(b, "general.architecture", arch);
    snprintf(key, sizeof key, "%s.block_count", arch), add_u32(b, key, layers);
    snprintf(key, sizeof key, "%s.embedding_length", arch), add_u32(b, key, width);
    snprintf(key, sizeof key, "%s.context_length", arch), add_u32(b, key, 4096);
    snprintf(key, sizeof key, "%s.attention.head_count", arch), add_u32(b, key, heads);
}

static void facts_for_people_are_printed(void **state) {
    (void)state;
    builder b = {0};
    add_shape(&b, "llama", 2, 64, 4);
    add_text(&b, "general.name", "A Model");
    add_u32(&b, "llama.attention.head_count_kv", 2);
    put_f32(add_kv(&b, "llama.rope.freq_base", GGUF_F32), 10000);
    add_u32(&b, "llama.attention.sliding_window", 512);
    add_text(&b, "tokenizer.ggml.model", "gpt2");
    add_text(&b, "tokenizer.ggml.pre", "llama-bpe");
    buf *kv = add_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 2);
    put_text(kv, "<s>"), put_text(kv, "</s>");
    add_u32(&b, "tokenizer.ggml.bos_token_id", 0);
    add_u32(&b, "tokenizer.ggml.eos_token_id", 1);
    add_text(&b, "tokenizer.chat_template", "{% first %}\n{% second %}");
    float f[64] = {0};
    uint8_t q[68] = {0};
    add_tensor(&b, "output_norm.weight", QUANT_F32, 64, 1, f, sizeof f);
    add_tensor(&b, "token_embd.weight", QUANT_Q8_0, 64, 1, q, sizeof q);
    const char *path = finish_file(&b, "facts.gguf");
    /* 2 layers * 2 heads * (16 + 16) * 2 bytes */
    static const char *const words[] = {
        "llama", "A Model", "128 in 2 tensors, 20.25 bits per weight", "4096 tokens", "2, width 64", "4 of 16, 2 for keys and values", "base 10000",
        "512 tokens", "256 bytes a token", "gpt2, pre-tokenizer llama-bpe, 2 tokens, bos 0 <s>, eos 1 </s>", "24 bytes", "{% second %}", "Q8_0", "8.50", NULL,
    };
    expect_words(path, NULL, words);
    static const char *const list[] = {"output_norm.weight", "token_embd.weight", "68", NULL};
    expect_words(path, "--tensors", list);
    buf out = {0};
    assert_int_equal(inspect(path, "--template", &out, NULL), 0);
    assert_string_equal(out.data, "{% first %}\n{% second %}");
    buf_free(&out);
    json_t *j = inspect_json(path);
    assert_int_equal(number(j, "kv_bytes_per_token"), 256);
    assert_int_equal(number(j, "parameters"), 128);
    assert_int_equal(json_array_size(json_object_get(json_object_get(j, "metadata"), "tokenizer.ggml.tokens")), 2);
    json_t *t = json_array_get(json_object_get(j, "tensors"), 1);
    assert_string_equal(json_string_value(json_object_get(t, "type")), "Q8_0");
    assert_int_equal(number(t, "bytes"), 68);
    json_decref(j);
}

static void kv_bytes_follow_the_kind_of_attention(void **state) {
    (void)state;
    builder b = {0};
    add_shape(&b, "deepseek2", 3, 64, 4);
    add_u32(&b, "deepseek2.attention.kv_lora_rank", 32);
    add_u32(&b, "deepseek2.rope.dimension_count", 8);
    json_t *j = inspect_json(finish_file(&b, "mla.gguf"));
    assert_int_equal(number(j, "kv_bytes_per_token"), 3 * (32 + 8) * 2);
    json_decref(j);

    add_shape(&b, "x", 3, 64, 4);
    buf *kv = add_array(&b, "x.attention.head_count_kv", GGUF_I32, 3);
    put_u32(kv, 1), put_u32(kv, 0), put_u32(kv, 4);
    add_u32(&b, "x.attention.key_length", 10);
    add_u32(&b, "x.attention.value_length", 6);
    const char *path = finish_file(&b, "layers.gguf");
    j = inspect_json(path);
    assert_int_equal(number(j, "kv_bytes_per_token"), 5 * (10 + 6) * 2);
    json_decref(j);
    static const char *const words[] = {"0 to 4 for keys and values", "10 (values 6)", "no tensors", NULL};
    expect_words(path, NULL, words);
}

static void a_file_that_says_nothing_is_shown(void **state) {
    (void)state;
    builder b = {0};
    const char *path = finish_file(&b, "nothing.gguf");
    static const char *const words[] = {"architecture  not said", "no tensors", "none", NULL};
    expect_words(path, NULL, words);
    json_t *j = inspect_json(path);
    assert_true(json_is_null(json_object_get(j, "architecture")));
    assert_int_equal(json_object_size(json_object_get(j, "metadata")), 0);
    json_decref(j);
    buf error = {0};
    assert_int_equal(inspect(path, "--template", NULL, &error), 1);
    assert_non_null(strstr(error.data, "no chat template"));
    assert_int_equal(inspect("/nonexistent.gguf", NULL, NULL, &error), 1);
    assert_int_equal(inspect(path, "--what", NULL, &error), 2);
    buf_free(&error);
}

static void absurd_numbers_do_no_harm(void **state) {
    (void)state;
    builder b = {0};
    add_text(&b, "general.architecture", "x");
    static const char *const keys[] = {
        "x.block_count", "x.embedding_length", "x.context_length", "x.attention.head_count", "x.attention.head_count_kv", "x.attention.key_length",
        "x.attention.value_length", "x.expert_count", "x.expert_used_count", "x.rope.dimension_count", "tokenizer.ggml.bos_token_id",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) put_u64(add_kv(&b, keys[i], GGUF_U64), UINT64_MAX);
    put_f32(add_kv(&b, "x.rope.freq_base", GGUF_F32), NAN);
    add_text(&b, "x.feed_forward_length", "text instead of a number");
    add_u32(&b, "tokenizer.ggml.eos_token_id", 70000);
    put_text(add_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 1), "a");
    const char *path = finish_file(&b, "absurd.gguf");
    static const char *const words[] = {"18446744073709551615", "'x.feed_forward_length' is of type string", NULL};
    expect_words(path, NULL, words);
    json_t *j = inspect_json(path);
    assert_string_equal(json_string_value(json_object_get(json_object_get(j, "metadata"), "x.block_count")), "18446744073709551615");
    assert_string_equal(json_string_value(json_object_get(json_object_get(j, "metadata"), "x.rope.freq_base")), "NaN");
    json_decref(j);
}

static void hostile_text_stays_text(void **state) {
    (void)state;
    builder b = {0};
    static const char *const evil = "\x1B[2J\a\x80\xC3(\xED\xA0\x80\xF4\x90\x80\x80\xE2\x82 ok";
    add_text(&b, "general.architecture", evil);
    add_text(&b, "general.name", evil);
    add_u32(&b, evil, 1);
    add_text(&b, "tokenizer.ggml.model", evil);
    add_text(&b, "tokenizer.chat_template", evil);
    put_text(add_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, 1), evil);
    add_u32(&b, "tokenizer.ggml.bos_token_id", 0);
    buf *kv = add_array(&b, "nested", GGUF_ARRAY, 1);
    put_u32(kv, GGUF_STRING), put_u64(kv, 1), put_text(kv, evil);
    put_u64(add_kv(&b, "nul", GGUF_STRING), 3), put(&b.kv, "a\0b", 3);
    put_u64(&b.kv, 3), put(&b.kv, "k\0y", 3), put_u32(&b.kv, GGUF_BOOL), put_u8(&b.kv, 1), b.n_kv++;
    float f[4] = {0};
    add_tensor(&b, evil, QUANT_F32, 4, 1, f, sizeof f);
    const char *path = finish_file(&b, "evil.gguf");
    buf out = {0};
    assert_int_equal(inspect(path, "--tensors", &out, &out), 0);
    for (size_t i = 0; i < out.len; i++)
        if (iscntrl((unsigned char)out.data[i]) && out.data[i] != '\n') fail_msg("control character %d on the terminal", out.data[i]);
    buf_free(&out);
    json_t *j = inspect_json(path), *m = json_object_get(j, "metadata");
    const char *name = json_string_value(json_object_get(m, "general.name"));
    assert_non_null(strstr(name, "\xEF\xBF\xBD"));
    assert_non_null(strstr(name, " ok"));
    assert_int_equal(json_string_length(json_object_get(m, "nul")), 3);
    assert_true(json_is_true(json_object_get(m, "k\xEF\xBF\xBDy")));
    json_decref(j);
}

static void every_model_of_the_kit_makes_json(void **state) {
    (void)state;
    need_kit();
    static const char *const names[] = {"models/deepseek3.gguf", "models/gemma2.gguf", "models/gpt-oss.gguf", "tokenizers/llamacpp-gpt-2/vocab.gguf"};
    static const long long kv_bytes[] = {0, 0, 4 * 2 * (32 + 32) * 2, 0};
    for (int i = 0; i < 4; i++) {
        json_t *j = inspect_json(kit_path(names[i]));
        assert_true(number(j, "vocabulary") > 0);
        if (kv_bytes[i]) assert_int_equal(number(j, "kv_bytes_per_token"), kv_bytes[i]);
        json_decref(j);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_for_people_are_printed),
        cmocka_unit_test(kv_bytes_follow_the_kind_of_attention),
        cmocka_unit_test(a_file_that_says_nothing_is_shown),
        cmocka_unit_test(absurd_numbers_do_no_harm),
        cmocka_unit_test(hostile_text_stays_text),
        cmocka_unit_test(every_model_of_the_kit_makes_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
