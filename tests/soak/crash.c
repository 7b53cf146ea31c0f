/* crash.c: kill -9 of the server several times under load, and each time a restart on the same folder. Among the clients are agents (talker.h) which must lose nothing; the
 * others only make load, as their requests break off. The exact kernels serve, so that answers are the same bits in any company. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "soak/soak.h"
#include "soak/talker.h"

static soak_server server;
static _Atomic bool ending;
static tally noise[MOST_CLIENTS];

static void *run_noise(void *user) {
    tally *t = user;
    uint64_t seed = (uint64_t)(t - noise) * 7919 + 54321;
    while (!ending) client_round(server.port, &seed, false, t);
    free(t->gaps);
    *t = (tally){0};
    return NULL;
}

static void *run_talker(void *user) {
    talker_run(user);
    return NULL;
}

/* All agents talk; with noise until the server is killed, else to the end of their conversations. */
static bool talk_all(talker *all, int n_noise, double seconds) {
    pthread_t threads[TALKERS], loud[MOST_CLIENTS];
    ending = false;
    for (int i = 0; i < n_noise; i++) pthread_create(&loud[i], NULL, run_noise, &noise[i]);
    for (int i = 0; i < TALKERS; i++) {
        all[i].port = server.port;
        pthread_create(&threads[i], NULL, run_talker, &all[i]);
    }
    if (seconds > 0) {
        usleep((useconds_t)(seconds * 1e6));
        ending = true;
        soak_kill(&server);
    }
    for (int i = 0; i < TALKERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < n_noise; i++) pthread_join(loud[i], NULL);
    bool ok = true;
    for (int i = 0; i < TALKERS; i++) {
        if (all[i].wrong[0]) printf("       %s\n", all[i].wrong);
        ok = ok && !all[i].wrong[0];
    }
    return ok;
}

static bool start(char **command, int n, char *folder, const char *errors) {
    command[n] = folder;
    return soak_start(&server, command, errors);
}

/* After the last kill: every agent is there and answers once more. */
static bool look_at_all(talker *all) {
    bool ok = true;
    for (int i = 0; i < TALKERS; i++) {
        all[i].port = server.port;
        if (talker_ask(&all[i])) continue;
        printf("       agent %d: %s\n", i, all[i].wrong[0] ? all[i].wrong : "the server is gone");
        ok = false;
    }
    return ok;
}

static bool is_empty(const char *path) {
    FILE *f = fopen(path, "r");
    char line[1000] = "";
    bool empty = !f || !fgets(line, sizeof line, f);
    if (f) fclose(f);
    if (!empty) printf("       the server said: %s", line);
    return empty;
}

bool crash(char **command, int seconds, int n_clients, int kills) {
    static talker calm[TALKERS], all[TALKERS];
    char folder[] = "/tmp/hearth-soak-XXXXXX", quiet[64], store[64], errors[64], clean[80];
    if (!mkdtemp(folder)) return check(false, "there is a folder for the test");
    snprintf(quiet, sizeof quiet, "%s/calm", folder);
    snprintf(store, sizeof store, "%s/store", folder);
    snprintf(errors, sizeof errors, "%s/errors", folder);
    snprintf(clean, sizeof clean, "rm -rf %s", folder);
    int n = 0;
    while (command[n]) n++;
    const char *const more[] = {"--cpu", "ref", "--cache", "off", "--store-dir"};
    for (int i = 0; i < 5; i++) command[n++] = (char *)more[i];
    uint64_t seed = (uint64_t)getpid() * 2654435761u + 1;
    for (int i = 0; i < TALKERS; i++) {
        calm[i] = all[i] = (talker){.number = i, .seed = client_random(&seed) | 1};
        calm[i].expecting = true;
    }
    bool ok = check(start(command, n, quiet, errors) && talk_all(calm, 0, 0), "undisturbed, every agent has its conversation");
    if (ok) soak_kill(&server);
    int n_noise = n_clients > TALKERS ? n_clients - TALKERS : 0;
    for (int i = 0; ok && i < kills; i++) {
        uint64_t before = 0, after = 0;
        for (int k = 0; k < TALKERS; k++) before += all[k].finished;
        double until = (double)seconds / kills * (0.5 + (double)(client_random(&seed) % 1000) / 1000);
        ok = check(start(command, n, store, errors), "the server starts on the folder") && check(talk_all(all, n_noise, until), "nothing finished is lost, and agents go on");
        for (int k = 0; k < TALKERS; k++) after += all[k].finished;
        printf("       killed after %.1f s: %lu turns finished\n", until, after - before);
    }
    if (ok) ok = check(start(command, n, store, errors) && look_at_all(all), "after the last kill every agent goes on");
    if (ok) soak_kill(&server);
    ok = check(is_empty(errors), "nothing was found damaged") && ok;
    uint64_t finished = 0, unheard = 0;
    for (int i = 0; i < TALKERS; i++) finished += all[i].finished, unheard += all[i].unreported;
    printf("%d clients, %d of them agents, %d kills: %lu turns finished, %lu saved unheard\n", n_clients, TALKERS, kills, finished, unheard);
    if (ok && system(clean) != 0) printf("       %s remains\n", folder);
    return check(finished > 0, "turns were finished") && ok;
}
