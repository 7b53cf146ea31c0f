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

/* Renders with the members of the JSON object variables. now is what strftime_now formats (broken-down local time).
 * raise_exception(text) fails with exactly that text. May be called from several threads at once. */
bool jinja_render(const jinja *t, const json_t *variables, const struct tm *now, buf *out, err *e);

#endif
