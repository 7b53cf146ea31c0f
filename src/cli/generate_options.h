/* generate_options.h: the options that `run` and `chat` share: which kernels, how to sample, when to stop. */
#ifndef CLI_GENERATE_OPTIONS_H
#define CLI_GENERATE_OPTIONS_H

#include "base/mem.h"
#include "cli/cli.h"

enum { CLI_GENERATE_MAX = 48 };

typedef struct cli_generate {
    hearth_engine_options engine;
    hearth_sampler_options sampler; /* the seed is random unless given */
    hearth_generate_options generate;
    cli_option table[CLI_GENERATE_MAX]; /* for cli_spec.more_options */
    /* What the parser fills, and what finish makes of it. */
    cli_list stop_given, breakers_given, bias_given;
    char *stop[65], *breakers[65];
    hearth_logit_bias bias[64];
    const char *grammar_file, *schema_file, *regex; /* at most one of these and json */
    bool json;
} cli_generate;

void cli_generate_init(cli_generate *g);
/* To be called after cli_parse. A failure is wrong usage. */
bool cli_generate_finish(cli_generate *g, err *e);
/* The sampler that the options ask for, with its grammar. */
hearth_sampler *cli_generate_sampler(const cli_generate *g, hearth_engine *engine, err *e);
void cli_generate_free(cli_generate *g);

#endif
