/* config.c: options from a file. Its names are those of the options, so --help explains it and --print-config writes it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"

enum { LARGEST = 1 << 20 };

static char *trim(char *s) {
    while (*s == ' ' || *s == '\t') s++;
    size_t n = strlen(s);
    while (n > 0 && strchr(" \t\r", s[n - 1])) s[--n] = 0;
    return s;
}

/* The option of this name; *place counts over both tables. */
static const cli_option *find(const cli_spec *s, const char *name, size_t *place) {
    const cli_option *const tables[] = {s->options, s->more_options};
    *place = 0;
    for (int i = 0; i < 2; i++)
        for (const cli_option *o = tables[i]; o && o->name; o++, ++*place)
            if (strcmp(o->name + 2, name) == 0) return o;
    return NULL;
}

static bool set_line(const cli_spec *s, const bool *seen, char *line, err *e) {
    line = trim(line);
    if (!*line || *line == '#') return true;
    char *equals = strchr(line, '='), quoted[80];
    if (!equals) return err_set(e, HEARTH_FORMAT, "'%s' is no line of the form name = value", err_quote(quoted, sizeof quoted, line, strlen(line)));
    *equals = 0;
    char *name = trim(line), *value = trim(equals + 1);
    size_t place;
    const cli_option *o = find(s, name, &place);
    if (!o || strcmp(name, "config") == 0 || strcmp(name, "print-config") == 0)
        return err_set(e, HEARTH_FORMAT, "there is no option '%s': --help lists them", err_quote(quoted, sizeof quoted, name, strlen(name)));
    if (!*value && o->kind != CLI_TEXT) return err_set(e, HEARTH_FORMAT, "'%s' needs a value", name);
    return seen[place] || cli_option_set(o, value, e);
}

bool cli_config_read(const cli_spec *s, const bool *seen, const char *path, buf *text, err *e) {
    if (!file_read(path, LARGEST, text, e)) return false;
    if (!text->data) return true;
    if (strlen(text->data) != text->len) return err_set(e, HEARTH_FORMAT, "%s holds a NUL and is no file of options", path);
    char *line = text->data;
    for (int number = 1; line; number++) {
        char *end = strchr(line, '\n');
        if (end) *end = 0;
        if (!set_line(s, seen, line, e)) return err_prefix(e, "%s, line %d", path, number);
        line = end ? end + 1 : NULL;
    }
    return true;
}

/* ---- printing ---- */

static void print_option(const cli_option *o, bool hidden) {
    const char *name = o->name + 2;
    const char *text = o->kind == CLI_TEXT ? *(const char *const *)o->target : NULL;
    const cli_list *list = o->kind == CLI_LIST ? o->target : NULL;
    if (hidden && (text || (list && list->n))) {
        printf("# %s is set and not shown\n", name);
        return;
    }
    switch (o->kind) {
    case CLI_FLAG:
    case CLI_SWITCH: printf("%s = %s\n", name, *(const bool *)o->target ? "on" : "off"); break;
    case CLI_INT: printf("%s = %d\n", name, *(const int *)o->target); break;
    case CLI_U64: printf("%s = %" PRIu64 "\n", name, *(const uint64_t *)o->target); break;
    case CLI_FLOAT: printf("%s = %.9g\n", name, (double)*(const float *)o->target); break;
    case CLI_TEXT: printf(text ? "%s = %s\n" : "# %s is not set\n", name, text); break;
    case CLI_LIST:
        if (!list->n) printf("# %s is not set\n", name);
        for (int i = 0; i < list->n; i++) printf("%s = %s\n", name, list->items[i]);
        break;
    case CLI_BYTES: {
        uint64_t bytes = *(const uint64_t *)o->target;
        if (bytes == UINT64_MAX) printf("%s = auto\n", name);
        else printf("%s = %" PRIu64 "\n", name, bytes);
        break;
    }
    }
}

void cli_config_print(const cli_spec *s, const char *const *secret) {
    const cli_option *const tables[] = {s->options, s->more_options};
    for (int i = 0; i < 2; i++)
        for (const cli_option *o = tables[i]; o && o->name; o++) {
            bool hidden = false;
            for (const char *const *x = secret; *x; x++) hidden = hidden || strcmp(*x, o->name) == 0;
            if (strcmp(o->name, "--config") != 0 && strcmp(o->name, "--print-config") != 0) print_option(o, hidden);
        }
}
