/* trace.c: writing a trace. trace_replay.c repeats it. */
#include "engine/trace.h"

#include <inttypes.h>

#include "base/file.h"

enum { PIECE = 1 << 16 }; /* written at once */

struct trace {
    file_writer file;
    buf text;
    err problem;
};

trace *trace_open(const char *path, err *e) {
    trace *t = mem_zalloc(1, sizeof *t, e);
    if (t && file_writer_open(&t->file, path, e)) return t;
    mem_free(t);
    return NULL;
}

static void write_out(trace *t, size_t least) {
    if (t->text.len < least || t->problem.code != HEARTH_OK) return;
    file_writer_add(&t->file, t->text.data, t->text.len, &t->problem);
    t->text.len = 0;
}

bool trace_close(trace *t, err *e) {
    if (!t) return true;
    write_out(t, 1);
    bool ok = t->problem.code == HEARTH_OK;
    if (ok) {
        ok = file_writer_commit(&t->file, e);
    } else {
        file_writer_abort(&t->file);
        if (e) *e = t->problem;
    }
    buf_free(&t->text);
    mem_free(t);
    return ok;
}

void trace_begin(trace *t, int pass_tokens, int steps, uint64_t max_stall_ns) {
    if (t) buf_addf(&t->text, &t->problem, "hearth-trace 2 %d %d %" PRIu64 "\n", pass_tokens, steps, max_stall_ns);
}

void trace_arrive(trace *t, uint64_t order, uint64_t time, size_t tokens, int priority, uint64_t owner) {
    if (t) buf_addf(&t->text, &t->problem, "arrive %" PRIu64 " %" PRIu64 " %zu %d %" PRIu64 "\n", order, time, tokens, priority, owner);
}

void trace_start(trace *t, uint64_t order, uint64_t time, size_t tokens, size_t known, const uint64_t *held, size_t n_held) {
    if (!t) return;
    buf_addf(&t->text, &t->problem, "start %" PRIu64 " %" PRIu64 " %zu %zu", order, time, tokens, known);
    for (size_t i = 0; i < n_held; i++) buf_addf(&t->text, &t->problem, " %" PRIu64, held[i]);
    buf_addc(&t->text, '\n', &t->problem);
}

static void add_shares(trace *t, const uint64_t *orders, const int *shares, int n) {
    for (int i = 0; i < n; i++) buf_addf(&t->text, &t->problem, " %" PRIu64 " %d", orders[i], shares[i]);
    buf_addc(&t->text, '\n', &t->problem);
    write_out(t, PIECE);
}

void trace_pass(trace *t, uint64_t time, uint64_t duration, const uint64_t *orders, const int *shares, int n) {
    if (!t) return;
    buf_addf(&t->text, &t->problem, "pass %" PRIu64 " %" PRIu64, time, duration);
    add_shares(t, orders, shares, n);
}

void trace_late(trace *t, uint64_t time, uint64_t duration, uint64_t would, const uint64_t *orders, const int *shares, int n) {
    if (!t) return;
    buf_addf(&t->text, &t->problem, "late %" PRIu64 " %" PRIu64 " %" PRIu64, time, duration, would);
    add_shares(t, orders, shares, n);
}

void trace_apart(trace *t, const uint64_t *orders, const int *shares, int n) {
    if (!t) return;
    buf_adds(&t->text, "apart", &t->problem);
    add_shares(t, orders, shares, n);
}

void trace_piece(trace *t, uint64_t time, uint64_t duration, int left, uint64_t rest) {
    if (t) buf_addf(&t->text, &t->problem, "piece %" PRIu64 " %" PRIu64 " %d %" PRIu64 "\n", time, duration, left, rest);
}

void trace_changed(trace *t, trace_change what, uint64_t order) {
    static const char *const words[] = {"again", "back", "end"};
    if (t) buf_addf(&t->text, &t->problem, "%s %" PRIu64 "\n", words[what], order);
}
