/* bench_plot.c: the results as a drawing: a bar per case, the peer's under it, and a mark where the machine's limit is. Prefill and decode
 * have a panel and a scale each. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/bench.h"

enum { WIDTH = 760, LEFT = 190, RIGHT = 90, ROW = 40, BAR = 13, TOP = 50, HEAD = 34 };

bool bench_svg_text(buf *out, int x, int y, const char *style, const char *s, err *e) {
    bool ok = buf_addf(out, e, "<text x=\"%d\" y=\"%d\" class=\"%s\">", x, y, style);
    for (; ok && *s; s++) {
        if (*s == '&') ok = buf_adds(out, "&amp;", e);
        else if (*s == '<') ok = buf_adds(out, "&lt;", e);
        else if ((unsigned char)*s >= 0x20) ok = buf_addc(out, *s, e);
    }
    return ok && buf_adds(out, "</text>\n", e);
}

static bool bar(buf *out, int y, const char *style, double value, double scale, err *e) {
    char label[32];
    snprintf(label, sizeof label, value < 100 ? "%.1f" : "%.0f", value);
    int width = (int)lround(value * scale);
    return buf_addf(out, e, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"%s\"/>\n", LEFT, y, width, BAR, style) &&
           bench_svg_text(out, LEFT + width + 5, y + 11, "value", label, e);
}

static bool draw_case(buf *out, const bench_case *c, int y, double scale, err *e) {
    char label[64];
    int n = snprintf(label, sizeof label, "%s %d", c->n_gen ? "decode" : "prefill", c->n_prompt + c->n_gen);
    if (c->depth) n += snprintf(label + n, sizeof label - (size_t)n, " at %d", c->depth);
    if (c->batch > 1) snprintf(label + n, sizeof label - (size_t)n, ", %d together", c->batch);
    bool ok = bench_svg_text(out, LEFT - 8, y + 11, "label", label, e) && bar(out, y, "ours", bench_median(&c->ours), scale, e);
    if (ok && c->theirs.n > 0) ok = bar(out, y + BAR + 2, "theirs", bench_median(&c->theirs), scale, e);
    double limit = c->limit * scale;
    if (ok && c->limit > 0 && limit <= WIDTH - LEFT - RIGHT)
        ok = buf_addf(out, e, "<path d=\"M%d %dv%d\" class=\"limit\"/>\n", LEFT + (int)lround(limit), y - 3, 2 * BAR + 8);
    return ok;
}

static bool draw_panel(const bench *b, buf *out, bool gen, int *y, err *e) {
    double most = 0;
    for (int i = 0; i < b->n_cases; i++) {
        const bench_case *c = &b->cases[i];
        if ((c->n_gen > 0) != gen) continue;
        most = fmax(most, bench_median(&c->ours));
        if (c->theirs.n > 0) most = fmax(most, bench_median(&c->theirs));
        /* A limit far away would squeeze the bars: it is then left out. */
        if (c->limit < 3 * bench_median(&c->ours)) most = fmax(most, c->limit);
    }
    if (most <= 0) return true;
    bool ok = bench_svg_text(out, 16, *y + 12, "head", gen ? "decode, tokens per second" : "prefill, tokens per second", e);
    *y += HEAD;
    for (int i = 0; ok && i < b->n_cases; i++) {
        if ((b->cases[i].n_gen > 0) != gen) continue;
        ok = draw_case(out, &b->cases[i], *y, (WIDTH - LEFT - RIGHT) / most, e);
        *y += ROW;
    }
    return ok;
}

static bool draw_legend(const bench *b, buf *out, int y, err *e) {
    bool ok = buf_addf(out, e, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" class=\"ours\"/>\n", LEFT, y) && bench_svg_text(out, LEFT + 17, y + 11, "value", "hearth", e);
    if (ok && b->peer)
        ok = buf_addf(out, e, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" class=\"theirs\"/>\n", LEFT + 90, y) && bench_svg_text(out, LEFT + 107, y + 11, "value", "peer", e);
    return ok && buf_addf(out, e, "<path d=\"M%d %dv14\" class=\"limit\"/>\n", LEFT + 170, y - 1) &&
           bench_svg_text(out, LEFT + 178, y + 11, "value", "limit of the machine (memory, arithmetic)", e);
}

bool bench_svg_write(const bench *b, const char *path, const buf *body, int width, int height, err *e) {
    static const char style[] =
        "<style>text{font:13px sans-serif;fill:#222}.head,.title{font-weight:bold}.label{text-anchor:end}.value{font-size:12px}"
        ".ours{fill:#d9541e}.theirs{fill:#9aa5b1}.warm{fill:#eda16a}.dropped{fill:#f3cdb0}.limit{stroke:#222;stroke-width:1.5;stroke-dasharray:3 2}"
        ".grid{stroke:#ddd}</style>\n";
    buf all = {0};
    char title[512], name[256];
    err_quote(name, sizeof name, b->info.name, strlen(b->info.name));
    snprintf(title, sizeof title, "%s %s, %s kernels, %d threads", b->info.architecture, name, b->info.cpu, b->info.threads);
    bool ok = buf_addf(&all, e, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\">\n%s<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", width,
                       height, style) &&
              bench_svg_text(&all, 16, 26, "title", title, e) && buf_add(&all, body->data, body->len, e) && buf_adds(&all, "</svg>\n", e);
    file_writer w;
    if (ok && file_writer_open(&w, path, e)) {
        ok = file_writer_add(&w, all.data, all.len, e);
        if (ok) ok = file_writer_commit(&w, e);
        else file_writer_abort(&w);
    } else {
        ok = false;
    }
    buf_free(&all);
    return ok;
}

bool bench_plot(const bench *b, const char *path, err *e) {
    buf body = {0};
    int y = TOP;
    bool ok = draw_panel(b, &body, false, &y, e) && draw_panel(b, &body, true, &y, e) && draw_legend(b, &body, y, e);
    ok = ok && bench_svg_write(b, path, &body, WIDTH, y + 30, e);
    buf_free(&body);
    return ok;
}
