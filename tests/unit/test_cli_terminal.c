/* test_cli_terminal.c: `hearth chat` at a terminal: line editing, history, and Ctrl-C. */
#include "tools/support.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { PATIENCE = 120 };

typedef struct terminal {
    int fd;
    pid_t pid;
    buf seen;
    size_t read_to; /* what was waited for lies before this */
} terminal;

static terminal start(const char *const *argv) {
    terminal t = {0};
    struct winsize size = {.ws_row = 24, .ws_col = 200};
    t.pid = forkpty(&t.fd, NULL, NULL, &size);
    if (t.pid < 0) {
        print_message("skipped: this system gives no pseudo-terminal\n");
        skip();
    }
    if (t.pid == 0) {
        setenv("XDG_STATE_HOME", temp_dir(), 1);
        setenv("TERM", "dumb", 1);
        signal(SIGINT, SIG_DFL);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    return t;
}

static bool more(terminal *t, int timeout_ms) {
    struct pollfd p = {t->fd, POLLIN, 0};
    if (poll(&p, 1, timeout_ms) <= 0) return false;
    char chunk[4096];
    ssize_t n = read(t->fd, chunk, sizeof chunk);
    return n > 0 && buf_add(&t->seen, chunk, (size_t)n, NULL);
}

/* Reads until text shows up after what was waited for before. */
static void wait_for(terminal *t, const char *text) {
    uint64_t deadline = clock_ns() + (uint64_t)PATIENCE * 1000000000u;
    for (;;) {
        const char *at = t->seen.data ? strstr(t->seen.data + t->read_to, text) : NULL;
        if (at) {
            t->read_to = (size_t)(at - t->seen.data) + strlen(text);
            return;
        }
        if (clock_ns() > deadline || (!more(t, 1000) && kill(t->pid, 0) != 0))
            fail_msg("'%s' did not come; seen: %s", text, t->seen.data ? t->seen.data : "");
    }
}

static void type(terminal *t, const char *text) { assert_int_equal(write(t->fd, text, strlen(text)), (ssize_t)strlen(text)); }

static int end(terminal *t) {
    int status = 0;
    while (more(t, 2000)) {}
    alarm(PATIENCE);
    assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
    alarm(0);
    close(t->fd);
    buf_free(&t->seen);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void interrupt_stops_the_answer_and_not_the_program(void **state) {
    (void)state;
    terminal t = start((const char *[]){hearth_program(), "chat", "--ignore-end", "--stop", "never said", NULL});
    wait_for(&t, "> ");
    type(&t, "Hello there\n");
    wait_for(&t, "Hello there\r\n");
    while (t.seen.len < t.read_to + 20) more(&t, 1000); /* the answer runs */
    type(&t, "\x03");
    wait_for(&t, "[stopped]");
    wait_for(&t, "> ");
    type(&t, "/stats\n");
    wait_for(&t, "answer ");
    wait_for(&t, "> ");
    type(&t, "half a line\x03"); /* at the prompt it clears the line */
    wait_for(&t, "once more");
    wait_for(&t, "> ");
    type(&t, "/system\n");
    wait_for(&t, "[system message: none]");
    wait_for(&t, "> ");
    type(&t, "\x03");
    wait_for(&t, "once more");
    wait_for(&t, "> ");
    type(&t, "\x03");
    assert_int_equal(end(&t), 130);
}

static void lines_are_edited_and_remembered(void **state) {
    (void)state;
    terminal t = start((const char *[]){hearth_program(), "chat", NULL});
    wait_for(&t, "> ");
    type(&t, "/system caf\xC3\xA9x\x7F au lait\n"); /* backspace over the x */
    wait_for(&t, "[the system message is set]");
    wait_for(&t, "> ");
    type(&t, "/system\n");
    wait_for(&t, "[system message: caf\xC3\xA9 au lait]");
    wait_for(&t, "> ");
    type(&t, "\x04");
    assert_int_equal(end(&t), 0);

    t = start((const char *[]){hearth_program(), "chat", "--system", "other", NULL});
    wait_for(&t, "> ");
    type(&t, "\x10\x10\n"); /* Ctrl-P twice: the line before the last one of the other program */
    wait_for(&t, "[the system message is set]");
    wait_for(&t, "> ");
    type(&t, "/system\n");
    wait_for(&t, "[system message: caf\xC3\xA9 au lait]");
    wait_for(&t, "> ");
    type(&t, "/quit\n");
    assert_int_equal(end(&t), 0);

    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/hearth/history", temp_dir());
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 077, 0); /* nobody else's business */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interrupt_stops_the_answer_and_not_the_program),
        cmocka_unit_test(lines_are_edited_and_remembered),
    };
    temp_dir();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
