/* engine_options.c: the options of the weight cache and of keys and values, shared by every command that opens a model to compute with it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static void print_warning(void *unused, const char *sentence) {
    (void)unused;
    fprintf(stderr, "hearth: %s\n", sentence);
}

int cli_engine_table(cli_option *table, hearth_engine_options *o) {
    o->warn = print_warning;
    const cli_option options[] = {
        {"--weights-memory", 0, CLI_BYTES, &o->weights_memory, "BYTES", "memory for packed weights (default auto: what the machine has to spare)", 0, 0},
        {"--preload", 0, CLI_TEXT, &o->preload, "WHICH", "weights made ready at start: none, critical or all (default)", 0, 0},
        {"--weights-frequency", 0, CLI_SWITCH, &o->weights_frequency, "on|off", "when memory is short, keep what is used most (default), not last", 0, 0},
        {"--weights-window", 0, CLI_FLOAT, &o->weights_window, "SECONDS", "over which use is counted (default 60)", 0.001, 1e6},
        {"--prefetch", 0, CLI_INT, &o->prefetch, "N", "layers made ready ahead when memory is short (default -1: as is best)", -1, 1e6},
        {"--prefetch-async", 0, CLI_SWITCH, &o->prefetch_async, "on|off", "by a thread of its own (default on)", 0, 0},
        {"--cache", 0, CLI_SWITCH, &o->cache, "on|off", "keep packed weights on disk for the next start (default on)", 0, 0},
        {"--cache-dir", 0, CLI_TEXT, &o->cache_dir, "PATH", "where (default: $XDG_CACHE_HOME/hearth or ~/.cache/hearth)", 0, 0},
        {"--cache-bytes", 0, CLI_BYTES, &o->cache_bytes, "BYTES", "most that all of them may take there (default auto: half of the disk's room)", 0, 0},
        {"--kv-type", 0, CLI_TEXT, &o->kv_type, "TYPE", "keys and values as f16 (default), q8_0 or q4_0; or apart: q8_0,q4_0", 0, 0},
    };
    _Static_assert(sizeof options / sizeof *options == CLI_ENGINE_OPTIONS, "as cli.h says");
    memcpy(table, options, sizeof options);
    return CLI_ENGINE_OPTIONS;
}

void cli_engine_close(hearth_engine *engine) {
    bool tell = engine && isatty(STDERR_FILENO) == 1 && hearth_engine_weights(engine).writing;
    if (tell) fprintf(stderr, "keeping the packed weights for the next start ...");
    hearth_engine_close(engine);
    if (tell) fprintf(stderr, "\r\033[K");
}
