/* The budgets of memory and disk under traffic of many times their size, in one process and in several; a disk that is full. */
#include "tools/support.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "unit/store_house.h"

enum { BLOCK_BYTES = 4600, DISK = 40 * BLOCK_BYTES, MEMORY = 40 * BLOCK_BYTES, MARKS = 120 }; /* MARKS: store.json and usage are not counted */

/* What is in the folder while nobody writes: a look without the lock would count what went and what came in its place. */
static uint64_t bytes_in(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    paths all = files_of(folder, "");
    free_paths(&all);
    close(fd);
    return all.bytes;
}

/* A turn of some agent: taken up, checked, said, saved. */
static void some_turn(house *h, talk *t, const char *prefix, int agents, uint64_t *rng) {
    err e = {0};
    char name[32];
    int who = (int)(rng_next(rng) % (uint64_t)agents);
    snprintf(name, sizeof name, "%s%d", prefix, who);
    restore(h, t, name, NULL, who, 1, &e);
    if (t->n > 500) rewind_to(t, rng_next(rng) % 200);
    say(h, t, who, 1 + rng_next(rng) % 150, 1);
    check_or_write(t, 0, false, 1);
    if (!save(h, t, name, NULL, &e) || !store_flush(h->store, &e)) fail_msg("%s", e.text);
    end(t, rng_next(rng) % 2);
}

/* ---- one process ---- */

typedef struct watcher {
    house *h;
    const char *folder;
    atomic_bool stop;
    uint64_t most_disk, most_memory, looks;
} watcher;

static void *watch(void *arg) {
    watcher *w = arg;
    while (!w->stop) {
        kv_stats k = kv_cache_stats(w->h->cache);
        uint64_t disk = bytes_in(w->folder);
        if (disk > w->most_disk) w->most_disk = disk;
        if (k.bytes > w->most_memory) w->most_memory = k.bytes;
        w->looks++;
        usleep(2000);
    }
    return NULL;
}

static void traffic_stays_within_both_budgets(void **state) {
    (void)state;
    uint64_t rng = test_seed(), memory_blocks = 0;
    char *folder = fresh_folder();
    house h;
    err e = {0};
    static talk t;
    assert_true(open_house_with(&h, folder, DISK, MEMORY, &e));
    watcher w = {.h = &h, .folder = folder};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
    for (int i = 0; i < 3000; i++) {
        some_turn(&h, &t, "agent", 24, &rng);
        store_stats s = store_get_stats(h.store);
        assert_true(s.disk.bytes <= DISK && kv_cache_stats(h.cache).bytes <= MEMORY);
        memory_blocks = s.written_blocks + s.loaded_blocks + s.skipped;
        if (s.written_bytes >= 10 * (uint64_t)DISK && memory_blocks * BLOCK_BYTES >= 10 * (uint64_t)MEMORY) break;
    }
    w.stop = true;
    pthread_join(thread, NULL);
    store_stats s = store_get_stats(h.store);
    print_message("# %lu bytes written, %lu blocks through memory; at most %lu of %d on disk and %lu of %d in memory in %lu looks\n", (unsigned long)s.written_bytes,
                  (unsigned long)memory_blocks, (unsigned long)w.most_disk, DISK, (unsigned long)w.most_memory, MEMORY, (unsigned long)w.looks);
    assert_true(s.written_bytes >= 10 * (uint64_t)DISK && s.disk.evictions > 0);
    assert_true(w.most_disk <= DISK + MARKS && w.most_memory <= MEMORY);
    uint64_t there = bytes_in(folder);
    if (there < s.disk.bytes || there > s.disk.bytes + MARKS) fail_msg("%lu bytes are there, %lu counted", (unsigned long)there, (unsigned long)s.disk.bytes);
    assert_int_equal(h.warnings, 0);
    close_house(&h);
}

/* ---- several processes ---- */

