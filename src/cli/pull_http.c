/* pull_http.c: one request by libcurl. */
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/interrupt.h"
#include "cli/pull.h"

enum { MOST_REDIRECTS = 10, CONNECT_S = 30, SILENCE_S = 60 };

typedef struct transfer {
    CURL *curl;
    const pull_sink *sink;
    pull_facts *facts;
    bool begun;
    err e;
} transfer;

/* ---- addresses ---- */

static bool add_escaped(buf *out, const char *path, err *e) {
    while (*path) {
        size_t n = strcspn(path, "/");
        char *part = n ? curl_easy_escape(NULL, path, (int)n) : NULL;
        bool ok = !n || (part && buf_addc(out, '/', e) && buf_adds(out, part, e));
        curl_free(part);
        if (!ok) return false;
        path += n + (path[n] == '/');
    }
    return true;
}

char *pull_url(const char *hub, const char *repo, const char *revision, const char *file, err *e) {
    buf b = {0};
    size_t n = strlen(hub);
    while (n > 0 && hub[n - 1] == '/') n--;
    if (buf_add(&b, hub, n, e) && add_escaped(&b, repo, e) && buf_adds(&b, "/resolve", e) && add_escaped(&b, revision, e) && add_escaped(&b, file, e)) return b.data;
    buf_free(&b);
    return NULL;
}

/* Whether b is on the same server as a, spoken to in the same way. */
static bool same_server(const char *a, const char *b) {
    static const CURLUPart parts[] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT};
    CURLU *x = curl_url(), *y = curl_url();
    bool same = x && y && curl_url_set(x, CURLUPART_URL, a, 0) == CURLUE_OK && curl_url_set(y, CURLUPART_URL, b, 0) == CURLUE_OK;
    for (int i = 0; same && i < 3; i++) {
        char *p = NULL, *q = NULL;
        same = curl_url_get(x, parts[i], &p, CURLU_DEFAULT_PORT) == CURLUE_OK && curl_url_get(y, parts[i], &q, CURLU_DEFAULT_PORT) == CURLUE_OK && strcasecmp(p, q) == 0;
        curl_free(p), curl_free(q);
    }
    curl_url_cleanup(x), curl_url_cleanup(y);
    return same;
}

/* ---- headers ---- */

static bool value_of(const char *line, size_t len, const char *name, char out[PULL_TEXT]) {
    size_t n = strlen(name);
    if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':') return false;
    const char *p = line + n + 1, *end = line + len;
    while (p < end && (*p == ' ' || *p == '\t')) p++;
    while (end > p && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' ')) end--;
    if (end - p >= PULL_TEXT) return false;
    memcpy(out, p, (size_t)(end - p));
    out[end - p] = 0;
    return true;
}

/* A SHA-256 in quotes, or nothing. */
static void read_sha(const char *etag, char out[65]) {
    const char *p = etag + (etag[0] == '"');
    size_t n = strspn(p, "0123456789abcdefABCDEF");
    out[0] = 0;
    if (n != 64 || (p[n] != 0 && strcmp(p + n, "\"") != 0)) return;
    for (size_t i = 0; i < 64; i++) out[i] = (char)(p[i] >= 'A' && p[i] <= 'F' ? p[i] + 32 : p[i]);
    out[64] = 0;
}

static bool read_size(const char *text, uint64_t *out) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    *out = strtoull(text, &end, 10);
    return *end == 0 && *out < (uint64_t)1 << 60;
}

/* "bytes 5-9/10". */
static void read_range(const char *text, pull_facts *f) {
    unsigned long long start, end, size;
    if (sscanf(text, "bytes %20llu-%20llu/%20llu", &start, &end, &size) == 3 && start <= end && end < size && size < 1ull << 60) f->start = start, f->size = size;
    else f->start = UINT64_MAX; /* it answers something else than what was asked */
}

static size_t on_header(char *line, size_t one, size_t len, void *user) {
    (void)one;
    transfer *t = user;
    pull_facts *f = t->facts;
    char value[PULL_TEXT];
    if (len > 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        /* A new answer: what the hub told of the file stays. */
        f->etag[0] = 0, f->start = 0, f->retry_s = 0, f->error[0] = 0;
        if (!f->linked[0]) f->size = UINT64_MAX;
    } else if (value_of(line, len, "X-Linked-Etag", value) && !f->linked[0]) {
        memcpy(f->linked, value, sizeof value);
        read_sha(value, f->sha256);
    } else if (value_of(line, len, "X-Linked-Size", value)) {
        read_size(value, &f->size);
    } else if (value_of(line, len, "ETag", value)) {
        if (value[0] == '"') memcpy(f->etag, value, sizeof value);
    } else if (value_of(line, len, "Content-Range", value)) {
        read_range(value, f);
    } else if (value_of(line, len, "Retry-After", value)) {
        f->retry_s = atoi(value);
    } else if (value_of(line, len, "X-Error-Message", value)) {
        err_quote(f->error, sizeof f->error, value, strlen(value));
    } else if (value_of(line, len, "Content-Length", value)) {
        long status = 0;
        uint64_t size;
        curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
        if (status == 200 && f->size == UINT64_MAX && read_size(value, &size)) f->size = size;
    }
    return len;
}

