/* file.h: the file shim. Everything hearth reads from or writes to disk goes through here, so that
 * tests can make the Nth call fail. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/mem.h"

/* A read-only mapping of a whole file. Zero-initialised is closed. */
typedef struct file_map {
    const unsigned char *data;
    size_t size;
} file_map;

/* Errors name the path. Refuses anything but a regular file. An empty file maps to size 0. */
bool file_map_open(file_map *m, const char *path, err *e);
void file_map_close(file_map *m);

/* Reads a whole file, or standard input when path is "-", up to limit bytes. Appends to out. */
bool file_read(const char *path, size_t limit, buf *out, err *e);

/* Writing that is durable and whole or not there: a temporary file beside path, fsync, rename over
 * path, fsync of the folder. What is no regular file (a pipe, a device) is written directly. Exactly one of commit and
 * abort ends it. */
typedef struct file_writer {
    int fd;
    char *path, *temp;
    uint64_t written;
} file_writer;
bool file_writer_open(file_writer *w, const char *path, err *e);
bool file_writer_add(file_writer *w, const void *data, size_t len, err *e);
bool file_writer_commit(file_writer *w, err *e);
void file_writer_abort(file_writer *w);

/* For tests: the nth shim call from now (map, read, open, write, fsync, rename) fails; 0 turns it off. */
void file_fail_nth(long n);

#endif
