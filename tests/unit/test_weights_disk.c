/* The packed file: found again, never trusted wrongly, never in the way. */
#include "tools/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "tools/weights_kit.h"
#include "weights/folder.h"

static const kit_shape small = {.layers = 4, .per_layer = 3, .rows = 16, .experts = 4, .seed = 7};
enum { N = 4 * (3 + 4) + 1, MATRIX = 16 * KIT_ROW, TOTAL = 4 * (3 + 1) * MATRIX + 2 * MATRIX };

static const char *in_temp(const char *name) {
    static char paths[8][256];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", temp_dir(), name);
    return path;
}

static weights_options disk_options(const char *folder) {
    weights_options o = kit_options(TOTAL);
    o.persist = true;
    o.cache_dir = folder;
    return o;
}

/* Files whose names end so, and the first one's path. */
static int count_files(const char *folder, const char *end, char *first) {
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *x; d && (x = readdir(d));) {
        size_t len = strlen(x->d_name), m = strlen(end);
        if (len < m || strcmp(x->d_name + len - m, end) != 0) continue;
        if (n++ == 0 && first) snprintf(first, 512, "%s/%s", folder, x->d_name);
    }
    if (d) closedir(d);
    return n;
}

static void empty_folder(const char *folder) {
    DIR *d = opendir(folder);
    char path[600];
    for (struct dirent *x; d && (x = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, x->d_name);
        unlink(path);
    }
    if (d) closedir(d);
}

/* Opens, uses everything, closes. Returns how many matrices had to be packed. All forms must hold the right bits. */
static int start_packs(const char *model, const weights_options *o, kit *k) {
    kit here;
    if (!k) k = &here;
    atomic_store(&kit_packed, 0);
    kit_open(k, model, o);
    int packed_at_start = atomic_load(&kit_packed);
    weights_walk walk = {0};
    int ready = kit_pass(k, &walk, true);
    if (o->memory >= TOTAL && o->preload == WEIGHTS_PRELOAD_ALL) assert_int_equal(ready, k->n);
    kit_close(k);
    return packed_at_start;
}

static void age(const char *path) {
    struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    utimensat(AT_FDCWD, path, times, 0);
}

static void the_second_start_maps_what_the_first_wrote(void **state) {
    (void)state;
    const char *folder = in_temp("second/below"), *model = in_temp("second.gguf");
    kit_write_model(model, &small);
    weights_options o = disk_options(folder);
    kit k;
    assert_int_equal(start_packs(model, &o, &k), N);
    assert_int_equal(count_files(folder, ".weights", NULL), 1);
    assert_int_equal(count_files(folder, "", NULL) - 2, 2); /* and its .used: the model file is too young for a .source */
    for (int p = WEIGHTS_PRELOAD_NONE; p <= WEIGHTS_PRELOAD_ALL; p++) {
        o.preload = (weights_preload)p;
        assert_int_equal(start_packs(model, &o, &k), 0);
        assert_int_equal(k.warnings, 0);
    }
    kit_open(&k, model, &o);
    weights_stats st = weights_get_stats(k.w);
    assert_true(st.mapped && !st.written);
    assert_int_equal(st.mapped_bytes, TOTAL);
    assert_int_equal(st.used, TOTAL);
    kit_pass(&k, &(weights_walk){0}, true);
    assert_true(weights_get_stats(k.w).saved_seconds > 0); /* known from the file */
    kit_close(&k);
    /* Half of the memory: the rest is streamed through the mapping. */
    o.memory = TOTAL / 2;
    o.prefetch = 1;
    kit_open(&k, model, &o);
    weights_walk walk = {0};
    for (int i = 0; i < 6; i++) kit_pass(&k, &walk, true);
    st = weights_get_stats(k.w);
    assert_true(st.used <= st.memory && st.hit_rate >= 0.45);
    kit_close(&k);
    assert_int_equal(count_files(folder, ".bad", NULL), 0);
}

