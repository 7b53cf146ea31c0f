/* mem.h: the one allocator, so that tests can make the Nth allocation fail, and the growable buffer. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/err.h"

/* All return NULL and set e on failure (also when count * size overflows). mem_free accepts NULL. */
void *mem_alloc(size_t count, size_t size, err *e);
void *mem_zalloc(size_t count, size_t size, err *e);
void *mem_realloc(void *old, size_t count, size_t size, err *e); /* old stays valid on failure */
void *mem_aligned(size_t count, size_t size, err *e);            /* 64-byte aligned, freed with mem_free */
char *mem_strndup(const char *s, size_t len, err *e);            /* adds the NUL */
void mem_free(void *p);

/* Address space for large things: its pages cost memory from their first touch until they are dropped, start as zeros, and are huge
 * where the system has them. A drop gives back the whole pages within its range. */
size_t mem_page(void); /* bytes of a page */
void *mem_reserve(size_t bytes, err *e);
void mem_reserve_drop(void *reserved, size_t offset, size_t bytes);
void mem_reserve_free(void *reserved, size_t bytes); /* accepts NULL */

/* For tests: the nth allocation from now fails (1 is the next one); 0 turns it off. */
void mem_fail_nth(long n);
/* For tests: how many allocations were made since mem_fail_nth was last called. */
long mem_count(void);

/* A growable run of bytes. Zero-initialised is empty. data is always followed by a NUL once non-NULL. */
typedef struct buf {
    char *data;
    size_t len, cap;
    size_t limit; /* most bytes it may hold; 0: no limit */
} buf;

bool buf_reserve(buf *b, size_t extra, err *e);
bool buf_add(buf *b, const void *data, size_t len, err *e);
bool buf_adds(buf *b, const char *s, err *e);
bool buf_addc(buf *b, char c, err *e);
bool buf_addf(buf *b, err *e, const char *format, ...) __attribute__((format(printf, 3, 4)));
void buf_free(buf *b);

#endif
