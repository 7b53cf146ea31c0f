/* test_cli.c: `hearth run` and `hearth chat` as scripts see them, with the default model. */
#include "tools/support.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE = 120 };

/* Runs hearth with these arguments. out and errors are replaced; they end with a NUL. */
static int hearth(const char *const *args, const char *input, buf *out, buf *errors) {
    const char *argv[32] = {hearth_program()};
    for (int i = 0; args[i]; i++) argv[i + 1] = args[i];
    out->len = errors->len = 0;
    int status = run_program(argv, input, input ? strlen(input) : 0, out, errors, PATIENCE);
    buf_add(out, "", 0, NULL);
    buf_add(errors, "", 0, NULL);
    return status;
}
#define RUN(input, ...) hearth((const char *[]){__VA_ARGS__, NULL}, input, &out, &errors)

static void must_hold(const buf *b, const char *text) {
    if (!strstr(b->data, text)) fail_msg("'%s' is not in '%s'", text, b->data);
}

static void help_names_every_option(void **state) {
    (void)state;
    static const char *const shared[] = {
        "-n, --max-tokens", "--stop", "--ignore-end", "--show-special", "--temperature",        "--top-k",      "--top-p",       "--min-p",      "--typical-p",
        "--repeat-penalty", "--frequency-penalty", "--presence-penalty", "--penalty-last-n", "--dry-multiplier", "--dry-base", "--dry-allowed-length",
        "--dry-last-n",     "--dry-breaker",    "--logit-bias",         "--seed",       "--context",     "--threads",    "--cpu", "--help", "--system"};
    static const char *const only_run[] = {"--file", "--raw", "--logprobs"};
    buf out = {0}, errors = {0};
    for (int chat = 0; chat < 2; chat++) {
        assert_int_equal(RUN(NULL, chat ? "chat" : "run", "--help"), 0);
        for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) must_hold(&out, shared[i]);
        for (size_t i = 0; !chat && i < 3; i++) must_hold(&out, only_run[i]);
        assert_int_equal(errors.len, 0);
    }
    static const char *const commands[] = {"run", "chat", "inspect", "quantize", "debug"};
    assert_int_equal(RUN(NULL, "--help"), 0);
    for (int i = 0; i < 5; i++) must_hold(&out, commands[i]);
    buf_free(&out);
    buf_free(&errors);
}

static void wrong_usage_is_one_sentence_and_status_2(void **state) {
    (void)state;
    static const struct { const char *args[5], *sentence; } cases[] = {
        {{"run", "--nonsense", "x"}, "unknown option '--nonsense'"},
        {{"run", "--top-p", "1.5", "x"}, "--top-p 1.5 is out of range"},
        {{"run", "--temperature", "warm", "x"}, "--temperature needs a number"},
        {{"run", "-n"}, "--max-tokens needs a value"},
        {{"run", "-n", "-2", "x"}, "--max-tokens -2 is out of range"},
        {{"run", "--logit-bias", "5:1", "x"}, "--logit-bias needs ID=BIAS"},
        {{"run", "--logit-bias", "5=nan", "x"}, "--logit-bias needs ID=BIAS"},
        {{"run", "--stop", "", "x"}, "--stop needs a text"},
        {{"run", "--file", "f", "m", "x"}, "a prompt or --file, not both"},
        {{"run", "--raw", "--system", "s", "x"}, "--system needs the chat template"},
        {{"run", "a", "b", "c"}, "unexpected argument 'c'"},
        {{"chat", "a", "b"}, "unexpected argument 'b'"},
        {{"chat", "--seed", "-1"}, "--seed needs a whole number"},
    };
    buf out = {0}, errors = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *args[6] = {0};
        for (int k = 0; k < 5; k++) args[k] = cases[i].args[k];
        assert_int_equal(hearth(args, NULL, &out, &errors), 2);
        must_hold(&errors, cases[i].sentence);
        assert_int_equal(out.len, 0);
        int lines = 0;
        for (size_t k = 0; k < errors.len; k++) lines += errors.data[k] == '\n';
        assert_int_equal(lines, 2); /* the sentence, and the usage */
    }
    assert_int_equal(RUN(NULL, "run", "/nowhere/model.gguf", "x"), 1);
    must_hold(&errors, "/nowhere/model.gguf");
    assert_int_equal(RUN(NULL, "run", "--cpu", "abacus", "x"), 1);
    must_hold(&errors, "abacus");
    assert_int_equal(RUN(NULL, "run", "--logit-bias", "99999999=1", "x"), 1);
    must_hold(&errors, "token 99999999");
    assert_int_equal(RUN(NULL, "run", "--file", "/nowhere/prompt"), 1);
    must_hold(&errors, "/nowhere/prompt");
    buf_free(&out);
    buf_free(&errors);
}

