/* edits.h: hostile files as edits of sound ones, so that what comes after a checksum or a magic number is reached too. An input is a list of edits of 4 bytes: a place (2), a
 * kind, a value. */
#ifndef TESTS_FUZZ_EDITS_H
#define TESTS_FUZZ_EDITS_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/support.h"

/* Changes the copy of a file in place; its size may shrink. */
static inline void apply_edits(buf *file, const uint8_t *data, size_t size) {
    static const uint64_t values[] = {0, 1, 2, 0x7f, 0xff, 0x100, 0x7fff, 0xffff, 0x10000, 0x7fffffff, 0x80000000u, 0xffffffffu, 0x100000000u, INT64_MAX, (uint64_t)1 << 63, UINT64_MAX};
    for (; size >= 4 && file->len > 16; data += 4, size -= 4) {
        size_t at = ((size_t)data[0] | (size_t)data[1] << 8) % (file->len - 8);
        uint64_t v = values[data[3] % 16];
        switch (data[2] % 8) {
        case 0: file->data[at] = (char)data[3]; break;
        case 1: file->data[at] ^= (char)(1 << data[3] % 8); break;
        case 2: memcpy(file->data + at, &v, 4); break;
        case 3: memcpy(file->data + at, &v, 8); break;
        case 4: file->data[at] = (char)(file->data[at] + (int8_t)data[3]); break;
        case 5: memmove(file->data + at, file->data + at + data[3] % 8, file->len - at - 8); break;
        case 6: memmove(file->data + at + data[3] % 8, file->data + at, file->len - at - 8); break;
        case 7: file->len = at + 8; break;
        }
    }
}

/* A file without a place on disk; the path lives until the next call. */
static inline const char *memory_file(const void *data, size_t len) {
    static int fd = -1;
    static char path[64];
    if (fd < 0) fd = memfd_create("fuzz", 0);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, data, len, 0) != (ssize_t)len) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

#endif
