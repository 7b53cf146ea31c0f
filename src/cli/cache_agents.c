/* cache_agents.c: `hearth cache ls, show, verify, rm, gc and stats`: conversations on disk. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "engine/recall.h"
#include "store/blockfile.h"

typedef struct agents_command {
    const char *dir, *tenant, *name;
    uint64_t most;
    bool json;
    shelf *shelf;
    json_t *list;
    int status;
    size_t n, n_bad;
    err e;
} agents_command;

static const char *when(int64_t seconds, char out[32]) {
    time_t t = (time_t)seconds;
    struct tm tm;
    out[0] = 0;
    if (localtime_r(&t, &tm)) strftime(out, 32, "%Y-%m-%d %H:%M", &tm);
    return out;
}

/* "name", or "name@tag" for a tenant's. Safe to print. */
static char *shown_name(const agent_record *a, char out[400]) {
    char quoted[300];
    err_quote(quoted, sizeof quoted, a->name, strlen(a->name));
    snprintf(out, 400, "%s%s%s", quoted, a->tag[0] ? "@" : "", a->tag);
    return out;
}

static bool open_shelf(agents_command *c) {
    char *folder = recall_folder(c->dir, &c->e);
    c->shelf = folder ? shelf_open(folder, c->most, &c->e) : NULL;
    mem_free(folder);
    return c->shelf != NULL;
}

static int finish(agents_command *c, json_t *object) {
    if (object) {
        json_dumpf(object, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(object);
    json_decref(c->list);
    shelf_close(c->shelf);
    if (c->e.code != HEARTH_OK) return cli_fail(&c->e);
    return c->status;
}

static int parse(agents_command *c, int argc, char **argv, const char *usage, const char *about, int min_args, int max_args) {
    const cli_option options[] = {
        {"--store-dir", 0, CLI_TEXT, &c->dir, "PATH", "the folder (default: $XDG_DATA_HOME/hearth/kv or ~/.local/share/hearth/kv)", 0, 0},
        {"--tenant", 0, CLI_TEXT, &c->tenant, "TEXT", "whose agent it is (default: nobody's)", 0, 0},
        {"--kv-disk", 0, CLI_BYTES, &c->most, "BYTES", "gc: what may stay (default: half of what the disk would have without them)", 0, 0},
        {"--json", 0, CLI_FLAG, &c->json, NULL, "print JSON", 0, 0},
        {0},
    };
    const cli_spec spec = {usage, about, options, NULL, min_args, max_args};
    *c = (agents_command){.most = SHELF_AUTO};
    const char *args[1] = {NULL};
    int n = cli_parse(&spec, argc, argv, args, &c->status);
    if (n < 0) return -1;
    if (n > 0) c->name = args[0];
    c->list = json_array();
    return open_shelf(c) ? 0 : 1;
}

/* ---- ls ---- */

static json_t *agent_json(const agents_command *c, const agent_record *a, bool pinned) {
    uint64_t bytes;
    size_t blocks = shelf_chain(c->shelf, &a->head, &bytes);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s}", "name", a->name, "tenant", a->tag, "tokens", (json_int_t)a->n_tokens, "blocks",
                     (json_int_t)blocks, "block_bytes", (json_int_t)bytes, "bytes", (json_int_t)a->bytes, "created", (json_int_t)a->created, "used",
                     (json_int_t)a->used, "pinned", (int)pinned, "model", a->model);
}

static bool list_agent(void *user, const char *path, bool pinned) {
    agents_command *c = user;
    agent_record a;
    err why = {0};
    if (!agent_read(path, NULL, &a, &why)) {
        fprintf(stderr, "hearth: %s: %s\n", path, why.text);
        c->status = 1;
        return true;
    }
    char date[32], size[32], name[400];
    uint64_t bytes;
    size_t blocks = shelf_chain(c->shelf, &a.head, &bytes);
    if (c->json) json_array_append_new(c->list, agent_json(c, &a, pinned));
    else
        printf("%7zu tokens  %5zu of %5zu blocks  %-9s  %s  %.8s  %s%s\n", a.n_tokens, blocks, a.n_tokens / KV_BLOCK, cli_bytes(size, bytes + a.bytes), when(a.used, date),
               a.model, shown_name(&a, name), pinned ? "  pinned" : "");
    c->n++;
    agent_free(&a);
    return true;
}

