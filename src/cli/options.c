/* options.c: parses options from a table and prints the same table as --help. */
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_table(const cli_option *o) {
    for (; o && o->name; o++) {
        char left[64], letter[8] = "    ";
        if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s%s%s%s", letter, o->name, o->value ? " " : "", o->value ? o->value : "");
        printf("  %-32s %s\n", left, o->help);
    }
}

static void print_help(const cli_spec *s) {
    printf("usage: %s\n\n%s\n", s->usage, s->about);
    if (s->options || s->more_options) printf("\noptions:\n");
    print_table(s->options);
    print_table(s->more_options);
    printf("  %-32s %s\n", "    --help", "print this");
}

static const cli_option *find_in(const cli_option *o, const char *name, size_t len, char letter) {
    for (; o && o->name; o++) {
        if (letter ? o->letter == letter : strlen(o->name) == len && memcmp(o->name, name, len) == 0) return o;
    }
    return NULL;
}

static bool set_number(const cli_option *o, const char *text, err *e) {
    char *end = NULL;
    errno = 0;
    double number;
    if (o->kind == CLI_U64) {
        unsigned long long u = strtoull(text, &end, 10);
        if (!*text || *end || errno || strchr(text, '-')) goto bad;
        *(uint64_t *)o->target = u;
        return true;
    }
    if (o->kind == CLI_INT) {
        long n = strtol(text, &end, 10);
        if (!*text || *end || errno || n < -2147483647L || n > 2147483647L) goto bad;
        number = (double)n;
    } else {
        number = strtod(text, &end);
        if (!*text || *end || !isfinite(number)) goto bad;
    }
    if (o->min < o->max && (number < o->min || number > o->max))
        return err_set(e, HEARTH_ARGUMENT, "%s %s is out of range: give a number from %g to %g", o->name, text, o->min, o->max);
    if (o->kind == CLI_INT) *(int *)o->target = (int)number;
    else *(float *)o->target = (float)number;
    return true;
bad:
    return err_set(e, HEARTH_ARGUMENT, "%s needs a %s, not '%s'", o->name, o->kind == CLI_FLOAT ? "number" : "whole number", text);
}

/* 1500000, 800M, 1.5G (powers of 1000), 2GiB (of 1024), auto. */
static bool set_bytes(const cli_option *o, const char *text, err *e) {
    static const char letters[] = "kMGT";
    if (strcmp(text, "auto") == 0) {
        *(uint64_t *)o->target = UINT64_MAX;
        return true;
    }
    char *end = NULL;
    double number = text[0] >= '0' && text[0] <= '9' ? strtod(text, &end) : -1;
    if (end && *end) {
        const char *unit = strchr(letters, *end == 'K' ? 'k' : *end);
        end += unit != NULL;
        double base = unit && *end == 'i' ? 1024 : 1000;
        for (const char *u = letters; unit && u <= unit; u++) number *= base;
        if (unit && *end == 'i') end++;
        if (*end == 'B') end++;
    }
    if (!end || *end || !(number >= 0 && number < 9e18))
        return err_set(e, HEARTH_ARGUMENT, "%s needs a number of bytes such as 1500000, 800M, 2GiB, or auto, not '%s'", o->name, text);
    *(uint64_t *)o->target = (uint64_t)number;
    return true;
}

static bool set_switch(const cli_option *o, const char *text, err *e) {
    bool on = strcmp(text, "on") == 0;
    if (!on && strcmp(text, "off") != 0) return err_set(e, HEARTH_ARGUMENT, "%s needs on or off, not '%s'", o->name, text);
    *(bool *)o->target = on;
    return true;
}

bool cli_option_set(const cli_option *o, const char *text, err *e) {
    switch (o->kind) {
    case CLI_TEXT: *(const char **)o->target = text; return true;
    case CLI_LIST: {
        cli_list *l = o->target;
        if (l->n >= 64) return err_set(e, HEARTH_ARGUMENT, "%s is given more than 64 times", o->name);
        l->items[l->n++] = text;
        return true;
    }
    case CLI_BYTES: return set_bytes(o, text, e);
    case CLI_FLAG:
    case CLI_SWITCH: return set_switch(o, text, e);
    default: return set_number(o, text, e);
    }
}

