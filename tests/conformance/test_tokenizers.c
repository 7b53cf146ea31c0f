/* The tokenizer kit: every gold case in both modes, the pairs of texts and ids, the disputed cases, and back to bytes. */
#include "tools/support.h"

#include <jansson.h>

#include "text/tokenizer.h"

static const char *const folders[] = {
    "cl100k", "deepseek-v3", "gemma-3", "gpt-oss", "llama-2", "llama-3", "llamacpp-deepseek-coder", "llamacpp-deepseek-llm",
    "llamacpp-falcon", "llamacpp-gpt-2", "llamacpp-llama-spm", "llamacpp-phi-3", "llamacpp-refact", "llamacpp-starcoder", "mistral-nemo",
    "mistral-v1", "qwen3",
};
enum { FOLDERS = sizeof folders / sizeof *folders };

static const char *kit_file(const char *folder, const char *name) {
    char relative[256];
    snprintf(relative, sizeof relative, "tokenizers/%s/%s", folder, name);
    return kit_path(relative);
}

/* Each is loaded once. */
static tokenizer *opened[FOLDERS];

static const tokenizer *open_vocabulary(const char *folder) {
    int f = 0;
    while (strcmp(folders[f], folder) != 0) f++;
    if (opened[f]) return opened[f];
    err e = {0};
    gguf *g = gguf_open(kit_file(folder, "vocab.gguf"), &e);
    tokenizer *t = g ? tokenizer_new(g, &e) : NULL;
    gguf_close(g);
    if (!t) fail_msg("%s: %s", folder, e.text);
    return opened[f] = t;
}

static int close_vocabularies(void **state) {
    (void)state;
    for (int f = 0; f < FOLDERS; f++) tokenizer_free(opened[f]);
    return 0;
}

static json_t *load_json(const char *path) {
    json_error_t error;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!root) fail_msg("%s: %s", path, error.text);
    return root;
}

static buf bytes_of(const json_t *test) {
    const char *hex = json_string_value(json_object_get(test, "bytes_hex"));
    buf b = {0};
    buf_reserve(&b, 1, NULL);
    for (; hex[0]; hex += 2) {
        unsigned byte;
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        buf_addc(&b, (char)byte, NULL);
    }
    return b;
}

static bool equal_ids(const token_list *got, const json_t *expected) {
    if (got->n != json_array_size(expected)) return false;
    for (size_t i = 0; i < got->n; i++)
        if (got->ids[i] != json_integer_value(json_array_get(expected, i))) return false;
    return true;
}

static token_list encode(const tokenizer *t, const char *text, size_t len, bool parse_special) {
    err e = {0};
    token_list ids = {0};
    if (!tokenizer_encode(t, text, len, parse_special, &ids, &e)) fail_msg("%s", e.text);
    return ids;
}

/* Encodes one case in both modes and compares with the lists in answers. Returns how many differ. */
static int check_case(const tokenizer *t, const char *folder, const json_t *test, const json_t *answers) {
    static const char *const names[] = {"ids_no_special", "ids_with_special"};
    buf text = bytes_of(test);
    int wrong = 0;
    for (int mode = 0; mode < 2; mode++) {
        token_list ids = encode(t, text.data, text.len, mode == 1);
        if (!equal_ids(&ids, json_object_get(answers, names[mode]))) {
            print_message("%s %s %s: '%s' gives", folder, json_string_value(json_object_get(test, "id")), names[mode], text.data);
            for (size_t i = 0; i < ids.n; i++) print_message(" %d", ids.ids[i]);
            print_message("\n");
            wrong++;
        }
        token_list_free(&ids);
    }
    buf_free(&text);
    return wrong;
}

