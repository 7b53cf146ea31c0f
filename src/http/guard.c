/* guard.c: who may use the server: keys, pages of other sites, and which addresses it may listen on. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#include "http/inner.h"

static const char *given_key(const http_request *r) {
    const char *given = http_header(r, "x-api-key");
    if (given) return given;
    given = http_header(r, "Authorization");
    if (!given || strncasecmp(given, "Bearer ", 7) != 0) return NULL;
    given += 7;
    while (*given == ' ') given++;
    return given;
}

bool http_same_origin(const char *origin, const char *host) {
    const char *from = strstr(origin, "://");
    return from && host && strcasecmp(from + 3, host) == 0;
}

bool http_host_is_local(const char *host) {
    char name[256];
    size_t len = strlen(host);
    if (len == 0 || len >= sizeof name) return false;
    if (host[0] == '[') {
        const char *end = strchr(host, ']');
        if (!end || end[1] == 0 || end[1] == ':') len = end ? (size_t)(end - host - 1) : 0;
        else return false;
        memcpy(name, host + 1, len);
        name[len] = 0;
        struct in6_addr six;
        return inet_pton(AF_INET6, name, &six) == 1;
    }
    const char *colon = strchr(host, ':');
    if (colon) len = (size_t)(colon - host);
    memcpy(name, host, len);
    name[len] = 0;
    struct in_addr four;
    return inet_pton(AF_INET, name, &four) == 1 || strcasecmp(name, "localhost") == 0 || (len > 10 && strcasecmp(name + len - 10, ".localhost") == 0);
}

static bool origin_allowed(const http_request *r, const char *origin) {
    for (const char *const *o = r->server->o.origins; o && *o; o++)
        if (strcmp(*o, "*") == 0 || strcasecmp(*o, origin) == 0) return true;
    return false;
}

/* Without a key, any page that the user's browser shows could use the server: by asking it across sites, or by giving its own name this
 * machine's address. */
static bool is_foreign(const http_request *r) {
    const http_options *o = &r->server->o;
    const char *origin = http_header(r, "Origin"), *host = http_header(r, "Host");
    if (origin && !http_same_origin(origin, host) && !origin_allowed(r, origin)) return true;
    return !keys_asked(o->keys) && !o->open && host && !http_host_is_local(host);
}

void guard_check(http_request *r) {
    http_keys *keys = r->server->o.keys;
    bool looks = strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0 || strcmp(r->method, "OPTIONS") == 0;
    r->key = keys_find(keys, given_key(r));
    if (is_foreign(r)) {
        r->trouble = HTTP_FOREIGN;
    } else if (keys_asked(keys) && !(r->key && key_opens_api(r->key))) {
        r->trouble = HTTP_NO_KEY;
    } else if (r->key && !looks && !key_is_admin(r->key)) {
        r->retry_s = key_take(keys, r->key, r->began);
        if (r->retry_s > 0) r->trouble = HTTP_BUSY_KEY;
    }
}

int http_retry_s(const http_request *r) { return r->retry_s; }
const char *http_tenant(const http_request *r) { return r->key ? key_tenant(r->key) : NULL; }
bool http_is_admin(const http_request *r) { return r->key && key_is_admin(r->key); }

void http_charge(http_request *r, double tokens) {
    if (r->key) key_charge(r->server->o.keys, r->key, tokens);
}

void guard_cors(http_request *r, struct MHD_Response *response) {
    const char *origin = http_header(r, "Origin");
    if (!origin || http_same_origin(origin, http_header(r, "Host")) || !origin_allowed(r, origin)) return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Vary", "Origin");
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    if (strcmp(r->method, "OPTIONS") != 0) return;
    const char *wanted = http_header(r, "Access-Control-Request-Headers");
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    MHD_add_response_header(response, "Access-Control-Allow-Headers", wanted ? wanted : "Authorization, Content-Type, x-api-key");
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
}

bool guard_address(const http_options *o, const struct sockaddr *address, err *e) {
    bool here = address->sa_family == AF_UNIX;
    if (address->sa_family == AF_INET) here = ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    if (address->sa_family == AF_INET6) here = IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    if (here || o->open || keys_asked(o->keys)) return true;
    return err_set(e, HEARTH_ARGUMENT, "%s can be reached from other machines: ask for a key with --keys or --api-key, or say --open to let everyone in",
                   o->n_sockets > 0 ? "the socket that was given" : o->host);
}
