#include "cli/interrupt.h"

#include <poll.h>
#include <signal.h>

static volatile sig_atomic_t pending;

static void on_signal(int number) {
    (void)number;
    pending = 1;
}

void interrupt_catch(bool once) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = once ? (int)SA_RESETHAND : 0};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool interrupt_pending(void) { return pending != 0; }
void interrupt_clear(void) { pending = 0; }

bool interrupt_wait(int fd) {
    sigset_t interrupt, before, waiting;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    /* The signal is let in only by ppoll: one that comes just before would not be noticed otherwise. */
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    waiting = before;
    sigdelset(&waiting, SIGINT);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (!pending && ppoll(&p, 1, NULL, &waiting) < 0) {} /* other signals do not matter */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !pending;
}
