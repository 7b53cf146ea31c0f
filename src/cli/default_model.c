/* default_model.c: finds the model that comes with hearth. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The first that exists is taken. */
static const char *const names[] = {"ember-30m-q8_0.gguf", "ember-30m-q4_k_m.gguf", "ember-30m-f16.gguf"};
/* Seen from the program's folder: build/, build/asan/, and bin/ where it was installed. */
static const char *const folders[] = {"../models", "../../models", "../share/hearth/models"};

const char *cli_default_model(err *e) {
    static char path[8192];
    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) {
        err_set(e, HEARTH_IO, "the default model cannot be looked for, because /proc/self/exe cannot be read: give the path of a GGUF file");
        return NULL;
    }
    program[n] = 0;
    *strrchr(program, '/') = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            snprintf(path, sizeof path, "%s/%s/%s", program, folders[i], names[k]);
            if (access(path, R_OK) == 0) return path;
        }
    }
    err_set(e, HEARTH_IO, "the default model (%s) is not beside %.300s: give the path of a GGUF file", names[0], program);
    return NULL;
}

void cli_default_notice(const char *command) {
    const char *rest = strcmp(command, "run") == 0 ? " \"prompt\"" : "";
    fprintf(stderr,
            "hearth: the default model answers: tiny, for demonstration; it remembers what it is told but knows no facts. "
            "For a real one: hearth %s MODEL.gguf%s\n",
            command, rest);
}