/* While passes go on, what was mapped moves to memory: the same bits, nothing missed, and of the budget nothing more. */
static void mapped_weights_move_to_memory(void **state) {
    (void)state;
    char enabled[256] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (f && !fgets(enabled, sizeof enabled, f)) enabled[0] = 0;
    if (f) fclose(f);
    if (!*enabled || strstr(enabled, "[never]")) {
        print_message("skipped: this system has no huge pages\n");
        skip();
    }
    const char *folder = in_temp("move"), *model = in_temp("move.gguf");
    kit_write_model(model, &small);
    weights_options o = disk_options(folder);
    kit k;
    assert_int_equal(start_packs(model, &o, &k), N);
    o.move = true;
    kit_open(&k, model, &o);
    weights_walk walk = {0};
    for (int i = 0; i < 4; i++) kit_pass(&k, &walk, true);
    weights_settle(k.w);
    for (int i = 0; i < 2; i++) kit_pass(&k, &walk, true);
    weights_stats st = weights_get_stats(k.w);
    assert_int_equal(st.mapped_bytes, 0);
    assert_int_equal(st.used, TOTAL);
    assert_int_equal(st.misses, 0);
    assert_int_equal(st.lost, 0);
    kit_close(&k);
}

static void names_do_not_matter_and_bytes_do(void **state) {
    (void)state;
    const char *folder = in_temp("names"), *model = in_temp("names.gguf"), *copy = in_temp("copy.gguf"), *other = in_temp("other.gguf");
    kit_write_model(model, &small);
    kit_write_model(copy, &small);
    weights_options o = disk_options(folder);
    kit k;
    start_packs(model, &o, &k);
    assert_int_equal(start_packs(copy, &o, NULL), 0);
    buf b = slurp(model);
    b.data[b.len - 12345] ^= 1;
    spew(other, b.data, b.len);
    assert_int_equal(start_packs(other, &o, NULL), N);
    assert_int_equal(count_files(folder, ".weights", NULL), 2);
    /* The same name and size with other bytes. */
    b.data[b.len - 54321] ^= 1;
    spew(model, b.data, b.len);
    assert_int_equal(start_packs(model, &o, NULL), N);
    assert_int_equal(count_files(folder, ".weights", NULL), 3);
    buf_free(&b);
    /* Another layout of the same name is another file. */
    atomic_store(&kit_mark, 0x33);
    assert_int_equal(start_packs(model, &o, NULL), N);
    assert_int_equal(count_files(folder, ".weights", NULL), 4);
    atomic_store(&kit_mark, 0x5A);
}

static void a_record_spares_reading_until_the_file_changes(void **state) {
    (void)state;
    const char *folder = in_temp("records"), *model = in_temp("records.gguf");
    kit_write_model(model, &small);
    age(model);
    usleep(1100000); /* ctime cannot be set back: a state must be a second old to be recorded */
    weights_options o = disk_options(folder);
    kit k;
    start_packs(model, &o, &k);
    assert_int_equal(count_files(folder, ".source", NULL), 1);
    usleep(1100000);
    assert_int_equal(start_packs(model, &o, NULL), 0); /* checks all and records that */
    char pack[512];
    assert_int_equal(count_files(folder, ".weights", pack), 1);
    err e = {0};
    file_id id;
    assert_true(file_examine(pack, &id, &e));
    assert_true(folder_checked_find(pack, &id));
    assert_int_equal(start_packs(model, &o, NULL), 0);
    /* Written to behind our back: the record no longer holds, and the damage is found before use. */
    FILE *f = fopen(pack, "r+b");
    fseek(f, 4096 + 777, SEEK_SET);
    int c = fgetc(f);
    fseek(f, 4096 + 777, SEEK_SET);
    fputc(c ^ 0x10, f);
    fclose(f);
    age(pack);
    assert_true(file_examine(pack, &id, &e));
    assert_false(folder_checked_find(pack, &id));
    assert_true(start_packs(model, &o, &k) > 0);
    assert_int_equal(k.warnings, 1);
    assert_non_null(strstr(k.warning, "set aside"));
    assert_int_equal(count_files(folder, ".bad", NULL), 1);
    assert_int_equal(count_files(folder, ".weights", NULL), 1);
    assert_int_equal(start_packs(model, &o, NULL), 0);
    /* A model file that was touched is read again and found to be the same. */
    age(model);
    assert_int_equal(start_packs(model, &o, NULL), 0);
}

