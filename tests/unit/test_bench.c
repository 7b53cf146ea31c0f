/* test_bench.c: `hearth bench` as scripts see it, on a model that is made here, and the probes under it. Nothing depends on how fast anything is. */
#include "tools/support.h"

#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

#include "kernels/probe.h"
#include "quant/quant.h"
#include "unit/gguf_builder.h"

enum { PATIENCE = 120, EMBD = 32, FF = 64, VOCAB = 259, CONTEXT = 64 };

/* ---- a model ---- */

static void put_vocabulary(builder *b) {
    add_text(b, "tokenizer.ggml.model", "llama");
    buf *kv = add_array(b, "tokenizer.ggml.tokens", GGUF_STRING, VOCAB);
    for (int i = 0; i < VOCAB; i++) {
        char piece[16];
        if (i >= 3) snprintf(piece, sizeof piece, "<0x%02X>", i - 3);
        else snprintf(piece, sizeof piece, "%s", i == 0 ? "<unk>" : i == 1 ? "<s>" : "</s>");
        put_text(kv, piece);
    }
    kv = add_array(b, "tokenizer.ggml.scores", GGUF_F32, VOCAB);
    for (int i = 0; i < VOCAB; i++) put_f32(kv, (float)-i);
    kv = add_array(b, "tokenizer.ggml.token_type", GGUF_I32, VOCAB);
    for (int i = 0; i < VOCAB; i++) put_u32(kv, i == 0 ? 2 : i < 3 ? 3 : 6);
    add_u32(b, "tokenizer.ggml.bos_token_id", 1);
    add_u32(b, "tokenizer.ggml.eos_token_id", 2);
}

static void put_matrix(builder *b, const char *name, uint64_t columns, uint64_t rows, float scale) {
    static uint64_t seed = 7;
    buf data = {0};
    for (uint64_t i = 0; i < columns * rows; i++) put_f32(&data, rows == 1 ? scale : (float)rng_normal(&seed) * scale);
    add_tensor(b, name, QUANT_F32, columns, rows, data.data, data.len);
    buf_free(&data);
}

/* One layer of the plainest architecture. A scale that is no number makes logits that are none. */
static const char *make_model(const char *name, float scale) {
    static char paths[2][4096];
    static int turn;
    builder b = {0};
    add_text(&b, "general.architecture", "llama");
    add_text(&b, "general.name", "a <tiny> & plain one\xff");
    add_u32(&b, "llama.block_count", 1);
    add_u32(&b, "llama.context_length", CONTEXT);
    add_u32(&b, "llama.embedding_length", EMBD);
    add_u32(&b, "llama.feed_forward_length", FF);
    add_u32(&b, "llama.attention.head_count", 4);
    add_u32(&b, "llama.attention.head_count_kv", 2);
    put_f32(add_kv(&b, "llama.attention.layer_norm_rms_epsilon", GGUF_F32), 1e-5f);
    put_vocabulary(&b);
    put_matrix(&b, "token_embd.weight", EMBD, VOCAB, 0.3f);
    put_matrix(&b, "output_norm.weight", EMBD, 1, scale);
    put_matrix(&b, "blk.0.attn_norm.weight", EMBD, 1, 1);
    put_matrix(&b, "blk.0.ffn_norm.weight", EMBD, 1, 1);
    put_matrix(&b, "blk.0.attn_q.weight", EMBD, EMBD, 0.3f);
    put_matrix(&b, "blk.0.attn_k.weight", EMBD, EMBD / 2, 0.3f);
    put_matrix(&b, "blk.0.attn_v.weight", EMBD, EMBD / 2, 0.3f);
    put_matrix(&b, "blk.0.attn_output.weight", EMBD, EMBD, 0.3f);
    put_matrix(&b, "blk.0.ffn_gate.weight", EMBD, FF, 0.3f);
    put_matrix(&b, "blk.0.ffn_up.weight", EMBD, FF, 0.3f);
    put_matrix(&b, "blk.0.ffn_down.weight", FF, EMBD, 0.3f);
    buf file = finish(&b, 3);
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", temp_dir(), name);
    spew(path, file.data, file.len);
    buf_free(&file);
    return path;
}

