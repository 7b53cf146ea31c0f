/* lines.h: where the lines of a chat come from: a terminal with editing and history, or any other input as it is. */
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include "base/mem.h"

typedef struct lines lines;

typedef enum lines_result { LINES_GOT, LINES_END, LINES_INTERRUPTED, LINES_FAILED } lines_result;

lines *lines_open(err *e);
void lines_close(lines *l);
/* Whether a person types. */
bool lines_terminal(const lines *l);
/* Replaces out with the next line, without its end. Ctrl-C gives LINES_INTERRUPTED. */
lines_result lines_read(lines *l, const char *prompt, buf *out, err *e);

#endif