/* ---- the body ---- */

static bool begin(transfer *t) {
    if (t->begun) return true;
    t->begun = true;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &t->facts->status);
    bool good = t->facts->status == 200 || t->facts->status == 206;
    return !good || t->sink->begin(t->sink->user, t->facts, &t->e);
}

static size_t on_data(char *data, size_t one, size_t len, void *user) {
    (void)one;
    transfer *t = user;
    if (!begin(t)) return 0;
    if (t->facts->status != 200 && t->facts->status != 206) return len; /* an error page */
    return t->sink->data(t->sink->user, data, len, &t->e) ? len : 0;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    (void)user, (void)a, (void)b, (void)c, (void)d;
    return interrupt_pending();
}

/* ---- the request ---- */

static struct curl_slist *add_header(struct curl_slist *list, const char *format, const char *value) {
    char line[PULL_TEXT + 4200];
    snprintf(line, sizeof line, format, value);
    struct curl_slist *longer = curl_slist_append(list, line);
    return longer ? longer : list;
}

static bool explain(transfer *t, CURLcode code, const char *url, const char *detail, bool *again, err *e) {
    if (t->e.code != HEARTH_OK) {
        *again = false;
        *e = t->e;
        return false;
    }
    if (interrupt_pending()) {
        *again = false;
        return err_set(e, HEARTH_CANCELLED, "interrupted: the same command goes on where it was");
    }
    *again = code != CURLE_UNSUPPORTED_PROTOCOL && code != CURLE_URL_MALFORMAT && code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_SSL_CACERT_BADFILE &&
             code != CURLE_TOO_MANY_REDIRECTS && code != CURLE_SSL_CERTPROBLEM && code != CURLE_SSL_ENGINE_NOTFOUND;
    return err_set(e, HEARTH_IO, "%s: %s", url, detail[0] ? detail : curl_easy_strerror(code));
}

static bool perform(const char *url, const char *token, uint64_t from, const char *if_range, transfer *t, char **redirect, bool *again, err *e) {
    CURL *c = t->curl = curl_easy_init();
    if (!c) return err_nomem(e, 0);
    char range[40], detail[CURL_ERROR_SIZE] = "";
    const char *schemes = strncasecmp(url, "https:", 6) == 0 ? "https" : "http,https"; /* never from a safe way to an unsafe one */
    struct curl_slist *headers = NULL;
    if (token) headers = add_header(headers, "Authorization: Bearer %s", token); /* libcurl takes it away when another server is next */
    if (from && if_range[0]) headers = add_header(headers, "If-Range: %s", if_range);
    snprintf(range, sizeof range, "%llu-", (unsigned long long)from);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, schemes);
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, schemes);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "hearth/" HEARTH_VERSION);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, detail);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    if (t->sink) {
        curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
        curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)MOST_REDIRECTS);
        curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
        curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
        if (from) curl_easy_setopt(c, CURLOPT_RANGE, range);
    } else {
        curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    }
    CURLcode code = curl_easy_perform(c);
    bool ok = code == CURLE_OK && (!t->sink || begin(t));
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &t->facts->status);
    if (redirect) {
        char *to = NULL;
        curl_easy_getinfo(c, CURLINFO_REDIRECT_URL, &to);
        *redirect = to ? mem_strndup(to, strlen(to), e) : NULL;
    }
    if (!ok) explain(t, code, url, detail, again, e);
    curl_slist_free_all(headers);
    curl_easy_cleanup(c);
    return ok;
}

bool pull_request(const char *url, const char *token, uint64_t from, const char *if_range, const pull_sink *sink, pull_facts *facts, bool *again, err *e) {
    transfer t = {.sink = sink, .facts = facts};
    *facts = (pull_facts){.size = UINT64_MAX};
    *again = false;
    if (sink) return perform(url, token, from, if_range, &t, NULL, again, e);
    /* Only the hub knows the checksum, and where it sends us may not like to be asked for nothing: so no further than that. */
    char *at = mem_strndup(url, strlen(url), e), *next = NULL;
    bool ok = at != NULL;
    for (int i = 0; ok; i++) {
        ok = perform(at, token && same_server(url, at) ? token : NULL, 0, "", &t, &next, again, e);
        bool away = ok && facts->status >= 300 && facts->status < 400 && next;
        if (away && facts->linked[0]) {
            facts->status = 200;
            facts->etag[0] = 0; /* not that of who will send it */
            away = false;
        }
        if (ok && i > 0 && !same_server(url, at) && (facts->status == 403 || facts->status == 405 || facts->status == 501)) {
            *facts = (pull_facts){.status = 200, .size = UINT64_MAX}; /* it tells when it sends */
        }
        if (away && i == MOST_REDIRECTS) ok = err_set(e, HEARTH_IO, "%s: it sends us in circles", url);
        if (away && strncasecmp(at, "https:", 6) == 0 && strncasecmp(next, "https:", 6) != 0) ok = err_set(e, HEARTH_IO, "%s: it sends us to an address that is not safe", url);
        if (!away || !ok) break;
        mem_free(at);
        at = next, next = NULL;
    }
    mem_free(at), mem_free(next);
    return ok;
}
