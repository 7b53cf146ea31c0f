/* cache_store.c: `hearth cache verify, gc and stats`: the folder of conversations as a whole. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cache.h"
#include "store/verify.h"

/* ---- verify ---- */

static bool report(void *user, const char *path, uint64_t bytes, const err *why, bool set_aside) {
    agents_command *c = user;
    c->bytes += bytes;
    if (!c->json) cli_progress(NULL, "checking", c->bytes < c->of_bytes ? c->bytes : c->of_bytes, c->of_bytes);
    if (why->code == HEARTH_OK) {
        c->n++;
        return true;
    }
    c->n_bad++;
    c->status = 1;
    if (c->json) json_array_append_new(c->list, json_pack("{s:s, s:s, s:b}", "path", path, "trouble", why->text, "set_aside", (int)set_aside));
    else printf("DAMAGED  %s: %s%s\n", path, why->text, set_aside ? "; set aside" : "");
    return true;
}

int cache_verify(int argc, char **argv) {
    agents_command c;
    int status = cache_parse(&c, argc, argv, "hearth cache verify [options]",
                       "Reads every agent and block, compares all bytes with the checksums and sets aside what is damaged: it is computed again when it is\n"
                       "needed. Ends with 1 when something was.", 0, 0);
    if (status < 0) return c.status;
    if (status == 0) {
        c.of_bytes = shelf_get_stats(c.shelf).bytes;
        shelf_verify(c.shelf, report, &c, &c.e);
        if (!c.json) printf("%zu files are whole, %zu damaged\n", c.n, c.n_bad);
    }
    return cache_finish(&c, status == 0 ? json_pack("{s:I, s:O}", "whole", (json_int_t)c.n, "damaged", c.list) : NULL);
}

/* ---- gc, stats ---- */

int cache_gc(int argc, char **argv) {
    agents_command c;
    int status = cache_parse(&c, argc, argv, "hearth cache gc [options]",
                       "Deletes remains of interrupted writes, blocks that nothing leads to and what was set aside, then the blocks that save the least until\n"
                       "the rest fits. Agents and pinned blocks stay. Safe while others use the folder.", 0, 0);
    if (status < 0) return c.status;
    uint64_t before = 0, after = 0;
    bool busy = false;
    if (status == 0) {
        shelf_stats s = shelf_get_stats(c.shelf);
        before = s.bytes;
        if (shelf_collect(c.shelf, s.budget, &busy, &c.e) && !busy) shelf_clear_bad(c.shelf, &c.e);
        after = shelf_get_stats(c.shelf).bytes;
        if (busy) err_set(&c.e, HEARTH_LIMIT, "%s is in use: another process is making room there, try again when it is done", shelf_folder(c.shelf));
    }
    char size[32];
    uint64_t freed = before > after ? before - after : 0;
    bool ok = status == 0 && c.e.code == HEARTH_OK;
    if (ok && !c.json) printf("%s freed in %s\n", cli_bytes(size, freed), shelf_folder(c.shelf));
    return cache_finish(&c, ok ? json_pack("{s:I}", "freed", (json_int_t)freed) : NULL);
}

/* All agents together. */
typedef struct sums {
    uint64_t pinned, tokens, hits, bytes, tail_bytes, unreadable;
} sums;

static bool add_agent(void *user, const char *path, bool pinned) {
    sums *x = user;
    agent_record a;
    if (!agent_peek(path, &a, NULL)) {
        x->unreadable++;
        return true;
    }
    x->pinned += pinned;
    x->tokens += a.n_tokens;
    x->hits += a.hits;
    x->bytes += a.bytes;
    x->tail_bytes += a.tail_bytes;
    agent_free(&a);
    return true;
}

static bool add_block(void *user, const shelf_key *key, uint64_t bytes) {
    (void)key;
    *(uint64_t *)user += bytes;
    return true;
}

int cache_stats(int argc, char **argv) {
    agents_command c;
    int status = cache_parse(&c, argc, argv, "hearth cache stats [options]",
                             "Prints what is on disk of conversations. What is in memory, and what was saved by remembering, is the running program's to tell.", 0, 0);
    if (status < 0) return c.status;
    json_t *out = NULL;
    sums x = {0};
    if (status == 0 && shelf_agents(c.shelf, add_agent, &x, &c.e)) {
        shelf_stats s = shelf_get_stats(c.shelf);
        uint64_t blocks = 0;
        shelf_blocks(c.shelf, add_block, &blocks);
        char used[32], budget[32], in_blocks[32], in_windows[32], in_agents[32], in_tails[32];
        out = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "folder", shelf_folder(c.shelf), "agents", (json_int_t)s.agents, "pinned",
                        (json_int_t)x.pinned, "unreadable", (json_int_t)x.unreadable, "tokens", (json_int_t)x.tokens, "hits", (json_int_t)x.hits, "blocks",
                        (json_int_t)s.blocks, "block_bytes", (json_int_t)blocks, "windows", (json_int_t)s.windows, "window_bytes", (json_int_t)s.window_bytes, "agent_bytes", (json_int_t)x.bytes, "tail_bytes", (json_int_t)x.tail_bytes, "bytes",
                        (json_int_t)s.bytes, "budget", (json_int_t)s.budget, "scan_seconds", s.scan_seconds);
        if (!c.json)
            printf("folder   %s\nagents   %" PRIu64 ", %" PRIu64 " pinned, %" PRIu64 " tokens, %" PRIu64 " hits, %s (tails %s)\nblocks   %" PRIu64 ", %s (%" PRIu64 " window parts %s)\nbytes    %s of %s\n"
                   "scan     %.3f s\n", shelf_folder(c.shelf), s.agents, x.pinned, x.tokens, x.hits, cli_bytes(in_agents, x.bytes), cli_bytes(in_tails, x.tail_bytes), s.blocks,
                   cli_bytes(in_blocks, blocks), s.windows, cli_bytes(in_windows, s.window_bytes), cli_bytes(used, s.bytes), cli_bytes(budget, s.budget), s.scan_seconds);
        if (!c.json && x.unreadable) printf("%" PRIu64 " agents cannot be read: see hearth cache verify\n", x.unreadable);
    }
    return cache_finish(&c, out);
}
