/* cache_agents.c: `hearth cache ls, show, fork, export, import, pin, unpin and rm`: conversations on disk by name. cache_store.c: the folder as a whole. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cache.h"
#include "engine/recall.h"
#include "store/bundle.h"

/* ---- what all share ---- */

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

int cache_finish(agents_command *c, json_t *object) {
    if (object && c->json && c->e.code == HEARTH_OK) {
        json_dumpf(object, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(object);
    json_decref(c->list);
    shelf_close(c->shelf);
    if (c->e.code != HEARTH_OK) return cli_fail(&c->e);
    return c->status;
}

int cache_parse(agents_command *c, int argc, char **argv, const char *usage, const char *about, int min_args, int max_args) {
    const cli_option options[] = {
        {"--store-dir", 0, CLI_TEXT, &c->dir, "PATH", "the folder (default: $XDG_DATA_HOME/hearth/kv or ~/.local/share/hearth/kv)", 0, 0},
        {"--tenant", 0, CLI_TEXT, &c->tenant, "TEXT", "whose agent it is (default: nobody's)", 0, 0},
        {"--kv-disk", 0, CLI_BYTES, &c->most, "BYTES", "gc: what may stay (default: half of what the disk would have without them)", 0, 0},
        {"--json", 0, CLI_FLAG, &c->json, NULL, "print JSON", 0, 0},
        {0},
    };
    const cli_spec spec = {usage, about, options, NULL, min_args, max_args};
    *c = (agents_command){.most = SHELF_AUTO};
    if (cli_parse(&spec, argc, argv, c->args, &c->status) < 0) return -1;
    c->list = json_array();
    return open_shelf(c) ? 0 : 1;
}

/* ---- ls ---- */

/* Of what the agent needs to go on: all is on disk, some of it, or nothing. What is in memory only the running program knows. */
static const char *tier_of(const agent_record *a, size_t blocks) {
    size_t full = a->n_tokens / KV_BLOCK;
    bool tail = a->n_tokens % KV_BLOCK == 0 || a->n_tail;
    if (blocks == full && tail) return "warm";
    return blocks || (full == 0 && tail) ? "part" : "cold";
}

static json_t *agent_json(const agents_command *c, const agent_record *a, bool pinned) {
    uint64_t bytes;
    size_t blocks = shelf_chain(c->shelf, &a->head, &bytes);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:b, s:s}", "name", a->name, "tenant", a->tag, "tokens", (json_int_t)a->n_tokens, "blocks",
                     (json_int_t)blocks, "block_bytes", (json_int_t)bytes, "bytes", (json_int_t)a->bytes, "tier", tier_of(a, blocks), "created",
                     (json_int_t)a->created, "used", (json_int_t)a->used, "hits", (json_int_t)a->hits, "pinned", (int)pinned, "model", a->model);
}

static bool list_agent(void *user, const char *path, bool pinned) {
    agents_command *c = user;
    agent_record a;
    err why = {0};
    if (!agent_peek(path, &a, &why)) {
        fprintf(stderr, "hearth: %s: %s\n", path, why.text);
        c->status = 1;
        return true;
    }
    char date[32], size[32], name[400];
    uint64_t bytes;
    size_t blocks = shelf_chain(c->shelf, &a.head, &bytes);
    if (c->json) json_array_append_new(c->list, agent_json(c, &a, pinned));
    else
        printf("%7zu tokens  %5zu of %5zu blocks  %-9s  %-4s  %5" PRIu64 " hits  %s  %.8s  %s%s\n", a.n_tokens, blocks, a.n_tokens / KV_BLOCK,
               cli_bytes(size, bytes + a.bytes), tier_of(&a, blocks), a.hits, when(a.used, date), a.model, shown_name(&a, name), pinned ? "  pinned" : "");
    c->n++;
    agent_free(&a);
    return true;
}

int cache_ls(int argc, char **argv) {
    agents_command c;
    int status = cache_parse(&c, argc, argv, "hearth cache ls [options]",
                       "Lists the agents: tokens, how many of their blocks are on disk, bytes (blocks may be shared), whether all they need to go on is there\n"
                       "(warm), some of it (part) or nothing (cold), how often something of them was found, last use, model, name.", 0, 0);
    if (status < 0) return c.status;
    if (status == 0) shelf_agents(c.shelf, list_agent, &c, &c.e);
    if (status == 0 && !c.json && !c.n) printf("%s holds no agents\n", shelf_folder(c.shelf));
    return cache_finish(&c, status == 0 ? json_pack("{s:s, s:O}", "folder", shelf_folder(c.shelf), "agents", c.list) : NULL);
}

/* ---- show ---- */

static bool agent_file(agents_command *c, const char *end, char **path) {
    char tag[17];
    agent_tag(c->tenant, tag);
    return (*path = shelf_agent_path(c->shelf, c->args[0], tag, end, &c->e)) != NULL;
}

int cache_show(int argc, char **argv) {
    agents_command c;
    int status = cache_parse(&c, argc, argv, "hearth cache show NAME [options]", "Prints what is known of an agent.", 1, 1);
    if (status < 0) return c.status;
    char *path = NULL, *pin = NULL, date[32], size[32], name[400], head[65];
    json_t *out = NULL;
    agent_record a;
    file_id id;
    if (status == 0 && agent_file(&c, ".safetensors", &path) && agent_file(&c, ".pin", &pin) && agent_peek(path, &a, &c.e)) {
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
            printf("tier     %s\nhits     %" PRIu64 "\n", tier_of(&a, blocks), a.hits);
            printf("created  %s\n", when(a.created, date));
            printf("used     %s\n", when(a.used, date));
        }
        agent_free(&a);
    }
    mem_free(path), mem_free(pin);
    return cache_finish(&c, out);
}

