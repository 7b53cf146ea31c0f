/* guard.c: who may use the server: keys, pages of other sites, and which addresses it may listen on. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#include "http/inner.h"

bool http_key_equal(const char *given, size_t n, const char *key) {
    size_t len = strlen(key);
    size_t different = n ^ len;
    for (size_t i = 0; i < n; i++) different |= (size_t)((unsigned char)given[i] ^ (unsigned char)key[len ? i % len : 0]);
    return different == 0;
}

static bool has_key(const http_request *r) {
    const char *const *keys = r->server->o.keys;
    if (!keys || !keys[0]) return true;
    const char *given = http_header(r, "x-api-key");
    if (!given) {
        given = http_header(r, "Authorization");
        if (!given || strncasecmp(given, "Bearer ", 7) != 0) return false;
        given += 7;
        while (*given == ' ') given++;
    }
    bool found = false;
    size_t n = strlen(given);
    for (; *keys; keys++) found |= http_key_equal(given, n, *keys);
    return found;
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
http_trouble guard_check(const http_request *r) {
    const http_options *o = &r->server->o;
    const char *origin = http_header(r, "Origin"), *host = http_header(r, "Host");
    bool keyed = o->keys && o->keys[0];
    if (origin && !http_same_origin(origin, host) && !origin_allowed(r, origin)) return HTTP_FOREIGN;
    if (!keyed && !o->open && host && !http_host_is_local(host)) return HTTP_FOREIGN;
    return has_key(r) ? HTTP_FINE : HTTP_NO_KEY;
}

void guard_cors(http_request *r, struct MHD_Response *response) {
    const char *origin = http_header(r, "Origin");
    if (!origin || http_same_origin(origin, http_header(r, "Host")) || !origin_allowed(r, origin)) return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Vary", "Origin");
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "x-request-id, retry-after");
    if (strcmp(r->method, "OPTIONS") != 0) return;
    const char *wanted = http_header(r, "Access-Control-Request-Headers");
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    MHD_add_response_header(response, "Access-Control-Allow-Headers", wanted ? wanted : "Authorization, Content-Type, x-api-key");
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
}

bool guard_address(const http_options *o, const struct sockaddr *address, err *e) {
    bool loopback = false;
    if (address->sa_family == AF_INET) {
        loopback = ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    } else {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        loopback = IN6_IS_ADDR_LOOPBACK(six);
    }
    if (loopback || o->open || (o->keys && o->keys[0])) return true;
    return err_set(e, HEARTH_ARGUMENT, "%s can be reached from other machines: ask for a key with --api-key, or say --open to let everyone in", o->host);
}
