/* pull.h: downloads files from a hub that speaks as Hugging Face's does.
 *
 *   pull_http.c   one request: redirects, headers, who gets the token
 *   pull.c        one file: resuming, trying again, checking, putting it in place
 *   cmd_pull.c    the command: names, parts of a split file, what people see
 *
 * A file is asked for at HUB/REPO/resolve/REVISION/FILE. The hub answers itself or sends us elsewhere; X-Linked-Etag (the SHA-256) and X-Linked-Size of a large file come
 * from the hub. While it is on its way it is FILE.part, and FILE.part.json tells what of. */
#ifndef CLI_PULL_H
#define CLI_PULL_H

#include "base/mem.h"

typedef struct pull_options {
    const char *hub;      /* "https://huggingface.co" */
    const char *revision;
    const char *token;    /* or NULL; given to the hub only */
    const char *folder;   /* where it goes: FOLDER/REPO/FILE */
    int retries;          /* in a row without a byte in between */
} pull_options;

typedef struct pull_result {
    char *path;           /* to free */
    uint64_t bytes, resumed; /* of the file; of these from an earlier run */
    bool was_there, checked; /* it was there already; it has the checksum that the hub told */
} pull_result;
bool pull_file(const pull_options *o, const char *repo, const char *file, pull_result *out, err *e);

/* ---- one request ---- */

enum { PULL_TEXT = 300 };

/* What an answer says of the file. */
typedef struct pull_facts {
    long status;
    char etag[PULL_TEXT];    /* of who answered at last, strong; "" */
    char sha256[65];         /* from the hub, in small letters; "" */
    char linked[PULL_TEXT];  /* X-Linked-Etag as it is; "" */
    uint64_t size;           /* of the whole file; UINT64_MAX: not told */
    uint64_t start;          /* of what follows */
    int retry_s;             /* Retry-After; 0: not told */
    char error[PULL_TEXT];   /* X-Error-Message; "" */
} pull_facts;

typedef struct pull_sink {
    /* Before the first byte, once, when the status is 200 or 206; then the bytes. False ends it. */
    bool (*begin)(void *user, const pull_facts *facts, err *e);
    bool (*data)(void *user, const void *data, size_t len, err *e);
    void *user;
} pull_sink;

/* Asks for url. With a sink the body goes there, beginning at from (if_range, when not "", must still be its ETag, else all of it comes); without one only the facts are asked for.
 * False with e set: *again tells that trying again may help. A status that is not good is no failure here. */
bool pull_request(const char *url, const char *token, uint64_t from, const char *if_range, const pull_sink *sink, pull_facts *facts, bool *again, err *e);
/* url with each part of path escaped after it; freed with mem_free. */
char *pull_url(const char *hub, const char *repo, const char *revision, const char *file, err *e);

#endif