static void gold(void **state) {
    (void)state;
    need_kit();
    int wrong = 0, cases = 0;
    for (int f = 0; f < FOLDERS; f++) {
        FILE *there = fopen(kit_file(folders[f], "gold.json"), "r");
        if (!there) continue;
        fclose(there);
        const tokenizer *t = open_vocabulary(folders[f]);
        json_t *tests = load_json(kit_file(folders[f], "gold.json")), *test;
        size_t i;
        json_array_foreach(tests, i, test) {
            wrong += check_case(t, folders[f], test, test);
            cases++;
        }
        json_decref(tests);
    }
    assert_true(cases > 3000);
    assert_int_equal(wrong, 0);
}

static void disputed_cases_follow_the_models_own_files(void **state) {
    (void)state;
    need_kit();
    json_t *tests = load_json(kit_path("tokenizers/disagreements.json")), *test;
    int wrong = 0;
    size_t i;
    json_array_foreach(tests, i, test) {
        const char *folder = json_string_value(json_object_get(test, "tokenizer"));
        wrong += check_case(open_vocabulary(folder), folder, test, json_object_get(test, "hf"));
    }
    json_decref(tests);
    assert_true(i > 20);
    assert_int_equal(wrong, 0);
}

/* One text of a .inp file against one line of the .out file. */
static int check_pair(const tokenizer *t, const char *folder, const char *text, size_t len, const char *line) {
    token_list ids = encode(t, text, len, false);
    bool same = true;
    for (size_t i = 0; same && i < ids.n; i++) {
        char *end;
        same = strtol(line, &end, 10) == ids.ids[i] && end != line;
        line = end;
    }
    while (*line == ' ') line++;
    same = same && (*line == '\n' || *line == 0);
    if (!same) print_message("%s: '%.*s' differs from the recorded ids\n", folder, (int)len, text);
    token_list_free(&ids);
    return !same;
}

static void recorded_pairs(void **state) {
    (void)state;
    need_kit();
    static const char separator[] = "\n__ggml_vocab_test__\n";
    int wrong = 0, cases = 0;
    for (int f = 0; f < FOLDERS; f++) {
        FILE *there = fopen(kit_file(folders[f], "llamacpp.inp"), "r");
        if (!there) continue;
        fclose(there);
        buf texts = slurp(kit_file(folders[f], "llamacpp.inp")), ids = slurp(kit_file(folders[f], "llamacpp.out"));
        const tokenizer *t = open_vocabulary(folders[f]);
        const char *line = ids.data, *text = texts.data;
        for (;;) {
            const char *end = memmem(text, (size_t)(texts.data + texts.len - text), separator, sizeof separator - 1);
            if (!end) break;
            wrong += check_pair(t, folders[f], text, (size_t)(end - text), line);
            cases++;
            text = end + sizeof separator - 1;
            const char *next = strchr(line, '\n');
            line = next ? next + 1 : "";
        }
        buf_free(&texts);
        buf_free(&ids);
    }
    assert_true(cases > 400);
    assert_int_equal(wrong, 0);
}

/* What no tokenizer can give back: U+2581 is SentencePiece's own space, Falcon and StarCoder have no token for some
 * bytes, Qwen composes characters, Phi-3 drops white space after special tokens. */
static bool can_survive(const char *folder, const buf *text, bool parse_special) {
    static const char *const spm[] = {"llama-2", "mistral-v1", "llamacpp-llama-spm", "llamacpp-phi-3", "gemma-3"};
    for (int i = 0; i < 5; i++)
        if (strcmp(folder, spm[i]) == 0 && memmem(text->data, text->len, "\xE2\x96\x81", 3)) return false;
    if (strcmp(folder, "llamacpp-phi-3") == 0 && memmem(text->data, text->len, "|>\n", 3)) return !parse_special;
    for (size_t i = 0; strcmp(folder, "llamacpp-falcon") == 0 && i < text->len; i++)
        if (strchr("\x03\x04\x05\x0B\x11\x13\x14\x15\x16\x17\x19\x1C\x1D\x1E\xF2", text->data[i]) && text->data[i]) return false;
    return true;
}