static void be_a_process(const char *folder, int number, uint64_t rng) {
    house h;
    err e = {0};
    static talk t;
    char prefix[16];
    snprintf(prefix, sizeof prefix, "p%d-", number);
    if (!open_house_with(&h, folder, DISK, MEMORY, &e)) _exit(2);
    for (int i = 0; i < 3000 && store_get_stats(h.store).written_bytes < 4 * (uint64_t)DISK; i++) some_turn(&h, &t, prefix, 8, &rng);
    int status = h.warnings ? 3 : store_get_stats(h.store).written_bytes < 4 * (uint64_t)DISK ? 4 : 0;
    close_house(&h);
    _exit(status);
}

static void processes_share_one_budget(void **state) {
    (void)state;
    uint64_t rng = test_seed(), most = 0, looks = 0;
    char *folder = fresh_folder();
    enum { PROCESSES = 3 };
    pid_t pids[PROCESSES];
    house h;
    err e = {0};
    assert_true(open_house(&h, folder, DISK, &e)); /* makes the folder */
    close_house(&h);
    for (int i = 0; i < PROCESSES; i++) {
        uint64_t seed = rng_next(&rng);
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) be_a_process(folder, i, seed);
    }
    for (int running = PROCESSES; running > 0;) {
        uint64_t bytes = bytes_in(folder);
        if (bytes > most) most = bytes;
        looks++;
        usleep(2000);
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0) continue;
        running--;
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    print_message("# at most %lu of %d in %lu looks\n", (unsigned long)most, DISK, (unsigned long)looks);
    assert_true(most <= DISK + MARKS);
    assert_true(open_house(&h, folder, DISK, &e));
    paths all = files_of(folder, "");
    assert_true(all.bytes <= store_get_stats(h.store).disk.bytes + MARKS);
    free_paths(&all);
    close_house(&h);
}

/* ---- tails ---- */

static void tails_go_before_texts(void **state) {
    (void)state;
    house h;
    err e = {0};
    static talk t;
    char name[32];
    assert_true(open_house(&h, fresh_folder(), 60000, &e));
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "agent%d", i);
        start_talk(&h, &t, NULL);
        say(&h, &t, i, 60, 1); /* no block, only a tail */
        assert_true(save(&h, &t, name, NULL, &e) && store_flush(h.store, &e));
        end(&t, false);
        assert_true(store_get_stats(h.store).disk.bytes <= 60000);
    }
    store_stats s = store_get_stats(h.store);
    assert_true(s.disk.evictions > 5 && s.disk.agents == 30);
    close_house(&h);
    assert_true(open_house(&h, fresh_folder(), 60000, &e));
    close_house(&h);
}

/* All is said and known, whether its tail went or not. */
static void stripped_agents_go_on(void **state) {
    (void)state;
    house h;
    err e = {0};
    static talk t;
    assert_true(open_house(&h, fresh_folder(), SHELF_AUTO, &e));
    start_talk(&h, &t, NULL);
    say(&h, &t, 1, 200, 1);
    assert_true(save(&h, &t, "a", NULL, &e) && store_flush(h.store, &e));
    end(&t, false);
    char *path = shelf_agent_path(store_shelf(h.store), "a", "", ".safetensors", &e);
    agent_record before, after;
    uint64_t freed;
    assert_true(file_set_time(path, 1600000000000000000, &e));
    assert_true(agent_peek(path, &before, &e) && before.n_tail == 8 && before.used == 1600000000);
    assert_true(agent_strip(path, 100, &freed) && freed == 0); /* no room for the new file */
    agent_record mine;
    int lock;
    assert_true(store_take(h.store, "a", "", &mine, &lock, &e));
    assert_false(agent_strip(path, 1 << 20, &freed)); /* open */
    store_release(lock);
    agent_free(&mine);
    assert_true(agent_strip(path, 1 << 20, &freed) && freed > 0);
    assert_true(agent_peek(path, &after, &e) && after.n_tail == 0 && after.used == before.used && after.bytes + freed == before.bytes);
    assert_true(agent_strip(path, 1 << 20, &freed) && freed == 0);
    assert_int_equal(restore(&h, &t, "a", NULL, 1, 1, &e), 192);
    end(&t, false);
    agent_free(&before), agent_free(&after);
    mem_free(path);
    close_house(&h);
}

