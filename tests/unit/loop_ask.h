/* loop_ask.h: greedy requests to a loop, for tests of what it computes and what it remembers. */
#ifndef TESTS_UNIT_LOOP_ASK_H
#define TESTS_UNIT_LOOP_ASK_H

#include "tools/support.h"

#include "engine/loop.h"

static inline loop_ticket *ask(loop *l, const int32_t *tokens, size_t n, int max_tokens, int answers, const char *tenant) {
    err e = {0};
    loop_request r = loop_request_defaults();
    r.tokens = tokens;
    r.n_tokens = n;
    r.max_tokens = max_tokens;
    r.n = answers;
    r.sampler.temperature = 0;
    r.ignore_end = true;
    r.tenant = tenant;
    loop_ticket *t = loop_submit(l, &r, &e);
    if (!t) fail_msg("%s", e.text);
    return t;
}

/* Waits for the end; the tokens of the first answer go to out (room for max_tokens) when it is not NULL. */
static inline loop_usage wait_for(loop_ticket *t, int32_t *out) {
    loop_piece p;
    err e = {0};
    loop_news news;
    while ((news = loop_next(t, 60000000000u, &p, &e)) == LOOP_PIECE)
        for (size_t i = 0; out && p.choice == 0 && i < p.n_tokens; i++) *out++ = p.tokens[i].token;
    if (news != LOOP_DONE) fail_msg("%s", e.text);
    loop_usage u = loop_ticket_usage(t);
    loop_ticket_free(t);
    return u;
}

#endif
