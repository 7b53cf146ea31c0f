/* client.h: what one client of the soak test does, and what it counts. */
#ifndef TESTS_SOAK_CLIENT_H
#define TESTS_SOAK_CLIENT_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

typedef struct tally {
    uint64_t good, good_failed;  /* requests that must be answered */
    uint64_t bad, bad_wrong;     /* requests that must be refused */
    uint64_t left, slow;         /* clients that left early; of the good ones, those that read slowly */
    uint64_t generating;         /* good requests that the loop was asked for */
    uint64_t tokens;             /* completion tokens of whole answers, as usage tells */
    float *gaps;                 /* milliseconds between two pieces of a stream */
    size_t n_gaps, cap_gaps;
    char failure[256];           /* the first */
} tally;

/* One request of a kind that the seed picks, on a connection of its own. */
void client_round(int port, uint64_t *seed, tally *t);
/* The body of what is at path. */
void client_get(int port, const char *path, buf *out);

#endif
