/* jinja.h: the Jinja interpreter for chat templates. Templates are hostile input: parsing and rendering
 * are bounded in depth, steps, memory and output, and always end. */
#ifndef TEXT_JINJA_H
#define TEXT_JINJA_H

#include <jansson.h>
#include <time.h>

#include "base/mem.h"

typedef struct jinja jinja;

/* Compiles a template (trim_blocks and lstrip_blocks on, as chat templates expect). Errors name the line. */
jinja *jinja_parse(const char *source, size_t len, err *e);
void jinja_free(jinja *t);

/* Renders with the members of the JSON object variables and appends to out, which a failure leaves as it was. now is what
 * strftime_now formats (broken-down local time). raise_exception(text) fails with exactly that text (cut to fit) and
 * HEARTH_ARGUMENT; every other failure names the line. May be called from several threads at once, which need 1 MiB of stack. */
bool jinja_render(const jinja *t, const json_t *variables, const struct tm *now, buf *out, err *e);

#endif
