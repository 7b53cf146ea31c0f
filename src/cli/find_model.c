/* find_model.c: the models that `hearth pull` brought, and finding one of them by its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "gguf/folder.h"

char *cli_models_folder(err *e) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    buf b = {0};
    bool ok = data && *data == '/'   ? buf_addf(&b, e, "%s/hearth/models", data)
              : home && *home == '/' ? buf_addf(&b, e, "%s/.local/share/hearth/models", home)
                                     : err_set(e, HEARTH_IO, "there is no folder for models: neither XDG_DATA_HOME nor HOME is set");
    if (ok) return b.data;
    buf_free(&b);
    return NULL;
}

static char *copy(const char *text, err *e) { return mem_strndup(text, strlen(text), e); }

static char *find_pulled(const char *name, err *e) {
    char *folder = cli_models_folder(NULL), *path = NULL;
    gguf_folder models = {0};
    bool several = false;
    if (folder && gguf_folder_scan(&models, folder, NULL)) {
        const gguf_found *found = gguf_folder_find(&models, name, &several);
        if (found) path = copy(found->path, e);
    }
    if (several) {
        buf list = {.limit = 300};
        for (size_t i = 0; i < models.n; i++)
            if (strcmp(models.items[i].name, name) == 0) buf_addf(&list, NULL, "%s%s", list.len ? ", " : "", models.items[i].relative);
        err_set(e, HEARTH_ARGUMENT, "'%s' names several models: %s", name, list.data ? list.data : "");
        buf_free(&list);
    }
    gguf_folder_free(&models);
    mem_free(folder);
    return path;
}

static bool ends_as_model(const char *given) {
    size_t n = strlen(given);
    return n > 5 && strcmp(given + n - 5, ".gguf") == 0;
}

/* A path that names something wins over a name; what can only be a path is left to say what is wrong with it when it is opened. */
char *cli_find_model(const char *given, err *e) {
    struct stat st;
    err why = {0};
    if (stat(given, &st) == 0) return copy(given, e);
    char *path = find_pulled(given, &why);
    if (path) return path;
    if (why.code == HEARTH_OK && (ends_as_model(given) || given[0] == '/' || given[0] == '.')) return copy(given, e);
    if (why.code == HEARTH_OK) err_set(e, HEARTH_IO, "there is no file '%s', and no model of that name among those that hearth pull brought", given);
    else *e = why;
    return NULL;
}

bool cli_is_model(const char *given) {
    struct stat st;
    if (ends_as_model(given) || (stat(given, &st) == 0 && S_ISREG(st.st_mode))) return true;
    /* Not everything that could be a prompt is worth a look through a folder. */
    size_t n = strlen(given);
    if (n == 0 || n > 200 || strpbrk(given, " \t\n")) return false;
    err several = {0};
    char *path = find_pulled(given, &several);
    mem_free(path);
    return path || several.code != HEARTH_OK;
}
