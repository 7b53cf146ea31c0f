/* fuzz_jinja.c: chat templates. An input is a template and, after a NUL if there is one, its variables as JSON. */
#include <stdlib.h>
#include <string.h>

#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char usual[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be kind.\"},{\"role\":\"user\",\"content\":\"Hi <b>\\u00e9</b>\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":"
    "[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,-3,true,null]}}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"ok\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}],\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_generation_prompt\":true,"
    "\"x\":3,\"s\":\"a,b\",\"d\":{\"k\":1,\"l\":[3,1,2]},\"enable_thinking\":false}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t len = nul ? (size_t)(nul - data) : size;
    json_t *variables = nul ? json_loadb((const char *)nul + 1, size - len - 1, JSON_ALLOW_NUL, NULL) : NULL;
    if (!json_is_object(variables)) {
        json_decref(variables);
        variables = json_loads(usual, 0, NULL);
    }
    err e = {0};
    jinja *t = jinja_parse((const char *)data, len, &e);
    if (!t && e.code == HEARTH_OK) abort(); /* a failure says why */
    buf out = {0};
    const struct tm now = {.tm_year = 126, .tm_mday = 1};
    if (t && !jinja_render(t, variables, &now, &out, &e) && (e.code == HEARTH_OK || out.len)) abort();
    buf_free(&out);
    jinja_free(t);
    json_decref(variables);
    return 0;
}