int cache_ls(int argc, char **argv) {
    agents_command c;
    int status = parse(&c, argc, argv, "hearth cache ls [options]",
                       "Lists the agents: tokens, how many of their blocks are on disk, bytes (blocks may be shared), last use, model, name.", 0, 0);
    if (status < 0) return c.status;
    if (status == 0) shelf_agents(c.shelf, list_agent, &c, &c.e);
    if (status == 0 && !c.json && !c.n) printf("%s holds no agents\n", shelf_folder(c.shelf));
    return finish(&c, c.json && status == 0 ? json_pack("{s:s, s:O}", "folder", shelf_folder(c.shelf), "agents", c.list) : NULL);
}

/* ---- show ---- */

static bool agent_file(agents_command *c, const char *end, char **path) {
    char tag[17];
    agent_tag(c->tenant, tag);
    return (*path = shelf_agent_path(c->shelf, c->name, tag, end, &c->e)) != NULL;
}

int cache_show(int argc, char **argv) {
    agents_command c;
    int status = parse(&c, argc, argv, "hearth cache show NAME [options]", "Prints what is known of an agent.", 1, 1);
    if (status < 0) return c.status;
    char *path = NULL, *pin = NULL, date[32], size[32], name[400], head[65];
    json_t *out = NULL;
    agent_record a;
    file_id id;
    if (status == 0 && agent_file(&c, ".safetensors", &path) && agent_file(&c, ".pin", &pin) && agent_read(path, NULL, &a, &c.e)) {
        bool pinned = file_examine(pin, &id, NULL);
        uint64_t bytes;
        size_t blocks = shelf_chain(c.shelf, &a.head, &bytes);
        kv_name_text(&a.head, head);
        if (c.json) {
            out = agent_json(&c, &a, pinned);
            json_object_set_new(out, "head", json_string(head));
            json_object_set_new(out, "path", json_string(path));
        } else {
            printf("agent    %s%s\n", shown_name(&a, name), pinned ? ", pinned" : "");
            printf("file     %s, %s\n", path, cli_bytes(size, a.bytes));
            printf("model    %s\n", a.model);
            printf("tokens   %zu\n", a.n_tokens);
            printf("blocks   %zu of %zu on disk, %s\n", blocks, a.n_tokens / KV_BLOCK, cli_bytes(size, bytes));
            printf("head     %s\n", head);
            printf("note     %zu bytes\n", a.note_len);
            printf("created  %s\n", when(a.created, date));
            printf("used     %s\n", when(a.used, date));
        }
        agent_free(&a);
    }
    mem_free(path), mem_free(pin);
    return finish(&c, out);
}

/* ---- verify ---- */

static void report(agents_command *c, const char *path, const err *why) {
    if (why->code == HEARTH_OK) {
        c->n++;
        return;
    }
    /* What cannot be read now may be readable later; what is wrong stays wrong. */
    bool moved = why->code == HEARTH_FORMAT && shelf_set_aside(c->shelf, path, why->text, NULL);
    c->n_bad++;
    c->status = 1;
    if (c->json) json_array_append_new(c->list, json_pack("{s:s, s:s, s:b}", "path", path, "trouble", why->text, "set_aside", (int)moved));
    else printf("DAMAGED  %s: %s%s\n", path, why->text, moved ? "; set aside" : "");
}

static bool verify_block(void *user, const shelf_key *key, uint64_t bytes) {
    (void)bytes;
    agents_command *c = user;
    err why = {0};
    char *path = shelf_block_path(c->shelf, key, &c->e);
    if (!path) return false;
    blockfile_verify(path, key, &why);
    report(c, path, &why);
    mem_free(path);
    return true;
}

static bool verify_agent(void *user, const char *path, bool pinned) {
    (void)pinned;
    agent_record a;
    err why = {0};
    if (agent_read(path, NULL, &a, &why)) agent_free(&a);
    report(user, path, &why);
    return true;
}

