/* test_embed.c: vectors of texts: in the model, alone and in company, and over HTTP. */
#include "unit/tiny_model.h"

#include <math.h>

#include "engine/engine.h"
#include "unit/api_kit.h"

static int start(void **state) {
    (void)state;
    hearth_engine_options o = hearth_engine_defaults();
    o.cpu = exact_cpu();
    return kit_start("models/ember-30m-q8_0.gguf", &o);
}
static int stop(void **state) {
    (void)state;
    kit_stop();
    return 0;
}

/* The hidden states are those that logits are made of. */
static void test_hidden(void **state) {
    (void)state;
    hearth_engine_options o = hearth_engine_defaults();
    o.cpu = "ref"; /* which does not round activations */
    o.cache = false;
    hearth_error e;
    hearth_engine *plain = hearth_engine_open("models/ember-30m-q8_0.gguf", &o, &e);
    assert_non_null(plain);
    const model *m = &plain->model;
    const int width = m->params.n_embd;
    const int32_t tokens[] = {5, 900, 31, 77};
    float *hidden = malloc(4 * (size_t)width * sizeof *hidden), *logits = malloc((size_t)m->params.n_vocab * sizeof *logits), *row = malloc((size_t)width * sizeof *row);
    kv_seq kv = {.layout = &m->kv};
    model_run run = {.pool = plain->pool};
    model_part part = {.kv = &kv, .tokens = tokens, .n = 4, .n_logits = 1, .hidden = hidden};
    assert_true(model_forward(m, &run, &part, 1, logits, NULL));
    const quant_info *q = quant_find(m->output.mat.type);
    for (int v = 0; v < m->params.n_vocab; v += 331) {
        q->decode(row, (const char *)m->output.mat.data + quant_bytes(q, (uint64_t)width) * (size_t)v, width);
        double sum = 0;
        for (int i = 0; i < width; i++) sum += (double)row[i] * hidden[3 * width + i];
        assert_float_equal(sum * m->params.logit_scale, logits[v], 1e-2);
    }
    kv_seq_free(&kv);
    model_run_free(&run);
    hearth_engine_close(plain);
    free(hidden);
    free(logits);
    free(row);
}

static loop_ticket *submit(const int32_t *tokens, size_t n, bool embed) {
    loop_request r = loop_request_defaults();
    r.tokens = tokens;
    r.n_tokens = n;
    r.embed = embed;
    r.max_tokens = 8;
    loop_ticket *t = loop_submit(the_loop, &r, NULL);
    assert_non_null(t);
    return t;
}

static void wait_for(loop_ticket *t) {
    loop_piece piece;
    loop_news news;
    while ((news = loop_next(t, 60000000000u, &piece, NULL)) == LOOP_PIECE || news == LOOP_IDLE) {} /* sanitizers are slow */
    assert_int_equal(news, LOOP_DONE);
}

/* The same bits alone, in a loop with others, and again when parts of it could be remembered. */
static void test_company(void **state) {
    (void)state;
    enum { N = 530 };
    uint64_t seed = test_seed();
    int32_t tokens[N];
    const size_t width = (size_t)engine->model.params.n_embd;
    for (int i = 0; i < N; i++) tokens[i] = (int32_t)(rng_next(&seed) % 1000) + 10;
    float *alone = malloc(width * sizeof *alone);
    for (int round = 0; round < 2; round++) {
        loop_ticket *t[6];
        for (int i = 0; i < 6; i++) t[i] = submit(tokens, i == 0 ? N : 20 + (size_t)i * 9, i % 2 == 0);
        for (int i = 0; i < 6; i++) {
            wait_for(t[i]);
            if (i % 2 == 0) {
                assert_true(hearth_embed(engine, tokens, i == 0 ? N : 20 + (size_t)i * 9, alone, NULL));
                assert_memory_equal(loop_ticket_vector(t[i]), alone, width * sizeof *alone);
                assert_int_equal(loop_ticket_usage(t[i]).cached_tokens, 0);
            } else {
                assert_null(loop_ticket_vector(t[i]));
            }
            loop_ticket_free(t[i]);
        }
    }
    double sum = 0;
    for (size_t i = 0; i < width; i++) sum += (double)alone[i] * alone[i];
    assert_float_equal(sum, 1, 1e-5);
    free(alone);
}

static void test_pooling(void **state) {
    (void)state;
    const int32_t tokens[] = {10, 200, 31, 60};
    float first[EMBD], last[EMBD], one[EMBD], got[EMBD];
    for (int kind = POOLING_NONE; kind <= POOLING_RANK; kind++) {
        tiny m = make_llama();
        number(&m, "llama", "pooling_type", GGUF_U32, kind);
        hearth_engine_options o = hearth_engine_defaults();
        o.cpu = "ref";
        o.cache = false;
        hearth_error e;
        hearth_engine *tiny_engine = hearth_engine_open(write_tiny(&m, false, NULL), &o, &e);
        assert_non_null(tiny_engine);
        assert_int_equal(hearth_embed(tiny_engine, tokens, 4, got, &e), kind != POOLING_RANK);
        if (kind == POOLING_RANK) assert_int_equal(e.code, HEARTH_UNSUPPORTED);
        if (kind == POOLING_MEAN) memcpy(first, got, sizeof got);
        if (kind == POOLING_FIRST) {
            assert_true(hearth_embed(tiny_engine, tokens, 1, one, &e));
            assert_memory_equal(one, got, sizeof got);
            assert_memory_not_equal(first, got, sizeof got);
        }
        if (kind == POOLING_LAST) {
            memcpy(last, got, sizeof got);
            assert_true(hearth_embed(tiny_engine, tokens, 1, one, &e));
            assert_memory_not_equal(one, last, sizeof last);
        }
        assert_false(hearth_embed(tiny_engine, tokens, 0, got, &e));
        hearth_engine_close(tiny_engine);
    }
}

