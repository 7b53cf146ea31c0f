#include "base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_long fail_at; /* 0: never */
static atomic_long counted;

void mem_fail_nth(long n) {
    atomic_store(&counted, 0);
    atomic_store(&fail_at, n);
}

long mem_count(void) { return atomic_load(&counted); }

static bool must_fail(void) {
    long at = atomic_load_explicit(&fail_at, memory_order_relaxed);
    long n = atomic_fetch_add_explicit(&counted, 1, memory_order_relaxed) + 1;
    return at != 0 && n == at;
}

static bool total_bytes(size_t count, size_t size, size_t *total, err *e) {
    if (__builtin_mul_overflow(count, size, total) || *total > PTRDIFF_MAX) return err_nomem(e, SIZE_MAX);
    if (*total == 0) *total = 1;
    return true;
}

static void *check(void *p, size_t total, err *e) {
    if (!p) err_nomem(e, total);
    return p;
}

void *mem_alloc(size_t count, size_t size, err *e) {
    size_t total;
    if (!total_bytes(count, size, &total, e)) return NULL;
    return check(must_fail() ? NULL : malloc(total), total, e);
}

void *mem_zalloc(size_t count, size_t size, err *e) {
    size_t total;
    if (!total_bytes(count, size, &total, e)) return NULL;
    return check(must_fail() ? NULL : calloc(1, total), total, e);
}

void *mem_realloc(void *old, size_t count, size_t size, err *e) {
    size_t total;
    if (!total_bytes(count, size, &total, e)) return NULL;
    return check(must_fail() ? NULL : realloc(old, total), total, e);
}

void *mem_aligned(size_t count, size_t size, err *e) {
    size_t total;
    if (!total_bytes(count, size, &total, e)) return NULL;
    void *p = NULL;
    if (must_fail() || posix_memalign(&p, 64, total) != 0) p = NULL;
    return check(p, total, e);
}

char *mem_strndup(const char *s, size_t len, err *e) {
    char *copy = mem_alloc(len + 1, 1, e);
    if (!copy) return NULL;
    memcpy(copy, s, len);
    copy[len] = 0;
    return copy;
}

void *mem_reserve(size_t bytes, err *e) {
    size_t total;
    if (!total_bytes(bytes, 1, &total, e)) return NULL;
    void *p = must_fail() ? MAP_FAILED : mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return check(NULL, total, e);
    madvise(p, total, MADV_HUGEPAGE); /* a kernel without them says no, which changes nothing */
    return p;
}

size_t mem_page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

void mem_reserve_drop(void *reserved, size_t offset, size_t bytes) {
    uintptr_t page = mem_page(), first = ((uintptr_t)reserved + offset + page - 1) / page * page, end = ((uintptr_t)reserved + offset + bytes) / page * page;
    if (first < end) madvise((void *)first, end - first, MADV_DONTNEED);
}

void mem_reserve_free(void *reserved, size_t bytes) {
    if (reserved) munmap(reserved, bytes ? bytes : 1);
}

void mem_free(void *p) { free(p); }
void hearth_free(void *memory) { free(memory); }

bool buf_reserve(buf *b, size_t extra, err *e) {
    size_t need;
    if (__builtin_add_overflow(b->len, extra, &need) || need == SIZE_MAX) return err_nomem(e, SIZE_MAX);
    if (b->limit && need > b->limit) return err_set(e, HEARTH_LIMIT, "the output is larger than the limit of %zu bytes", b->limit);
    if (need + 1 <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need + 1) cap = cap > SIZE_MAX / 2 ? need + 1 : cap * 2;
    char *data = mem_realloc(b->data, cap, 1, e);
    if (!data) return false;
    b->data = data;
    b->cap = cap;
    return true;
}

bool buf_add(buf *b, const void *data, size_t len, err *e) {
    if (!buf_reserve(b, len, e)) return false;
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
    return true;
}

bool buf_adds(buf *b, const char *s, err *e) { return buf_add(b, s, strlen(s), e); }
bool buf_addc(buf *b, char c, err *e) { return buf_add(b, &c, 1, e); }

bool buf_addf(buf *b, err *e, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool ok = n >= 0 && buf_reserve(b, (size_t)n, e);
    if (ok) {
        vsnprintf(b->data + b->len, (size_t)n + 1, format, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return ok;
}

void buf_free(buf *b) {
    mem_free(b->data);
    *b = (buf){.limit = b->limit};
}
