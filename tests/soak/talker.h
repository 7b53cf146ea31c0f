/* talker.h: an agent that talks to a server which may be killed at any moment. After each restart it must be where its last finished turn left it, or one turn further (the one
 * that was under way); it must go on without computing anything it had said or heard; and what it says must be what it says in a run that is never disturbed. */
#ifndef TESTS_SOAK_TALKER_H
#define TESTS_SOAK_TALKER_H

#include "soak/client.h"

enum { TALKERS = 16, TALKER_TURNS = 4, TALKER_ANSWER = 5 };

typedef struct talker {
    int number, port;
    int conversation, turn;          /* turns that were answered to the end */
    uint64_t seed;                   /* not 0 */
    uint64_t finished, unreported;   /* turns that were answered; those that were saved but not heard to the end */
    bool expecting;                  /* the undisturbed run, which makes the expectations: it ends after one conversation */
    char wrong[1000];                /* what should not have been */
} talker;

/* Talks until the server goes away, something is wrong, or (expecting) the conversation ends. Agents of one number share their expectations. */
void talker_run(talker *t);
/* Asks the next question, after looking where the agent is. False when the server went away or something is wrong. */
bool talker_ask(talker *t);

#endif
