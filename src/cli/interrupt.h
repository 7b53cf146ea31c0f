/* interrupt.h: Ctrl-C as a flag that the loops look at. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <stdbool.h>

/* From now on Ctrl-C only sets the flag. With once, a second Ctrl-C ends the program. */
void interrupt_catch(bool once);
bool interrupt_pending(void);
/* Waits until there is something to read; false when Ctrl-C came first. */
bool interrupt_wait(int fd);
void interrupt_clear(void);

#endif
