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
    uint64_t prompt, cached, completion; /* tokens, as the usage of whole answers tells */
    float *gaps;                 /* milliseconds between two pieces of a stream */
    size_t n_gaps, cap_gaps;
    char failure[256];           /* the first */
} tally;

/* One request of a kind that the seed picks, on a connection of its own. polite: none that leaves early, so that all can be counted. */
void client_round(int port, uint64_t *seed, bool polite, tally *t);
/* One request; out gets all of the reply. Returns its status; 0 when the server is not there or broke off. */
int client_request(int port, const char *method, const char *path, const char *body, buf *out);
/* What follows the head. */
const char *client_body(const buf *reply);
uint64_t client_random(uint64_t *seed);

#endif
