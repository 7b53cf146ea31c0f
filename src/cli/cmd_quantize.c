/* cmd_quantize.c: `hearth quantize`: writes a model in another number format. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "gguf/quantize.h"

static volatile int stop;
static void on_signal(int number) {
    (void)number;
    stop = 1;
}

/* So that an interrupt leaves no half file behind; a second one ends at once. */
static void catch_signals(void) {
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &a, NULL);
}

static double bits_per_weight(uint64_t bytes, uint64_t elements) { return elements ? 8.0 * (double)bytes / (double)elements : 0; }

static void print_report(const gguf_quantize_report *r, const char *out, double seconds) {
    char before[32], after[32];
    printf("%s -> %s (%.2f -> %.2f bits per weight) in %.1f s: %s\n", cli_bytes(before, r->file_bytes_in), cli_bytes(after, r->file_bytes_out),
           bits_per_weight(r->tensor_bytes_in, r->elements), bits_per_weight(r->tensor_bytes_out, r->elements), seconds, out);
    printf("%zu tensors converted, %zu kept as they were\n", r->converted, r->kept);
    if (r->fallbacks) printf("%zu tensors have rows that do not fit the wanted format and got a near one\n", r->fallbacks);
    if (r->requantized)
        printf("%zu tensors had been quantized before; for the best quality start from an F16, BF16 or F32 file\n", r->requantized);
}

static void make_about(char *out, size_t cap) {
    size_t used = (size_t)snprintf(out, cap,
                                   "Writes the model IN to OUT with its weights in another number format. A split model becomes one file.\n"
                                   "OUT appears when it is complete, and not at all when something fails.\n"
                                   "\n"
                                   "MIX is one of:");
    const gguf_mix *m;
    for (size_t i = 0; (m = gguf_mix_at(i)) && used < cap; i++) used += (size_t)snprintf(out + used, cap - used, "%s%s", i % 11 ? " " : "\n  ", m->name);
}

int cmd_quantize(int argc, char **argv) {
    gguf_quantize_options options = {.progress = cli_progress, .cancel = &stop};
    const cli_option table[] = {
        {"--threads", 't', CLI_INT, &options.threads, "N", "threads to use (0: one per core)", 0, 1024},
        {0},
    };
    char about[1024];
    make_about(about, sizeof about);
    const cli_spec spec = {"hearth quantize IN OUT MIX [options]", about, table, NULL, 3, 3};
    const char *args[3];
    int status;
    if (cli_parse(&spec, argc, argv, args, &status) < 0) return status;
    err e = {0};
    if (!(options.mix = gguf_mix_find(args[2], &e))) {
        cli_fail(&e);
        return 2;
    }
    double start = clock_seconds();
    gguf *in = gguf_open(args[0], &e);
    if (!in) return cli_fail(&e);
    catch_signals();
    gguf_quantize_report report;
    bool ok = gguf_quantize(in, args[1], &options, &report, &e);
    gguf_close(in);
    if (!ok) {
        cli_progress(NULL, "", 1, 1); /* clears the bar */
        cli_fail(&e);
        return e.code == HEARTH_CANCELLED ? 130 : 1;
    }
    print_report(&report, args[1], clock_seconds() - start);
    return 0;
}
