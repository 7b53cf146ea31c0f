#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static atomic_long fail_at;
static atomic_long counted;

void file_fail_nth(long n) {
    atomic_store(&counted, 0);
    atomic_store(&fail_at, n);
}

long file_count(void) { return atomic_load(&counted); }

static bool must_fail(void) {
    long at = atomic_load(&fail_at);
    if (at == 0) return false;
    if (atomic_fetch_add(&counted, 1) + 1 != at) return false;
    errno = EIO;
    return true;
}

static bool fail(err *e, const char *what, const char *path) {
    return err_set(e, HEARTH_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

static file_id id_of(const struct stat *st) {
    return (file_id){.device = st->st_dev, .inode = st->st_ino, .size = (uint64_t)st->st_size,
                     .modified_ns = st->st_mtim.tv_sec * 1000000000ll + st->st_mtim.tv_nsec,
                     .changed_ns = st->st_ctim.tv_sec * 1000000000ll + st->st_ctim.tv_nsec};
}

bool file_id_equal(const file_id *a, const file_id *b) {
    return a->device == b->device && a->inode == b->inode && a->size == b->size && a->modified_ns == b->modified_ns && a->changed_ns == b->changed_ns;
}

bool file_examine(const char *path, file_id *out, err *e) {
    struct stat st;
    if (must_fail() || stat(path, &st) != 0) return fail(e, "examine", path);
    *out = id_of(&st);
    return true;
}

bool file_look(const char *path, bool *there, file_id *out, err *e) {
    struct stat st;
    *there = !must_fail() && stat(path, &st) == 0;
    if (*there) *out = id_of(&st);
    return *there || errno == ENOENT || fail(e, "examine", path);
}

bool file_map_open(file_map *m, const char *path, err *e) {
    *m = (file_map){0};
    /* O_NONBLOCK: opening a pipe by mistake must not hang. */
    int fd = must_fail() ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return fail(e, "open", path);
    struct stat st;
    bool ok = true;
    if (fstat(fd, &st) != 0) ok = fail(e, "examine", path);
    else if (!S_ISREG(st.st_mode)) ok = err_set(e, HEARTH_IO, "%s: not a regular file", path);
    else if (st.st_size > 0) {
        void *p = must_fail() ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) ok = fail(e, "map", path);
        else *m = (file_map){.data = p, .size = (size_t)st.st_size};
    }
    if (ok) m->id = id_of(&st);
    close(fd);
    return ok;
}

void file_map_close(file_map *m) {
    if (m->data) munmap((void *)m->data, m->size);
    *m = (file_map){0};
}

static int advise(const void *data, size_t bytes, int advice) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data / page * page;
    return bytes && madvise((void *)first, (uintptr_t)data + bytes - first, advice) != 0 ? errno : 0;
}
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

void file_map_ahead(const void *data, size_t bytes) { advise(data, bytes, MADV_WILLNEED); }
void file_map_drop(const void *data, size_t bytes) { advise(data, bytes, MADV_DONTNEED); }
void file_map_touch(const void *data, size_t bytes) { advise(data, bytes, MADV_POPULATE_READ); }

/* How many fetches may come through still; negative: all. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    long left;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, -1};

void file_let_fetch(long n) {
    pthread_mutex_lock(&gate.lock);
    gate.left = n;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void pass_gate(void) {
    pthread_mutex_lock(&gate.lock);
    while (gate.left == 0) pthread_cond_wait(&gate.changed, &gate.lock);
    if (gate.left > 0) gate.left--;
    pthread_mutex_unlock(&gate.lock);
}

bool file_map_fetch(const void *data, size_t bytes, err *e) {
    pass_gate();
    int result = must_fail() ? EIO : 0;
    while (!result && (result = advise(data, bytes, MADV_POPULATE_READ)) == EINTR) result = 0;
    /* Other errors say that the kernel does not do this, or not now. */
    if (result != EIO && result != EFAULT && result != EHWPOISON) return true;
    return err_set(e, HEARTH_IO, "a part of it cannot be read: %s", strerror(EIO));
}

void file_map_huge(const file_map *m) { advise(m->data, m->size, MADV_HUGEPAGE); }

