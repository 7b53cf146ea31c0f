/* test_pull.c: `hearth pull` against a stand-in of a hub: one server that redirects and tells checksums as Hugging Face's does, and one that it sends clients to. Both
 * misbehave on demand. */
#include "tools/support.h"

#include <microhttpd.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 300000 };

/* How the next answers are. */
static struct {
    bool redirect, linked, etag, length, ranges; /* what the servers can */
    int cuts;            /* so many bodies end early */
    size_t cut_after;
    int errors, error_status; /* so many answers of the far server are errors */
    bool wrong_sum;      /* the hub tells another checksum */
    bool change_after_cut; /* the file is another one after the first cut */
    bool wrong_range;    /* 206 with another part than asked for */
    bool circle;
    const char *need_token;
} world;
static _Atomic int n_head, n_get, n_ranged, n_whole, n_token_leaks;
static unsigned char content[SIZE];
static int version;
static struct MHD_Daemon *hub, *far;
static char folder[300];
static int hub_port, far_port;

static void fill(int v) {
    memset(content, 0, sizeof content);
    memcpy(content, "GGUF", 4);
    for (size_t i = 4; i < SIZE; i++) content[i] = (unsigned char)(i * 31 + i / 777 + (size_t)v * 7);
    version = v;
}

static void sha_of(char out[65]) {
    unsigned char h[32];
    crypto_hash_sha256(h, content, SIZE);
    sodium_bin2hex(out, 65, h, sizeof h);
}

/* What a test sets before it runs the program, the servers' threads see, and the other way round. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static void take_turns(void) {
    pthread_mutex_lock(&turn);
    pthread_mutex_unlock(&turn);
}

/* ---- the servers ---- */

typedef struct body {
    size_t at, end, cut;
    unsigned char data[];
} body;

static ssize_t feed(void *user, uint64_t position, char *to, size_t max) {
    (void)position;
    body *b = user;
    if (b->at >= b->cut) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (b->at >= b->end) return MHD_CONTENT_READER_END_OF_STREAM;
    size_t n = b->end - b->at;
    if (n > 10000) n = 10000;
    if (n > max) n = max;
    if (n > b->cut - b->at) n = b->cut - b->at;
    memcpy(to, b->data + b->at, n);
    b->at += n;
    return (ssize_t)n;
}

