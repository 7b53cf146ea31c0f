/* test_server_kill.c: kill -9 of the real server at random moments while several agents talk to it (soak/talker.h tells what must hold). A number on the command line is how
 * many rounds to run. `make soak` has the same under load. */
#include "tools/support.h"

#include <pthread.h>

#include "soak/server.h"
#include "soak/talker.h"

enum { AGENTS = 4 };
static int rounds = 4;

static soak_server start_server(const char *store_dir) {
    char errors[700];
    soak_server s;
    snprintf(errors, sizeof errors, "%s/errors", temp_dir());
    /* The exact kernels: the same bits in any company. */
    char *argv[] = {(char *)hearth_program(), "serve", "models/ember-30m-q8_0.gguf", "--port", "0", "--quiet", "--cpu", "ref", "--cache", "off", "--store-dir", (char *)store_dir, NULL};
    if (!soak_start(&s, argv, errors)) fail_msg("the server does not say where it is: see %s", errors);
    return s;
}

static void *talk(void *user) {
    talker_run(user);
    return NULL;
}

/* All agents talk until the server goes away, or (expecting) to their end. */
static void talk_all(talker *all, soak_server *server, uint64_t kill_after_ns) {
    pthread_t threads[AGENTS];
    for (int i = 0; i < AGENTS; i++) {
        all[i].port = server->port;
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &all[i]), 0);
    }
    if (kill_after_ns) {
        struct timespec pause = {.tv_sec = (time_t)(kill_after_ns / 1000000000u), .tv_nsec = (long)(kill_after_ns % 1000000000u)};
        nanosleep(&pause, NULL);
        soak_kill(server);
    }
    for (int i = 0; i < AGENTS; i++) pthread_join(threads[i], NULL);
    if (!kill_after_ns) soak_kill(server);
    for (int i = 0; i < AGENTS; i++)
        if (all[i].wrong[0]) fail_msg("%s", all[i].wrong);
}

static void survives_kill_9(void **state) {
    (void)state;
    uint64_t seed = test_seed(), finished = 0, unreported = 0;
    char store[700];
    static talker calm[AGENTS], all[AGENTS];
    for (int i = 0; i < AGENTS; i++) {
        calm[i] = all[i] = (talker){.number = i, .seed = rng_next(&seed) | 1};
        calm[i].expecting = true;
    }
    snprintf(store, sizeof store, "%s/calm", temp_dir());
    soak_server server = start_server(store);
    talk_all(calm, &server, 0);
    for (int i = 0; i < AGENTS; i++) assert_int_equal(calm[i].turn, TALKER_TURNS);
    snprintf(store, sizeof store, "%s/store", temp_dir());
    for (int round = 0; round < rounds; round++) {
        server = start_server(store);
        talk_all(all, &server, 20000000u + rng_next(&seed) % 1200000000u);
    }
    server = start_server(store); /* and once more to look at all of them */
    for (int i = 0; i < AGENTS; i++) {
        all[i].port = server.port;
        if (!talker_ask(&all[i])) fail_msg("agent %d does not answer: %s", i, all[i].wrong);
        finished += all[i].finished, unreported += all[i].unreported;
    }
    soak_kill(&server);
    /* Nothing was found damaged. */
    char path[800];
    snprintf(path, sizeof path, "%s/errors", temp_dir());
    buf errors = slurp(path);
    if (errors.len) fail_msg("the server complained: %.*s", (int)(errors.len < 1000 ? errors.len : 1000), errors.data);
    buf_free(&errors);
    print_message("# %d rounds, %lu turns finished, %lu saved unheard\n", rounds, (unsigned long)finished, (unsigned long)unreported);
    assert_true(finished > 0);
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = atoi(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(survives_kill_9)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