bool file_read(const char *path, size_t limit, buf *out, err *e) {
    bool standard_input = strcmp(path, "-") == 0;
    int fd = standard_input ? STDIN_FILENO : must_fail() ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail(e, "open", path);
    size_t start = out->len;
    bool ok = true;
    for (;;) {
        if (!(ok = buf_reserve(out, 65536, e))) break;
        ssize_t n = must_fail() ? -1 : read(fd, out->data + out->len, 65536);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) ok = fail(e, "read", path);
        if (n <= 0) break;
        out->len += (size_t)n;
        if (out->len - start > limit) {
            ok = err_set(e, HEARTH_LIMIT, "%s: larger than the limit of %zu bytes", path, limit);
            break;
        }
    }
    if (out->data) out->data[out->len] = 0;
    if (!standard_input) close(fd);
    return ok;
}

/* A pipe, terminal or device is written as it is; a link is followed, so that its target is what gets replaced. */
static bool open_other(file_writer *w, const char *path, err *e) {
    struct stat st;
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode)) {
        char *target = realpath(path, NULL);
        w->path = mem_strndup(target ? target : path, strlen(target ? target : path), e);
        free(target);
        return w->path != NULL;
    }
    w->path = mem_strndup(path, strlen(path), e);
    if (!w->path) return false;
    w->fd = must_fail() ? -1 : open(path, O_WRONLY | O_CLOEXEC);
    return w->fd >= 0 || fail(e, "open", path);
}

bool file_writer_open(file_writer *w, const char *path, err *e) {
    *w = (file_writer){.fd = -1};
    bool ok = open_other(w, path, e);
    if (ok && w->fd >= 0) return true;
    buf temp = {0};
    ok = ok && buf_addf(&temp, e, "%s.tmp.%ld.XXXXXX", w->path, (long)getpid());
    w->temp = temp.data;
    if (ok) {
        w->fd = must_fail() ? -1 : mkostemp(w->temp, O_CLOEXEC);
        if (w->fd < 0) ok = fail(e, "create a file beside", path);
        else fchmod(w->fd, 0644);
    }
    if (!ok) {
        mem_free(w->path);
        mem_free(w->temp);
        *w = (file_writer){.fd = -1};
    }
    return ok;
}

