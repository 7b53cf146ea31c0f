/* bench_start.c: time from exec to the first token, as a user waits for it: hearth is started anew, opens the model, computes one token and
 * prints the next. Cold: the model file is dropped from the page cache before (and what would not go is told); warm: it is there. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/bench.h"
#include "gguf/gguf.h"

bool bench_first_token(const bench *b, err *e) {
    hearth_engine *engine = hearth_engine_open(b->model, &b->engine_options, e);
    hearth_session *s = engine ? hearth_session_new(engine, e) : NULL;
    int32_t token = s ? hearth_token_bos(engine) : HEARTH_TOKEN_NONE;
    if (token == HEARTH_TOKEN_NONE) token = 0;
    bool ok = s && hearth_session_append(s, &token, 1, e);
    const float *logits = ok ? hearth_session_logits(s) : NULL;
    if (ok) {
        int n = hearth_engine_info(engine).n_vocab, best = 0;
        for (int i = 0; i < n && ok; i++) {
            if (!isfinite(logits[i])) ok = err_set(e, HEARTH_UNSUPPORTED, "the logits are no numbers");
            if (logits[i] > logits[best]) best = i;
        }
        if (ok) {
            printf("%d\n", best);
            fflush(stdout);
        }
    }
    hearth_session_free(s);
    hearth_engine_close(engine);
    return ok;
}

/* Which part of an open file's pages are in memory, 0 to 1. */
static double resident_part(int fd, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size + page - 1) / page, in = 0;
    unsigned char *map = size ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    unsigned char *pages = mem_alloc(n + 1, 1, NULL);
    if (map != MAP_FAILED && pages && mincore(map, size, pages) == 0)
        for (size_t i = 0; i < n; i++) in += pages[i] & 1;
    if (map != MAP_FAILED) munmap(map, size);
    mem_free(pages);
    return n ? (double)in / (double)n : 0;
}

bool bench_drop_file(const char *path, double *resident, err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        if (fd >= 0) close(fd);
        return err_set(e, HEARTH_IO, "%s: %s", path, strerror(errno));
    }
    fsync(fd); /* pages that are not written yet cannot be dropped */
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    *resident = fmax(*resident, resident_part(fd, (size_t)st.st_size));
    close(fd);
    return true;
}

/* The number of parts of NAME-00001-of-0000N.gguf, or 1. */
static int count_parts(const char *path) {
    size_t len = strlen(path), tail = strlen("-00001-of-00002.gguf");
    int first = 0, parts = 0, end = 0;
    if (len < tail || sscanf(path + len - tail, "-%5d-of-%5d.gguf%n", &first, &parts, &end) != 2 || end != (int)tail || parts < 1) return 1;
    return parts;
}

static bool drop_model(const char *path, double *resident, err *e) {
    int parts = count_parts(path);
    if (parts == 1) return bench_drop_file(path, resident, e);
    int stem = (int)(strlen(path) - strlen("-00001-of-00002.gguf"));
    for (int i = 1; i <= parts; i++) {
        char part[4096];
        snprintf(part, sizeof part, "%.*s-%05d-of-%05d.gguf", stem, path, i, parts);
        if (!bench_drop_file(part, resident, e)) return false;
    }
    return true;
}

static bool start_once(const bench *b, bench_samples *to, err *e) {
    /* The same options, so that it opens the model as we would. */
    const char *argv[BENCH_ARGUMENTS + 4] = {"/proc/self/exe", "bench", "--first-token"};
    if (b->argc > BENCH_ARGUMENTS) return err_set(e, HEARTH_ARGUMENT, "too many arguments for --start");
    for (int i = 1; i < b->argc; i++) argv[i + 2] = b->argv[i];
    bench_child c = {0};
    bool ok = bench_child_run(argv, &c, e);
    if (ok && c.status != 0) ok = err_set(e, HEARTH_IO, "hearth started anew failed with status %d: %s", c.status, c.complaint);
    char *end = c.out.data;
    if (ok && (c.out.len == 0 || strtol(c.out.data, &end, 10) < 0 || end == c.out.data || *end != '\n'))
        ok = err_set(e, HEARTH_FORMAT, "hearth started anew printed no token");
    if (ok) to->items[to->n++] = c.first_byte;
    bench_child_free(&c);
    return ok;
}

bool bench_start_measure(bench *b, err *e) {
    bench_start *s = &b->start;
    for (int i = 0; i < b->repetitions; i++) {
        bench_status("cold start %d of %d", i + 1, b->repetitions);
        if (!drop_model(b->model, &s->resident, e) || !start_once(b, &s->cold, e)) return false;
    }
    /* A cold start maps only what it reads: one more brings in the rest. */
    bench_samples unused = {0};
    if (!start_once(b, &unused, e)) return false;
    for (int i = 0; i < b->repetitions; i++) {
        bench_status("warm start %d of %d", i + 1, b->repetitions);
        if (!start_once(b, &s->warm, e)) return false;
    }
    bench_status(NULL);
    s->done = true;
    return true;
}
