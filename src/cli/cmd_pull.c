/* cmd_pull.c: `hearth pull`: downloads a model from a hub. */
#include <ctype.h>
#include <curl/curl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/pull.h"
#include "gguf/folder.h"

static const char PUBLIC_HUB[] = "https://huggingface.co";

/* Names become paths and addresses: nothing that leads elsewhere, hides or cannot be shown. */
static bool name_is_fine(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n > 1000) return false;
    for (const char *p = name; *p;) {
        size_t len = strcspn(p, "/");
        if (len == 0 || len > 200 || p[0] == '.' || p[0] == '-') return false;
        for (size_t i = 0; i < len; i++)
            if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f || p[i] == '\\' || p[i] == ':') return false;
        p += len;
        if (*p == '/' && !*++p) return false;
    }
    return true;
}

/* OWNER/REPO/FILE, where FILE may lie in folders. */
static bool split(const char *given, char repo[256], const char **file, err *e) {
    const char *first = strchr(given, '/'), *second = first ? strchr(first + 1, '/') : NULL;
    size_t n = second ? (size_t)(second - given) : 0;
    if (!second || n >= 256 || !name_is_fine(given)) {
        char quoted[200];
        return err_set(e, HEARTH_ARGUMENT, "'%s' is not of the form OWNER/REPO/FILE", err_quote(quoted, sizeof quoted, given, strlen(given)));
    }
    memcpy(repo, given, n);
    repo[n] = 0;
    *file = second + 1;
    return true;
}

/* A token must not travel in the open, but to this machine. */
static bool check_hub(const pull_options *o, err *e) {
    bool safe = strncasecmp(o->hub, "https://", 8) == 0, plain = strncasecmp(o->hub, "http://", 7) == 0;
    if (!safe && !plain) return err_set(e, HEARTH_ARGUMENT, "--hub must begin with https:// or http://, not '%s'", o->hub);
    const char *host = o->hub + 7;
    bool local = plain && (strncmp(host, "127.0.0.1", 9) == 0 || strncmp(host, "localhost", 9) == 0 || strncmp(host, "[::1]", 5) == 0);
    char after = local ? host[host[0] == '[' ? 5 : 9] : 0;
    local = local && (after == 0 || after == ':' || after == '/');
    if (o->token && plain && !local) return err_set(e, HEARTH_ARGUMENT, "a token is not sent to %s, because everyone on the way could read it: use https://", o->hub);
    return true;
}

static bool read_token(const char *path, buf *text, pull_options *o, err *e) {
    if (!path) return true;
    if (!file_read(path, 4096, text, e)) return false;
    while (text->len > 0 && isspace((unsigned char)text->data[text->len - 1])) text->data[--text->len] = 0;
    bool fine = text->len > 0;
    for (size_t i = 0; i < text->len; i++) fine = fine && text->data[i] > ' ' && text->data[i] < 0x7f;
    o->token = text->data;
    return fine || err_set(e, HEARTH_FORMAT, "%s must hold a token and nothing else", path);
}

static bool pull_one(const pull_options *o, const char *repo, const char *file, err *e) {
    pull_result r;
    char size[32], resumed[32];
    if (!pull_file(o, repo, file, &r, e)) return false;
    if (r.was_there) printf("%s is there already (%s)\n", r.path, cli_bytes(size, r.bytes));
    else
        printf("%s: %s%s%s%s\n", r.path, cli_bytes(size, r.bytes), r.resumed ? ", of these kept from before " : "", r.resumed ? cli_bytes(resumed, r.resumed) : "",
               r.checked ? ", checksum right" : "; the hub tells no checksum");
    fflush(stdout);
    mem_free(r.path);
    return true;
}

/* All parts of a split file, whichever was named. */
static bool pull_all(const pull_options *o, const char *repo, const char *file, err *e) {
    int number, count;
    if (!gguf_is_part(file, &number, &count) || count < 1) return pull_one(o, repo, file, e);
    char *part = mem_strndup(file, strlen(file), e);
    bool ok = part != NULL;
    for (int i = 1; ok && i <= count; i++) {
        char digits[8];
        snprintf(digits, sizeof digits, "%05d", i % 100000);
        memcpy(part + strlen(part) - strlen("00001-of-00001.gguf"), digits, 5);
        ok = pull_one(o, repo, part, e);
    }
    mem_free(part);
    return ok;
}

int cmd_pull(int argc, char **argv) {
    pull_options o = {.hub = PUBLIC_HUB, .revision = "main", .retries = 6};
    const char *token_file = NULL, *args[1], *file = NULL;
    const cli_option options[] = {
        {"--hub", 0, CLI_TEXT, &o.hub, "URL", "the hub (default https://huggingface.co)", 0, 0},
        {"--revision", 0, CLI_TEXT, &o.revision, "NAME", "branch, tag or commit (default main)", 0, 0},
        {"--token-file", 0, CLI_TEXT, &token_file, "FILE", "a file with a token for models that need one", 0, 0},
        {"--models-dir", 0, CLI_TEXT, &o.folder, "PATH", "where to (default: $XDG_DATA_HOME/hearth/models or ~/.local/share/hearth/models)", 0, 0},
        {"--retries", 0, CLI_INT, &o.retries, "N", "how often to try again in a row when nothing comes (default 6)", 0, 1000},
        {NULL, 0, CLI_FLAG, NULL, NULL, NULL, 0, 0},
    };
    const cli_spec spec = {
        .usage = "hearth pull OWNER/REPO/FILE [options]",
        .about = "Downloads a model from a hub, all parts of a split one. What was cut short goes on where it was, and the file is put in place when its checksum is right.\n"
                 "hearth run, chat and serve then find it by its name: NAME of NAME.gguf, or OWNER/REPO/NAME.",
        .options = options,
        .min_args = 1,
        .max_args = 1,
    };
    int status = 0;
    if (cli_parse(&spec, argc, argv, args, &status) < 0) return status;
    err e = {0};
    char repo[256];
    buf token = {0};
    if (!split(args[0], repo, &file, &e) || !check_hub(&o, &e)) return cli_usage(&spec, &e);
    if (!name_is_fine(o.revision)) {
        err_set(&e, HEARTH_ARGUMENT, "--revision '%s' is none", o.revision);
        return cli_usage(&spec, &e);
    }
    char *folder = o.folder ? NULL : cli_models_folder(&e);
    if (folder) o.folder = folder;
    bool ok = o.folder && read_token(token_file, &token, &o, &e) && check_hub(&o, &e);
    if (ok && (sodium_init() < 0 || curl_global_init(CURL_GLOBAL_DEFAULT) != 0)) ok = err_set(&e, HEARTH_IO, "the libraries for downloading cannot be used");
    interrupt_catch(true);
    ok = ok && pull_all(&o, repo, file, &e);
    if (token.data) sodium_memzero(token.data, token.cap);
    buf_free(&token);
    mem_free(folder);
    return ok ? 0 : interrupt_pending() ? (cli_fail(&e), 130) : cli_fail(&e);
}
