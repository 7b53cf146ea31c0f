#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/generate_options.h"

static uint64_t random_seed(void) {
    uint64_t seed;
    /* A short number is easier to give again. */
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = clock_ns();
    return seed % 1000000000u;
}

static const char *cpu_help(void) {
    static char text[160] = "kernels: auto (default), ";
    for (const char *const *name = hearth_cpu_names(); *name; name++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s%s", *name, strcmp(*name, "ref") == 0 ? " (exact)" : "", name[1] ? ", " : "");
    }
    return text;
}

void cli_generate_init(cli_generate *g) {
    *g = (cli_generate){.engine = hearth_engine_defaults(), .sampler = hearth_sampler_defaults(), .generate = hearth_generate_defaults()};
    g->engine.progress = cli_progress;
    g->sampler.seed = random_seed();
    hearth_sampler_options *s = &g->sampler;
    const cli_option table[] = {
        {"--max-tokens", 'n', CLI_INT, &g->generate.max_tokens, "N", "most tokens to generate (default -1: until the model ends)", -1, 1e9},
        {"--stop", 0, CLI_LIST, &g->stop_given, "TEXT", "end before this text; may be repeated; \\n, \\t and \\\\ are understood", 0, 0},
        {"--ignore-end", 0, CLI_FLAG, &g->generate.ignore_end, NULL, "go on when the model ends its answer", 0, 0},
        {"--show-special", 0, CLI_FLAG, &g->generate.show_special, NULL, "print control tokens such as <|im_end|> too", 0, 0},
        {"--temperature", 0, CLI_FLOAT, &s->temperature, "T", "how freely to choose (default 0.8; 0: always the likeliest token)", 0, 100},
        {"--top-k", 0, CLI_INT, &s->top_k, "N", "choose among the N likeliest (default 40; 0: off)", 0, 1e9},
        {"--top-p", 0, CLI_FLOAT, &s->top_p, "P", "choose among the likeliest that make up P (default 0.95; 1: off)", 0, 1},
        {"--min-p", 0, CLI_FLOAT, &s->min_p, "P", "drop what is below P times the likeliest (default 0.05; 0: off)", 0, 1},
        {"--typical-p", 0, CLI_FLOAT, &s->typical_p, "P", "choose among the locally typical that make up P (default 1: off)", 0, 1},
        {"--repeat-penalty", 0, CLI_FLOAT, &s->repeat_penalty, "R", "make repeated tokens less likely (default 1: off)", 0.01, 100},
        {"--frequency-penalty", 0, CLI_FLOAT, &s->frequency_penalty, "R", "taken off per occurrence (default 0: off)", -100, 100},
        {"--presence-penalty", 0, CLI_FLOAT, &s->presence_penalty, "R", "taken off once a token occurred (default 0: off)", -100, 100},
        {"--penalty-last-n", 0, CLI_INT, &s->penalty_last_n, "N", "tokens these look back (default 64; 0: off, -1: all)", -1, 1e9},
        {"--dry-multiplier", 0, CLI_FLOAT, &s->dry_multiplier, "R", "DRY: penalty of repeated sequences (default 0: off; 0.8 is usual)", 0, 100},
        {"--dry-base", 0, CLI_FLOAT, &s->dry_base, "R", "DRY: growth of the penalty per token (default 1.75)", 1, 100},
        {"--dry-allowed-length", 0, CLI_INT, &s->dry_allowed_length, "N", "DRY: longest sequence that costs only the multiplier (default 2)", 0, 1e9},
        {"--dry-last-n", 0, CLI_INT, &s->dry_last_n, "N", "DRY: tokens to look back (default -1: all)", -1, 1e9},
        {"--dry-breaker", 0, CLI_LIST, &g->breakers_given, "TEXT", "DRY: text that sequences do not reach across; may be repeated", 0, 0},
        {"--logit-bias", 0, CLI_LIST, &g->bias_given, "ID=BIAS", "add to the logit of a token (-inf: never); may be repeated", 0, 0},
        {"--grammar", 0, CLI_TEXT, &g->grammar_file, "FILE", "the answer follows the rules in this file (GBNF)", 0, 0},
        {"--json-schema", 0, CLI_TEXT, &g->schema_file, "FILE", "the answer is JSON that fits the schema in this file", 0, 0},
        {"--regex", 0, CLI_TEXT, &g->regex, "PATTERN", "the whole answer matches this regular expression", 0, 0},
        {"--json", 0, CLI_FLAG, &g->json, NULL, "the answer is a JSON object", 0, 0},
        {"--seed", 's', CLI_U64, &s->seed, "N", "same seed, same text (default: random)", 0, 0},
        {"--context", 'c', CLI_INT, &g->engine.context, "N", "most tokens to remember (default 0: as trained)", 0, 1e9},
        {"--threads", 't', CLI_INT, &g->engine.threads, "N", "threads to compute with (default 0: one per core)", 0, 1024},
        {"--cpu", 0, CLI_TEXT, &g->engine.cpu, "NAME", cpu_help(), 0, 0},
        {"--kv-memory", 0, CLI_BYTES, &g->engine.kv_memory, "BYTES", "memory for keys and values that are kept (default auto; 0: none are)", 0, 0},
        {"--store-dir", 0, CLI_TEXT, &g->engine.store_dir, "PATH", "keep them on disk too, there (agents: default ~/.local/share/hearth/kv)", 0, 0},
        {"--kv-disk", 0, CLI_BYTES, &g->engine.kv_disk, "BYTES", "most that they may take there (default auto: half of the disk's room)", 0, 0},
    };
    enum { N = sizeof table / sizeof *table };
    _Static_assert(N + CLI_ENGINE_OPTIONS < CLI_GENERATE_MAX, "the table ends with a NULL name");
    memcpy(g->table, table, sizeof table);
    cli_engine_table(g->table + N, &g->engine);
}

