/* shelf_room.c: the bytes in the folder, counted together by all processes that share it. Who holds the folder's lock reads the count from the file "usage", may
 * write or delete, and leaves the new count there. While something is being written the file says so: who finds that in it knows that its writer was killed, and
 * counts what is there anew. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "store/shelf_inner.h"

static const double PATIENCE = 5; /* seconds that others may hold the lock; writing a block takes milliseconds */

static bool put_usage(shelf *s, uint64_t bytes, bool writing, err *e) {
    char text[64], *path = shelf_join(s->folder, "usage", e);
    int n = snprintf(text, sizeof text, "hearth usage %020" PRIu64 " %s\n", bytes, writing ? "writing" : "settled");
    bool ok = path && file_put(path, text, (size_t)n, e);
    mem_free(path);
    return ok;
}

/* False when there is no sound count. */
static bool get_usage(const shelf *s, uint64_t *bytes) {
    buf b = {0};
    char state[16] = "", *path = shelf_join(s->folder, "usage", NULL);
    bool ok = path && file_read(path, 256, &b, NULL) && b.len > 0 && sscanf(b.data, "hearth usage %20" SCNu64 " %7s", bytes, state) == 2 && strcmp(state, "settled") == 0;
    buf_free(&b);
    mem_free(path);
    return ok;
}

bool room_enter(shelf *s, err *e) {
    double until = clock_seconds() + PATIENCE;
    uint64_t bytes;
    int fd = -1;
    pthread_mutex_lock(&s->room);
    bool ok = file_lock(s->folder, &fd, e);
    while (ok && fd < 0 && clock_seconds() < until) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        ok = file_lock(s->folder, &fd, e);
    }
    if (fd >= 0 && get_usage(s, &bytes)) {
        pthread_mutex_lock(&s->lock);
        s->stats.bytes = bytes;
        pthread_mutex_unlock(&s->lock);
    } else if (fd >= 0 && !shelf_scan(s, e)) {
        file_unlock(fd);
        fd = -1;
    }
    s->room_fd = fd;
    if (fd < 0) pthread_mutex_unlock(&s->room);
    return fd >= 0;
}

void room_leave(shelf *s) {
    int fd = s->room_fd;
    s->room_fd = -1;
    /* A count that cannot be written leaves the old one, or "writing": both are counted anew sooner or later. */
    put_usage(s, shelf_get_stats(s).bytes, false, NULL);
    pthread_mutex_unlock(&s->room);
    file_unlock(fd);
}

static void add_bytes(shelf *s, uint64_t more, uint64_t less) {
    pthread_mutex_lock(&s->lock);
    s->stats.bytes += more;
    s->stats.bytes -= less < s->stats.bytes ? less : s->stats.bytes;
    pthread_mutex_unlock(&s->lock);
}

bool shelf_reserve(shelf *s, uint64_t bytes, const shelf_key *block, err *e) {
    err why = {0};
    if (!room_enter(s, &why)) {
        if (why.code != HEARTH_OK && e) *e = why;
        return false;
    }
    shelf_stats now = shelf_get_stats(s);
    bool ok = bytes <= now.budget;
    /* Somewhat more than is needed, so that the next block does not start over. */
    uint64_t most = ok ? now.budget - bytes : 0;
    if (ok && now.bytes > most) ok = room_collect(s, most - most / 32, block, e);
    now = shelf_get_stats(s);
    ok = ok && bytes <= now.budget && now.bytes <= now.budget - bytes;
    if (ok && block && block->index) {
        pthread_mutex_lock(&s->lock);
        ok = table_find_start(&s->table, block->parent) != NULL;
        pthread_mutex_unlock(&s->lock);
    }
    if (ok) add_bytes(s, bytes, 0);
    if (ok && put_usage(s, now.bytes + bytes, true, e)) return true;
    if (ok) add_bytes(s, 0, bytes);
    room_leave(s);
    return false;
}

void shelf_put_done(shelf *s, const shelf_key *block, uint64_t bytes, bool written) {
    shelf_record r = {.bytes = bytes, .used = shelf_now()};
    if (block) r.key = *block;
    if (!written) add_bytes(s, 0, bytes);
    pthread_mutex_lock(&s->lock);
    if (written && block) {
        shelf_record *old = table_find(&s->table, &block->name);
        if (old) *old = r;
        else if (table_add(&s->table, &r, NULL)) s->stats.blocks++;
    }
    pthread_mutex_unlock(&s->lock);
    room_leave(s);
}

void shelf_agent_bytes(shelf *s, uint64_t old_bytes, uint64_t new_bytes, uint64_t reserved) {
    if (!reserved && !room_enter(s, NULL)) return;
    add_bytes(s, new_bytes, old_bytes + reserved);
    pthread_mutex_lock(&s->lock);
    if (!old_bytes && new_bytes) s->stats.agents++;
    if (old_bytes && !new_bytes && s->stats.agents) s->stats.agents--;
    pthread_mutex_unlock(&s->lock);
    room_leave(s);
}

bool shelf_collect(shelf *s, uint64_t most, bool *busy, err *e) {
    err why = {0};
    *busy = !room_enter(s, &why);
    if (*busy && why.code != HEARTH_OK) {
        *busy = false;
        if (e) *e = why;
        return false;
    }
    if (*busy) return true;
    bool ok = room_collect(s, most, NULL, e);
    room_leave(s);
    return ok;
}
