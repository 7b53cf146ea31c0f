/* serve.c: the server's life: models, keys, sockets, signals. */
#include "cli/serve.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/trace.h"
#include "gguf/folder.h"

/* MODEL or NAME=MODEL. Without a name, --name is the first one's and the others have their files'. */
static bool add_model(serve_command *c, models *m, const char *given, int i, err *e) {
    char name[256] = "";
    const char *path = given, *equals = strchr(given, '=');
    file_id id;
    bool there = false;
    if (equals && file_look(given, &there, &id, NULL) && !there) {
        path = equals + 1;
        snprintf(name, sizeof name, "%.*s", (int)(equals - given), given);
        if (!*name || !*path) return err_set(e, HEARTH_ARGUMENT, "'%s' is no model: give a file, or NAME=FILE", given);
    }
    c->paths[i] = cli_find_model(path, e);
    if (!c->paths[i] || !file_examine(c->paths[i], &id, e)) return false;
    if (!*name && i == 0 && c->name) snprintf(name, sizeof name, "%s", c->name);
    if (!*name) gguf_model_name(c->paths[i], name, sizeof name);
    return models_add(m, name, c->paths[i], e);
}

static bool add_models(serve_command *c, models *m, err *e) {
    const char *standard = c->given.n ? NULL : cli_default_model(e);
    if (!c->given.n && (!standard || !add_model(c, m, standard, 0, e))) return false;
    for (int i = 0; i < c->given.n; i++)
        if (!add_model(c, m, c->given.items[i], i, e)) return false;
    return !c->standard || models_set_default(m, c->standard, e);
}

/* From the command line and from the file. */
static bool gather_keys(serve_command *c, err *e) {
    http_keys *k = c->http.keys = http_keys_new(e);
    if (!k) return false;
    for (int i = 0; i < c->keys.n; i++)
        if (!http_keys_add(k, &(http_key){.key = c->keys.items[i]}, e)) return err_prefix(e, "--api-key");
    if (c->admin_key && !http_keys_add(k, &(http_key){.key = c->admin_key, .admin = true, .only_admin = true}, e)) return err_prefix(e, "--admin-key");
    if (c->key_file && !http_keys_read(k, c->key_file, e)) return false;
    c->models.api.admin = http_keys_admin(k);
    return true;
}

/* At the start only what is served matters. */
static void tell(void *user, const char *sentence) {
    const serve_command *c = user;
    if (c->up) http_log(&c->http, sentence);
}

static void say_where(serve_command *c, models *m, const http_server *s) {
    bool six = strchr(c->http.host, ':') != NULL;
    const char *scheme = c->http.tls_cert ? "https" : "http", *model = models_default(m);
    c->up = true;
    if (c->http.n_sockets > 0) printf("hearth serves %s on the sockets that it was given\n", model);
    else if (c->http.unix_path) printf("hearth serves %s at unix:%s (Ctrl-C ends it)\n", model, c->http.unix_path);
    else printf("hearth serves %s at %s://%s%s%s:%d/ (Ctrl-C ends it)\n", model, scheme, six ? "[" : "", c->http.host, six ? "]" : "", http_port(s));
    fflush(stdout);
    http_tell_systemd("READY=1");
}

static sigset_t stop_signals(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    return signals;
}

/* A thread that waits for Ctrl-C from the start. While models are loaded, which may take minutes, there is nothing to finish or save: the process ends by the signal. */
static void *await_signal(void *command) {
    const serve_command *c = command;
    const sigset_t signals = stop_signals();
    int number = 0;
    sigwait(&signals, &number);
    if (c->up) return NULL;
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    raise(number);
    return NULL;
}

/* Waits for Ctrl-C, then lets running answers end; a second Ctrl-C ends at once. */
static void wait_and_stop(const serve_command *c, http_server *s, models *m, pthread_t waiter) {
    const sigset_t signals = stop_signals();
    pthread_join(waiter, NULL);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    http_tell_systemd("STOPPING=1");
    http_quiesce(s);
    if (models_busy(m) > 0) fprintf(stderr, "hearth: finishing what runs, for at most %.0f s; Ctrl-C again ends at once\n", (double)c->drain_s);
    models_drain(m, (uint64_t)((double)c->drain_s * 1e9));
    models_end(m);
    http_settle(s, 1000000000u);
}

int serve(serve_command *c) {
    err e = {0};
    const sigset_t signals = stop_signals();
    pthread_t waiter;
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread: only the waiting one gets them */
    signal(SIGPIPE, SIG_IGN);
    if (pthread_create(&waiter, NULL, await_signal, c) != 0) return cli_failf("no thread could be started");
    c->models.tell = tell;
    c->models.tell_user = c;
    c->http.n_sockets = http_given_sockets(&c->http.first_socket);
    c->models.loop.trace = c->record ? trace_open(c->record, &e) : NULL;
    models *m = e.code == HEARTH_OK && gather_keys(c, &e) ? models_new(&c->models, &e) : NULL;
    bool ok = m && add_models(c, m, &e) && models_load(m, NULL, &e);
    http_server *s = ok ? http_start(&c->http, api_handle, models_api(m), &e) : NULL;
    if (s) {
        say_where(c, m, s);
        wait_and_stop(c, s, m, waiter);
    } else {
        pthread_cancel(waiter);
        pthread_join(waiter, NULL);
    }
    http_stop(s);
    bool notice = m && isatty(STDERR_FILENO) == 1 && models_writing(m);
    if (notice) fprintf(stderr, "keeping the packed weights for the next start ...");
    models_free(m);
    if (notice) fprintf(stderr, "\r\033[K");
    http_keys_free(c->http.keys);
    for (int i = 0; i < SERVE_MODELS; i++) mem_free(c->paths[i]);
    bool recorded = trace_close(c->models.loop.trace, &e);
    return s && recorded ? 0 : cli_fail(&e);
}