static void bytes_survive(void **state) {
    (void)state;
    need_kit();
    int wrong = 0, cases = 0;
    json_t *tests = load_json(kit_path("tokenizers/cases.json")), *test;
    for (int f = 0; f < FOLDERS; f++) {
        const tokenizer *t = open_vocabulary(folders[f]);
        size_t i;
        json_array_foreach(tests, i, test) {
            buf text = bytes_of(test);
            const char *category = json_string_value(json_object_get(test, "category"));
            bool composed = strcmp(folders[f], "qwen3") == 0 && strcmp(category, "combining") == 0;
            for (int mode = 0; mode < 2 && !composed; mode++) {
                if (!can_survive(folders[f], &text, mode == 1)) continue;
                err e = {0};
                buf back = {0};
                token_list ids = encode(t, text.data, text.len, mode == 1);
                assert_true(tokenizer_decode(t, ids.ids, ids.n, true, &back, &e));
                bool same = back.len == text.len && memcmp(back.data, text.data, text.len) == 0;
                if (!same && text.len) print_message("%s: '%s' comes back as '%s'\n", folders[f], text.data, back.data);
                wrong += !same && text.len;
                cases++;
                token_list_free(&ids);
                buf_free(&back);
            }
            buf_free(&text);
        }
    }
    json_decref(tests);
    assert_true(cases > 6000);
    assert_int_equal(wrong, 0);
}

static void bos_is_added_where_the_kit_says_so(void **state) {
    (void)state;
    need_kit();
    for (int f = 0; f < FOLDERS; f++) {
        const tokenizer *t = open_vocabulary(folders[f]);
        json_t *meta = load_json(kit_file(folders[f], "meta.json"));
        bool expected = json_is_true(json_object_get(meta, "bos_added_by_default"));
        if (tokenizer_wants_bos(t) != expected) fail_msg("%s: BOS by default is %d", folders[f], !expected);
        if (expected) assert_int_equal(tokenizer_bos(t), json_integer_value(json_object_get(meta, "bos_id")));
        assert_int_equal(tokenizer_size(t), json_integer_value(json_object_get(meta, "n_tokens")));
        json_decref(meta);
    }
}

/* The tokens that end an answer, by their text. */
static void answers_end(void **state) {
    (void)state;
    need_kit();
    static const struct { const char *folder, *ends, *goes_on; } cases[] = {
        {"llama-3", "<|eot_id|><|eom_id|><|end_of_text|>", "<|start_header_id|><|begin_of_text|>"},
        {"qwen3", "<|im_end|><|endoftext|>", "<|im_start|><think></think>"},
        {"gemma-3", "<end_of_turn><eos>", "<start_of_turn><bos></s>"},
        {"gpt-oss", "<|return|><|call|><|endoftext|>", "<|end|><|message|><|start|>"},
        {"llamacpp-phi-3", "<|end|><|endoftext|>", "<|user|>"},
        {"deepseek-v3", "<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", "<\xEF\xBD\x9CUser\xEF\xBD\x9C>"},
        {"mistral-v1", "</s>", "<s>"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const tokenizer *t = open_vocabulary(cases[c].folder);
        token_list ends = encode(t, cases[c].ends, strlen(cases[c].ends), true);
        for (size_t i = 0; i < ends.n; i++) assert_true(tokenizer_ends(t, ends.ids[i]));
        token_list others = encode(t, cases[c].goes_on, strlen(cases[c].goes_on), true);
        for (size_t i = 0; i < others.n; i++) assert_false(tokenizer_ends(t, others.ids[i]));
        assert_true(tokenizer_ends(t, tokenizer_eos(t)));
        token_list_free(&ends);
        token_list_free(&others);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gold),
        cmocka_unit_test(disputed_cases_follow_the_models_own_files),
        cmocka_unit_test(recorded_pairs),
        cmocka_unit_test(bytes_survive),
        cmocka_unit_test(bos_is_added_where_the_kit_says_so),
        cmocka_unit_test(answers_end),
    };
    return cmocka_run_group_tests(tests, NULL, close_vocabularies);
}