bool file_writer_resume(file_writer *w, const char *path, const char *temp, uint64_t keep, err *e) {
    *w = (file_writer){.fd = -1, .written = keep, .path = mem_strndup(path, strlen(path), e), .temp = mem_strndup(temp, strlen(temp), e)};
    bool ok = w->path && w->temp;
    if (ok) {
        w->fd = must_fail() ? -1 : open(temp, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        ok = w->fd >= 0 || fail(e, "create", temp);
    }
    if (ok && (must_fail() || ftruncate(w->fd, (off_t)keep) != 0 || lseek(w->fd, 0, SEEK_END) < 0)) ok = fail(e, "write", temp);
    if (!ok) file_writer_leave(w, NULL);
    return ok;
}

bool file_writer_leave(file_writer *w, err *e) {
    bool ok = w->fd < 0 || (!must_fail() && fsync(w->fd) == 0) || fail(e, "sync", w->temp);
    if (w->fd >= 0) close(w->fd);
    mem_free(w->path);
    mem_free(w->temp);
    *w = (file_writer){.fd = -1};
    return ok;
}

bool file_writer_add(file_writer *w, const void *data, size_t len, err *e) {
    const char *p = data;
    while (len > 0) {
        ssize_t n = must_fail() ? -1 : write(w->fd, p, len > (1u << 30) ? 1u << 30 : len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(e, "write", w->path);
        p += n;
        len -= (size_t)n;
        w->written += (uint64_t)n;
    }
    return true;
}

static bool sync_folder(const char *path, err *e) {
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof folder) return err_set(e, HEARTH_IO, "%s: the path is too long", path);
    if (slash) memcpy(folder, path, n ? n : 1);
    else folder[0] = '.';
    folder[n ? n : 1] = 0;
    int fd = must_fail() ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail(e, "open the folder of", path);
    bool ok = !must_fail() && fsync(fd) == 0;
    if (!ok) fail(e, "sync the folder of", path);
    close(fd);
    return ok;
}

bool file_writer_commit(file_writer *w, err *e) {
    if (!w->temp) {
        bool ok = close(w->fd) == 0 || fail(e, "write", w->path);
        mem_free(w->path);
        *w = (file_writer){.fd = -1};
        return ok;
    }
    if (must_fail() || fsync(w->fd) != 0) {
        fail(e, "sync", w->path);
        file_writer_abort(w);
        return false;
    }
    if (must_fail() || rename(w->temp, w->path) != 0) {
        fail(e, "rename to", w->path);
        file_writer_abort(w);
        return false;
    }
    bool ok = sync_folder(w->path, e);
    close(w->fd);
    mem_free(w->path);
    mem_free(w->temp);
    *w = (file_writer){.fd = -1};
    return ok;
}

void file_writer_abort(file_writer *w) {
    if (w->fd >= 0) {
        close(w->fd);
        if (w->temp) unlink(w->temp);
    }
    mem_free(w->path);
    mem_free(w->temp);
    *w = (file_writer){.fd = -1};
}

bool file_put(const char *path, const void *data, size_t len, err *e) {
    int fd = must_fail() ? -1 : open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return fail(e, "open", path);
    bool ok = !must_fail() && pwrite(fd, data, len, 0) == (ssize_t)len;
    if (!ok) fail(e, "write", path);
    close(fd);
    return ok;
}

/* ---- folders ---- */

bool file_make_folder(const char *path, err *e) {
    char *part = mem_strndup(path, strlen(path), e);
    if (!part) return false;
    bool ok = true;
    for (size_t i = 1; ok && i <= strlen(path); i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        part[i] = 0;
        struct stat st;
        /* Looked at first: a parent on a read-only disk answers mkdir with that and not with "it is there". */
        if (must_fail() || (stat(part, &st) != 0 && mkdir(part, 0755) != 0 && errno != EEXIST)) ok = fail(e, "make the folder", part);
        part[i] = path[i];
    }
    mem_free(part);
    return ok;
}

bool file_list(const char *folder, bool (*each)(void *user, const char *name), void *user, err *e) {
    DIR *d = must_fail() ? NULL : opendir(folder);
    if (!d) return fail(e, "list the folder", folder);
    bool ok = true;
    for (;;) {
        errno = 0;
        struct dirent *entry = must_fail() ? NULL : readdir(d);
        if (!entry) {
            if (errno) ok = fail(e, "list the folder", folder);
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (!each(user, entry->d_name)) break;
    }
    closedir(d);
    return ok;
}

bool file_remove(const char *path, err *e) { return (!must_fail() && unlink(path) == 0) || fail(e, "delete", path); }

bool file_rename(const char *from, const char *to, err *e) { return (!must_fail() && rename(from, to) == 0) || fail(e, "rename", from); }

bool file_touch(const char *path, err *e) { return (!must_fail() && utimensat(AT_FDCWD, path, NULL, 0) == 0) || fail(e, "touch", path); }

bool file_set_time(const char *path, int64_t modified_ns, err *e) {
    const struct timespec at = {.tv_sec = modified_ns / 1000000000, .tv_nsec = modified_ns % 1000000000}, times[2] = {at, at};
    return (!must_fail() && utimensat(AT_FDCWD, path, times, 0) == 0) || fail(e, "set the time of", path);
}

bool file_room(const char *folder, uint64_t *bytes, err *e) {
    struct statvfs v;
    if (must_fail() || statvfs(folder, &v) != 0) return fail(e, "examine the disk of", folder);
    *bytes = (uint64_t)v.f_bavail * v.f_frsize;
    return true;
}

static bool lock(const char *path, int flags, int *fd, err *e) {
    *fd = must_fail() ? -1 : open(path, flags | O_CLOEXEC, 0644);
    if (*fd < 0) return fail(e, "open", path);
    if (!must_fail() && flock(*fd, LOCK_EX | LOCK_NB) == 0) return true;
    bool busy = errno == EWOULDBLOCK;
    close(*fd);
    *fd = -1;
    return busy || fail(e, "lock", path);
}

bool file_lock(const char *folder, int *fd, err *e) { return lock(folder, O_RDONLY | O_DIRECTORY, fd, e); }

bool file_lock_file(const char *path, int *fd, err *e) { return lock(path, O_RDWR | O_CREAT, fd, e); }

void file_unlock(int fd) {
    if (fd >= 0) close(fd);
}