static void same_seed_same_text(void **state) {
    (void)state;
    buf out = {0}, errors = {0}, first = {0};
    assert_int_equal(RUN(NULL, "run", "Hello! Who are you?", "-n", "12", "--temperature", "0"), 0);
    must_hold(&errors, "the default model");
    must_hold(&errors, "tokens/s");
    assert_true(out.len > 5 && out.data[out.len - 1] == '\n');
    buf_add(&first, out.data, out.len + 1, NULL);
    assert_int_equal(RUN(NULL, "run", "Hello! Who are you?", "-n", "12", "--temperature", "0", "--seed", "5"), 0);
    assert_string_equal(out.data, first.data);

    assert_int_equal(RUN(NULL, "run", "Tell me of the sea.", "-n", "12", "--temperature", "1.5", "--top-k", "0", "--min-p", "0", "-s", "5"), 0);
    first.len = 0;
    buf_add(&first, out.data, out.len + 1, NULL);
    assert_int_equal(RUN(NULL, "run", "Tell me of the sea.", "-n12", "--temperature=1.5", "--top-k", "0", "--min-p", "0", "-s", "5"), 0);
    assert_string_equal(out.data, first.data);
    assert_int_equal(RUN(NULL, "run", "Tell me of the sea.", "-n12", "--temperature=1.5", "--top-k", "0", "--min-p", "0", "-s", "6"), 0);
    assert_string_not_equal(out.data, first.data);
    buf_free(&out);
    buf_free(&errors);
    buf_free(&first);
}

static void the_prompt_comes_from_anywhere(void **state) {
    (void)state;
    buf out = {0}, errors = {0}, first = {0};
    char file[128];
    snprintf(file, sizeof file, "%s/prompt", temp_dir());
    spew(file, "Good morning!\n", 14);
    assert_int_equal(RUN(NULL, "run", "Good morning!", "-n", "6", "--temperature", "0"), 0);
    buf_add(&first, out.data, out.len + 1, NULL);
    assert_int_equal(RUN(NULL, "run", "--file", file, "-n", "6", "--temperature", "0"), 0);
    assert_string_equal(out.data, first.data);
    assert_int_equal(RUN("Good morning!\n", "run", "-n", "6", "--temperature", "0"), 0);
    assert_string_equal(out.data, first.data);
    assert_int_equal(RUN("Good morning!", "run", "-", "-n", "6", "--temperature", "0"), 0);
    assert_string_equal(out.data, first.data);
    assert_int_equal(RUN("ignored", "run", "Good morning!", "-n", "6", "--temperature", "0"), 0);
    assert_string_equal(out.data, first.data);
    assert_int_equal(RUN("\xFF\xFE", "run", "-n", "1"), 1);
    must_hold(&errors, "UTF-8");
    assert_int_equal(RUN("\xFF\xFE", "run", "--raw", "-n", "1"), 0);
    assert_int_equal(RUN(NULL, "run", "x", "-n", "0"), 0);
    assert_int_equal(out.len, 0);
    buf_free(&out);
    buf_free(&errors);
    buf_free(&first);
}

static void stop_strings_logprobs_and_raw(void **state) {
    (void)state;
    buf out = {0}, errors = {0}, first = {0};
    assert_int_equal(RUN(NULL, "run", "Hello! Who are you?", "-n", "8", "--temperature", "0"), 0);
    buf_add(&first, out.data, out.len, NULL);
    char stop[3] = {first.data[4], first.data[5], 0};
    size_t at = (size_t)(strstr(first.data, stop) - first.data);
    assert_int_equal(RUN(NULL, "run", "Hello! Who are you?", "-n", "8", "--temperature", "0", "--stop", "xyzzy\\n", "--stop", stop), 0);
    assert_int_equal(out.len, at ? at + 1 : 0); /* and the line end */
    assert_memory_equal(out.data, first.data, at);

    assert_int_equal(RUN(NULL, "run", "Hello!", "-n", "3", "--temperature", "0", "--logprobs", "2"), 0);
    int lines = 0;
    for (const char *p = errors.data; (p = strstr(p, "  of: ")); p++) lines++;
    assert_int_equal(lines, 3);

    assert_int_equal(RUN(NULL, "run", "--raw", "Once upon a time", "-n", "3", "--temperature", "0"), 0);
    must_hold(&errors, "prompt 4 tokens");
    assert_int_equal(RUN(NULL, "run", "--raw", "Once upon a time", "-n", "3", "--context", "4"), 1);
    must_hold(&errors, "--context");
    buf_free(&out);
    buf_free(&errors);
    buf_free(&first);
}

