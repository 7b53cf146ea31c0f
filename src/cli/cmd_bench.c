/* cmd_bench.c: `hearth bench`: how fast a model runs here, and how that compares with what the machine could do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/bench.h"

enum { MOST_TOKENS = 1 << 24 };

static bool parse_lists(bench *b, const char *p, const char *n, const char *d, const char *s, err *e) {
    return bench_list_parse(&b->prompts, "-p", p, 0, MOST_TOKENS, e) && bench_list_parse(&b->gens, "-n", n, 0, MOST_TOKENS, e) &&
           bench_list_parse(&b->depths, "-d", d, 0, MOST_TOKENS, e) && bench_list_parse(&b->batches, "-b", s, 1, BENCH_BATCH, e);
}

/* --memory measures nothing else, and its options nothing without it. */
static bool parse_memory(bench *b, const char *contexts, const char *batch_sizes, bool cases, err *e) {
    bench_memory *m = &b->memory;
    if (!m->asked && !m->step && (contexts || batch_sizes || m->factor > 0 || m->store_dir))
        return err_set(e, HEARTH_ARGUMENT, "--contexts, --batch-sizes, --validate and --store-dir are for --memory");
    if (m->asked && (cases || b->only_limits || b->start_too || b->weights_too || b->peer))
        return err_set(e, HEARTH_ARGUMENT, "--memory measures only what is remembered: leave out -p, -n, -d, -b, --limits, --start, --weights and --peer");
    return bench_list_parse(&m->contexts, "--contexts", contexts ? contexts : "1024,4096,16384,32768", 1, MOST_TOKENS, e) &&
           bench_list_parse(&m->batches, "--batch-sizes", batch_sizes ? batch_sizes : "1", 1, BENCH_BATCH, e);
}

/* Starts come first, while the model is not open here. */
static bool measure(bench *b, err *e) {
    if (b->only_limits) return bench_limits_measure(&b->limits, NULL, b->engine_options.threads, e);
    if (b->memory.asked) return bench_memory_measure(b, e);
    if (b->start_too && !bench_start_measure(b, e)) return false;
    b->engine = hearth_engine_open(b->model, &b->engine_options, e);
    if (!b->engine) return false;
    hearth_engine_settle(b->engine); /* writing packed weights must not disturb what is measured */
    b->info = hearth_engine_info(b->engine);
    return bench_limits_measure(&b->limits, b->info.cpu, b->info.threads, e) && bench_run_all(b, e) && (!b->weights_too || bench_weights_measure(b, e));
}

static bool write_file(const char *path, const char *text, err *e) {
    file_writer w;
    if (!file_writer_open(&w, path, e)) return false;
    if (file_writer_add(&w, text, strlen(text), e) && file_writer_add(&w, "\n", 1, e)) return file_writer_commit(&w, e);
    file_writer_abort(&w);
    return false;
}

static int report(const bench *b) {
    err e = {0};
    char *json = bench_report_json(b, &e);
    bool ok = json != NULL;
    if (ok && b->json) puts(json);
    else if (ok) bench_report_table(b);
    ok = ok && (!b->report || write_file(b->report, json, &e)) && (!b->plot || (b->memory.asked ? bench_memory_plot : bench_plot)(b, b->plot, &e));
    free(json);
    ok = ok && bench_memory_validate(b, &e);
    if (!ok) return cli_fail(&e);
    return b->peer_error.code == HEARTH_OK ? 0 : cli_fail(&b->peer_error);
}

/* An option that would have no effect is refused. */
static bool check_options(const bench *b, bool first_token, err *e) {
    const char *needless = b->start_too ? "--start" : b->weights_too ? "--weights" : b->peer ? "--peer" : b->plot ? "--plot" : first_token ? "--first-token" : NULL;
    if (b->only_limits && needless) return err_set(e, HEARTH_ARGUMENT, "--limits without a MODEL measures only the machine: give a MODEL, or leave out %s", needless);
    if (b->peer && b->engine_options.kv_type && strcmp(b->engine_options.kv_type, "f16") != 0)
        return err_set(e, HEARTH_ARGUMENT, "--peer compares with keys and values in f16 on both sides: leave out --kv-type");
    if (b->n_cases > 0 || b->only_limits || b->memory.asked) return true;
    if (b->peer || b->plot || !(b->start_too || b->weights_too)) return err_set(e, HEARTH_ARGUMENT, "nothing to measure: -p and -n are both 0");
    return true;
}

static int run(bench *b, bool first_token, const char *p, const char *n, const char *d, const char *s) {
    err e = {0};
    bool cases = !b->only_limits && !b->memory.asked;
    if (!parse_lists(b, p, n, d, s, &e) || (cases && !bench_make_cases(b, &e)) || !check_options(b, first_token, &e)) {
        cli_fail(&e);
        return 2;
    }
    if (!b->only_limits && !b->model) b->model = cli_default_model(&e);
    bool ok = b->only_limits || b->model;
    if (ok && b->memory.step) return bench_memory_step(b, &e) ? 0 : cli_fail(&e);
    if (ok && first_token) return bench_first_token(b, &e) ? 0 : cli_fail(&e);
    ok = ok && measure(b, &e);
    bench_status(NULL);
    int status = ok ? report(b) : cli_fail(&e);
    bench_limits_free(&b->limits);
    cli_engine_close(b->engine);
    return status;
}

