/* debug_tokens.c: `hearth debug tokens` and `hearth debug text`: text to ids and back. Only the vocabulary is read, so
 * both work on files without tensors. */
#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "text/tokenizer.h"

static const size_t MOST_INPUT = (size_t)1 << 30;

static tokenizer *open_tokenizer(const char *path, err *e) {
    gguf *g = gguf_open(path, e);
    tokenizer *t = g ? tokenizer_new(g, e) : NULL;
    gguf_close(g);
    return t;
}

static bool write_all(const buf *b, err *e) {
    if (b->len && fwrite(b->data, 1, b->len, stdout) != b->len) return err_set(e, HEARTH_IO, "standard output: cannot write");
    return fflush(stdout) == 0 || err_set(e, HEARTH_IO, "standard output: cannot write");
}

static bool print_tokens(const tokenizer *t, bool parse_special, bool bos, err *e) {
    buf text = {0}, line = {0};
    token_list ids = {0};
    bool ok = !bos || tokenizer_bos(t) >= 0 || err_set(e, HEARTH_ARGUMENT, "--bos: this vocabulary has no begin-of-text token");
    ok = ok && file_read("-", MOST_INPUT, &text, e);
    ok = ok && (!bos || token_list_add(&ids, tokenizer_bos(t), e));
    ok = ok && tokenizer_encode(t, text.data, text.len, parse_special, &ids, e);
    for (size_t i = 0; ok && i < ids.n; i++) ok = buf_addf(&line, e, "%s%d", i ? " " : "", ids.ids[i]);
    ok = ok && buf_addc(&line, '\n', e) && write_all(&line, e);
    token_list_free(&ids);
    buf_free(&line);
    buf_free(&text);
    return ok;
}

int debug_tokens(int argc, char **argv) {
    bool parse_special = false, bos = false;
    const cli_option options[] = {
        {"--parse-special", 0, CLI_FLAG, &parse_special, NULL, "turn strings such as <|im_start|> into their token", 0, 0},
        {"--bos", 0, CLI_FLAG, &bos, NULL, "put the begin-of-text token first", 0, 0},
        {0},
    };
    const cli_spec spec = {
        .usage = "hearth debug tokens MODEL [--parse-special] [--bos]",
        .about = "Reads bytes on standard input and writes their token ids, separated by spaces.\n"
                 "User-defined tokens are recognised with and without --parse-special.",
        .options = options,
        .min_args = 1,
        .max_args = 1,
    };
    const char *model;
    int status;
    if (cli_parse(&spec, argc, argv, &model, &status) < 0) return status;
    err e = {0};
    tokenizer *t = open_tokenizer(model, &e);
    bool ok = t && print_tokens(t, parse_special, bos, &e);
    tokenizer_free(t);
    return ok ? 0 : cli_fail(&e);
}

/* Ids separated by white space. */
static bool parse_ids(const buf *text, token_list *ids, err *e) {
    for (size_t i = 0; i < text->len;) {
        if (isspace((unsigned char)text->data[i])) {
            i++;
            continue;
        }
        size_t start = i;
        int64_t id = 0;
        while (i < text->len && isdigit((unsigned char)text->data[i]) && id <= INT32_MAX) id = id * 10 + (text->data[i++] - '0');
        bool whole = i > start && id <= INT32_MAX && (i == text->len || isspace((unsigned char)text->data[i]));
        if (!whole) {
            while (i < text->len && !isspace((unsigned char)text->data[i])) i++;
            char quoted[48];
            err_quote(quoted, sizeof quoted, text->data + start, i - start);
            return err_set(e, HEARTH_ARGUMENT, "'%s' on standard input is not a token id", quoted);
        }
        if (!token_list_add(ids, (int32_t)id, e)) return false;
    }
    return true;
}

static bool print_text(const tokenizer *t, err *e) {
    buf input = {0}, text = {0};
    token_list ids = {0};
    bool ok = file_read("-", MOST_INPUT, &input, e) && parse_ids(&input, &ids, e);
    ok = ok && tokenizer_decode(t, ids.ids, ids.n, true, &text, e) && write_all(&text, e);
    token_list_free(&ids);
    buf_free(&text);
    buf_free(&input);
    return ok;
}

int debug_text(int argc, char **argv) {
    const cli_spec spec = {
        .usage = "hearth debug text MODEL",
        .about = "Reads token ids on standard input and writes the exact bytes they stand for: the ids of `hearth debug tokens`\n"
                 "give back its input. Special tokens appear as their text, and so does a token put first by --bos.",
        .min_args = 1,
        .max_args = 1,
    };
    const char *model;
    int status;
    if (cli_parse(&spec, argc, argv, &model, &status) < 0) return status;
    err e = {0};
    tokenizer *t = open_tokenizer(model, &e);
    bool ok = t && print_text(t, &e);
    tokenizer_free(t);
    return ok ? 0 : cli_fail(&e);
}