/* ---- chat ---- */

static void chat_remembers_and_computes_only_what_is_new(void **state) {
    (void)state;
    buf out = {0}, errors = {0};
    const char *talk = "Hi, my name is Maria.\nHow are you?\nWhat is my name?\n/stats\n";
    assert_int_equal(RUN(talk, "chat", "--temperature", "0", "-n", "40"), 0);
    must_hold(&out, "Maria");
    must_hold(&errors, "kept from before");
    /* The second and third prompt were not computed from the start. */
    const char *last = strstr(errors.data, "prompt ");
    int prompt = 0, kept = 0;
    assert_int_equal(sscanf(last, "prompt %d tokens (%d kept", &prompt, &kept), 2);
    assert_true(prompt - kept < 25 && kept > 30);
    buf_free(&out);
    buf_free(&errors);
}

static void chat_commands_work_in_scripts(void **state) {
    (void)state;
    buf out = {0}, errors = {0};
    char file[128], talk[2048];
    snprintf(file, sizeof file, "%s/talk.json", temp_dir());
    snprintf(talk, sizeof talk,
             "/help\n/system You are Ember.\n/system\nHi, my name is Zoe.\n/retry\nWhat?\n/undo\n/save %s\n/reset\n/load %s\n/stats\n/nonsense\n/quit\nnot read\n",
             file, file);
    assert_int_equal(RUN(talk, "chat", "--temperature", "0", "-n", "5"), 1); /* /nonsense */
    must_hold(&errors, "/retry");
    must_hold(&errors, "[system message: You are Ember.]");
    must_hold(&errors, "/nonsense is not a command");
    must_hold(&errors, "[2 messages from");
    must_hold(&errors, "seed ");
    int answers = 0;
    for (size_t i = 0; i < out.len; i++) answers += out.data[i] == '\n';
    assert_int_equal(answers, 3);
    buf saved = slurp(file);
    must_hold(&saved, "\"You are Ember.\"");
    must_hold(&saved, "Zoe");
    assert_null(strstr(saved.data, "What?"));
    buf_free(&saved);

    snprintf(talk, sizeof talk, "/load /nowhere.json\n");
    assert_int_equal(RUN(talk, "chat"), 1);
    must_hold(&errors, "/nowhere.json");
    spew(file, "[{\"role\": 1}]", 13);
    snprintf(talk, sizeof talk, "/load %s\n", file);
    assert_int_equal(RUN(talk, "chat"), 1);
    must_hold(&errors, "message 1 needs a role");
    assert_int_equal(RUN("", "chat"), 0);
    assert_int_equal(RUN("/undo\n", "chat"), 1);
    assert_int_equal(RUN("/retry\n", "chat"), 1);
    buf_free(&out);
    buf_free(&errors);
}

static void chat_takes_several_lines_as_one_message(void **state) {
    (void)state;
    buf out = {0}, errors = {0};
    char file[128], talk[512];
    snprintf(file, sizeof file, "%s/lines.json", temp_dir());
    snprintf(talk, sizeof talk, "one\\\ntwo\n\"\"\"three\nfour\"\"\"\n\"\"\"\nfive\n\"\"\"\n//six\n/save %s\n\"\"\"open at the end", file);
    assert_int_equal(RUN(talk, "chat", "-n", "1"), 0);
    buf saved = slurp(file);
    must_hold(&saved, "\"one\\ntwo\"");
    must_hold(&saved, "\"three\\nfour\"");
    must_hold(&saved, "\"five\\n\"");
    must_hold(&saved, "\"/six\"");
    buf_free(&saved);
    buf_free(&out);
    buf_free(&errors);
}

static void chat_goes_on_when_the_context_is_full(void **state) {
    (void)state;
    buf out = {0}, errors = {0};
    const char *talk = "Hello! Tell me about yourself, please, and do not be short.\nAnd now the same once more, with all the details that you left out.\n/reset\nHi!\n";
    assert_int_equal(RUN(talk, "chat", "--context", "40", "--temperature", "0"), 1);
    must_hold(&errors, "/reset begins anew");
    assert_true(out.len > 2); /* the last message was answered again */
    buf_free(&out);
    buf_free(&errors);
}