int cmd_bench(int argc, char **argv) {
    static bench b = {.repetitions = 3, .warmup = 1};
    b.argc = argc, b.argv = argv;
    b.engine_options = hearth_engine_defaults();
    b.engine_options.kv_memory = 0; /* every run computes all its tokens */
    cli_option engine_table[CLI_ENGINE_OPTIONS + 1] = {0};
    cli_engine_table(engine_table, &b.engine_options);
    const char *p = "512", *n = "64", *d = "0", *s = "1", *args[1], *const p0 = p, *const n0 = n, *const d0 = d, *const s0 = s;
    const char *contexts = NULL, *batch_sizes = NULL;
    bool limits = false, first_token = false;
    b.memory.turn = 32;
    int status;
    const cli_option options[] = {
        {"--prompt", 'p', CLI_TEXT, &p, "N,...", "prefill: tokens taken in at once (default 512; 0: none)", 0, 0},
        {"--gen", 'n', CLI_TEXT, &n, "N,...", "decode: tokens made one after the other (default 64; 0: none)", 0, 0},
        {"--depth", 'd', CLI_TEXT, &d, "N,...", "tokens already there before (default 0)", 0, 0},
        {"--batch", 'b', CLI_TEXT, &s, "N,...", "sequences at once; the speed is of all together (default 1)", 0, 0},
        {"--repetitions", 'r', CLI_INT, &b.repetitions, "N", "timed runs of each (default 3)", 1, BENCH_SAMPLES},
        {"--warmup", 0, CLI_INT, &b.warmup, "N", "runs before that are not timed (default 1)", 0, BENCH_SAMPLES},
        {"--threads", 0, CLI_INT, &b.engine_options.threads, "N", "threads (default: one per core)", 0, 1024},
        {"--cpu", 0, CLI_TEXT, &b.engine_options.cpu, "NAME", "kernel set (default: the best this CPU has)", 0, 0},
        {"--limits", 0, CLI_FLAG, &limits, NULL, "what the machine can do at most; without MODEL nothing else", 0, 0},
        {"--start", 0, CLI_FLAG, &b.start_too, NULL, "also time from exec to the first token, cold and warm", 0, 0},
        {"--first-token", 0, CLI_FLAG, &first_token, NULL, "print one token and end: what --start starts", 0, 0},
        {"--weights", 0, CLI_FLAG, &b.weights_too, NULL, "also the weight cache: cold and warm access, patterns, hit rate and speed by memory", 0, 0},
        {"--memory", 0, CLI_FLAG, &b.memory.asked, NULL, "in place of all that: conversations that are remembered, cold, warm and hot", 0, 0},
        {"--contexts", 0, CLI_TEXT, &contexts, "N,...", "--memory: tokens that are remembered (default 1024,4096,16384,32768)", 0, 0},
        {"--batch-sizes", 0, CLI_TEXT, &batch_sizes, "N,...", "--memory: agents that get a turn at once, computed in one pass (default 1)", 0, 0},
        {"--turn", 0, CLI_INT, &b.memory.turn, "N", "--memory: tokens of the new turn (default 32)", 1, 512},
        {"--runs", 0, CLI_INT, &b.repetitions, "N", "the same as --repetitions", 1, BENCH_SAMPLES},
        {"--validate", 0, CLI_FLOAT, &b.memory.factor, "FACTOR", "--memory: end with 1 when warm is not faster than cold by this", 0.001, 1e6},
        {"--store-dir", 0, CLI_TEXT, &b.memory.store_dir, "PATH", "--memory: where a folder is made and deleted again (default: that of conversations)", 0, 0},
        {"--memory-step", 0, CLI_TEXT, &b.memory.step, "STEP", "one process of --memory: what it starts", 0, 0},
        {"--peer", 0, CLI_TEXT, &b.peer, "PATH", "a llama-bench to run in turns; llama-batched-bench beside it for -b", 0, 0},
        {"--report", 0, CLI_TEXT, &b.report, "FILE.json", "also write the JSON to a file", 0, 0},
        {"--plot", 0, CLI_TEXT, &b.plot, "FILE.svg", "also draw the results", 0, 0},
        {"--json", 0, CLI_FLAG, &b.json, NULL, "print JSON in place of the table", 0, 0},
        {0},
    };
    const cli_spec spec = {"hearth bench [MODEL] [options]",
                           "Measures prefill and decode in tokens per second: the median of the repetitions, their spread (the distance between the\n"
                           "fastest and the slowest over the median), and the part of the machine's own measured limit that was reached.",
                           options, engine_table, 0, 1};
    int n_args = cli_parse(&spec, argc, argv, args, &status);
    if (n_args < 0) return status;
    b.model = n_args > 0 ? args[0] : NULL;
    b.only_limits = limits && !b.model;
    err e = {0};
    if (!parse_memory(&b, contexts, batch_sizes, p0 != p || n0 != n || d0 != d || s0 != s, &e)) {
        cli_fail(&e);
        return 2;
    }
    return run(&b, first_token, p, n, d, s);
}
