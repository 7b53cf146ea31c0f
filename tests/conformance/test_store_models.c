/* Agents on every architecture of the models kit and every type of keys and values: after restarts greedy text goes on bit for bit as if there had been none. */
#include "tools/support.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hearth.h"

static const char *const models[] = {"llama", "llama3-rope", "mistral", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "phi3", "olmo2", "granite", "granitemoe",
                                     "gpt-oss", "smollm3", "deepseek2-lite", "deepseek3"};

/* How a model is run; NULL: the default. */
typedef struct way {
    const char *cpu, *kv_type;
} way;

static hearth_engine *open_engine(const char *name, way w, const char *folder, uint64_t memory) {
    char path[100];
    err e = {0};
    snprintf(path, sizeof path, "models/%s.gguf", name);
    hearth_engine_options o = hearth_engine_defaults();
    o.cpu = w.cpu;
    o.kv_type = w.kv_type;
    o.cache = false;
    o.store = folder != NULL;
    o.store_dir = folder;
    o.kv_memory = memory;
    hearth_engine *en = hearth_engine_open(kit_path(path), &o, &e);
    if (!en) fail_msg("%s", e.text);
    return en;
}

static void generate(hearth_engine *en, hearth_session *s, int n) {
    err e = {0};
    hearth_sampler_options so = hearth_sampler_defaults();
    so.temperature = 0;
    hearth_sampler *sampler = hearth_sampler_new(en, &so, &e);
    hearth_generate_options o = hearth_generate_defaults();
    o.max_tokens = n;
    o.ignore_end = true;
    if (!hearth_generate(s, sampler, &o, NULL, &e)) fail_msg("%s", e.text);
    hearth_sampler_free(sampler);
}

enum { STEPS = 5 };
typedef struct step {
    int prompt, answer;
} step;
static const step steps[STEPS] = {{90, 20}, {0, 25}, {30, 3}, {64, 40}, {1, 10}};

static void do_step(hearth_engine *en, hearth_session *s, int i) {
    err e = {0};
    int32_t tokens[128];
    int vocab = hearth_engine_info(en).n_vocab;
    for (int k = 0; k < steps[i].prompt; k++) tokens[k] = (i * 1000 + k * 37) % vocab;
    if (!hearth_session_append(s, tokens, (size_t)steps[i].prompt, &e)) fail_msg("%s", e.text);
    generate(en, s, steps[i].answer);
}

static void one_model(const char *name, way w, const char *folder) {
    err e = {0};
    hearth_engine *en = open_engine(name, w, NULL, HEARTH_AUTO);
    size_t vocab = (size_t)hearth_engine_info(en).n_vocab;
    hearth_session *s = hearth_session_new(en, &e);
    for (int i = 0; i < STEPS; i++) do_step(en, s, i);
    for (int i = 0; i < STEPS; i++) {
        hearth_engine *later = open_engine(name, w, folder, HEARTH_AUTO);
        hearth_session *a = hearth_session_open(later, "agent", NULL, &e);
        if (!a) fail_msg("%s", e.text);
        do_step(later, a, i);
        if (i == STEPS - 1) {
            size_t n = hearth_session_length(s);
            assert_int_equal(hearth_session_length(a), n);
            if (memcmp(hearth_session_tokens(a), hearth_session_tokens(s), n * sizeof(int32_t)) != 0)
                fail_msg("%s, %s, %s: another text after restarts", name, w.cpu ? w.cpu : "auto", w.kv_type ? w.kv_type : "-");
            if (memcmp(hearth_session_logits(a), hearth_session_logits(s), vocab * sizeof(float)) != 0)
                fail_msg("%s, %s, %s: other logits after restarts", name, w.cpu ? w.cpu : "auto", w.kv_type ? w.kv_type : "-");
            hearth_kv_stats k = hearth_engine_kv(later);
            assert_true(k.tokens_loaded >= 192 && k.damaged == 0 && k.failures == 0);
        }
        hearth_session_free(a);
        hearth_engine_close(later);
    }
    hearth_session_free(s);
    hearth_engine_close(en);
}

static void goes_on_after_restarts(void **state) {
    (void)state;
    need_kit();
    char folder[400];
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[100];
        snprintf(path, sizeof path, "models/%s.gguf", models[i]);
        if (access(kit_path(path), R_OK) != 0) continue;
        /* Each model in the default way and with quantized keys and values; the exact kernels, and types that differ, are tried over the models. */
        const bool latent = strncmp(models[i], "deepseek", 8) == 0;
        const way ways[] = {{.cpu = i % 5 == 4 ? "ref" : NULL}, {.kv_type = "q8_0"}, {.kv_type = "q4_0"},
                            {.cpu = i % 4 == 1 ? "ref" : NULL, .kv_type = latent ? "q8_0" : i % 2 ? "q8_0,q4_0" : "f16,q8_0"}};
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            snprintf(folder, sizeof folder, "%s/%s-%zu", temp_dir(), models[i], k);
            one_model(models[i], ways[k], folder);
        }
    }
}

