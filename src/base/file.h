/* file.h: the file shim. Everything hearth reads from or writes to disk goes through here, so that
 * tests can make the Nth call fail. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/mem.h"

/* What tells one state of a file from another without reading it: any write changes the times, any replacement the inode. */
typedef struct file_id {
    uint64_t device, inode, size;
    int64_t modified_ns, changed_ns; /* mtime and ctime */
} file_id;
bool file_id_equal(const file_id *a, const file_id *b);

/* A read-only mapping of a whole file. Zero-initialised is closed. */
typedef struct file_map {
    const unsigned char *data;
    size_t size;
    file_id id; /* of the file that is mapped, whatever its name means by now */
} file_map;

/* Errors name the path. Refuses anything but a regular file. An empty file maps to size 0. */
bool file_map_open(file_map *m, const char *path, err *e);
void file_map_close(file_map *m);
/* Starts reading this part of a mapping from the disk, or takes its pages from this process's count; neither changes what is read. */
void file_map_ahead(const void *data, size_t bytes);
void file_map_drop(const void *data, size_t bytes);
/* Takes this part of a mapping into this process's page table, in huge pages where the file lies in such; reads what is not in memory. Kernels before 5.14 do nothing. */
void file_map_touch(const void *data, size_t bytes);
/* Reads this part of a mapping from the disk. What cannot be read is an error here, and not the signal that touching it would be; kernels before 5.14 do nothing. */
bool file_map_fetch(const void *data, size_t bytes, err *e);
/* Asks for huge pages, also when the file is read from the disk. */
void file_map_huge(const file_map *m);

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
/* The same over several runs: the temporary file has a known name, and what is in it stays up to keep bytes. file_writer_leave ends it too and leaves
 * that file, durable, for the next time. */
bool file_writer_resume(file_writer *w, const char *path, const char *temp, uint64_t keep, err *e);
bool file_writer_leave(file_writer *w, err *e);

/* Writes to the start of a small file where it lies, making it when it is not there: neither whole nor durable should the power fail. */
bool file_put(const char *path, const void *data, size_t len, err *e);

/* The state of the file that path names now. */
bool file_examine(const char *path, file_id *out, err *e);
/* The same, where nothing of that name is no failure: *there tells. */
bool file_look(const char *path, bool *there, file_id *out, err *e);

/* Folders. file_make_folder makes the parents too and accepts one that is there. file_list calls each for every entry but . and .. until it
 * returns false. */
bool file_make_folder(const char *path, err *e);
bool file_list(const char *folder, bool (*each)(void *user, const char *name), void *user, err *e);
bool file_remove(const char *path, err *e);
bool file_rename(const char *from, const char *to, err *e);
bool file_touch(const char *path, err *e); /* sets the times to now */
bool file_set_time(const char *path, int64_t modified_ns, err *e); /* as file_id tells it */
bool file_room(const char *folder, uint64_t *bytes, err *e); /* free on the folder's disk for this user */
/* Takes the one lock of a folder without waiting: *fd is what file_unlock takes, or -1 when another process holds it. */
bool file_lock(const char *folder, int *fd, err *e);
/* The same for a file, which is made when it is not there. */
bool file_lock_file(const char *path, int *fd, err *e);
void file_unlock(int fd);

/* For tests: the nth shim call from now (map, read, open, write, fsync, rename, ...) fails; 0 turns it off. */
void file_fail_nth(long n);
/* For tests: so many more calls of file_map_fetch come through, others wait until more may; negative: all. */
void file_let_fetch(long n);
/* For tests: how many shim calls were made since, while one was to fail. */
long file_count(void);

#endif
