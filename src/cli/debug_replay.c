/* debug_replay.c: `hearth debug replay`: repeats what a server's scheduler decided. */
#include <inttypes.h>
#include <stdio.h>

#include "base/file.h"
#include "cli/cli.h"
#include "engine/trace.h"

int debug_replay(int argc, char **argv) {
    const cli_spec spec = {
        .usage = "hearth debug replay FILE",
        .about = "Tells the scheduler once more what it was told while a server ran with --record FILE, and compares what it decides. Ends with 1\n"
                 "when a decision comes out otherwise. Needs no model.",
        .min_args = 1,
        .max_args = 1,
    };
    const char *args[1];
    int status = 0;
    if (cli_parse(&spec, argc, argv, args, &status) < 0) return status;
    err e = {0};
    buf text = {0};
    trace_report r;
    bool ok = file_read(args[0], (size_t)1 << 32, &text, &e) && trace_replay(text.data ? text.data : "", text.len, &r, &e);
    buf_free(&text);
    if (!ok) return cli_fail(&e);
    printf("%" PRIu64 " sequences, %" PRIu64 " starts, %" PRIu64 " passes with %" PRIu64 " tokens in %.1f s: ", r.requests, r.starts, r.passes, r.tokens, r.seconds);
    if (r.differ == 0) printf("decided as recorded\n");
    else printf("%" PRIu64 " decisions differ, the first in line %" PRIu64 "\n", r.differ, r.first_line);
    return r.differ > 0;
}