/* Flips a bit in some of the blocks and window parts below a folder, anywhere in the layers. Returns how many files. */
static int damage_some(const char *path, uint64_t *rng) {
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *x; d && (x = readdir(d)) != NULL;) {
        char inner[1500];
        struct stat st;
        snprintf(inner, sizeof inner, "%s/%s", path, x->d_name);
        if (x->d_name[0] == '.' || stat(inner, &st) != 0) continue;
        if (S_ISDIR(st.st_mode)) {
            n += damage_some(inner, rng);
        } else if (rng_next(rng) % 4 == 0) {
            buf b = slurp(inner);
            const size_t header = 8 + *(const uint64_t *)(const void *)b.data, at = header + rng_next(rng) % (b.len - header);
            b.data[at] = (char)(b.data[at] ^ 1 << rng_next(rng) % 8);
            spew(inner, b.data, b.len);
            buf_free(&b);
            n++;
        }
    }
    if (d) closedir(d);
    return n;
}

/* Blocks of every shape are damaged between turns: the text stays the same. */
static void damage_changes_nothing(void **state) {
    (void)state;
    need_kit();
    uint64_t rng = test_seed();
    static const char *const shapes[] = {"llama", "gemma2", "gemma3", "gpt-oss", "deepseek2-lite", "phi3"};
    int damaged = 0, found = 0;
    for (size_t m = 0; m < sizeof shapes / sizeof *shapes; m++) {
        err e = {0};
        char folder[400], blocks[420];
        snprintf(folder, sizeof folder, "%s/damage-%s", temp_dir(), shapes[m]);
        snprintf(blocks, sizeof blocks, "%s/blocks", folder);
        const way exact = {.cpu = "ref", .kv_type = m % 2 ? NULL : "q8_0"};
        hearth_engine *en = open_engine(shapes[m], exact, NULL, HEARTH_AUTO);
        hearth_session *s = hearth_session_new(en, &e);
        for (int i = 0; i < STEPS; i++) {
            hearth_engine *later = open_engine(shapes[m], exact, folder, HEARTH_AUTO);
            hearth_session *a = hearth_session_open(later, "agent", NULL, &e);
            if (!a) fail_msg("%s", e.text);
            do_step(en, s, i), do_step(later, a, i);
            const size_t n = hearth_session_length(s);
            assert_int_equal(hearth_session_length(a), n);
            assert_memory_equal(hearth_session_tokens(a), hearth_session_tokens(s), n * sizeof(int32_t));
            assert_memory_equal(hearth_session_logits(a), hearth_session_logits(s), (size_t)hearth_engine_info(en).n_vocab * sizeof(float));
            found += (int)hearth_engine_kv(later).damaged;
            hearth_session_free(a);
            hearth_engine_close(later);
            damaged += damage_some(blocks, &rng);
        }
        hearth_session_free(s);
        hearth_engine_close(en);
    }
    print_message("# %d files damaged, %d of them met\n", damaged, found);
    assert_true(found > 0);
}

/* Models with windowed layers and hardly any memory: window parts go as soon as they are passed, and come back from disk or are computed again. Conversations are rewound, and a
 * second one branches off. */
static void windows_come_and_go(void **state) {
    (void)state;
    need_kit();
    static const char *const windowed[] = {"gemma2", "gemma3", "gpt-oss"};
    for (int i = 0; i < 6; i++) {
        err e = {0};
        char folder[400];
        snprintf(folder, sizeof folder, "%s/windows-%d", temp_dir(), i);
        const way exact = {.cpu = exact_cpu()}; /* what was lost is computed again, in other company than before */
        hearth_engine *plain = open_engine(windowed[i / 2], exact, NULL, HEARTH_AUTO), *tight = open_engine(windowed[i / 2], exact, i % 2 ? folder : NULL, 1);
        size_t vocab = (size_t)hearth_engine_info(plain).n_vocab;
        for (int k = 0; k < 2; k++) {
            /* The second conversation shares the first 300 tokens or so with the first, which has ended. */
            hearth_session *s[2] = {hearth_session_new(plain, &e), hearth_session_new(tight, &e)};
            for (int j = 0; j < 2; j++) {
                for (int t = 0; t < STEPS; t++) do_step(j ? tight : plain, s[j], t == 3 ? 3 + k : t % STEPS);
                if (!hearth_session_rewind(s[j], 150, &e)) fail_msg("%s", e.text);
                do_step(j ? tight : plain, s[j], 3);
            }
            size_t n = hearth_session_length(s[0]);
            assert_int_equal(hearth_session_length(s[1]), n);
            assert_memory_equal(hearth_session_tokens(s[0]), hearth_session_tokens(s[1]), n * sizeof(int32_t));
            if (memcmp(hearth_session_logits(s[0]), hearth_session_logits(s[1]), vocab * sizeof(float)) != 0) fail_msg("%s: other logits where memory is short", windowed[i / 2]);
            hearth_session_free(s[0]), hearth_session_free(s[1]);
        }
        hearth_engine_close(plain), hearth_engine_close(tight);
    }
}