static const char *model; /* made once */

/* ---- running ---- */

static buf out, errors;

static int hearth_bench(const char *const *args) {
    const char *argv[40] = {hearth_program(), "bench"};
    int n = 2;
    for (; args[n - 2]; n++) argv[n] = args[n - 2];
    out.len = errors.len = 0;
    int status = run_program(argv, NULL, 0, &out, &errors, PATIENCE);
    buf_add(&out, "", 0, NULL);
    buf_add(&errors, "", 0, NULL);
    return status;
}
#define BENCH(...) hearth_bench((const char *[]){__VA_ARGS__, NULL})
#define QUICK "--cpu", "ref", "--threads", "1", "--warmup", "0", "-r", "2"

static void must_hold(const buf *b, const char *text) {
    if (!strstr(b->data, text)) fail_msg("'%s' is not in '%s'", text, b->data);
}

static json_t *parse_output(void) {
    json_error_t why;
    json_t *o = json_loadb(out.data, out.len, 0, &why);
    if (!json_is_object(o)) fail_msg("no JSON object (%s) in '%s'; stderr: %s", why.text, out.data, errors.data);
    return o;
}

static double positive(const json_t *o, const char *key) {
    double v = json_number_value(json_object_get(o, key));
    if (!(v > 0) || !isfinite(v)) fail_msg("%s is %g in '%s'", key, v, out.data);
    return v;
}

static void is_result(const json_t *results, size_t i, int n_prompt, int n_gen, int depth, int batch) {
    static const char *const keys[] = {"n_prompt", "n_gen", "depth", "batch", "tokens_per_second", "spread"};
    json_t *r = json_array_get(results, i);
    void *at = json_object_iter(r);
    for (int k = 0; k < 6; k++, at = json_object_iter_next(r, at)) assert_string_equal(json_object_iter_key(at), keys[k]);
    const int expected[] = {n_prompt, n_gen, depth, batch};
    for (int k = 0; k < 4; k++) {
        assert_true(json_is_integer(json_object_get(r, keys[k])));
        assert_int_equal(json_integer_value(json_object_get(r, keys[k])), expected[k]);
    }
    positive(r, "tokens_per_second");
    assert_true(json_is_real(json_object_get(r, "spread")) && json_number_value(json_object_get(r, "spread")) >= 0);
    positive(r, "bytes_per_token");
    positive(r, "operations_per_token");
    positive(r, "fraction_of_limit");
}

/* ---- results ---- */

static void json_has_the_promised_form(void **state) {
    (void)state;
    assert_int_equal(BENCH(model, "-p", "8,4", "-n", "3", "-d", "0,5", "-b", "1", "-r", "3", "--threads", "2", "--cpu", "ref", "--json"), 0);
    assert_int_equal(errors.len, 0);
    json_t *o = parse_output(), *results = json_object_get(o, "results");
    assert_string_equal(json_object_iter_key(json_object_iter(o)), "results");
    assert_int_equal(json_array_size(results), 6);
    for (int d = 0; d < 2; d++) {
        is_result(results, (size_t)d * 3, 8, 0, d * 5, 1);
        is_result(results, (size_t)d * 3 + 1, 4, 0, d * 5, 1);
        is_result(results, (size_t)d * 3 + 2, 0, 3, d * 5, 1);
    }
    assert_int_equal(json_array_size(json_object_get(json_array_get(results, 0), "samples")), 3);
    assert_int_equal(json_integer_value(json_object_get(o, "threads")), 2);
    assert_string_equal(json_string_value(json_object_get(o, "cpu")), "ref");
    json_t *m = json_object_get(o, "model");
    assert_string_equal(json_string_value(json_object_get(m, "path")), model);
    assert_string_equal(json_string_value(json_object_get(m, "name")), "a <tiny> & plain one\\xFF");
    assert_int_equal(json_integer_value(json_object_get(m, "parameters")), EMBD * VOCAB + 3 * EMBD + 3 * EMBD * EMBD + 3 * EMBD * FF);
    positive(json_object_get(o, "limits"), "read_bytes_per_second");
    json_decref(o);
}

