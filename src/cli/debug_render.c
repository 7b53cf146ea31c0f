/* debug_render.c: `hearth debug render`: a chat template with variables from a JSON file. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "cli/cli.h"
#include "text/jinja.h"

#define TEMPLATE_LIMIT ((size_t)16 << 20)
#define INPUT_LIMIT ((size_t)256 << 20)

/* Reads "2026-01-15", "2026-01-15T08:30", "2026-01-15 08:30:00Z" and the like. The time is shown as it is written, whatever its zone. */
static bool parse_time(const char *text, struct tm *out) {
    int year, month, day, hour = 0, minute = 0, second = 0, used = 0, more = 0;
    if (sscanf(text, "%4d-%2d-%2d%n", &year, &month, &day, &used) != 3 || used != 10) return false;
    const char *p = text + used;
    if (*p == 'T' || *p == ' ') {
        if (sscanf(p + 1, "%2d:%2d%n", &hour, &minute, &more) != 2) return false;
        p += 1 + more;
        if (*p == ':') {
            if (sscanf(p + 1, "%2d%n", &second, &more) != 1) return false;
            p += 1 + more;
        }
        if (*p == '.') p += 1 + strspn(p + 1, "0123456789");
        if (*p == 'Z') p++;
        else if (*p == '+' || *p == '-') p += 1 + strspn(p + 1, "0123456789:");
    }
    if (*p || year < 1 || month < 1 || month > 12 || day < 1 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 ||
        second > 60)
        return false;
    struct tm t = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = hour, .tm_min = minute, .tm_sec = second};
    struct tm normal = t;
    timegm(&normal); /* the day of the week and of the year */
    if (normal.tm_mon != t.tm_mon || normal.tm_mday != t.tm_mday) return false;
    *out = normal;
    out->tm_sec = second;
    out->tm_min = minute;
    out->tm_hour = hour;
    out->tm_zone = "";
    return true;
}

/* The member `now` is the clock and not a variable. */
static bool take_time(json_t *variables, struct tm *now, err *e) {
    json_t *given = json_object_get(variables, "now");
    if (!given) {
        time_t t = time(NULL);
        if (!localtime_r(&t, now)) return err_set(e, HEARTH_IO, "the clock of this machine cannot be read");
        return true;
    }
    const char *text = json_string_value(given);
    if (!text || strlen(text) != json_string_length(given) || !parse_time(text, now))
        return err_set(e, HEARTH_FORMAT, "now must be a time such as \"2026-01-15T00:00:00\"");
    json_object_del(variables, "now");
    return true;
}

static json_t *load_input(const char *path, err *e) {
    buf text = {0};
    if (!file_read(path, INPUT_LIMIT, &text, e)) {
        buf_free(&text);
        return NULL;
    }
    json_error_t why;
    json_t *j = json_loadb(text.data ? text.data : "", text.len, JSON_ALLOW_NUL, &why);
    buf_free(&text);
    char quoted[200];
    if (!j) {
        err_set(e, HEARTH_FORMAT, "%s: not valid JSON: line %d: %s", path, why.line,
                err_quote(quoted, sizeof quoted, why.text, strlen(why.text)));
    } else if (!json_is_object(j)) {
        err_set(e, HEARTH_FORMAT, "%s: must be a JSON object whose members are the template's variables", path);
        json_decref(j);
        j = NULL;
    }
    return j;
}

static jinja *load_template(const char *path, err *e) {
    buf text = {0};
    jinja *t = NULL;
    if (file_read(path, TEMPLATE_LIMIT, &text, e)) {
        t = jinja_parse(text.data ? text.data : "", text.len, e);
        if (!t) err_prefix(e, "%s", path);
    }
    buf_free(&text);
    return t;
}

static bool render(const char *template_path, const char *input_path, buf *out, err *e) {
    struct tm now = {0};
    jinja *t = load_template(template_path, e);
    json_t *variables = t ? load_input(input_path, e) : NULL;
    bool ok = variables != NULL;
    if (ok && !take_time(variables, &now, e)) ok = err_prefix(e, "%s", input_path);
    if (ok && !jinja_render(t, variables, &now, out, e)) {
        /* What the template itself says is passed on as it is. */
        ok = e->code == HEARTH_ARGUMENT ? false : err_prefix(e, "%s", template_path);
    }
    json_decref(variables);
    jinja_free(t);
    return ok;
}

int debug_render(int argc, char **argv) {
    const char *template_path = NULL, *input_path = NULL;
    const cli_option options[] = {
        {.name = "--template", .kind = CLI_TEXT, .target = &template_path, .value = "FILE", .help = "the Jinja template"},
        {.name = "--input",
         .kind = CLI_TEXT,
         .target = &input_path,
         .value = "FILE",
         .help = "a JSON object: the variables, and now for the clock"},
        {0},
    };
    const cli_spec spec = {
        .usage = "hearth debug render --template FILE --input CASE.json",
        .about = "Renders a chat template with the members of a JSON object as its variables and writes the text.\n"
                 "The member now (\"2026-01-15T00:00:00\") fixes the clock; without it local time is used.",
        .options = options,
    };
    int status;
    if (cli_parse(&spec, argc, argv, NULL, &status) < 0) return status;
    if (!template_path || !input_path) {
        cli_failf("debug render needs --template FILE and --input FILE");
        return 2;
    }
    err e = {0};
    buf out = {0};
    int result = 0;
    if (!render(template_path, input_path, &out, &e)) result = cli_fail(&e);
    else if (fwrite(out.data ? out.data : "", 1, out.len, stdout) != out.len || fflush(stdout) != 0)
        result = cli_failf("standard output cannot be written");
    buf_free(&out);
    return result;
}
