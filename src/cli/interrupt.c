#include "cli/interrupt.h"

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