static double cosine(const json_t *a, const json_t *b) {
    double sum = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < json_array_size(a); i++) {
        double x = json_number_value(json_array_get(a, i)), y = json_number_value(json_array_get(b, i));
        sum += x * y, aa += x * x, bb += y * y;
    }
    assert_float_equal(aa, 1, 1e-4);
    return sum / sqrt(aa * bb);
}

static void test_route(void **state) {
    (void)state;
    int status;
    json_t *j = post("/v1/embeddings", "{\"model\":\"ember\",\"input\":[\"The cat sat on the mat.\",\"A cat sat on a mat.\",\"Stock prices fell sharply.\"],\"user\":\"u\"}", &status);
    assert_int_equal(status, 200);
    assert_string_equal(text_at(j, "object"), "list");
    assert_int_equal(json_array_size(at(j, "data")), 3);
    assert_int_equal(int_at(j, "data.2.index"), 2);
    assert_int_equal(json_array_size(at(j, "data.0.embedding")), engine->model.params.n_embd);
    assert_true(cosine(at(j, "data.0.embedding"), at(j, "data.1.embedding")) > cosine(at(j, "data.0.embedding"), at(j, "data.2.embedding")));
    assert_true(int_at(j, "usage.prompt_tokens") > 10);
    assert_int_equal(int_at(j, "usage.total_tokens"), int_at(j, "usage.prompt_tokens"));
    /* Fewer dimensions are the first ones, of length 1 again; tokens are what they stand for. */
    json_t *t = post("/tokenize", "{\"content\":\"A cat sat on a mat.\",\"add_special\":true}", &status), *few;
    char *ids = json_dumps(at(t, "tokens"), JSON_COMPACT), body[512];
    snprintf(body, sizeof body, "{\"input\":%s,\"dimensions\":16,\"encoding_format\":\"float\"}", ids);
    few = post("/v1/embeddings", body, &status);
    assert_int_equal(status, 200);
    const json_t *whole = at(j, "data.1.embedding"), *cut = at(few, "data.0.embedding");
    assert_int_equal(json_array_size(cut), 16);
    double ratio = json_number_value(json_array_get(cut, 0)) / json_number_value(json_array_get(whole, 0));
    for (size_t i = 0; i < 16; i++) assert_float_equal(json_number_value(json_array_get(cut, i)), ratio * json_number_value(json_array_get(whole, i)), 1e-5);
    snprintf(body, sizeof body, "{\"input\":[%s],\"dimensions\":3,\"encoding_format\":\"base64\"}", ids);
    json_t *coded = post("/v1/embeddings", body, &status);
    assert_int_equal(strlen(text_at(coded, "data.0.embedding")), 16);
    json_decref(coded);
    json_decref(few);
    json_decref(t);
    json_decref(j);
    free(ids);
}

/* More than the queue holds at once. */
static void test_many(void **state) {
    (void)state;
    buf body = {0};
    int status;
    assert_true(buf_adds(&body, "{\"dimensions\":2,\"input\":[\"a\"", NULL));
    for (int i = 1; i < 60; i++) assert_true(buf_addf(&body, NULL, ",\"text %d\"", i));
    assert_true(buf_adds(&body, "]}", NULL));
    json_t *j = post("/v1/embeddings", body.data, &status);
    assert_int_equal(status, 200);
    assert_int_equal(json_array_size(at(j, "data")), 60);
    json_decref(j);
    buf_free(&body);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct { const char *body, *param; } cases[] = {
        {"{}", "input"}, {"{\"input\":\"\"}", "input"}, {"{\"input\":[]}", "input"}, {"{\"input\":[\"a\",\"\"]}", "input"}, {"{\"input\":5}", "input"}, {"{\"input\":[[]]}", "input"},
        {"{\"input\":[-1]}", "input"}, {"{\"input\":[1,\"a\"]}", "input"}, {"{\"input\":[\"a\",[1.5]]}", "input"}, {"{\"input\":\"a\",\"dimensions\":0}", "dimensions"},
        {"{\"input\":\"a\",\"dimensions\":100000}", "dimensions"}, {"{\"input\":\"a\",\"encoding_format\":\"hex\"}", "encoding_format"}, {"{\"input\":\"a\",\"temperature\":1}", "temperature"},
        {"{\"input\":\"a\",\"model\":\"x\"}", "model"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status;
        json_t *j = post("/v1/embeddings", cases[i].body, &status);
        if (status / 100 != 4) print_error("%s\n", cases[i].body);
        assert_int_equal(status / 100, 4);
        assert_string_equal(text_at(j, "error.param"), cases[i].param);
        json_decref(j);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden), cmocka_unit_test(test_company), cmocka_unit_test(test_pooling),
        cmocka_unit_test(test_route),  cmocka_unit_test(test_many),    cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
