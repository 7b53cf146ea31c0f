/* cmd_cache.c: `hearth cache`, and of it `hearth cache weights`: what is kept on disk of packed weights, whether it is whole, and making room. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "cli/cli.h"
#include "weights/folder.h"

typedef struct cache_command {
    char *folder;
    const char *action, *dir, *name; /* name: one file, NULL for all */
    uint64_t most;
    bool json;
    folder_files files;
    json_t *list;
} cache_command;

/* What a file says about itself, or what is wrong with it. */
typedef struct facts {
    char kernels[32], fingerprint[33], trouble[512];
    size_t matrices;
} facts;

static char *path_of(const cache_command *c, const folder_file *f, err *e) {
    buf b = {0};
    if (buf_addf(&b, e, "%s/%s", c->folder, f->name)) return b.data;
    buf_free(&b);
    return NULL;
}

static void find_damage(const packfile *p, facts *out) {
    for (size_t i = 0; i < p->n; i++) {
        if (packfile_check(p, i)) continue;
        char quoted[128];
        err_quote(quoted, sizeof quoted, p->items[i].name, p->items[i].name_len);
        snprintf(out->trouble, sizeof out->trouble, "the checksum of %s is wrong", quoted);
        return;
    }
}

static bool read_facts(const cache_command *c, const folder_file *f, bool whole, facts *out, err *e) {
    *out = (facts){0};
    packfile p;
    err why = {0};
    file_id id;
    char *path = path_of(c, f, e);
    if (!path) return false;
    bool examined = file_examine(path, &id, NULL);
    if (packfile_open(&p, path, &why)) {
        snprintf(out->kernels, sizeof out->kernels, "%s", p.key.variant);
        snprintf(out->fingerprint, sizeof out->fingerprint, "%016" PRIx64 "%016" PRIx64, p.key.fingerprint.high, p.key.fingerprint.low);
        out->matrices = p.n;
        if (whole) find_damage(&p, out);
        packfile_close(&p);
    } else {
        snprintf(out->trouble, sizeof out->trouble, "%s", why.text);
    }
    if (whole && out->trouble[0] && !f->bad && examined) folder_set_aside(path, &id, NULL);
    mem_free(path);
    return true;
}

static void print_file(const cache_command *c, const folder_file *f, const facts *x, bool whole) {
    char when[32] = "", size[32];
    time_t used = (time_t)(f->used_ns / 1000000000);
    struct tm tm;
    if (localtime_r(&used, &tm)) strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    if (c->json) {
        json_array_append_new(c->list, json_pack("{s:s, s:I, s:s, s:s, s:s, s:I, s:b, s:s}", "name", f->name, "bytes", (json_int_t)f->bytes, "used", when, "kernels",
                                                 x->kernels, "fingerprint", x->fingerprint, "matrices", (json_int_t)x->matrices, "set_aside", (int)f->bad,
                                                 "trouble", x->trouble));
        return;
    }
    printf("%-9s  %s  %-7s  %s%s%s%s\n", cli_bytes(size, f->bytes), when, x->kernels[0] ? x->kernels : "-", f->name, f->bad ? "  set aside" : whole ? "  ok" : "",
           x->trouble[0] ? ": " : "", x->trouble);
}