static void damage_anywhere_is_found_before_use(void **state) {
    (void)state;
    uint64_t random = test_seed();
    const char *folder = in_temp("damage"), *model = in_temp("damage.gguf");
    kit_write_model(model, &small);
    weights_options o = disk_options(folder);
    kit k;
    start_packs(model, &o, &k);
    char pack[512];
    assert_int_equal(count_files(folder, ".weights", pack), 1);
    buf good = slurp(pack);
    for (int round = 0; round < 60; round++) {
        buf bad = {0};
        buf_add(&bad, good.data, good.len, NULL);
        uint64_t x = rng_next(&random);
        /* Bits anywhere; bits in the header, the index and the footer; missing ends; too much; another file's middle. */
        if (round % 5 == 0) bad.data[x % 4096] ^= (char)(1 << (x >> 60 & 7));
        else if (round % 5 == 1) bad.data[bad.len - 1 - x % 2000] ^= (char)(1 << (x >> 60 & 7));
        else if (round % 5 == 2) bad.len = x % bad.len;
        else if (round % 5 == 3) bad.data[x % bad.len] ^= (char)(1 << (x >> 60 & 7));
        else memset(bad.data + x % (bad.len - 5000), 0, 4096);
        empty_folder(folder);
        spew(pack, bad.data, bad.len);
        o.preload = (weights_preload)(round % 3);
        o.memory = round % 2 ? TOTAL : TOTAL / 2;
        start_packs(model, &o, NULL); /* looks at every byte it is given */
        buf_free(&bad);
    }
    empty_folder(folder);
    spew(pack, good.data, good.len);
    o = disk_options(folder);
    assert_int_equal(start_packs(model, &o, NULL), 0);
    buf_free(&good);
}

static void any_failing_file_call_costs_only_the_file(void **state) {
    (void)state;
    const char *folder = in_temp("failing"), *model = in_temp("failing.gguf");
    const kit_shape tiny = {.layers = 2, .per_layer = 1, .rows = 8, .seed = 3};
    kit_write_model(model, &tiny);
    weights_options o = disk_options(folder);
    for (int warm = 0; warm <= 1; warm++) {
        for (long n = 1; n < 200; n++) {
            kit k = {0};
            if (warm) {
                kit_open(&k, model, &o);
                kit_close(&k);
            } else {
                empty_folder(folder);
            }
            gguf *g = gguf_open(model, NULL);
            assert_non_null(g);
            gguf_close(g);
            file_fail_nth(n);
            bool ok = kit_open_with(&k, model, &o, &kit_kernels, 1);
            if (ok) kit_pass(&k, &(weights_walk){0}, true);
            kit_close(&k);
            bool reached = file_count() >= n;
            file_fail_nth(0);
            if (n > 2) assert_true(ok); /* the first calls are those that open the model */
            assert_true(k.warnings <= 2);
            kit_open(&k, model, &o);
            kit_pass(&k, &(weights_walk){0}, true);
            kit_close(&k);
            if (!reached) break;
            assert_true(n < 199);
        }
    }
}

