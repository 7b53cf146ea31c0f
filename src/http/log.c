/* log.c: one line per request, as words for people or as JSON for programs. */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "http/inner.h"

static void time_now(char out[64]) {
    struct timespec now;
    struct tm tm;
    char when[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, 64, "%s.%03ldZ", when, now.tv_nsec / 1000000);
}

/* Control characters and broken UTF-8 are shown, not sent. */
static void add_json(buf *out, const char *text) {
    char shown[600];
    err_quote(shown, sizeof shown, text, strlen(text));
    buf_addc(out, '"', NULL);
    for (const char *c = shown; *c; c++) {
        if (*c == '"' || *c == '\\') buf_addc(out, '\\', NULL);
        buf_addc(out, *c, NULL);
    }
    buf_addc(out, '"', NULL);
}

static void add_words(buf *out, const char *text) {
    char shown[600];
    bool plain = text[0] != 0;
    for (const char *c = text; *c; c++) plain = plain && *c > ' ' && *c != '"' && *c != '=';
    err_quote(shown, sizeof shown, text, strlen(text));
    for (char *c = shown; *c; c++)
        if (*c == '"') *c = '\'';
    buf_addf(out, NULL, plain ? "%s" : "\"%s\"", shown);
}

/* What JSON knows as a number. */
static bool is_number(const char *s) {
    size_t n = strspn(s, "0123456789.");
    return n > 0 && n < 16 && !s[n] && isdigit((unsigned char)s[0]) && isdigit((unsigned char)s[n - 1]) && (s[0] != '0' || n == 1 || s[1] == '.') &&
           strchr(s, '.') == strrchr(s, '.');
}

static void add_pair(buf *out, bool json, const char *name, const char *value) {
    if (!json) {
        buf_addf(out, NULL, " %s=", name);
        add_words(out, value);
        return;
    }
    buf_addf(out, NULL, ",\"%s\":", name);
    if (is_number(value)) buf_adds(out, value, NULL);
    else add_json(out, value);
}

void http_note(http_request *r, const char *name, const char *format, ...) {
    char value[512];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    if (r->server->o.log) add_pair(&r->notes, r->server->o.log_json, name, value);
}

static void write_line(const http_options *o, buf *line) {
    if (buf_adds(line, o->log_json ? "}\n" : "\n", NULL)) {
        fwrite(line->data, 1, line->len, o->log);
        fflush(o->log);
    }
    buf_free(line);
}

static void begin_line(const http_options *o, buf *line) {
    char when[64];
    time_now(when);
    buf_addf(line, NULL, o->log_json ? "{\"time\":\"%s\"" : "%s", when);
}

void log_request(const http_request *r, bool whole) {
    const http_options *o = &r->server->o;
    if (!o->log) return;
    buf line = {0};
    char number[32];
    begin_line(o, &line);
    add_pair(&line, o->log_json, "id", r->id);
    add_pair(&line, o->log_json, "method", r->method);
    add_pair(&line, o->log_json, "path", r->path);
    snprintf(number, sizeof number, "%d", r->status);
    add_pair(&line, o->log_json, "status", number);
    snprintf(number, sizeof number, "%.1f", (double)(clock_ns() - r->began) * 1e-6);
    add_pair(&line, o->log_json, "ms", number);
    snprintf(number, sizeof number, "%" PRIu64, r->sent);
    add_pair(&line, o->log_json, "bytes", number);
    if (http_tenant(r)) add_pair(&line, o->log_json, "tenant", http_tenant(r));
    if (!whole) add_pair(&line, o->log_json, "aborted", "1");
    if (r->notes.data) buf_adds(&line, r->notes.data, NULL);
    write_line(o, &line);
}

void http_log(const http_options *o, const char *sentence) {
    if (!o->log) return;
    buf line = {0};
    begin_line(o, &line);
    add_pair(&line, o->log_json, "message", sentence);
    write_line(o, &line);
}