/* ls and verify. Verify reads everything, sets what is damaged aside and ends with 1 when something was. */
static int show(cache_command *c, bool whole) {
    err e = {0};
    int status = 0;
    c->list = json_array();
    for (size_t i = 0; i < c->files.n; i++) {
        const folder_file *f = &c->files.items[i];
        facts x;
        if (c->name && strcmp(c->name, f->name) != 0) continue;
        if (!read_facts(c, f, whole, &x, &e)) return cli_fail(&e);
        if (whole && x.trouble[0] && !f->bad) status = 1;
        if (whole && x.trouble[0] && !f->bad && !c->json) printf("DAMAGED    %s: %s\n", f->name, x.trouble);
        else print_file(c, f, &x, whole);
    }
    if (c->json) {
        json_t *all = json_pack("{s:s, s:I, s:O}", "folder", c->folder, "bytes", (json_int_t)c->files.bytes, "files", c->list);
        json_dumpf(all, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(all);
    } else if (!c->files.n) {
        printf("%s holds no packed weights\n", c->folder);
    }
    return status;
}

static int print_freed(const cache_command *c, uint64_t freed) {
    char size[32];
    if (c->json) printf("{\"freed\": %" PRIu64 "}\n", freed);
    else printf("%s freed in %s\n", cli_bytes(size, freed), c->folder);
    return 0;
}

static int reduce(cache_command *c) {
    err e = {0};
    int lock = -1;
    uint64_t freed = 0, most = c->most;
    if (!c->files.n && most != UINT64_MAX) return print_freed(c, 0);
    if (!file_lock(c->folder, &lock, &e)) return cli_fail(&e);
    if (lock < 0) return cli_failf("%s is in use: a hearth process is writing packed weights, try again when it is done", c->folder);
    bool ok = true;
    if (most == UINT64_MAX) {
        uint64_t room;
        ok = file_room(c->folder, &room, &e);
        most = (room + c->files.bytes) / 2;
    }
    ok = ok && folder_prune(c->folder, most, NULL, &freed, &e);
    file_unlock(lock);
    return ok ? print_freed(c, freed) : cli_fail(&e);
}

static int remove_files(cache_command *c) {
    err e = {0};
    uint64_t freed = 0;
    bool found = false;
    for (size_t i = 0; i < c->files.n; i++) {
        if (strcmp(c->name, "all") != 0 && strcmp(c->name, c->files.items[i].name) != 0) continue;
        found = true;
        if (!folder_remove(c->folder, c->files.items[i].name, &e)) return cli_fail(&e);
        freed += c->files.items[i].bytes;
    }
    if (!found && strcmp(c->name, "all") != 0) return cli_failf("%s holds no '%s': hearth cache weights ls shows the names", c->folder, c->name);
    return print_freed(c, freed);
}

static int run(cache_command *c, const cli_spec *spec) {
    err e = {0};
    bool ls = strcmp(c->action, "ls") == 0, verify = strcmp(c->action, "verify") == 0, prune = strcmp(c->action, "prune") == 0;
    bool rm = strcmp(c->action, "rm") == 0;
    if (!ls && !verify && !prune && !rm) err_set(&e, HEARTH_ARGUMENT, "unknown action '%s'", c->action);
    else if (rm && !c->name) err_set(&e, HEARTH_ARGUMENT, "rm needs the NAME of a file, or all");
    else if (prune && c->name) err_set(&e, HEARTH_ARGUMENT, "prune takes no NAME");
    if (e.code != HEARTH_OK) return cli_usage(spec, &e);
    c->folder = folder_path(c->dir, &e);
    if (!c->folder || !folder_files_list(&c->files, c->folder, &e)) return cli_fail(&e);
    return prune ? reduce(c) : rm ? remove_files(c) : show(c, verify);
}

static int cache_weights(int argc, char **argv) {
    cache_command c = {.action = "ls", .most = UINT64_MAX};
    const cli_option options[] = {
        {"--cache-dir", 0, CLI_TEXT, &c.dir, "PATH", "the folder (default: $XDG_CACHE_HOME/hearth or ~/.cache/hearth)", 0, 0},
        {"--cache-bytes", 0, CLI_BYTES, &c.most, "BYTES", "prune: what may stay (default: half of what the disk would have without them)", 0, 0},
        {"--json", 0, CLI_FLAG, &c.json, NULL, "print JSON", 0, 0},
        {0},
    };
    const cli_spec spec = {"hearth cache weights [ls | verify [NAME] | prune | rm NAME|all] [options]",
                           "Packed weights are kept so that the next start maps them. ls shows the files, verify compares all bytes with their checksums\n"
                           "and sets damaged files aside, prune deletes the least recently used until the rest fits, rm deletes. Deleting is always safe.",
                           options, NULL, 0, 2};
    const char *args[2];
    int status, n = cli_parse(&spec, argc, argv, args, &status);
    if (n < 0) return status;
    if (n > 0) c.action = args[0];
    if (n > 1) c.name = args[1];
    status = run(&c, &spec);
    json_decref(c.list);
    folder_files_free(&c.files);
    mem_free(c.folder);
    return status;
}

int cmd_cache(int argc, char **argv) {
    static const cli_command commands[] = {
        {"ls", cache_ls, "the agents: conversations kept by name"},
        {"show", cache_show, "all that is known of one agent"},
        {"fork", cache_fork, "a new agent that goes on where another is"},
        {"export", cache_export, "an agent in one file, to move it to another machine"},
        {"import", cache_import, "take an agent from such a file"},
        {"pin", cache_pin, "never evict what was computed for an agent"},
        {"unpin", cache_unpin, "evict it again when room is needed"},
        {"verify", cache_verify, "check every byte of agents and blocks against its checksum"},
        {"rm", cache_rm, "forget an agent, or all"},
        {"gc", cache_gc, "delete what is of no use, and the least useful until the rest fits"},
        {"stats", cache_stats, "what is on disk of conversations"},
        {"weights", cache_weights, "weights packed for this machine's kernels"},
        {NULL, NULL, NULL},
    };
    return cli_dispatch("hearth cache", commands, argc, argv);
}