/* What a token needs at least, counted by hand. */
static void work_is_counted(void **state) {
    (void)state;
    assert_int_equal(BENCH(model, "-p", "2", "-n", "2", "-d", "3", QUICK, "--json"), 0);
    json_t *o = parse_output(), *results = json_object_get(o, "results");
    const double matrices = 3 * EMBD * EMBD + 3 * EMBD * FF, vectors = 3 * EMBD, output = EMBD * VOCAB;
    const double seen = 4 + 5; /* by the fourth and the fifth token */
    double attention = seen * 4 * (8 + 8), kv_bytes = seen * 2 * (8 + 8) * 4;
    const json_t *prefill = json_array_get(results, 0), *decode = json_array_get(results, 1);
    assert_float_equal(positive(prefill, "operations_per_token"), 2 * (2 * matrices + output + attention) / 2, 1);
    assert_float_equal(positive(decode, "operations_per_token"), 2 * (2 * (matrices + output) + attention) / 2, 1);
    assert_float_equal(positive(decode, "bytes_per_token"), (2 * 4 * (matrices + vectors + output) + kv_bytes) / 2, 1);
    json_decref(o);
}

static void sequences_run_together(void **state) {
    (void)state;
    assert_int_equal(BENCH(model, "-p", "4", "-n", "3", "-d", "2", "-b", "1,3", QUICK, "--json"), 0);
    json_t *o = parse_output(), *results = json_object_get(o, "results");
    assert_int_equal(json_array_size(results), 4);
    is_result(results, 0, 4, 0, 2, 1);
    is_result(results, 1, 0, 3, 2, 1);
    is_result(results, 2, 4, 0, 2, 3);
    is_result(results, 3, 0, 3, 2, 3);
    json_decref(o);
}

static void zero_leaves_one_out(void **state) {
    (void)state;
    assert_int_equal(BENCH(model, "-p", "0", "-n", "3", QUICK, "--json"), 0);
    json_t *o = parse_output(), *results = json_object_get(o, "results");
    assert_int_equal(json_array_size(results), 1);
    is_result(results, 0, 0, 3, 0, 1);
    json_decref(o);
    assert_int_equal(BENCH(model, "-p", "5", "-n", "0", QUICK), 0);
    must_hold(&out, "prefill 5");
    assert_null(strstr(out.data, "decode"));
    assert_null(strstr(out.data, "nan"));
}

static void limits_are_numbers(void **state) {
    (void)state;
    assert_int_equal(BENCH("--limits", "--threads", "2", "--json"), 0);
    json_t *o = parse_output(), *limits = json_object_get(o, "limits"), *units = json_object_get(limits, "units"), *u;
    assert_int_equal(json_array_size(json_object_get(o, "results")), 0);
    assert_int_equal(json_integer_value(json_object_get(limits, "threads")), 2);
    positive(limits, "read_bytes_per_second");
    if (json_object_get(limits, "shared_cache_bytes")) positive(limits, "shared_cache_read_bytes_per_second");
    assert_true(json_array_size(units) >= 1);
    size_t i;
    json_array_foreach(units, i, u) positive(u, "operations_per_second");
    json_decref(o);
    assert_int_equal(BENCH("--limits", "--threads", "1"), 0);
    must_hold(&out, "read from memory");
    must_hold(&out, "plain C f32");
}

