/* shelf_room.c: the bytes in the folder, counted together by all processes that share it. Who holds the folder's lock reads the count from the file "usage", may
 * write or delete, and leaves the new count there. While something is being written the file says so: who finds that in it knows that its writer was killed, and
 * counts what is there anew. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "store/shelf_inner.h"

/* Seconds: that others may hold the lock (writing a block takes milliseconds), and between two attempts to get it. */
static const double PATIENCE = 5, POLL = 0.001;

static bool put_usage(shelf *s, uint64_t bytes, bool writing, err *e) {
    char text[80], *path = shelf_join(s->folder, "usage", e);
    int n = snprintf(text, sizeof text, "hearth usage %020" PRIu64 " %s %016" PRIx64 "\n", bytes, writing ? "writing" : "settled", s->id);
    bool ok = path && file_put(path, text, (size_t)n, e);
    mem_free(path);
    return ok;
}

/* False when there is no sound count. *who: who has left it. */
static bool get_usage(const shelf *s, uint64_t *bytes, uint64_t *who) {
    buf b = {0};
    char state[16] = "", *path = shelf_join(s->folder, "usage", NULL);
    bool ok = path && file_read(path, 256, &b, NULL) && b.len > 0 && sscanf(b.data, "hearth usage %20" SCNu64 " %7s %16" SCNx64, bytes, state, who) >= 2 &&
              strcmp(state, "settled") == 0;
    buf_free(&b);
    mem_free(path);
    return ok;
}

static void pause_for(double seconds) { nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL); }

/* Who writes one block after the other would hardly ever be found without the lock: who has waited for some time asks for a turn with a file, and who is done
 * then lets others go first. */
static bool wait_for_lock(shelf *s, int *fd, err *e) {
    double start = clock_seconds(), waited = 0;
    char *ask = NULL;
    bool ok = file_lock(s->folder, fd, e);
    while (ok && *fd < 0 && waited < PATIENCE) {
        pause_for(POLL);
        if (!ask && waited > 4 * POLL && (ask = shelf_join(s->folder, "waiting", NULL)) != NULL) file_put(ask, "\n", 1, NULL);
        ok = file_lock(s->folder, fd, e);
        waited = clock_seconds() - start;
    }
    if (ask) file_remove(ask, NULL);
    mem_free(ask);
    return ok;
}

static bool others_wait(const shelf *s) {
    file_id id;
    char *path = shelf_join(s->folder, "waiting", NULL);
    bool there = path && file_examine(path, &id, NULL) && id.modified_ns / 1000000000 + (int64_t)PATIENCE >= shelf_now(); /* an older one's process is gone */
    mem_free(path);
    return there;
}

bool room_enter(shelf *s, err *e) {
    uint64_t bytes, who = 0;
    int fd = -1;
    pthread_mutex_lock(&s->room);
    wait_for_lock(s, &fd, e);
    const bool counted = fd >= 0 && get_usage(s, &bytes, &who);
    if (who != s->id) s->others = true;
    if (counted) {
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
    file_unlock(fd);
    if (others_wait(s)) pause_for(2 * POLL);
    pthread_mutex_unlock(&s->room);
}

static void add_bytes(shelf *s, uint64_t more, uint64_t less) {
    pthread_mutex_lock(&s->lock);
    s->stats.bytes += more;
    s->stats.bytes -= less < s->stats.bytes ? less : s->stats.bytes;
    pthread_mutex_unlock(&s->lock);
}

/* A part is left for what making room takes itself: an agent's file without its tail is there before the one with it is gone. */
static uint64_t usable_of(const shelf_stats *s) { return s->budget - s->budget / 32; }

/* A window part builds on its block, a block on the one before it. */
static bool ground_there(shelf *s, const shelf_file *f) {
    if (!f || (!f->reach && !f->key.index)) return true;
    pthread_mutex_lock(&s->lock);
    bool there = f->reach ? table_find(&s->table, &f->key.name) != NULL : table_find_start(&s->table, f->key.parent) != NULL;
    pthread_mutex_unlock(&s->lock);
    return there;
}

bool shelf_reserve(shelf *s, uint64_t bytes, const shelf_file *f, err *e) {
    err why = {0};
    if (!room_enter(s, &why)) {
        if (why.code != HEARTH_OK && e) *e = why;
        return false;
    }
    shelf_stats now = shelf_get_stats(s);
    uint64_t usable = usable_of(&now), most = bytes < usable ? usable - bytes : 0;
    /* What it builds on must be there, and stay there, for it to be of use. */
    bool ok = bytes <= usable && ground_there(s, f);
    /* Somewhat more than is needed, so that the next block does not start over. */
    if (ok && now.bytes > most) ok = room_collect(s, most - most / 32, f, e);
    now = shelf_get_stats(s);
    usable = usable_of(&now);
    ok = ok && bytes <= usable && now.bytes <= usable - bytes && ground_there(s, f);
    if (ok) add_bytes(s, bytes, 0);
    if (ok && put_usage(s, now.bytes + bytes, true, e)) return true;
    if (ok) add_bytes(s, 0, bytes);
    room_leave(s);
    return false;
}

void shelf_put_done(shelf *s, const shelf_file *f, uint64_t bytes, bool written) {
    if (!written) add_bytes(s, 0, bytes);
    pthread_mutex_lock(&s->lock);
    if (written && f) {
        index_add(s, &(shelf_record){.key = f->key, .reach = f->reach, .bytes = bytes, .used = shelf_now()}, NULL);
        s->since_sweep += f->reach > 0;
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
