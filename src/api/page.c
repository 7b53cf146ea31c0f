/* page.c: the page, built into the program: web/ as it is. */
#include <string.h>

#include "api/inner.h"

/* The assembler includes the files; the Makefile knows that this depends on them. */
#define EMBED(name, path)                                                                                                              \
    __asm__(".section .rodata\n.global page_" #name "\n.hidden page_" #name "\npage_" #name ":\n.incbin \"" path "\"\n.global page_" #name "_end\n.hidden page_" #name "_end\npage_" #name "_end:\n.byte 0\n.previous\n"); \
    extern const char page_##name[], page_##name##_end[];
EMBED(index, "web/index.html")
EMBED(app, "web/app.js")
EMBED(markdown, "web/markdown.js")
EMBED(style, "web/style.css")
EMBED(icon, "web/icon.svg")

bool page_serve(http_request *r, const char *path) {
    const struct {
        const char *path, *type, *begin, *end;
    } files[] = {
        {"/", "text/html; charset=utf-8", page_index, page_index_end},
        {"/index.html", "text/html; charset=utf-8", page_index, page_index_end},
        {"/app.js", "text/javascript; charset=utf-8", page_app, page_app_end},
        {"/markdown.js", "text/javascript; charset=utf-8", page_markdown, page_markdown_end},
        {"/style.css", "text/css; charset=utf-8", page_style, page_style_end},
        {"/icon.svg", "image/svg+xml", page_icon, page_icon_end},
        {"/favicon.ico", "image/svg+xml", page_icon, page_icon_end},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(files[i].path, path) != 0) continue;
        http_reply_header(r, "Cache-Control", "no-cache");
        http_reply_header(r, "X-Content-Type-Options", "nosniff");
        http_reply_header(r, "Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'");
        http_reply(r, 200, files[i].type, files[i].begin, (size_t)(files[i].end - files[i].begin));
        return true;
    }
    return false;
}
