/* bench_memory_report.c: the results of `hearth bench --memory` as a table, as JSON and as a drawing. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"

/* "1.23 s" or "45.6 ms" */
static char *duration(char out[32], double seconds) {
    if (seconds >= 1) snprintf(out, 32, "%.2f s", seconds);
    else snprintf(out, 32, "%.1f ms", seconds * 1e3);
    return out;
}

static double stall_part(const bench_memory_case *c) { return bench_median(&c->stall) / bench_median(&c->saving); }
static double bytes_per_token(const bench_memory_case *c) { return (double)c->disk_bytes / c->context; }

static void print_case(const bench_memory_case *c) {
    char a[32], b[32], d[32], f[32];
    double cold = bench_median(&c->cold), warm = bench_median(&c->warm), hot = bench_median(&c->hot);
    printf("%8d %5d %10s %10s %10s %10s %8.1f x %6.2f x\n", c->context, c->batch, duration(a, cold), duration(b, bench_median(&c->dropped)), duration(d, warm),
           duration(f, hot), cold / warm, warm / hot);
}

static void print_saving(const bench_memory_case *c) {
    char a[32], b[32], d[32], f[32];
    printf("%8d %5d %10s %10s %8.3f %% %10s %10s %12.0f %10.1f\n", c->context, c->batch, duration(a, bench_median(&c->alone)), duration(b, bench_median(&c->saving)),
           100 * stall_part(c), duration(d, bench_median(&c->durable)), duration(f, bench_median(&c->turn_durable)), bytes_per_token(c), 1e9 / (double)c->disk_bytes);
}

void bench_memory_table(const bench *b) {
    const bench_memory *m = &b->memory;
    printf("%s: time to the first token after a turn of %d tokens; %s kernels, %d thread%s, median of %d\n", b->model, m->turn, b->info.cpu, b->info.threads,
           b->info.threads == 1 ? "" : "s", b->repetitions);
    printf("%8s %5s %10s %10s %10s %10s %10s %8s\n", "context", "batch", "cold", "dropped", "warm", "hot", "cold/warm", "warm/hot");
    for (int i = 0; i < m->n_cases; i++) print_case(&m->cases[i]);
    printf("\n%8s %5s %10s %10s %10s %10s %10s %12s %10s\n", "context", "batch", "prefill", "and save", "stall", "durable", "turn's", "bytes/token", "agents/GB");
    for (int i = 0; i < m->n_cases; i++) print_saving(&m->cases[i]);
    for (int i = 0; i < m->n_cases; i++)
        if (m->cases[i].resident > 0.01)
            printf("context %d: up to %.0f %% of a file stayed in memory when the page cache was dropped\n", m->cases[i].context, 100 * m->cases[i].resident);
}

/* ---- JSON ---- */

static void add(json_t *o, const char *key, const bench_samples *s) {
    json_object_set_new(o, key, json_pack("{s:f, s:f, s:o}", "seconds", bench_median(s), "spread", bench_spread(s), "samples", bench_samples_json(s)));
}

json_t *bench_memory_json(const bench *b) {
    const bench_memory *m = &b->memory;
    json_t *o = json_pack("{s:i}", "turn", m->turn), *list = json_array();
    for (int i = 0; i < m->n_cases; i++) {
        const bench_memory_case *c = &m->cases[i];
        double warm = bench_median(&c->warm);
        json_t *x = json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "context", c->context, "batch", c->batch, "cold_over_warm", bench_median(&c->cold) / warm,
                              "warm_over_hot", warm / bench_median(&c->hot), "stall_over_prefill", stall_part(c), "bytes_per_token", bytes_per_token(c),
                              "agents_per_gigabyte", 1e9 / (double)c->disk_bytes, "dropped_resident", c->resident, "agent_bytes", (json_int_t)c->disk_bytes);
        add(x, "cold", &c->cold), add(x, "warm", &c->warm), add(x, "warm_dropped", &c->dropped), add(x, "hot", &c->hot);
        add(x, "prefill", &c->alone), add(x, "prefill_saving", &c->saving), add(x, "stall", &c->stall);
        add(x, "durable", &c->durable), add(x, "turn_durable", &c->turn_durable);
        json_array_append_new(list, x);
    }
    json_object_set_new(o, "results", list);
    return o;
}

/* ---- the drawing: bars on a logarithmic scale ---- */

enum { WIDTH = 760, LEFT = 150, RIGHT = 90, BAR = 13, TOP = 76, ROW = 4 * (BAR + 2) + 16 };

typedef struct scale {
    double low, high; /* powers of ten, in seconds */
} scale;

static int place(const scale *s, double seconds) {
    return LEFT + (int)lround((WIDTH - LEFT - RIGHT) * (log10(seconds) - log10(s->low)) / (log10(s->high) - log10(s->low)));
}

static bool draw_grid(buf *out, const scale *s, int bottom, err *e) {
    bool ok = bench_svg_text(out, 16, 52, "head", "time to the first token", e);
    for (double t = s->low; ok && t <= s->high * 1.01; t *= 10) {
        char label[32];
        if (t >= 1) snprintf(label, sizeof label, "%g s", t);
        else snprintf(label, sizeof label, "%g ms", t * 1e3);
        ok = buf_addf(out, e, "<path d=\"M%d %dV%d\" class=\"grid\"/>\n", place(s, t), TOP - 10, bottom) && bench_svg_text(out, place(s, t) - 12, TOP - 14, "value", label, e);
    }
    return ok;
}

static bool draw_case(buf *out, const scale *s, const bench_memory_case *c, int y, err *e) {
    const struct {
        const char *name, *style;
        const bench_samples *samples;
    } bars[] = {{"cold", "theirs", &c->cold}, {"dropped", "dropped", &c->dropped}, {"warm", "warm", &c->warm}, {"hot", "ours", &c->hot}};
    char label[64];
    snprintf(label, sizeof label, c->batch > 1 ? "%d tokens, %d agents" : "%d tokens", c->context, c->batch);
    bool ok = bench_svg_text(out, LEFT - 8, y + 2 * BAR + 6, "label", label, e);
    for (int i = 0; ok && i < 4; i++, y += BAR + 2) {
        char value[48], time[32];
        int end = place(s, bench_median(bars[i].samples));
        snprintf(value, sizeof value, "%s %s", bars[i].name, duration(time, bench_median(bars[i].samples)));
        ok = buf_addf(out, e, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"%s\"/>\n", LEFT, y, end - LEFT, BAR, bars[i].style) &&
             bench_svg_text(out, end + 5, y + 11, "value", value, e);
    }
    return ok;
}

bool bench_memory_plot(const bench *b, const char *path, err *e) {
    const bench_memory *m = &b->memory;
    double least = INFINITY, most = 0;
    for (int i = 0; i < m->n_cases; i++) {
        const bench_samples *all[] = {&m->cases[i].cold, &m->cases[i].dropped, &m->cases[i].warm, &m->cases[i].hot};
        for (int k = 0; k < 4; k++) least = fmin(least, bench_median(all[k])), most = fmax(most, bench_median(all[k]));
    }
    scale s = {pow(10, floor(log10(least) - 0.01)), pow(10, ceil(log10(most) + 0.01))};
    buf body = {0};
    bool ok = draw_grid(&body, &s, TOP + m->n_cases * ROW - 8, e);
    for (int i = 0; ok && i < m->n_cases; i++) ok = draw_case(&body, &s, &m->cases[i], TOP + i * ROW, e);
    ok = ok && bench_svg_write(b, path, &body, WIDTH, TOP + m->n_cases * ROW + 10, e);
    buf_free(&body);
    return ok;
}