/* Room is not made for a block by taking away what it builds on. */
static void a_text_larger_than_the_budget_keeps_its_start(void **state) {
    (void)state;
    house h;
    err e = {0};
    static talk t;
    assert_true(open_house(&h, fresh_folder(), 6 * BLOCK_BYTES, &e));
    start_talk(&h, &t, NULL);
    say(&h, &t, 1, 1500, 1);
    assert_true(store_flush(h.store, &e));
    store_stats s = store_get_stats(h.store);
    assert_true(s.disk.blocks >= 4 && s.disk.evictions == 0 && s.skipped == 1500 / KV_BLOCK - s.disk.blocks);
    end(&t, false);
    store_close(h.store);
    kv_cache_free(h.cache);
    kv_layout_free(&h.layout);
}

/* ---- a full disk ---- */

static void a_full_disk_is_borne(void **state) {
    (void)state;
    char *disk = fresh_folder(), folder[700], ballast[700];
    snprintf(folder, sizeof folder, "%s/store", disk);
    snprintf(ballast, sizeof ballast, "%s/ballast", disk);
    assert_int_equal(mkdir(disk, 0755), 0);
    if (mount("tmpfs", disk, "tmpfs", 0, "size=600k") != 0) {
        print_message("# skipped: only root can mount a small disk\n");
        skip();
    }
    house h;
    err e = {0};
    static talk t;
    assert_true(open_house(&h, folder, 1 << 30, &e)); /* the budget is larger than the disk */
    start_talk(&h, &t, NULL);
    say(&h, &t, 1, 100, 1);
    assert_true(save(&h, &t, "a", NULL, &e) && store_flush(h.store, &e));
    /* Something else takes all the room. */
    FILE *f = fopen(ballast, "w");
    assert_non_null(f);
    setvbuf(f, NULL, _IONBF, 0);
    static char kilobyte[1024];
    while (fwrite(kilobyte, 1, sizeof kilobyte, f) == sizeof kilobyte) {}
    fclose(f);
    say(&h, &t, 1, 400, 1);
    assert_true(save(&h, &t, "a", NULL, &e));
    assert_false(store_flush(h.store, &e));
    assert_true(e.code == HEARTH_IO && store_get_stats(h.store).degraded && store_get_stats(h.store).failures > 0);
    assert_true(h.warnings == 1 && strstr(h.warning, "memory only"));
    check_or_write(&t, 0, false, 1);
    end(&t, true);
    start_talk(&h, &t, NULL);
    assert_int_equal(say(&h, &t, 1, 500, 1), 499); /* found in memory */
    /* Room again: what waits is written at the next save, without a word from anyone. */
    assert_int_equal(unlink(ballast), 0);
    for (size_t i = 0; i < t.kv.n_sealed; i++) store_put(h.store, t.kv.held[i]);
    assert_true(save(&h, &t, "a", NULL, clear(&e)));
    for (int i = 0; i < 1000 && store_get_stats(h.store).waiting; i++) usleep(10000);
    assert_false(store_get_stats(h.store).degraded);
    assert_true(strstr(h.warning, "on disk again") != NULL);
    for (size_t i = 0; i < t.kv.n_sealed; i++) store_put(h.store, t.kv.held[i]);
    assert_true(save(&h, &t, "a", NULL, &e) && store_flush(h.store, &e));
    end(&t, false);
    close_house(&h);
    assert_true(open_house(&h, folder, 1 << 30, &e));
    assert_int_equal(restore(&h, &t, "a", NULL, 1, 1, &e), 500);
    end(&t, false);
    close_house(&h);
    umount(disk);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traffic_stays_within_both_budgets),
        cmocka_unit_test(processes_share_one_budget),
        cmocka_unit_test(tails_go_before_texts),
        cmocka_unit_test(stripped_agents_go_on),
        cmocka_unit_test(a_text_larger_than_the_budget_keeps_its_start),
        cmocka_unit_test(a_full_disk_is_borne),
    };
    const struct CMUnitTest windowed[] = {
        cmocka_unit_test(traffic_stays_within_both_budgets),
        cmocka_unit_test(processes_share_one_budget),
        cmocka_unit_test(a_full_disk_is_borne),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base) + cmocka_run_group_tests(windowed, make_windowed_base, remove_base);
}
