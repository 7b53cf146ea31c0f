/* support.h: what every test program needs. Include this first. */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

/* The path of a file in the conformance kits (the folder ../shared/conformance, or $HEARTH_CONFORMANCE), or NULL when the
 * kits are not there. The returned string lives until the next call but seven. */
const char *kit_path(const char *relative);
/* Skips the running test, in words, when the kits are absent. */
void need_kit(void);

/* The fastest set of kernels that gives a token the same bits in whatever company it is computed. */
const char *exact_cpu(void);

/* A seeded generator; test_seed prints the seed once, and takes it from $HEARTH_SEED when set. */
uint64_t test_seed(void);
uint64_t rng_next(uint64_t *state);
double rng_double(uint64_t *state);        /* [0, 1) */
double rng_normal(uint64_t *state);

/* The built program, and a run of it: returns the exit status (128 + n for signal n). out and err may be NULL; they are appended to. Ends the
 * program after timeout_s seconds with status 124. */
const char *hearth_program(void);
int run_program(const char *const *argv, const void *input, size_t input_len, buf *out, buf *err_out, int timeout_s);

/* A fresh temporary folder, deleted at exit. */
const char *temp_dir(void);
/* Whole file or fail the test. */
buf slurp(const char *path);
void spew(const char *path, const void *data, size_t len);

#endif