static enum MHD_Result answer(struct MHD_Connection *c, int status, struct MHD_Response *r) {
    enum MHD_Result ok = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result say(struct MHD_Connection *c, int status, const char *name, const char *value) {
    struct MHD_Response *r = MHD_create_response_from_buffer(5, (void *)"error", MHD_RESPMEM_PERSISTENT);
    if (name) MHD_add_response_header(r, name, value);
    return answer(c, status, r);
}

/* The file or what was asked of it. */
static enum MHD_Result send_file(struct MHD_Connection *c, bool head, bool linked) {
    const char *range = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Range"), *if_range = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "If-Range");
    char etag[40], text[100];
    snprintf(etag, sizeof etag, "\"v%d\"", version);
    size_t from = 0;
    bool part = range && world.ranges && (!if_range || strcmp(if_range, etag) == 0) && sscanf(range, "bytes=%zu-", &from) == 1;
    if (world.errors > 0 && !head) {
        world.errors--;
        return say(c, world.error_status, "Retry-After", "1");
    }
    if (part && from >= SIZE) return say(c, 416, NULL, NULL);
    if (!part) from = 0;
    if (part && world.wrong_range) world.wrong_range = false, from += 100;
    body *b = malloc(sizeof *b + SIZE);
    b->at = from, b->end = SIZE, b->cut = SIZE_MAX;
    memcpy(b->data, content, SIZE);
    if (!head) {
        n_get++;
        if (part) n_ranged++;
        else n_whole++;
        if (world.cuts > 0) {
            world.cuts--;
            b->cut = from + world.cut_after;
            if (world.change_after_cut) fill(version + 1), world.change_after_cut = false;
        }
    }
    struct MHD_Response *r = MHD_create_response_from_callback(world.length ? SIZE - from : MHD_SIZE_UNKNOWN, 10000, feed, b, free);
    if (world.etag) MHD_add_response_header(r, "ETag", etag);
    snprintf(text, sizeof text, "bytes %zu-%d/%d", from, SIZE - 1, SIZE);
    if (part) MHD_add_response_header(r, "Content-Range", text);
    char sha[65];
    sha_of(sha);
    if (linked) MHD_add_response_header(r, "X-Linked-Etag", sha);
    return answer(c, part ? 206 : 200, r);
}

static enum MHD_Result far_answers(void *user, struct MHD_Connection *c, const char *url, const char *method, const char *http, const char *data, size_t *len, void **context) {
    (void)user, (void)url, (void)http, (void)data, (void)len;
    if (!*context) return *context = (void *)1, MHD_YES;
    if (MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization")) n_token_leaks++;
    return strcmp(method, "HEAD") == 0 ? say(c, 403, NULL, NULL) : send_file(c, false, false);
}

static enum MHD_Result hub_answers(void *user, struct MHD_Connection *c, const char *url, const char *method, const char *http, const char *data, size_t *len, void **context) {
    (void)user, (void)http, (void)data, (void)len;
    if (!*context) return *context = (void *)1, MHD_YES;
    bool head = strcmp(method, "HEAD") == 0;
    if (head) n_head++;
    const char *given = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    if (world.need_token && (!given || strcmp(given + 7, world.need_token) != 0)) return say(c, 401, "X-Error-Message", "Access to model is restricted.");
    if (world.circle) return say(c, 302, "Location", url);
    if (strncmp(url, "/owner/repo/resolve/main/", 25) != 0 || strstr(url, "missing")) return say(c, 404, "X-Error-Message", "Entry not found");
    if (strstr(url, "page.gguf")) return say(c, 200, NULL, NULL);
    if (strstr(url, "moved.gguf")) return say(c, 307, "Location", "/owner/repo/resolve/main/model.gguf");
    if (!world.redirect) return send_file(c, head, world.linked);
    char location[100], sha[67] = "\"", size[20];
    snprintf(location, sizeof location, "http://127.0.0.1:%d/blob?signature=x", far_port);
    sha_of(sha + 1);
    if (world.wrong_sum) sha[1] = sha[1] == '0' ? '1' : '0';
    strcat(sha, "\"");
    snprintf(size, sizeof size, "%d", SIZE);
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(r, "Location", location);
    MHD_add_response_header(r, "ETag", "\"the hub's own\"");
    if (world.linked) MHD_add_response_header(r, "X-Linked-Etag", sha), MHD_add_response_header(r, "X-Linked-Size", size);
    return answer(c, 302, r);
}

static int port_of(struct MHD_Daemon *d) { return MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port; }

static enum MHD_Result on_far(void *user, struct MHD_Connection *c, const char *url, const char *method, const char *http, const char *data, size_t *len, void **context) {
    pthread_mutex_lock(&turn);
    enum MHD_Result result = far_answers(user, c, url, method, http, data, len, context);
    pthread_mutex_unlock(&turn);
    return result;
}

static enum MHD_Result on_hub(void *user, struct MHD_Connection *c, const char *url, const char *method, const char *http, const char *data, size_t *len, void **context) {
    pthread_mutex_lock(&turn);
    enum MHD_Result result = hub_answers(user, c, url, method, http, data, len, context);
    pthread_mutex_unlock(&turn);
    return result;
}

static int set_up(void **state) {
    (void)state;
    if (sodium_init() < 0) return -1;
    const unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD;
    hub = MHD_start_daemon(flags, 0, NULL, NULL, on_hub, NULL, MHD_OPTION_END);
    far = MHD_start_daemon(flags, 0, NULL, NULL, on_far, NULL, MHD_OPTION_END);
    if (!hub || !far) return -1;
    hub_port = port_of(hub), far_port = port_of(far);
    setenv("XDG_DATA_HOME", temp_dir(), 1);
    snprintf(folder, sizeof folder, "%s/hearth/models/owner/repo", temp_dir());
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    MHD_stop_daemon(hub);
    MHD_stop_daemon(far);
    return 0;
}

/* ---- the client ---- */

static void fresh(const char *file) {
    static const char *const ends[] = {"", ".part", ".part.json"};
    char path[500];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s%s", folder, file, ends[i]);
        unlink(path);
    }
    memset(&world, 0, sizeof world);
    world.redirect = world.linked = world.etag = world.length = world.ranges = true;
    n_head = n_get = n_ranged = n_whole = n_token_leaks = 0;
    fill(1);
}

static int pull(const char *name, const char *const *more, buf *out, buf *problem) {
    char at[60];
    snprintf(at, sizeof at, "http://127.0.0.1:%d/", hub_port);
    const char *argv[20] = {hearth_program(), "pull", name, "--hub", at, "--retries", "2"};
    for (int n = 7; more && *more; more++) argv[n++] = *more;
    out->len = problem->len = 0;
    take_turns();
    int status = run_program(argv, "", 0, out, problem, 60);
    take_turns();
    assert_true(buf_addc(out, 0, NULL) && buf_addc(problem, 0, NULL));
    return status;
}

static void assert_right(const char *file) {
    char path[500];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    buf have = slurp(path);
    assert_int_equal(have.len, SIZE);
    assert_memory_equal(have.data, content, SIZE);
    buf_free(&have);
    struct stat st;
    static const char *const ends[] = {".part", ".part.json", ".part.lock"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s%s", folder, file, ends[i]);
        assert_int_not_equal(stat(path, &st), 0);
    }
}

static bool there(const char *file) {
    char path[500];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return stat(path, &st) == 0;
}

static const char MODEL[] = "owner/repo/model.gguf";
static buf out, problem;

#define assert_pulled(name, status)                                                  \
    do {                                                                             \
        int got_ = pull(name, NULL, &out, &problem);                                 \
        if (got_ != (status)) fail_msg("status %d: %s%s", got_, out.data, problem.data); \
    } while (0)

static void test_plain(void **state) {
    (void)state;
    /* Through a redirect with a checksum, then again: it is there. */
    fresh("model.gguf");
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    assert_non_null(strstr(out.data, "checksum right"));
    assert_pulled(MODEL, 0);
    assert_non_null(strstr(out.data, "is there already"));
    assert_int_equal(n_get, 1);
    /* The hub has a newer one. */
    fill(2);
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    assert_int_equal(n_get, 2);
    /* What is damaged here is fetched anew. */
    char path[500];
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    buf damaged = slurp(path);
    damaged.data[1000]++;
    spew(path, damaged.data, damaged.len);
    buf_free(&damaged);
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    /* Without a redirect, a checksum, a length. */
    for (int i = 0; i < 8; i++) {
        fresh("model.gguf");
        world.redirect = i & 1, world.length = i & 2, world.etag = i & 4, world.linked = false;
        assert_pulled(MODEL, 0);
        assert_right("model.gguf");
        assert_non_null(strstr(out.data, "no checksum"));
    }
    fresh("moved.gguf");
    assert_pulled("owner/repo/moved.gguf", 0);
    assert_right("moved.gguf");
}

static void test_cuts(void **state) {
    (void)state;
    /* Within one run: every piece is asked for once. */
    fresh("model.gguf");
    world.cuts = 5, world.cut_after = 50000;
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    assert_int_equal(n_whole, 1);
    assert_int_equal(n_ranged, 5);
    /* Over two runs, by checksum and then by ETag alone. */
    for (int linked = 1; linked >= 0; linked--) {
        fresh("model.gguf");
        world.linked = linked, world.redirect = linked;
        world.cuts = 1, world.cut_after = 120000;
        assert_int_not_equal(pull(MODEL, (const char *const[]){"--retries", "0", NULL}, &out, &problem), 0);
        assert_false(there("model.gguf"));
        assert_true(there("model.gguf.part"));
        assert_pulled(MODEL, 0);
        assert_right("model.gguf");
        assert_int_equal(n_ranged, 1);
        assert_non_null(strstr(out.data, "kept from before 120 kB"));
    }
    /* A server that cannot continue, and one that tells nothing to go by. */
    fresh("model.gguf");
    world.ranges = false, world.cuts = 2, world.cut_after = 50000;
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    assert_int_equal(n_whole, 3);
    fresh("model.gguf");
    world.redirect = world.linked = world.etag = false, world.cuts = 2, world.cut_after = 50000;
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    assert_int_equal(n_ranged, 0);
    /* Nothing comes at all: it gives up. */
    fresh("model.gguf");
    world.cuts = 100, world.cut_after = 0;
    assert_pulled(MODEL, 1);
    assert_false(there("model.gguf"));
    assert_int_equal(n_get, 3);
}

static void test_changes(void **state) {
    (void)state;
    /* Another file from the middle on, noticed by checksum, by ETag. */
    for (int linked = 0; linked < 2; linked++) {
        fresh("model.gguf");
        world.linked = linked, world.redirect = linked;
        world.cuts = 1, world.cut_after = 100000, world.change_after_cut = true;
        assert_pulled(MODEL, 0);
        assert_int_equal(version, 2);
        assert_right("model.gguf");
    }
    /* Between two runs. */
    fresh("model.gguf");
    world.cuts = 1, world.cut_after = 100000;
    assert_int_not_equal(pull(MODEL, (const char *const[]){"--retries", "0", NULL}, &out, &problem), 0);
    fill(7);
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    assert_null(strstr(out.data, "kept from before"));
    /* A part that was damaged meanwhile, and a note that is none. */
    fresh("model.gguf");
    world.cuts = 1, world.cut_after = 100000;
    assert_int_not_equal(pull(MODEL, (const char *const[]){"--retries", "0", NULL}, &out, &problem), 0);
    char path[500];
    snprintf(path, sizeof path, "%s/model.gguf.part", folder);
    buf part = slurp(path);
    part.data[500]++;
    spew(path, part.data, part.len);
    buf_free(&part);
    assert_pulled(MODEL, 1);
    assert_non_null(strstr(problem.data, "wrong checksum"));
    assert_false(there("model.gguf.part"));
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    fresh("model.gguf");
    snprintf(path, sizeof path, "%s/model.gguf.part", folder);
    spew(path, "GGUFrubbish", 11);
    snprintf(path, sizeof path, "%s/model.gguf.part.json", folder);
    spew(path, "{\"url\": 5", 9);
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    /* Longer than the file ever was. */
    fresh("model.gguf");
    world.cuts = 1, world.cut_after = 100000;
    assert_int_not_equal(pull(MODEL, (const char *const[]){"--retries", "0", NULL}, &out, &problem), 0);
    snprintf(path, sizeof path, "%s/model.gguf.part", folder);
    assert_int_equal(truncate(path, SIZE + 5), 0);
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    /* A server that answers with another part than was asked for. */
    fresh("model.gguf");
    world.cuts = 1, world.cut_after = 100000, world.wrong_range = true;
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    /* The sum that the hub tells is wrong: nothing is put in place. */
    fresh("model.gguf");
    world.wrong_sum = true;
    assert_pulled(MODEL, 1);
    assert_non_null(strstr(problem.data, "wrong checksum"));
    assert_false(there("model.gguf") || there("model.gguf.part") || there("model.gguf.part.json"));
}

static void test_errors(void **state) {
    (void)state;
    fresh("missing.gguf");
    assert_pulled("owner/repo/missing.gguf", 1);
    assert_non_null(strstr(problem.data, "has no owner/repo/missing.gguf"));
    assert_non_null(strstr(problem.data, "Entry not found"));
    assert_int_equal(n_head, 1); /* trying again would not help */
    fresh("model.gguf");
    world.errors = 2, world.error_status = 503;
    assert_pulled(MODEL, 0);
    assert_right("model.gguf");
    fresh("model.gguf");
    world.errors = 1, world.error_status = 403;
    assert_pulled(MODEL, 1);
    assert_false(there("model.gguf") || there("model.gguf.part"));
    fresh("model.gguf");
    world.circle = true;
    assert_pulled(MODEL, 1);
    assert_non_null(strstr(problem.data, "circles"));
    fresh("page.gguf");
    assert_pulled("owner/repo/page.gguf", 1);
    assert_non_null(strstr(problem.data, "is no GGUF file"));
    assert_false(there("page.gguf") || there("page.gguf.part"));
    static const char *const wrong[] = {"model", "owner/model.gguf", "owner/repo/", "owner/repo/../x.gguf", "../owner/repo/x", "/owner/repo/x", "owner//x", "owner/repo/.x", "owner/repo/a\\b", "owner/repo/a\nb"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_pulled(wrong[i], 2);
    assert_int_equal(n_head, 1); /* of page.gguf */
}

static void test_token(void **state) {
    (void)state;
    char path[400];
    snprintf(path, sizeof path, "%s/token", temp_dir());
    spew(path, "hf_secret\n", 10);
    fresh("model.gguf");
    world.need_token = "hf_secret";
    assert_pulled(MODEL, 1);
    assert_non_null(strstr(problem.data, "--token-file"));
    assert_non_null(strstr(problem.data, "restricted"));
    assert_int_equal(pull(MODEL, (const char *const[]){"--token-file", path, NULL}, &out, &problem), 0);
    assert_right("model.gguf");
    assert_int_equal(n_token_leaks, 0);
    /* Not in the open, and nothing that could be more than a token. */
    const char *const open[] = {hearth_program(), "pull", MODEL, "--hub", "http://127.0.0.1.example.com", "--token-file", path, NULL};
    problem.len = 0;
    assert_int_equal(run_program(open, "", 0, NULL, &problem, 60), 1);
    assert_true(buf_addc(&problem, 0, NULL));
    assert_non_null(strstr(problem.data, "not sent"));
    spew(path, "a b", 3);
    assert_int_equal(pull(MODEL, (const char *const[]){"--token-file", path, NULL}, &out, &problem), 1);
    assert_int_equal(pull(MODEL, (const char *const[]){"--hub", "ftp://x", NULL}, &out, &problem), 2);
}

static void test_parts(void **state) {
    (void)state;
    fresh("big-00001-of-00003.gguf"), fresh("big-00002-of-00003.gguf"), fresh("big-00003-of-00003.gguf");
    assert_pulled("owner/repo/big-00002-of-00003.gguf", 0);
    assert_right("big-00001-of-00003.gguf");
    assert_right("big-00002-of-00003.gguf");
    assert_right("big-00003-of-00003.gguf");
    assert_int_equal(n_get, 3);
}

/* What was pulled is found by its name. */
static void test_names(void **state) {
    (void)state;
    char path[500];
    buf ember = slurp("models/ember-30m-q8_0.gguf");
    snprintf(path, sizeof path, "%s/ember-pulled.gguf", folder);
    spew(path, ember.data, ember.len);
    buf_free(&ember);
    static const char *const names[] = {"ember-pulled", "owner/repo/ember-pulled", "owner/repo/ember-pulled.gguf"};
    for (int i = 0; i < 3; i++) {
        const char *const run[] = {hearth_program(), "run", names[i], "Hello!", "-n", "2", "--cache", "off", NULL};
        assert_int_equal(run_program(run, "", 0, NULL, NULL, 60), 0);
    }
    const char *const chat[] = {hearth_program(), "chat", "ember-pulled", "-n", "2", "--cache", "off", NULL};
    assert_int_equal(run_program(chat, "Hello!\n", 7, NULL, NULL, 60), 0);
    snprintf(path, sizeof path, "%s/hearth/models/other", temp_dir());
    assert_true(file_make_folder(path, NULL));
    snprintf(path, sizeof path, "%s/hearth/models/other/ember-pulled.gguf", temp_dir());
    spew(path, "x", 1);
    const char *const run[] = {hearth_program(), "run", "ember-pulled", "Hello!", NULL};
    problem.len = 0;
    assert_int_equal(run_program(run, "", 0, NULL, &problem, 60), 1);
    assert_true(buf_addc(&problem, 0, NULL));
    assert_non_null(strstr(problem.data, "names several models: other/ember-pulled, owner/repo/ember-pulled"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain), cmocka_unit_test(test_cuts),  cmocka_unit_test(test_changes), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_token), cmocka_unit_test(test_parts), cmocka_unit_test(test_names),
    };
    int status = cmocka_run_group_tests(tests, set_up, tear_down);
    buf_free(&out);
    buf_free(&problem);
    return status;
}