static void start_is_timed(void **state) {
    (void)state;
    assert_int_equal(BENCH(model, "--start", "-p", "0", "-n", "0", QUICK, "--json"), 0);
    json_t *o = parse_output(), *start = json_object_get(o, "start");
    positive(start, "warm_seconds");
    positive(start, "cold_seconds");
    assert_int_equal(json_array_size(json_object_get(o, "results")), 0);
    json_decref(o);
    assert_int_equal(BENCH("--start", "-p0", "-n0", QUICK, "--", model), 0); /* all arguments reach the one that is started */
    must_hold(&out, "exec to first token");
    assert_int_equal(BENCH(model, "--start", "--cpu", "abacus"), 1);
    must_hold(&errors, "hearth started anew failed with status 1: hearth: ");
    assert_int_equal(BENCH(model, "--first-token", "--cpu", "ref"), 0);
    char *end;
    long token = strtol(out.data, &end, 10);
    assert_true(end > out.data && strcmp(end, "\n") == 0 && token >= 0 && token < VOCAB);
}

/* Four patterns under five budgets. Which weights are packed depends on the CPU; the exact kernels pack none. */
static void weight_cache_is_tried(void **state) {
    (void)state;
    static const char *const patterns[] = {"circle", "random", "skewed", "skewed with scans"};
    assert_int_equal(BENCH(model, "--weights", "-p", "0", "-n", "0", QUICK), 1);
    must_hold(&errors, "the ref kernels use this model's weights as they lie in the file");
    int status = BENCH(model, "--weights", "-p", "0", "-n", "0", "--threads", "1", "--json");
    if (status == 1 && strstr(errors.data, "as they lie in the file")) skip(); /* this CPU packs none */
    assert_int_equal(status, 0);
    json_t *o = parse_output(), *w = json_object_get(o, "weights"), *trials = json_object_get(w, "trials");
    positive(w, "packed_bytes");
    positive(w, "cold_access_seconds");
    positive(w, "warm_access_seconds");
    assert_int_equal(json_integer_value(json_object_get(w, "matrices")), 8);
    assert_int_equal(json_array_size(trials), 20);
    for (size_t i = 0; i < 20; i++) {
        const json_t *t = json_array_get(trials, i);
        double hit_rate = json_number_value(json_object_get(t, "hit_rate"));
        assert_string_equal(json_string_value(json_object_get(t, "pattern")), patterns[i / 5]);
        assert_float_equal(json_number_value(json_object_get(t, "budget")), (double)(i % 5) / 4, 1e-9);
        positive(t, "products_per_second");
        assert_true(hit_rate >= 0 && hit_rate <= 1);
        if (i % 5 == 0) assert_true(hit_rate == 0);
        if (i == 4) assert_true(hit_rate == 1); /* after two circles with room for all */
    }
    json_decref(o);
}

static void plot_is_drawn(void **state) {
    (void)state;
    char path[4096], report[4096];
    snprintf(path, sizeof path, "%s/plot.svg", temp_dir());
    snprintf(report, sizeof report, "%s/report.json", temp_dir());
    assert_int_equal(BENCH(model, "-p", "4", "-n", "2", QUICK, "--plot", path, "--report", report), 0);
    must_hold(&out, "decode 2");
    json_t *written = json_load_file(report, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(written, "results")), 2);
    json_decref(written);
    buf svg = slurp(path);
    buf_add(&svg, "", 0, NULL);
    assert_int_equal(strncmp(svg.data, "<svg ", 5), 0);
    must_hold(&svg, "prefill 4</text>");
    must_hold(&svg, "decode 2</text>");
    must_hold(&svg, "a &lt;tiny> &amp; plain one\\xFF");
    must_hold(&svg, "</svg>\n");
    buf_free(&svg);
    assert_int_equal(BENCH(model, "-p", "4", "-n", "0", QUICK, "--plot", "/nonexistent/plot.svg"), 1);
    must_hold(&errors, "/nonexistent");
}

/* ---- refusals ---- */

