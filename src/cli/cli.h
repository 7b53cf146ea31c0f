/* cli.h: what the subcommands share: the table of options that is both the parser and the --help text,
 * failing with one sentence, progress on the terminal. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/err.h"

/* A subcommand gets its own name in argv[0] and returns the exit status: 0, 1 for a failure, 2 for wrong usage. */
typedef int cli_main(int argc, char **argv);
typedef struct cli_command {
    const char *name;
    cli_main *run;
    const char *summary;
} cli_command;

cli_main cmd_run, cmd_chat, cmd_serve, cmd_inspect, cmd_quantize, cmd_bench, cmd_cache, cmd_debug;
/* The forms of `hearth debug`. */
cli_main debug_tokens, debug_text, debug_render, debug_logits, debug_perplexity, debug_decode, debug_encode;

/* Those of `hearth cache` for agents. */
cli_main cache_ls, cache_show, cache_verify, cache_rm, cache_gc, cache_stats;

/* Runs argv[1] from a table that ends with a NULL name; --help lists it. program is "hearth" or "hearth debug". */
int cli_dispatch(const char *program, const cli_command *commands, int argc, char **argv);

typedef enum cli_kind { CLI_FLAG, CLI_INT, CLI_U64, CLI_FLOAT, CLI_TEXT, CLI_LIST, CLI_BYTES, CLI_SWITCH } cli_kind;

/* One option. The target has the kind's type: bool, int, uint64_t, float, const char *, cli_list, uint64_t (CLI_BYTES: 1500000, 800M, 1.5G, 2GiB; auto is
 * UINT64_MAX), bool (CLI_SWITCH: on or off). A table ends with a NULL name. */
typedef struct cli_option {
    const char *name; /* "--top-k" */
    char letter;      /* 'n' for -n, or 0 */
    cli_kind kind;
    void *target;
    const char *value; /* "N" in --help */
    const char *help;
    double min, max;   /* for numbers, checked when min < max */
} cli_option;

/* Values of an option that may be given several times; at most 64. Points into argv. */
typedef struct cli_list {
    const char *items[64];
    int n;
} cli_list;

typedef struct cli_spec {
    const char *usage;  /* "hearth run [MODEL] [PROMPT] [options]" */
    const char *about;  /* a few sentences under it */
    const cli_option *options;      /* two tables so that commands can share one; either may be NULL */
    const cli_option *more_options;
    int min_args, max_args; /* positional ones */
} cli_spec;

/* Parses argv[1..]; options and positional arguments may mix, `--` ends options. args gets the positional ones (room for max_args).
 * Returns their number, or -1 when the command must end at once with *status (--help printed, or a sentence on stderr). */
int cli_parse(const cli_spec *spec, int argc, char **argv, const char **args, int *status);

/* Appends the options of the weight cache and of keys and values to a table (it must have room), to be parsed into o; warnings go to stderr. Returns CLI_ENGINE_OPTIONS. */
enum { CLI_ENGINE_OPTIONS = 10 };
int cli_engine_table(cli_option *table, hearth_engine_options *o);

/* Closes an engine. When that waits for packed weights to be written, the terminal says so. */
void cli_engine_close(hearth_engine *engine);

/* Prints the sentence and the usage line on stderr and returns 2, for what cli_parse cannot check. */
int cli_usage(const cli_spec *spec, const err *e);

/* Prints "hearth: sentence" on stderr and returns 1. */
int cli_fail(const err *e);
int cli_failf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A progress bar on stderr when it is a terminal, nothing when it is not. */
void cli_progress(void *unused, const char *what, uint64_t done, uint64_t total);

/* Text for people: "1.54 GB". Returns out. */
char *cli_bytes(char out[32], uint64_t bytes);

/* The path of the default model, or NULL with e set: looked for beside the program and where it was installed. Lives until the next call. */
const char *cli_default_model(err *e);
/* Says on stderr that the default model answers, and how to use another; command is "run" or "chat". */
void cli_default_notice(const char *command);

#endif