/* ---- fork, export, import, pin ---- */

int cache_fork(int argc, char **argv) {
    agents_command c;
    int status = cache_parse(&c, argc, argv, "hearth cache fork AGENT NEW [options]",
                             "Makes a new agent that goes on where this one was last saved. Nothing but its name, tokens and tail is copied.", 2, 2);
    if (status < 0) return c.status;
    char tag[17];
    agent_tag(c.tenant, tag);
    bool ok = status == 0 && agent_fork(c.shelf, c.args[0], c.args[1], tag, &c.e);
    if (ok && !c.json) printf("%s is a fork of %s\n", c.args[1], c.args[0]);
    return cache_finish(&c, ok ? json_pack("{s:s, s:s}", "name", c.args[1], "from", c.args[0]) : NULL);
}

static json_t *bundle_json(const bundle_info *i, const char *file) {
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s}", "name", i->name, "file", file, "tokens", (json_int_t)i->tokens, "blocks", (json_int_t)i->blocks, "missing",
                     (json_int_t)i->missing, "bytes", (json_int_t)i->bytes, "model", i->model);
}

static int finish_bundle(agents_command *c, bool ok, const bundle_info *i, const char *file, const char *verb) {
    char size[32], name[300];
    err_quote(name, sizeof name, ok ? i->name : "", ok ? strlen(i->name) : 0);
    if (ok && !c->json) printf("%s %s %s: %zu tokens, %zu blocks, %s; model %.8s\n", name, verb, file, i->tokens, i->blocks, cli_bytes(size, i->bytes), i->model);
    if (ok && !c->json && i->missing) printf("%zu blocks are missing: they are computed again when the agent goes on\n", i->missing);
    return cache_finish(c, ok ? bundle_json(i, file) : NULL);
}

int cache_export(int argc, char **argv) {
    agents_command c;
    bundle_info i;
    int status = cache_parse(&c, argc, argv, "hearth cache export AGENT FILE [options]",
                             "Writes an agent with all that was computed for it to one file, to be imported on another machine. It is of use there to the same model,\n"
                             "and to kernels that keep keys and values in the same format.", 2, 2);
    if (status < 0) return c.status;
    bool ok = status == 0 && bundle_export(c.shelf, c.args[0], c.tenant, c.args[1], &i, &c.e);
    return finish_bundle(&c, ok, &i, c.args[1], "is in");
}

int cache_import(int argc, char **argv) {
    agents_command c;
    bundle_info i;
    int status = cache_parse(&c, argc, argv, "hearth cache import FILE [NAME] [options]",
                             "Takes an agent from a file that export wrote, under its own name or another. Every byte is checked, but not whether the keys and values are\n"
                             "what the model would have computed: take files only from those you trust.", 1, 2);
    if (status < 0) return c.status;
    bool ok = status == 0 && bundle_import(c.shelf, c.args[0], c.args[1], c.tenant, &i, &c.e);
    return finish_bundle(&c, ok, &i, c.args[0], "was taken from");
}

static int set_pin(int argc, char **argv, bool pinned, const char *usage, const char *about) {
    agents_command c;
    int status = cache_parse(&c, argc, argv, usage, about, 1, 1);
    if (status < 0) return c.status;
    char tag[17], *path = NULL;
    file_id id;
    bool there = false, ok = status == 0 && agent_file(&c, ".safetensors", &path) && file_look(path, &there, &id, &c.e);
    if (ok && !there) ok = err_set(&c.e, HEARTH_ARGUMENT, "there is no agent of that name: hearth cache ls shows them");
    agent_tag(c.tenant, tag);
    ok = ok && shelf_pin(c.shelf, c.args[0], tag, pinned, &c.e);
    if (ok && !c.json) printf("%s is %s\n", c.args[0], pinned ? "pinned" : "no longer pinned");
    mem_free(path);
    return cache_finish(&c, ok ? json_pack("{s:s, s:b}", "name", c.args[0], "pinned", (int)pinned) : NULL);
}

int cache_pin(int argc, char **argv) {
    return set_pin(argc, argv, true, "hearth cache pin AGENT [options]", "What was computed for this agent is never evicted from the disk.");
}

int cache_unpin(int argc, char **argv) {
    return set_pin(argc, argv, false, "hearth cache unpin AGENT [options]", "What was computed for this agent may be evicted again.");
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
    file_id id;
    ok = ok && file_examine(path, &id, &c->e) && file_remove(path, &c->e);
    if (ok) {
        shelf_agent_bytes(c->shelf, id.size, 0, 0);
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
    int status = cache_parse(&c, argc, argv, "hearth cache rm NAME|all [options]",
                       "Forgets an agent, or all of them (rm all). What was computed for it stays until gc or until its room is needed.", 1, 1);
    if (status < 0) return c.status;
    char *path = NULL;
    file_id id;
    if (status == 0 && strcmp(c.args[0], "all") == 0) shelf_agents(c.shelf, remove_any, &c, &c.e);
    else if (status == 0 && agent_file(&c, ".safetensors", &path)) {
        if (!file_examine(path, &id, NULL)) err_set(&c.e, HEARTH_ARGUMENT, "there is no agent of that name: hearth cache ls shows them");
        else remove_agent(&c, path);
    }
    mem_free(path);
    if (c.e.code == HEARTH_OK && status == 0 && !c.json) printf("%zu agent%s forgotten\n", c.n, c.n == 1 ? "" : "s");
    return cache_finish(&c, status == 0 ? json_pack("{s:I}", "removed", (json_int_t)c.n) : NULL);
}
