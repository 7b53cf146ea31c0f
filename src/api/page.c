/* page.c: the page, built into the program: web/ as it is. */
#include <string.h>

#include "api/inner.h"

/* The assembler includes the files; the Makefile knows that this depends on them. */
#define EMBED(name, path)                                                                                                              \
    __asm__(".section .rodata\n.global page_" #name "\n.hidden page_" #name "\npage_" #name ":\n.incbin \"" path "\"\n.global page_" #name "_end\n.hidden page_" #name "_end\npage_" #name "_end:\n.byte 0\n.previous\n"); \
    extern const char page_##name[], page_##name##_end[];
EMBED(index, "web/index.html")
EMBED(style, "web/style.css")
EMBED(parts, "web/parts.css")
EMBED(icon, "web/icon.svg")
EMBED(manifest, "web/manifest.json")
EMBED(app, "web/app.js")
EMBED(api, "web/api.js")
EMBED(book, "web/book.js")
EMBED(chart, "web/chart.js")
EMBED(dashboard, "web/dashboard.js")
EMBED(dom, "web/dom.js")
EMBED(highlight, "web/highlight.js")
EMBED(log, "web/log.js")
EMBED(markdown, "web/markdown.js")
EMBED(options, "web/options.js")
EMBED(prefs, "web/prefs.js")
EMBED(runs, "web/runs.js")
EMBED(side, "web/side.js")
EMBED(worker, "web/worker.js")

#define HTML "text/html; charset=utf-8"
#define SCRIPT "text/javascript; charset=utf-8"
#define STYLE "text/css; charset=utf-8"
#define FILE_AT(path, type, name) {path, type, page_##name, page_##name##_end}

/* Only what is in here is loaded, nothing written into the page is run, and no other site may frame it. */
static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; "
                             "frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

bool page_serve(http_request *r, const char *path) {
    const struct {
        const char *path, *type, *begin, *end;
    } files[] = {
        FILE_AT("/", HTML, index),
        FILE_AT("/index.html", HTML, index),
        FILE_AT("/style.css", STYLE, style),
        FILE_AT("/parts.css", STYLE, parts),
        FILE_AT("/icon.svg", "image/svg+xml", icon),
        FILE_AT("/favicon.ico", "image/svg+xml", icon),
        FILE_AT("/manifest.json", "application/manifest+json", manifest),
        FILE_AT("/app.js", SCRIPT, app),
        FILE_AT("/api.js", SCRIPT, api),
        FILE_AT("/book.js", SCRIPT, book),
        FILE_AT("/chart.js", SCRIPT, chart),
        FILE_AT("/dashboard.js", SCRIPT, dashboard),
        FILE_AT("/dom.js", SCRIPT, dom),
        FILE_AT("/highlight.js", SCRIPT, highlight),
        FILE_AT("/log.js", SCRIPT, log),
        FILE_AT("/markdown.js", SCRIPT, markdown),
        FILE_AT("/options.js", SCRIPT, options),
        FILE_AT("/prefs.js", SCRIPT, prefs),
        FILE_AT("/runs.js", SCRIPT, runs),
        FILE_AT("/side.js", SCRIPT, side),
        FILE_AT("/worker.js", SCRIPT, worker),
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(files[i].path, path) != 0) continue;
        http_reply_header(r, "Cache-Control", "no-cache");
        http_reply_header(r, "X-Content-Type-Options", "nosniff");
        http_reply_header(r, "Referrer-Policy", "no-referrer");
        http_reply_header(r, "Content-Security-Policy", policy);
        http_reply(r, 200, files[i].type, files[i].begin, (size_t)(files[i].end - files[i].begin));
        return true;
    }
    return false;
}
