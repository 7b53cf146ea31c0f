/* pull.c: one file: resuming, trying again, checking, putting it in place. */
#include "cli/pull.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/interrupt.h"

/* A file on its way. */
typedef struct download {
    const pull_options *o;
    const char *repo, *file;
    char *url, *path, *part, *note;
    int lock;
    pull_facts wanted;   /* what is known of it: etag, sha256, size */
    file_writer writer;
    bool writing;
    uint64_t have;       /* bytes in the part */
    uint64_t resumed;
    crypto_hash_sha256_state hash; /* of those */
    bool restart;        /* what comes does not go with what is there */
} download;

/* ---- the part and its note ---- */

static char *path_of(const char *path, const char *end, err *e) {
    buf b = {0};
    if (buf_addf(&b, e, "%s%s", path, end)) return b.data;
    buf_free(&b);
    return NULL;
}

/* synced: how much of the part is surely on disk. */
static bool write_note(const download *d, uint64_t synced, err *e) {
    json_t *j = json_pack("{s:s, s:s, s:s, s:I, s:I}", "url", d->url, "etag", d->wanted.etag, "sha256", d->wanted.sha256, "size",
                          d->wanted.size == UINT64_MAX ? (json_int_t)-1 : (json_int_t)d->wanted.size, "synced", (json_int_t)synced);
    char *text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
    json_decref(j);
    if (!text) return err_nomem(e, 0);
    file_writer w;
    bool ok = file_writer_open(&w, d->note, e);
    if (ok && file_writer_add(&w, text, strlen(text), e)) ok = file_writer_commit(&w, e);
    else if (ok) file_writer_abort(&w), ok = false;
    free(text);
    return ok;
}

/* How much of the part can be used: with a checksum all of it, since that will tell; else what was surely written of a file that has not changed. */
static uint64_t usable(download *d) {
    buf text = {0};
    file_id id;
    bool there = false;
    uint64_t n = 0;
    if (!file_look(d->part, &there, &id, NULL) || !there || !file_read(d->note, 65536, &text, NULL)) goto end;
    json_t *j = json_loadb(text.data ? text.data : "", text.len, 0, NULL);
    const char *url = json_string_value(json_object_get(j, "url")), *etag = json_string_value(json_object_get(j, "etag")),
               *sha = json_string_value(json_object_get(j, "sha256"));
    json_int_t synced = json_integer_value(json_object_get(j, "synced"));
    if (url && etag && sha && strcmp(url, d->url) == 0) {
        if (d->wanted.sha256[0]) n = strcmp(sha, d->wanted.sha256) == 0 ? id.size : 0;
        else if (d->wanted.etag[0] && strcmp(etag, d->wanted.etag) == 0 && synced > 0) n = (uint64_t)synced < id.size ? (uint64_t)synced : id.size;
    }
    if (n > d->wanted.size) n = 0;
    if (n > 0 && strlen(etag) < PULL_TEXT) strcpy(d->wanted.etag, etag);
    json_decref(j);
end:
    buf_free(&text);
    return n;
}

static bool hash_file(const char *path, uint64_t bytes, crypto_hash_sha256_state *h, err *e) {
    file_map m;
    crypto_hash_sha256_init(h);
    if (bytes == 0) return true;
    if (!file_map_open(&m, path, e)) return false;
    bool ok = m.size >= bytes || err_set(e, HEARTH_IO, "%s became shorter meanwhile", path);
    for (uint64_t at = 0; ok && at < bytes;) {
        uint64_t n = bytes - at < (1u << 24) ? bytes - at : 1u << 24;
        crypto_hash_sha256_update(h, m.data + at, n);
        at += n;
        cli_progress(NULL, "checking", at, bytes);
        if (interrupt_pending()) ok = err_set(e, HEARTH_CANCELLED, "interrupted");
    }
    file_map_close(&m);
    return ok;
}

