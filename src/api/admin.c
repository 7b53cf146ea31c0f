/* admin.c: /admin: loads, unloads and swaps models, checks what is kept on disk of conversations and makes room there. Only for an administrator's key; without one
 * the server has no such routes. */
#include <string.h>

#include "api/inner.h"
#include "engine/recall.h"
#include "store/shelf.h"
#include "store/verify.h"

/* ---- models ---- */

static const char *name_of(const json_t *body, refusal *f) {
    const char *name = NULL;
    const field table[] = {{"model", FIELD_TEXT, &name, 0, 0, NULL}, {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    if (!fields_read(body, table, NULL, f)) return NULL;
    if (!name) refuse(f, "model", "'model' must name one of the models that GET /admin/models lists.");
    return name;
}

static void change_model(api *a, http_request *r, bool (*change)(models *m, const char *name, err *e)) {
    refusal f = {0};
    json_t *body = api_body(r, &f);
    const char *name = body ? name_of(body, &f) : NULL;
    if (name && model_is_known(a, name, &f) && change(a->models, name, &f.e)) api_reply(a, r, 200, models_json(a->models, name));
    else api_refuse(a, r, API_OPENAI, &f);
    json_decref(body);
}

/* The old one answers until the new one can. */
static bool swap(models *m, const char *name, err *e) { return models_load(m, name, e) && models_set_default(m, name, e); }

static void admin_models(api *a, http_request *r) { api_reply(a, r, 200, json_pack("{s:s, s:o}", "object", "list", "data", models_json(a->models, NULL))); }
static void admin_load(api *a, http_request *r) { change_model(a, r, models_load); }
static void admin_unload(api *a, http_request *r) { change_model(a, r, models_unload); }
static void admin_default(api *a, http_request *r) { change_model(a, r, swap); }

/* ---- conversations on disk ---- */

typedef struct check {
    shelf *shelf;
    json_t *damaged;
    size_t whole;
} check;

/* A shelf of its own: it reads the folder as any other process would. */
static shelf *open_shelf(api *a, refusal *f) {
    const hearth_engine_options *o = models_engine(a->models);
    if (!o->store) {
        refuse(f, "", "Conversations are not kept on disk here.");
        return NULL;
    }
    char *folder = recall_folder(o->store_dir, &f->e);
    shelf *s = folder ? shelf_open(folder, o->kv_disk, &f->e) : NULL;
    mem_free(folder);
    return s;
}

static bool report(void *user, const char *path, uint64_t bytes, const err *why, bool set_aside) {
    (void)bytes;
    check *c = user;
    if (why->code == HEARTH_OK) c->whole++;
    else
        json_array_append_new(c->damaged, json_pack("{s:o, s:o, s:b}", "path", text_json(path, strlen(path)), "trouble", text_json(why->text, strlen(why->text)), "set_aside",
                                                    (int)set_aside));
    return true;
}

static void admin_verify(api *a, http_request *r) {
    refusal f = {0};
    check c = {.shelf = open_shelf(a, &f), .damaged = json_array()};
    bool ok = c.shelf && shelf_verify(c.shelf, report, &c, &f.e);
    if (ok) api_reply(a, r, 200, json_pack("{s:I, s:O}", "whole", (json_int_t)c.whole, "damaged", c.damaged));
    else api_refuse(a, r, API_OPENAI, &f);
    json_decref(c.damaged);
    shelf_close(c.shelf);
}

static void admin_gc(api *a, http_request *r) {
    refusal f = {0};
    shelf *s = open_shelf(a, &f);
    bool busy = false, ok = s != NULL;
    uint64_t before = 0, after = 0;
    if (ok) {
        shelf_stats stats = shelf_get_stats(s);
        before = stats.bytes;
        ok = shelf_collect(s, stats.budget, &busy, &f.e) && (busy || shelf_clear_bad(s, &f.e));
        after = shelf_get_stats(s).bytes;
    }
    if (ok && busy) ok = refuse_with(&f, 503, NULL, "", "Another process is making room in that folder: try again when it is done.");
    if (ok) api_reply(a, r, 200, json_pack("{s:I, s:I}", "freed", (json_int_t)(before > after ? before - after : 0), "bytes", (json_int_t)after));
    else api_refuse(a, r, API_OPENAI, &f);
    shelf_close(s);
}

/* ---- routes ---- */

static const struct {
    const char *method, *path;
    route *run;
} routes[] = {
    {"GET", "/admin/models", admin_models},           {"POST", "/admin/load", admin_load},      {"POST", "/admin/unload", admin_unload},
    {"POST", "/admin/default", admin_default},        {"POST", "/admin/cache/verify", admin_verify}, {"POST", "/admin/cache/gc", admin_gc},
};

bool admin_handle(api *a, http_request *r) {
    if (!a->models || !a->o.admin || strncmp(http_path(r), "/admin", 6) != 0 || http_check(r) == HTTP_FOREIGN || http_check(r) == HTTP_TOO_LARGE) return false;
    refusal f = {0};
    if (!http_is_admin(r)) {
        refuse_with(&f, 401, "invalid_api_key", "", "An administrator's key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.");
        api_refuse(a, r, API_OPENAI, &f);
        return true;
    }
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strcmp(routes[i].path, http_path(r)) == 0 && strcmp(routes[i].method, http_method(r)) == 0) {
            routes[i].run(a, r);
            return true;
        }
    return false;
}