/* "-5" and "-0.5" are values, not options. */
static bool is_option(const char *s) { return s[0] == '-' && s[1] && !(s[1] >= '0' && s[1] <= '9') && s[1] != '.'; }

static bool take_option(const cli_spec *s, bool *seen, int argc, char **argv, int *i, err *e) {
    const char *arg = argv[*i];
    bool is_long = arg[1] == '-';
    const char *equals = is_long ? strchr(arg, '=') : NULL;
    size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
    char letter = is_long ? 0 : arg[1];
    const cli_option *o = find_in(s->options, arg, len, letter);
    const cli_option *first = s->options;
    size_t before = 0;
    if (!o) {
        while (first && first[before].name) before++;
        o = find_in(s->more_options, arg, len, letter);
        first = s->more_options;
    }
    if (!o) return err_set(e, HEARTH_ARGUMENT, "unknown option '%.*s': --help lists the known ones", (int)len, arg);
    if (seen) seen[before + (size_t)(o - first)] = true;
    if (o->kind == CLI_FLAG) {
        if (equals || (letter && arg[2])) return err_set(e, HEARTH_ARGUMENT, "%s takes no value", o->name);
        *(bool *)o->target = true;
        return true;
    }
    if (equals) return cli_option_set(o, equals + 1, e);
    if (letter && arg[2]) return cli_option_set(o, arg + 2, e);
    if (*i + 1 >= argc) return err_set(e, HEARTH_ARGUMENT, "%s needs a value", o->name);
    return cli_option_set(o, argv[++*i], e);
}

int cli_parse(const cli_spec *s, int argc, char **argv, const char **args, int *status) { return cli_parse_seen(s, NULL, argc, argv, args, status); }

int cli_parse_seen(const cli_spec *s, bool *seen, int argc, char **argv, const char **args, int *status) {
    int n = 0;
    bool options = true;
    err e = {0};
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (options && strcmp(arg, "--") == 0) {
            options = false;
        } else if (options && strcmp(arg, "--help") == 0) {
            print_help(s);
            *status = 0;
            return -1;
        } else if (options && is_option(arg)) {
            if (!take_option(s, seen, argc, argv, &i, &e)) break;
        } else if (n >= s->max_args) {
            err_set(&e, HEARTH_ARGUMENT, "unexpected argument '%s'", arg);
            break;
        } else {
            args[n++] = arg;
        }
    }
    if (e.code == HEARTH_OK && n < s->min_args) err_set(&e, HEARTH_ARGUMENT, "too few arguments");
    if (e.code == HEARTH_OK) return n;
    *status = cli_usage(s, &e);
    return -1;
}

int cli_usage(const cli_spec *s, const err *e) {
    fprintf(stderr, "hearth: %s\nusage: %s\n", e->text, s->usage);
    return 2;
}

int cli_dispatch(const char *program, const cli_command *commands, int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "--help";
    for (const cli_command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0) return c->run(argc - 1, argv + 1);
    if (strcmp(name, "--version") == 0) {
        printf("hearth %s\n", hearth_version());
        return 0;
    }
    bool asked = argc > 1 && (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0);
    FILE *f = asked ? stdout : stderr;
    if (!asked && argc > 1) fprintf(f, "hearth: unknown command '%s'\n", name);
    fprintf(f, "usage: %s COMMAND ...\n\n", program);
    for (const cli_command *c = commands; c->name; c++) fprintf(f, "  %-10s %s\n", c->name, c->summary);
    fprintf(f, "\n%s COMMAND --help tells more.\n", program);
    return asked ? 0 : 2;
}

int cli_fail(const err *e) {
    fflush(stdout);
    fprintf(stderr, "hearth: %s\n", e->text[0] ? e->text : hearth_code_text(e->code));
    return 1;
}

int cli_failf(const char *format, ...) {
    fflush(stdout);
    fputs("hearth: ", stderr);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return 1;
}