static void sha_text(const crypto_hash_sha256_state *h, char out[65]) {
    crypto_hash_sha256_state copy = *h;
    unsigned char bytes[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_final(&copy, bytes);
    sodium_bin2hex(out, 65, bytes, sizeof bytes);
}

/* Goes on after the first keep bytes of the part. */
static bool open_part(download *d, uint64_t keep, err *e) {
    if (!hash_file(d->part, keep, &d->hash, e)) return false;
    d->writing = file_writer_resume(&d->writer, d->path, d->part, keep, e);
    d->have = keep;
    return d->writing;
}

/* Nothing of the part can be used. */
static bool start_over(download *d, err *e) {
    if (d->writing) file_writer_leave(&d->writer, NULL);
    d->writing = false;
    d->resumed = 0;
    return open_part(d, 0, e);
}

/* ---- receiving ---- */

static bool begin(void *user, const pull_facts *f, err *e) {
    download *d = user;
    pull_facts *w = &d->wanted;
    /* The hub may have another file by now than when we asked for the facts. */
    bool other = f->sha256[0] && strcmp(f->sha256, w->sha256) != 0;
    bool misplaced = f->status == 206 && (f->start != d->have || (f->size != UINT64_MAX && w->size != UINT64_MAX && f->size != w->size));
    if (misplaced || (f->status == 206 && other)) {
        d->restart = d->have > 0;
        return err_set(e, HEARTH_IO, "%s/%s changed on the way, or the server sends another part of it than was asked for", d->repo, d->file);
    }
    /* All of it comes: it is another one, or the server cannot continue. */
    if (f->status == 200 && d->have > 0 && !start_over(d, e)) return false;
    if (f->sha256[0] || w->linked[0] == 0) {
        memcpy(w->sha256, f->sha256, sizeof w->sha256);
        w->size = f->size;
    }
    memcpy(w->etag, f->etag, sizeof w->etag);
    uint64_t room;
    if (w->size != UINT64_MAX && file_room(d->o->folder, &room, NULL) && room < w->size - d->have) {
        char need[32], have[32];
        return err_set(e, HEARTH_IO, "%s needs %s more but the disk has only %s left", d->path, cli_bytes(need, w->size - d->have), cli_bytes(have, room));
    }
    return write_note(d, 0, e);
}

static bool receive(void *user, const void *data, size_t len, err *e) {
    download *d = user;
    static const char magic[] = "GGUF";
    size_t n = strlen(d->file);
    if (len > d->wanted.size - d->have) return err_set(e, HEARTH_FORMAT, "the server sends more than the %llu bytes that it told", (unsigned long long)d->wanted.size);
    /* A page that asks to log in, say, is known at once. */
    for (size_t i = 0; n > 5 && strcmp(d->file + n - 5, ".gguf") == 0 && d->have + i < 4 && i < len; i++)
        if (((const char *)data)[i] != magic[d->have + i]) return err_set(e, HEARTH_FORMAT, "what %s sends is no GGUF file", d->url);
    if (!file_writer_add(&d->writer, data, len, e)) return false;
    crypto_hash_sha256_update(&d->hash, data, len);
    d->have += len;
    if (d->wanted.size != UINT64_MAX) cli_progress(NULL, d->file, d->have, d->wanted.size);
    return true;
}

/* ---- trying, and trying again ---- */

static bool refuse_status(const download *d, const pull_facts *f, bool *again, err *e) {
    *again = f->status == 408 || f->status == 429 || f->status >= 500;
    const char *more = f->error[0] ? ": " : "";
    switch (f->status) {
    case 404: return err_set(e, HEARTH_ARGUMENT, "%s has no %s/%s at revision %s%s%s", d->o->hub, d->repo, d->file, d->o->revision, more, f->error);
    case 401:
    case 403:
        return err_set(e, HEARTH_ARGUMENT, "%s does not give us %s/%s: it may not exist, or it needs a token with access to it (--token-file)%s%s", d->o->hub, d->repo, d->file, more, f->error);
    default: return err_set(e, HEARTH_IO, "%s answers with status %ld%s%s", d->url, f->status, more, f->error);
    }
}

/* False when Ctrl-C came. */
static bool wait_before(int tried, int told_s) {
    double seconds = told_s > 0 ? (told_s < 60 ? told_s : 60) : 0.25 * (double)(1 << (tried < 7 ? tried : 7));
    for (uint64_t until = clock_ns() + (uint64_t)(seconds * 1e9); clock_ns() < until && !interrupt_pending();) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return !interrupt_pending();
}

static bool ask_facts(download *d, err *e) {
    for (int tried = 0;; tried++) {
        bool again;
        err why = {0};
        bool ok = pull_request(d->url, d->o->token, 0, "", NULL, &d->wanted, &again, &why);
        if (ok && d->wanted.status == 200) return true;
        if (ok) refuse_status(d, &d->wanted, &again, &why);
        if (!again || tried >= d->o->retries || !wait_before(tried, d->wanted.retry_s)) {
            *e = why;
            return false;
        }
    }
}

/* Whether all of it is here now. A cut connection is no failure: *again. */
static bool fetch_once(download *d, int *retry_s, bool *again, err *e) {
    const pull_sink sink = {.begin = begin, .data = receive, .user = d};
    pull_facts f;
    d->restart = false;
    bool ok = pull_request(d->url, d->o->token, d->have, d->wanted.etag, &sink, &f, again, e);
    *retry_s = f.retry_s;
    if (ok && f.status == 416 && d->have > 0) {
        ok = err_set(e, HEARTH_IO, "%s/%s became shorter on the server", d->repo, d->file);
        d->restart = true;
    }
    if (!ok && d->restart) *again = start_over(d, NULL);
    if (!ok) return false;
    if (f.status != 200 && f.status != 206) return refuse_status(d, &f, again, e);
    if (d->wanted.size == UINT64_MAX || d->have == d->wanted.size) return true;
    *again = true;
    return err_set(e, HEARTH_IO, "%s: the connection ended after %llu of %llu bytes", d->url, (unsigned long long)d->have, (unsigned long long)d->wanted.size);
}

static bool fetch(download *d, err *e) {
    int restarts = 0;
    for (int tried = 0;;) {
        uint64_t before = d->have;
        bool again = false;
        int retry_s = 0;
        err why = {0};
        if (d->wanted.size != UINT64_MAX && d->have == d->wanted.size && d->have > 0) return true;
        /* Without a checksum or a name for its state, what follows may be of another file. */
        if (d->have > 0 && !d->wanted.sha256[0] && !d->wanted.etag[0] && !start_over(d, e)) return false;
        if (fetch_once(d, &retry_s, &again, &why)) return true;
        if (d->restart && ++restarts > d->o->retries) again = false;
        if (d->have > before) tried = 0;
        if (!d->writing || !again || tried >= d->o->retries || !wait_before(tried, retry_s)) {
            *e = why;
            return false;
        }
        tried += !d->restart;
    }
}

/* ---- from the beginning to the end ---- */

/* Whether the file is here as the hub has it. */
static bool is_there(const download *d, pull_result *out, err *e) {
    file_id id;
    bool there = false;
    if (!file_look(d->path, &there, &id, NULL) || !there || id.size != d->wanted.size || !d->wanted.sha256[0]) return false;
    crypto_hash_sha256_state h;
    char sha[65];
    if (!hash_file(d->path, id.size, &h, e)) return false;
    sha_text(&h, sha);
    out->was_there = out->checked = strcmp(sha, d->wanted.sha256) == 0;
    out->bytes = id.size;
    return out->was_there;
}

static bool finish(download *d, pull_result *out, err *e) {
    char sha[65];
    sha_text(&d->hash, sha);
    bool checked = d->wanted.sha256[0] != 0;
    if (checked && strcmp(sha, d->wanted.sha256) != 0) {
        file_writer_abort(&d->writer);
        d->writing = false;
        file_remove(d->note, NULL);
        return err_set(e, HEARTH_FORMAT, "%s/%s came with the wrong checksum (%s instead of %s) and was deleted: try again", d->repo, d->file, sha, d->wanted.sha256);
    }
    out->bytes = d->have;
    out->resumed = d->resumed;
    out->checked = checked;
    d->writing = false;
    if (!file_writer_commit(&d->writer, e)) return false;
    file_remove(d->note, NULL);
    return true;
}

static bool prepare(download *d, err *e) {
    buf path = {0};
    bool ok = buf_addf(&path, e, "%s/%s/%s", d->o->folder, d->repo, d->file);
    d->path = path.data;
    d->url = ok ? pull_url(d->o->hub, d->repo, d->o->revision, d->file, e) : NULL;
    if (!d->url) return false;
    char *slash = strrchr(d->path, '/');
    *slash = 0;
    ok = file_make_folder(d->path, e);
    *slash = '/';
    char *lock = ok ? path_of(d->path, ".part.lock", e) : NULL;
    d->part = path_of(d->path, ".part", e);
    d->note = path_of(d->path, ".part.json", e);
    ok = lock && d->part && d->note && file_lock_file(lock, &d->lock, e);
    if (ok && d->lock < 0) ok = err_set(e, HEARTH_LIMIT, "%s is being downloaded by another process", d->path);
    mem_free(lock);
    return ok;
}

static void clean_up(download *d) {
    if (d->lock >= 0) {
        char *lock = path_of(d->path, ".part.lock", NULL);
        if (lock) file_remove(lock, NULL);
        mem_free(lock);
        file_unlock(d->lock);
    }
    mem_free(d->url), mem_free(d->path), mem_free(d->part), mem_free(d->note);
}

bool pull_file(const pull_options *o, const char *repo, const char *file, pull_result *out, err *e) {
    download d = {.o = o, .repo = repo, .file = file, .lock = -1, .writer = {.fd = -1}};
    *out = (pull_result){0};
    bool ok = prepare(&d, e) && ask_facts(&d, e);
    if (ok && !is_there(&d, out, e)) {
        d.resumed = usable(&d);
        ok = e->code == HEARTH_OK && open_part(&d, d.resumed, e) && fetch(&d, e) && finish(&d, out, e);
        if (!ok && d.writing) {
            /* Left for the next time. */
            uint64_t have = d.have;
            bool worth = have > 0 && (d.wanted.sha256[0] || d.wanted.etag[0]) && e->code != HEARTH_FORMAT;
            if (worth && file_writer_leave(&d.writer, NULL)) write_note(&d, have, NULL);
            else if (!worth) file_writer_abort(&d.writer), file_remove(d.note, NULL);
        }
    }
    if (ok) {
        out->path = d.path;
        d.path = path_of(d.path, "", NULL);
        ok = d.path != NULL || err_nomem(e, 0);
    }
    clean_up(&d);
    return ok;
}