static void check_same(hearth_session *a, hearth_session *b, size_t vocab, const char *what) {
    size_t n = hearth_session_length(a);
    assert_int_equal(hearth_session_length(b), n);
    if (memcmp(hearth_session_tokens(a), hearth_session_tokens(b), n * sizeof(int32_t)) != 0) fail_msg("%s: another text", what);
    if (memcmp(hearth_session_logits(a), hearth_session_logits(b), vocab * sizeof(float)) != 0) fail_msg("%s: other logits", what);
}

static hearth_session *open_session(hearth_engine *en, const char *name) {
    err e = {0};
    hearth_session *s = hearth_session_open(en, name, NULL, &e);
    if (!s) fail_msg("%s", e.text);
    return s;
}

/* The files of a store whose names have that in them, which are then as if written some minutes ago. */
static uint64_t bytes_of(const char *folder, const char *part) {
    DIR *d = opendir(folder);
    uint64_t n = 0;
    for (struct dirent *x; d && (x = readdir(d)) != NULL;) {
        char path[1500];
        struct stat st;
        if (x->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", folder, x->d_name) >= (int)sizeof path || stat(path, &st) != 0) continue;
        if (S_ISDIR(st.st_mode)) n += bytes_of(path, part);
        else if (strstr(x->d_name, part)) n += (uint64_t)st.st_size, file_set_time(path, ((int64_t)st.st_mtime - 300) * 1000000000, NULL);
    }
    if (d) closedir(d);
    return n;
}

/* Conversations of many windows, of which the disk has only the last: a restart before every turn, a fork, a rewind into what is not there any more. */
static void windows_on_disk(void **state) {
    (void)state;
    need_kit();
    static const char *const windowed[] = {"gemma2", "gemma3", "gpt-oss"}, *const types[] = {NULL, "q8_0", "q4_0"};
    enum { TURNS = 8 };
    for (int i = 0; i < 9; i++) {
        err e = {0};
        const way w = {.cpu = exact_cpu(), .kv_type = types[i % 3]}; /* a rewind computes again what passed out of the window */
        const char *name = windowed[i / 3];
        char folder[400];
        snprintf(folder, sizeof folder, "%s/disk-%d", temp_dir(), i);
        hearth_engine *plain = open_engine(name, w, NULL, HEARTH_AUTO);
        size_t vocab = (size_t)hearth_engine_info(plain).n_vocab;
        hearth_session *s = hearth_session_new(plain, &e), *t;
        hearth_kv_stats k = {0};
        for (int turn = 0; turn < TURNS; turn++) {
            do_step(plain, s, turn % 2 ? 3 : 0);
            hearth_engine *later = open_engine(name, w, folder, HEARTH_AUTO);
            t = open_session(later, "a");
            do_step(later, t, turn % 2 ? 3 : 0);
            check_same(s, t, vocab, name);
            k = hearth_engine_kv(later);
            /* All that was said before but the last token. */
            if (turn) assert_true(k.tokens_loaded + 64 >= hearth_session_length(s) - (size_t)(turn % 2 ? 104 : 110));
            hearth_session_free(t);
            hearth_engine_close(later);
            bytes_of(folder, "-w");
        }
        uint64_t all = bytes_of(folder, ".safetensors"), windows = bytes_of(folder, "-w");
        const uint64_t whole = hearth_session_length(s) * hearth_engine_info(plain).kv_bytes_per_token;
        print_message("# %s, %s: %zu tokens, %lu bytes of keys and values, %lu on disk, %lu of them window parts\n", name, types[i % 3] ? types[i % 3] : "-", hearth_session_length(s),
                      (unsigned long)whole, (unsigned long)all, (unsigned long)windows);
        assert_true(windows > 0 && all < whole * 7 / 8);

        hearth_engine *later = open_engine(name, w, folder, HEARTH_AUTO);
        if (!hearth_agent_fork(later, "a", "b", NULL, &e)) fail_msg("%s", e.text);
        hearth_session *f = hearth_session_fork(s, &e);
        t = open_session(later, "b");
        do_step(plain, f, 2), do_step(later, t, 2);
        check_same(f, t, vocab, "a fork");
        hearth_session_free(f), hearth_session_free(t);
        t = open_session(later, "a");
        if (!hearth_session_rewind(s, 400, &e) || !hearth_session_rewind(t, 400, &e)) fail_msg("%s", e.text);
        do_step(plain, s, 1), do_step(later, t, 1);
        check_same(s, t, vocab, "a rewind");
        hearth_session_free(t);
        hearth_engine_close(later);
        later = open_engine(name, w, folder, HEARTH_AUTO);
        t = open_session(later, "a");
        do_step(plain, s, 3), do_step(later, t, 3);
        check_same(s, t, vocab, "a rewound agent");
        k = hearth_engine_kv(later);
        assert_true(k.damaged == 0 && k.failures == 0);
        hearth_session_free(s), hearth_session_free(t);
        hearth_engine_close(plain), hearth_engine_close(later);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(goes_on_after_restarts), cmocka_unit_test(damage_changes_nothing),
                                       cmocka_unit_test(windows_come_and_go), cmocka_unit_test(windows_on_disk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