static char *unescape(const char *text, err *e) {
    char *out = mem_strndup(text, strlen(text), e);
    if (!out) return NULL;
    char *to = out;
    for (const char *from = text; *from; from++) {
        char c = *from;
        if (c == '\\' && from[1]) {
            c = *++from;
            if (c == 'n') c = '\n';
            else if (c == 't') c = '\t';
            else if (c == 'r') c = '\r';
            else if (c != '\\') *to++ = '\\'; /* any other is left as it was written */
        }
        *to++ = c;
    }
    *to = 0;
    return out;
}

static bool unescape_all(const cli_list *from, char **to, const char *name, err *e) {
    for (int i = 0; i < from->n; i++) {
        if (!*from->items[i]) return err_set(e, HEARTH_ARGUMENT, "%s needs a text that is not empty", name);
        if (!(to[i] = unescape(from->items[i], e))) return false;
    }
    return true;
}

static bool parse_bias(const char *text, hearth_logit_bias *bias, err *e) {
    char *end;
    long token = strtol(text, &end, 10);
    if (end != text && *end == '=' && token >= 0 && token <= INT32_MAX) {
        const char *value = end + 1;
        double number = strtod(value, &end);
        if (end != value && !*end && number == number && number < 1e30) {
            *bias = (hearth_logit_bias){.token = (int32_t)token, .bias = (float)number};
            return true;
        }
    }
    return err_set(e, HEARTH_ARGUMENT, "--logit-bias needs ID=BIAS, such as 15043=-2.5 or 15043=-inf, not '%s'", text);
}

bool cli_generate_finish(cli_generate *g, err *e) {
    if (g->engine.store_dir) g->engine.store = true;
    const int grammars = (g->grammar_file != NULL) + (g->schema_file != NULL) + (g->regex != NULL) + g->json;
    if (grammars > 1) return err_set(e, HEARTH_ARGUMENT, "only one of --grammar, --json-schema, --regex and --json can be given");
    if (grammars && g->generate.ignore_end) return err_set(e, HEARTH_ARGUMENT, "--ignore-end cannot be combined with a grammar, which decides where the answer ends");
    if (!unescape_all(&g->stop_given, g->stop, "--stop", e) || !unescape_all(&g->breakers_given, g->breakers, "--dry-breaker", e)) return false;
    for (int i = 0; i < g->bias_given.n; i++)
        if (!parse_bias(g->bias_given.items[i], &g->bias[i], e)) return false;
    g->generate.stop = (const char *const *)g->stop;
    if (g->breakers_given.n) g->sampler.dry_breakers = (const char *const *)g->breakers;
    g->sampler.logit_bias = g->bias;
    g->sampler.n_logit_bias = (size_t)g->bias_given.n;
    return true;
}

static hearth_grammar *make_grammar(const cli_generate *g, hearth_engine *engine, err *e) {
    enum { most = 16 << 20 };
    const char *path = g->grammar_file ? g->grammar_file : g->schema_file;
    if (g->json) return hearth_grammar_new(engine, HEARTH_GRAMMAR_JSON, "", 0, e);
    if (g->regex) return hearth_grammar_new(engine, HEARTH_GRAMMAR_REGEX, g->regex, strlen(g->regex), e);
    buf text = {0};
    hearth_grammar *made = NULL;
    if (file_read(path, most, &text, e)) {
        made = hearth_grammar_new(engine, g->grammar_file ? HEARTH_GRAMMAR_GBNF : HEARTH_GRAMMAR_JSON_SCHEMA, text.data ? text.data : "", text.len, e);
        if (!made) err_prefix(e, "%s", path);
    }
    buf_free(&text);
    return made;
}

hearth_sampler *cli_generate_sampler(const cli_generate *g, hearth_engine *engine, err *e) {
    hearth_sampler_options o = g->sampler;
    if ((g->grammar_file || g->schema_file || g->regex || g->json) && !(o.grammar = make_grammar(g, engine, e))) return NULL;
    hearth_sampler *sampler = hearth_sampler_new(engine, &o, e);
    hearth_grammar_free(o.grammar); /* the sampler keeps it */
    return sampler;
}

void cli_generate_free(cli_generate *g) {
    for (int i = 0; i < 64; i++) {
        mem_free(g->stop[i]);
        mem_free(g->breakers[i]);
    }
}