static void killing_at_any_moment_leaves_nothing_wrong(void **state) {
    (void)state;
    uint64_t random = test_seed();
    const char *folder = in_temp("killed"), *model = in_temp("killed.gguf");
    const kit_shape larger = {.layers = 8, .per_layer = 4, .rows = 64, .seed = 9};
    kit_write_model(model, &larger);
    weights_options o = disk_options(folder);
    o.memory = (uint64_t)1 << 30;
    for (int round = 0; round < 25; round++) {
        if (round % 4 != 3) empty_folder(folder);
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            kit k;
            kit_open_with(&k, model, &o, &kit_kernels, 2);
            kit_close(&k);
            _exit(0);
        }
        usleep((useconds_t)(rng_next(&random) % 12000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        kit k;
        kit_open(&k, model, &o);
        kit_pass(&k, &(weights_walk){0}, true);
        assert_int_equal(k.warnings, 0); /* what is there is whole */
        kit_close(&k);
    }
    kit k;
    kit_open(&k, model, &o);
    assert_true(weights_get_stats(k.w).mapped);
    kit_close(&k);
    assert_int_equal(count_files(folder, ".weights", NULL), 1);
    assert_int_equal(count_files(folder, ".bad", NULL), 0);
}

static void a_folder_that_cannot_be_used_costs_one_warning(void **state) {
    (void)state;
    const char *model = in_temp("nowhere.gguf"), *file = in_temp("a-file");
    kit_write_model(model, &small);
    spew(file, "x", 1);
    char folder[300];
    snprintf(folder, sizeof folder, "%s/below", file);
    weights_options o = disk_options(folder);
    kit k;
    assert_int_equal(start_packs(model, &o, &k), N);
    assert_int_equal(k.warnings, 1);
    assert_non_null(strstr(k.warning, "not kept on disk"));
    /* Not enough room in the budget of the folder. */
    o = disk_options(in_temp("narrow"));
    o.cache_bytes = TOTAL / 2;
    assert_int_equal(start_packs(model, &o, &k), N);
    assert_int_equal(k.warnings, 1);
    assert_int_equal(count_files(in_temp("narrow"), ".weights", NULL), 0);
}

static void one_writer_at_a_time(void **state) {
    (void)state;
    const char *folder = in_temp("locked"), *model = in_temp("locked.gguf");
    kit_write_model(model, &small);
    err e = {0};
    int lock;
    assert_true(file_make_folder(folder, &e) && file_lock(folder, &lock, &e));
    assert_true(lock >= 0);
    weights_options o = disk_options(folder);
    kit k;
    start_packs(model, &o, &k);
    assert_int_equal(k.warnings, 0);
    assert_int_equal(count_files(folder, ".weights", NULL), 0);
    file_unlock(lock);
    start_packs(model, &o, &k);
    assert_int_equal(count_files(folder, ".weights", NULL), 1);
}

static void the_least_recently_used_go_first(void **state) {
    (void)state;
    const char *folder = in_temp("budget");
    weights_options o = disk_options(folder);
    char model[300], oldest[512];
    for (int i = 0; i < 4; i++) {
        kit_shape s = small;
        s.seed = 100 + (uint64_t)i;
        snprintf(model, sizeof model, "%s/budget-%d.gguf", temp_dir(), i);
        kit_write_model(model, &s);
        o.cache_bytes = (uint64_t)(TOTAL * 2.5);
        start_packs(model, &o, NULL);
        if (i == 0) {
            count_files(folder, ".weights", oldest);
            char used[600];
            snprintf(used, sizeof used, "%s.used", oldest);
            age(used);
            spew(in_temp("budget/x.weights.tmp.1.abc"), "left by a crash", 15);
        }
        if (i == 1) assert_int_equal(access(oldest, F_OK), 0);
    }
    assert_int_equal(count_files(folder, ".weights", NULL), 2);
    assert_int_equal(count_files(folder, ".abc", NULL), 0);
    assert_int_not_equal(access(oldest, F_OK), 0);
}

static void the_command_lists_checks_and_deletes(void **state) {
    (void)state;
    const char *folder = in_temp("command"), *model = in_temp("command.gguf");
    kit_write_model(model, &small);
    weights_options o = disk_options(folder);
    start_packs(model, &o, NULL);
    const char *ls[] = {hearth_program(), "cache", "weights", "ls", "--json", "--cache-dir", folder, NULL};
    buf out = {0};
    assert_int_equal(run_program(ls, NULL, 0, &out, NULL, 20), 0);
    assert_non_null(strstr(out.data, "\"kernels\": \"kit\""));
    buf_free(&out);
    const char *verify[] = {hearth_program(), "cache", "weights", "verify", "--cache-dir", folder, NULL};
    assert_int_equal(run_program(verify, NULL, 0, &out, NULL, 20), 0);
    char pack[512];
    count_files(folder, ".weights", pack);
    buf b = slurp(pack);
    b.data[5000] ^= 4;
    spew(pack, b.data, b.len);
    buf_free(&b);
    assert_int_equal(run_program(verify, NULL, 0, &out, NULL, 20), 1);
    assert_non_null(strstr(out.data, "blk.0.m0.weight"));
    assert_int_equal(count_files(folder, ".weights", NULL), 0); /* set aside */
    assert_int_equal(count_files(folder, ".bad", NULL), 1);
    const char *prune[] = {hearth_program(), "cache", "weights", "prune", "--cache-dir", folder, "--cache-bytes", "0", NULL};
    assert_int_equal(run_program(prune, NULL, 0, &out, NULL, 20), 0);
    assert_int_equal(count_files(folder, ".bad", NULL), 0);
    buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_start_maps_what_the_first_wrote),
        cmocka_unit_test(mapped_weights_move_to_memory),
        cmocka_unit_test(names_do_not_matter_and_bytes_do),
        cmocka_unit_test(a_record_spares_reading_until_the_file_changes),
        cmocka_unit_test(damage_anywhere_is_found_before_use),
        cmocka_unit_test(any_failing_file_call_costs_only_the_file),
        cmocka_unit_test(killing_at_any_moment_leaves_nothing_wrong),
        cmocka_unit_test(a_folder_that_cannot_be_used_costs_one_warning),
        cmocka_unit_test(one_writer_at_a_time),
        cmocka_unit_test(the_least_recently_used_go_first),
        cmocka_unit_test(the_command_lists_checks_and_deletes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