/* ---- signals and pipes ---- */

/* Starts hearth with an answer that does not end by itself; returns a descriptor of its output. */
static pid_t start_endless(int *output, const char *errors) {
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        dup2(open(errors, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
        signal(SIGPIPE, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        execl(hearth_program(), "hearth", "run", "Hi", "--ignore-end", (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    *output = fds[0];
    char byte;
    assert_int_equal(read(fds[0], &byte, 1), 1); /* the answer has begun */
    return pid;
}

static int end_of(pid_t pid) {
    int status = 0;
    alarm(PATIENCE);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    alarm(0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void interrupt_ends_the_run_with_its_speed(void **state) {
    (void)state;
    int output;
    char errors[128];
    snprintf(errors, sizeof errors, "%s/errors", temp_dir());
    pid_t pid = start_endless(&output, errors);
    kill(pid, SIGINT);
    char rest[4096], last = 0;
    for (ssize_t n; (n = read(output, rest, sizeof rest)) > 0;) last = rest[n - 1];
    assert_int_equal(end_of(pid), 130);
    assert_int_equal(last, '\n');
    buf b = slurp(errors);
    must_hold(&b, "tokens/s");
    buf_free(&b);
    close(output);
}

static void a_closed_pipe_ends_the_run(void **state) {
    (void)state;
    int output;
    char errors[128];
    snprintf(errors, sizeof errors, "%s/errors", temp_dir());
    pid_t pid = start_endless(&output, errors);
    close(output);
    assert_int_equal(end_of(pid), 0);
    if (access("/dev/full", W_OK) != 0) return;
    char command[512];
    snprintf(command, sizeof command, "%s run Hi -n 3 >/dev/full", hearth_program());
    buf e = {0};
    assert_int_equal(run_program((const char *[]){"sh", "-c", command, NULL}, NULL, 0, NULL, &e, PATIENCE), 1);
    must_hold(&e, "cannot be written");
    buf_free(&e);
}

/* Keys and values in few bits change how well a text is foretold, but hardly. */
static void kv_types_are_kept_or_refused(void **state) {
    (void)state;
    buf out = {0}, errors = {0};
    char text[4000] = "";
    for (int i = 0; strlen(text) < 3000; i++) snprintf(text + strlen(text), 200, "On day %d the old man went down to the river and said to his dog: \"we shall see.\" ", i);
    static const struct { const char *type; double most; } types[] = {{"f16", 1e-6}, {"q8_0", 0.01}, {"q4_0,q8_0", 0.05}, {"q4_0", 0.1}};
    double plain = 0;
    for (int i = -1; i < 4; i++) {
        const char *argv[] = {"debug", "perplexity", "models/ember-30m-q8_0.gguf", "-", i < 0 ? NULL : "--kv-type", i < 0 ? NULL : types[i].type, NULL};
        assert_int_equal(hearth(argv, text, &out, &errors), 0);
        double mean = 0;
        if (sscanf(out.data, "perplexity %*f (mean %lf,", &mean) != 1) fail_msg("'%s'", out.data);
        if (i < 0) plain = mean;
        else if (!(fabs(mean - plain) <= types[i].most)) fail_msg("%s: %g, with f16 %g", types[i].type, mean, plain);
        if (i == 3) assert_true(mean != plain);
    }
    static const char *const wrong[] = {"q5_0", "f32", "q8_0,", ",", "q8_0,q4_0,f16", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(RUN(NULL, "run", "--kv-type", wrong[i], "-n", "1", "models/ember-30m-q8_0.gguf", "x"), 1);
        must_hold(&errors, "keys and values can be f16, q8_0 or q4_0");
    }
    buf_free(&out);
    buf_free(&errors);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_names_every_option),
        cmocka_unit_test(wrong_usage_is_one_sentence_and_status_2),
        cmocka_unit_test(same_seed_same_text),
        cmocka_unit_test(the_prompt_comes_from_anywhere),
        cmocka_unit_test(stop_strings_logprobs_and_raw),
        cmocka_unit_test(chat_remembers_and_computes_only_what_is_new),
        cmocka_unit_test(chat_commands_work_in_scripts),
        cmocka_unit_test(chat_takes_several_lines_as_one_message),
        cmocka_unit_test(chat_goes_on_when_the_context_is_full),
        cmocka_unit_test(interrupt_ends_the_run_with_its_speed),
        cmocka_unit_test(a_closed_pipe_ends_the_run),
        cmocka_unit_test(kv_types_are_kept_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