static void wrong_usage_is_one_sentence(void **state) {
    (void)state;
    static const struct { const char *args[8], *sentence; } cases[] = {
        {{"-p", "many"}, "-p needs whole numbers separated by commas, not 'many'"},
        {{"-p", "1,"}, "-p needs whole numbers"},
        {{"-p", ""}, "-p needs whole numbers"},
        {{"-n", "1;2"}, "-n needs whole numbers"},
        {{"-n", "-3"}, "-n -3 is out of range"},
        {{"-d", "99999999999999999999"}, "-d needs whole numbers"},
        {{"-b", "0"}, "-b 0 is out of range"},
        {{"-b", "1,257"}, "-b 257 is out of range"},
        {{"-p", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"}, "-p has more than 16 values"},
        {{"-r", "0"}, "--repetitions 0 is out of range"},
        {{"--warmup", "-1"}, "--warmup -1 is out of range"},
        {{"-p", "0", "-n", "0"}, "nothing to measure"},
        {{"--limits", "--start"}, "leave out --start"},
        {{"--limits", "--plot", "x"}, "leave out --plot"},
        {{"--limits", "--weights"}, "leave out --weights"},
        {{"--limits", "--peer", "x"}, "leave out --peer"},
        {{"a", "b"}, "unexpected argument 'b'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(hearth_bench(cases[i].args), 2);
        must_hold(&errors, cases[i].sentence);
        assert_int_equal(out.len, 0);
    }
}

static void impossible_runs_fail(void **state) {
    (void)state;
    assert_int_equal(BENCH("/nonexistent.gguf", QUICK), 1);
    must_hold(&errors, "/nonexistent.gguf");
    assert_int_equal(BENCH("/nonexistent.gguf", "--start", QUICK), 1);
    must_hold(&errors, "/nonexistent.gguf");
    assert_int_equal(BENCH(model, "-p", "60", "-d", "5", "-n", "0", QUICK), 1);
    must_hold(&errors, "depth 5 and 60 tokens more do not fit into the model's context of 64");
    assert_int_equal(BENCH(model, "--cpu", "abacus"), 1);
    must_hold(&errors, "abacus");
    /* a model whose results are no numbers has no speed */
    const char *broken = make_model("broken.gguf", NAN);
    assert_int_equal(BENCH(broken, "-p", "4", "-n", "0", QUICK), 1);
    must_hold(&errors, "no numbers");
    assert_int_equal(BENCH(broken, "-p", "0", "-n", "1", "-b", "2", QUICK), 1);
    must_hold(&errors, "no numbers");
    assert_int_equal(out.len, 0);
}

/* ---- a peer ---- */

/* A script in place of llama-bench. It reads -p, -n, -d, -t, and says the rest of what it does in shell. */
static const char *make_peer(const char *file, const char *rest) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", temp_dir(), file);
    buf script = {0};
    put(&script, "#!/bin/sh\n", 10);
    assert_true(buf_addf(&script, NULL, "echo \"$@\" >>'%s/asked'\n", temp_dir()));
    assert_true(buf_adds(&script,
                         "while [ $# -gt 1 ]; do case $1 in -p) p=$2;; -n) n=$2;; -d) d=$2;; -t) t=$2;; -npp) npp=$2;; -ntg) ntg=$2;; -npl) npl=$2;; esac; shift; done\n"
                         "entry() { # prompt gen tokens/s ns\n"
                         "printf '%s{\"n_prompt\":%s,\"n_gen\":%s,\"n_depth\":%s,\"n_threads\":%s,\"avg_ns\":%s,\"avg_ts\":%s}' \"$comma\" $1 $2 $d $t $4 $3; comma=,; }\n",
                         NULL));
    assert_true(buf_adds(&script, rest, NULL));
    spew(path, script.data, script.len);
    assert_int_equal(chmod(path, 0755), 0);
    buf_free(&script);
    return path;
}

static const char good_single[] = "echo '['; for i in $(echo $p | tr , ' '); do [ $i = 0 ] || entry $i 0 $i 1000000000; done\n"
                                  "for i in $(echo $n | tr , ' '); do [ $i = 0 ] || entry 0 $i $i 1000000000; done; echo ']'\n";
static const char good_batched[] = "echo 'a line that is no JSON'; echo \"{\\\"pp\\\":$npp,\\\"tg\\\":$ntg,\\\"pl\\\":$npl,\\\"t_pp\\\":1,\\\"speed_pp\\\":$((npp * npl)),"
                                   "\\\"t_tg\\\":2.0,\\\"speed_tg\\\":$((ntg * npl / 2))}\"\n";

static void peer_takes_turns(void **state) {
    (void)state;
    char asked[4096];
    snprintf(asked, sizeof asked, "%s/asked", temp_dir());
    remove(asked);
    make_peer("llama-batched-bench", good_batched);
    const char *peer = make_peer("llama-bench", good_single);
    assert_int_equal(BENCH(model, "-p", "8,4", "-n", "6", "-d", "0,2", "-b", "1,2", QUICK, "--json", "--peer", peer), 0);
    json_t *o = parse_output(), *results = json_object_get(o, "results");
    assert_int_equal(json_array_size(results), 12);
    for (size_t i = 0; i < 12; i++) {
        const json_t *r = json_array_get(results, i), *theirs = json_object_get(r, "peer");
        int n_prompt = (int)json_integer_value(json_object_get(r, "n_prompt")), batch = (int)json_integer_value(json_object_get(r, "batch"));
        if (i == 9 || i == 10) { /* several prompts after a depth: the peer cannot do that */
            assert_null(theirs);
            continue;
        }
        double expected = n_prompt ? n_prompt * batch : 6;
        assert_float_equal(positive(theirs, "tokens_per_second"), expected, 1e-6);
        assert_int_equal(json_array_size(json_object_get(theirs, "samples")), 2);
        assert_float_equal(positive(r, "ratio") * expected / positive(r, "tokens_per_second"), 1, 1e-3);
    }
    assert_null(json_object_get(json_object_get(o, "peer"), "error"));
    json_decref(o);
    /* each depth and repetition: one run for single sequences, one for each case of two (three at depth 0, one at 2) */
    buf lines = slurp(asked);
    int n = 0;
    for (size_t i = 0; i < lines.len; i++) n += lines.data[i] == '\n';
    assert_int_equal(n, 2 * (1 + 3) + 2 * (1 + 1));
    buf_add(&lines, "", 0, NULL);
    must_hold(&lines, "-p 8,4 -n 6 -d 2 -t 1 -r 1 -o json");
    buf_free(&lines);
    assert_int_equal(BENCH(model, "-p", "8", "-n", "0", QUICK, "--peer", peer), 0);
    must_hold(&out, "ratio");
    must_hold(&out, " x\n");
}

/* Our figures are printed all the same, the status says that something is missing, and one sentence says what. */
static void failing_peers_are_noticed(void **state) {
    (void)state;
    static const struct { const char *script, *sentence; } cases[] = {
        {"echo some; echo 'out of luck' >&2; exit 3\n", "failed with status 3: out of luck"},
        {"kill -ABRT $$\n", "was ended by signal 6"},
        {"true\n", "did not print a list of results"},
        {"echo '<html>502 Bad Gateway</html>'\n", "did not print a list of results"},
        {"echo '{}'\n", "did not print a list of results: other JSON"},
        {"echo '[]'\n", "did not print a believable result for prefill 4 at depth 0"},
        {"echo '['; entry 4 0 4 1000000000; echo ']'\n", "did not print a believable result for decode 2"},
        {"echo '['; entry 4 0 400 1000000000; entry 0 2 2 1000000000; echo ']'\n", "did not print a believable result for prefill 4"},
        {"echo '['; entry 4 0 0 0; entry 0 2 2 1000000000; echo ']'\n", "did not print a believable result for prefill 4"},
        {"d=7; echo '['; entry 4 0 4 1000000000; entry 0 2 2 1000000000; echo ']'\n", "did not print a believable result for prefill 4"},
        {"t=9; echo '['; entry 4 0 4 1000000000; entry 0 2 2 1000000000; echo ']'\n", "did not print a believable result for prefill 4"},
        {"echo '[{\"n_prompt\":4,\"n_gen\":0,\"n_depth\":0,\"n_threads\":1}]'\n", "did not print a believable result for prefill 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *peer = make_peer("llama-bench", cases[i].script);
        assert_int_equal(BENCH(model, "-p", "4", "-n", "2", QUICK, "--json", "--peer", peer), 1);
        must_hold(&errors, cases[i].sentence);
        json_t *o = parse_output();
        assert_int_equal(json_array_size(json_object_get(o, "results")), 2);
        assert_non_null(json_object_get(json_object_get(o, "peer"), "error"));
        json_decref(o);
    }
    assert_int_equal(BENCH(model, "-p", "4", "-n", "0", QUICK, "--peer", "/nonexistent/llama-bench"), 1);
    must_hold(&errors, "/nonexistent/llama-bench cannot be started");
    make_peer("llama-batched-bench", "echo \"{\\\"pp\\\":$npp,\\\"tg\\\":$ntg,\\\"pl\\\":$npl,\\\"t_tg\\\":2.0,\\\"speed_tg\\\":-nan}\"\n");
    const char *peer = make_peer("llama-bench", good_single);
    assert_int_equal(BENCH(model, "-p", "0", "-n", "2", "-b", "2", QUICK, "--peer", peer), 1);
    must_hold(&errors, "llama-batched-bench did not print a believable result for decode 2 at depth 0 with 2 sequences");
}

/* ---- probes ---- */

static void probes_do_their_work(void **state) {
    (void)state;
    const kern_probe *probes[32];
    int n = kern_probes(NULL, probes, 32);
    assert_true(n >= 1);
    for (int i = 0; i < n; i++) {
        static const int64_t rounds[] = {1, 17, 1000, ((int64_t)1 << 20) + 3};
        for (int k = 0; k < 4; k++) {
            double proof = NAN, operations = probes[i]->multiply(rounds[k], &proof);
            if (proof != probes[i]->expect * (double)rounds[k]) fail_msg("%s: %g for %lld rounds", probes[i]->name, proof, (long long)rounds[k]);
            assert_true(operations > (double)rounds[k]);
        }
    }
    assert_string_equal(probes[n - 1]->set, "ref");
    assert_int_equal(kern_probes("ref", probes, 32), 1);
    assert_int_equal(kern_probes("no such set", probes, 32), 0);
}

static void readers_read_everything(void **state) {
    (void)state;
    uint64_t seed = test_seed(), expected = 0;
    const size_t bytes = 5 * KERN_PROBE_STEP;
    uint64_t *words = mem_aligned(bytes, 1, NULL);
    for (size_t i = 0; i < bytes / 8; i++) expected ^= words[i] = rng_next(&seed);
    assert_int_equal(kern_probe_reader()(words, bytes), expected);
    assert_int_equal(kern_probe_read_ref(words, bytes), expected);
    mem_free(words);
}

static int set_up(void **state) {
    (void)state;
    model = make_model("tiny.gguf", 1);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    buf_free(&out);
    buf_free(&errors);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_the_promised_form), cmocka_unit_test(work_is_counted),         cmocka_unit_test(sequences_run_together),
        cmocka_unit_test(zero_leaves_one_out),        cmocka_unit_test(limits_are_numbers),      cmocka_unit_test(start_is_timed),
        cmocka_unit_test(weight_cache_is_tried), cmocka_unit_test(plot_is_drawn),              cmocka_unit_test(wrong_usage_is_one_sentence), cmocka_unit_test(impossible_runs_fail),
        cmocka_unit_test(peer_takes_turns),           cmocka_unit_test(failing_peers_are_noticed),   cmocka_unit_test(probes_do_their_work),
        cmocka_unit_test(readers_read_everything),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