int cache_verify(int argc, char **argv) {
    agents_command c;
    int status = parse(&c, argc, argv, "hearth cache verify [options]",
                       "Reads every agent and block, compares all bytes with the checksums and sets aside what is damaged: it is computed again when it is\n"
                       "needed. Ends with 1 when something was.", 0, 0);
    if (status < 0) return c.status;
    if (status == 0) {
        shelf_blocks(c.shelf, verify_block, &c);
        shelf_agents(c.shelf, verify_agent, &c, &c.e);
        if (!c.json) printf("%zu files are whole, %zu damaged\n", c.n, c.n_bad);
    }
    return finish(&c, c.json && status == 0 ? json_pack("{s:I, s:O}", "whole", (json_int_t)c.n, "damaged", c.list) : NULL);
}

/* ---- rm ---- */

/* path ends with .safetensors; who has the agent open keeps it. */
static bool remove_agent(agents_command *c, const char *path) {
    char *other = mem_alloc(strlen(path) + 1, 1, &c->e);
    if (!other) return false;
    size_t stem = strlen(path) - strlen(".safetensors");
    memcpy(other, path, stem);
    strcpy(other + stem, ".lock");
    int lock = -1;
    bool ok = file_lock_file(other, &lock, &c->e);
    if (ok && lock < 0) ok = err_set(&c->e, HEARTH_LIMIT, "%s: the agent is open in another process", path);
    ok = ok && file_remove(path, &c->e);
    if (ok) {
        file_remove(other, NULL);
        strcpy(other + stem, ".pin");
        file_remove(other, NULL);
        c->n++;
    }
    file_unlock(lock);
    mem_free(other);
    return ok;
}

static bool remove_any(void *user, const char *path, bool pinned) {
    (void)pinned;
    return remove_agent(user, path);
}

int cache_rm(int argc, char **argv) {
    agents_command c;
    int status = parse(&c, argc, argv, "hearth cache rm NAME|all [options]",
                       "Forgets an agent, or all of them (rm all). What was computed for it stays until gc or until its room is needed.", 1, 1);
    if (status < 0) return c.status;
    char *path = NULL;
    file_id id;
    if (status == 0 && strcmp(c.name, "all") == 0) shelf_agents(c.shelf, remove_any, &c, &c.e);
    else if (status == 0 && agent_file(&c, ".safetensors", &path)) {
        if (!file_examine(path, &id, NULL)) err_set(&c.e, HEARTH_ARGUMENT, "there is no agent of that name: hearth cache ls shows them");
        else remove_agent(&c, path);
    }
    mem_free(path);
    if (c.e.code == HEARTH_OK && status == 0 && !c.json) printf("%zu agent%s forgotten\n", c.n, c.n == 1 ? "" : "s");
    return finish(&c, c.json && c.e.code == HEARTH_OK && status == 0 ? json_pack("{s:I}", "removed", (json_int_t)c.n) : NULL);
}

/* ---- gc, stats ---- */

int cache_gc(int argc, char **argv) {
    agents_command c;
    int status = parse(&c, argc, argv, "hearth cache gc [options]",
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
    return finish(&c, ok && c.json ? json_pack("{s:I}", "freed", (json_int_t)freed) : NULL);
}

int cache_stats(int argc, char **argv) {
    agents_command c;
    int status = parse(&c, argc, argv, "hearth cache stats [options]", "Prints what is on disk of conversations. What is in memory is the running program's to tell.", 0, 0);
    if (status < 0) return c.status;
    json_t *out = NULL;
    if (status == 0) {
        shelf_stats s = shelf_get_stats(c.shelf);
        char used[32], budget[32];
        if (c.json)
            out = json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "folder", shelf_folder(c.shelf), "agents", (json_int_t)s.agents, "blocks", (json_int_t)s.blocks, "bytes",
                            (json_int_t)s.bytes, "budget", (json_int_t)s.budget, "scan_seconds", s.scan_seconds);
        else
            printf("folder   %s\nagents   %" PRIu64 "\nblocks   %" PRIu64 "\nbytes    %s of %s\nscan     %.3f s\n", shelf_folder(c.shelf), s.agents, s.blocks,
                   cli_bytes(used, s.bytes), cli_bytes(budget, s.budget), s.scan_seconds);
    }
    return finish(&c, out);
}
