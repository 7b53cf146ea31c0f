/* cmd_inspect.c: `hearth inspect`: what a GGUF file holds, for people. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/inspect.h"

/* Text from the file may hold anything, so all of it is quoted on its way to the terminal. */
typedef char quoted[256];
static const char *quote(quoted out, gguf_string s) { return err_quote(out, sizeof(quoted), s.data, s.len); }

static void label(const char *name) { printf("%-14s", name); }

/* "1.24 billion", "29.4 million", "512" */
static const char *count_text(char out[32], uint64_t n) {
    double v = (double)n;
    if (v >= 1e12) snprintf(out, 32, "%.3g trillion", v / 1e12);
    else if (v >= 1e9) snprintf(out, 32, "%.3g billion", v / 1e9);
    else if (v >= 1e6) snprintf(out, 32, "%.3g million", v / 1e6);
    else snprintf(out, 32, "%" PRIu64, n);
    return out;
}

static void print_file(const gguf *g, const char *path) {
    char bytes[32];
    label("file");
    printf("%s, %s, GGUF version %d", path, cli_bytes(bytes, gguf_file_bytes(g)), gguf_version(g));
    if (gguf_n_parts(g) > 1) printf(", %d parts", gguf_n_parts(g));
    putchar('\n');
}

static void print_model(const gguf *g, const inspect_facts *f) {
    quoted q;
    char n[32];
    label("architecture"), puts(f->arch.data ? quote(q, f->arch) : "not said");
    if (f->name.data) label("name"), puts(quote(q, f->name));
    label("parameters");
    if (gguf_n_tensors(g) == 0) {
        puts("none: the file holds no tensors");
        return;
    }
    printf("%s in %zu tensors, %.2f bits per weight", count_text(n, f->parameters), gguf_n_tensors(g), inspect_bits(f->tensor_bytes, f->parameters));
    if (f->active_parameters < f->parameters) printf(", %s active for a token", count_text(n, f->active_parameters));
    putchar('\n');
}

static void print_heads(const inspect_facts *f) {
    label("heads");
    printf("%" PRIu64, f->heads);
    if (f->latent) {
        printf(", keys and values kept as a latent of %" PRIu64 " + %" PRIu64 "\n", f->latent, f->rope_dims);
        return;
    }
    printf(" of %" PRIu64, f->key_length);
    if (f->value_length != f->key_length) printf(" (values %" PRIu64 ")", f->value_length);
    if (f->kv_heads_least == f->kv_heads_most) printf(", %" PRIu64 " for keys and values\n", f->kv_heads_most);
    else printf(", %" PRIu64 " to %" PRIu64 " for keys and values, depending on the layer\n", f->kv_heads_least, f->kv_heads_most);
}

static void print_rope(const inspect_facts *f) {
    quoted q;
    if (!f->rope_base && !f->rope_dims && !f->rope_scaling.data) return;
    label("rope");
    const char *comma = "";
    if (f->rope_base) printf("base %g", f->rope_base), comma = ", ";
    if (f->rope_dims) printf("%s%" PRIu64 " dimensions", comma, f->rope_dims), comma = ", ";
    if (f->rope_scaling.data) printf("%s%s scaling", comma, quote(q, f->rope_scaling)), comma = " ";
    if (f->rope_factor) printf("%sby %g", comma, f->rope_factor);
    if (f->rope_original && f->rope_original != f->context) printf(", made for %" PRIu64 " tokens", f->rope_original);
    putchar('\n');
}

static void print_shape(const inspect_facts *f) {
    char bytes[32];
    uint64_t whole;
    if (f->context) label("context"), printf("%" PRIu64 " tokens\n", f->context);
    if (f->layers) {
        label("layers");
        printf("%" PRIu64 ", width %" PRIu64, f->layers, f->width);
        if (f->feed_forward) printf(", feed-forward %" PRIu64, f->feed_forward);
        putchar('\n');
    }
    if (f->heads) print_heads(f);
    if (f->experts) {
        label("experts");
        printf("%" PRIu64 ", %" PRIu64 " used for a token", f->experts, f->experts_used);
        if (f->experts_shared) printf(", %" PRIu64 " shared", f->experts_shared);
        putchar('\n');
    }
    print_rope(f);
    if (f->window) label("window"), printf("%" PRIu64 " tokens in layers with a sliding window\n", f->window);
    if (!f->kv_bytes) return;
    label("KV cache");
    printf("%" PRIu64 " bytes a token in f16", f->kv_bytes);
    if (f->context && !__builtin_mul_overflow(f->kv_bytes, f->context, &whole)) printf(", %s for the whole context", cli_bytes(bytes, whole));
    puts(f->window ? ", less where windows forget" : "");
}

static void print_token(const gguf *g, const char *what, int64_t id) {
    if (id < 0) return;
    quoted q;
    printf(", %s %" PRId64, what, id);
    gguf_string s = inspect_token(g, id);
    if (s.data) printf(" %s", quote(q, s));
}

static void print_text(const gguf *g, const inspect_facts *f) {
    quoted q;
    if (f->tokenizer.data || f->tokens) {
        label("tokenizer");
        printf("%s", f->tokenizer.data ? quote(q, f->tokenizer) : "kind not said");
        if (f->pre.data) printf(", pre-tokenizer %s", quote(q, f->pre));
        printf(", %" PRIu64 " tokens", f->tokens);
        print_token(g, "bos", f->bos);
        print_token(g, "eos", f->eos);
        putchar('\n');
    }
    label("chat template");
    if (!f->template.data) {
        puts("none");
        return;
    }
    printf("%zu bytes, --template prints it; it starts:\n", f->template.len);
    const char *p = f->template.data, *end = p + f->template.len;
    for (int line = 0; line < 3 && p < end; line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        gguf_string s = {p, (size_t)((stop ? stop : end) - p)};
        char shown[100];
        printf("  | %s\n", err_quote(shown, sizeof shown, s.data, s.len));
        p = stop ? stop + 1 : end;
    }
}

static void print_types(const inspect_facts *f) {
    printf("\n%-8s %8s %16s %16s %12s\n", "type", "tensors", "weights", "bytes", "bits/weight");
    for (int i = 0; i < QUANT_TYPE_END; i++) {
        const inspect_type *t = &f->types[i];
        if (t->tensors == 0) continue;
        printf("%-8s %8zu %16" PRIu64 " %16" PRIu64 " %12.2f\n", inspect_type_name(i), t->tensors, t->elements, t->bytes, inspect_bits(t->bytes, t->elements));
    }
}

static void print_tensors(const gguf *g) {
    bool split = gguf_n_parts(g) > 1;
    printf("\n%-40s %-8s %-24s %14s %14s%s\n", "tensor", "type", "shape", "bytes", "offset", split ? "  part" : "");
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        quoted q;
        char shape[100];
        int used = 0;
        for (int d = 0; d < t->n_dims; d++) used += snprintf(shape + used, sizeof shape - (size_t)used, "%s%" PRId64, d ? " x " : "", t->ne[d]);
        printf("%-40s %-8s %-24s %14" PRIu64 " %14" PRIu64, quote(q, t->name), inspect_type_name(t->type), shape, t->n_bytes, t->offset);
        if (split) printf(" %5d", t->part + 1);
        putchar('\n');
    }
}

/* Exactly as it is into a file or pipe; without control characters on a terminal. */
static int print_template(const inspect_facts *f, const char *path) {
    gguf_string s = f->template;
    if (!s.data) return cli_failf("%s: the file has no chat template", path);
    if (!isatty(STDOUT_FILENO)) return fwrite(s.data, 1, s.len, stdout) == s.len ? 0 : cli_failf("the output could not be written");
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bool c1 = c == 0xC2 && i + 1 < s.len && (unsigned char)s.data[i + 1] < 0xA0; /* U+0080 to U+009F steer terminals too */
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || c1) printf("\\x%02X", c);
        else putchar(c);
    }
    putchar('\n');
    return 0;
}

int cmd_inspect(int argc, char **argv) {
    bool tensors = false, json = false, template = false;
    const cli_option table[] = {
        {"--tensors", 0, CLI_FLAG, &tensors, NULL, "list every tensor", 0, 0},
        {"--json", 0, CLI_FLAG, &json, NULL, "everything as one JSON object: facts, all metadata, all tensors", 0, 0},
        {"--template", 0, CLI_FLAG, &template, NULL, "print the chat template and nothing else", 0, 0},
        {0},
    };
    const cli_spec spec = {"hearth inspect FILE [options]",
                           "Shows what a GGUF file holds. Of a split model, give the first part. Only the metadata is read, so large files take no longer.", table,
                           NULL, 1, 1};
    const char *args[1];
    int status;
    if (cli_parse(&spec, argc, argv, args, &status) < 0) return status;
    err e = {0};
    gguf *g = gguf_open(args[0], &e);
    if (!g) return cli_fail(&e);
    inspect_facts f;
    inspect_gather(&f, g);
    if (template) {
        status = print_template(&f, args[0]);
    } else if (json) {
        status = inspect_print_json(g, &f, &e) ? 0 : cli_fail(&e);
    } else {
        status = 0;
        print_file(g, args[0]);
        print_model(g, &f);
        print_shape(&f);
        print_text(g, &f);
        if (gguf_n_tensors(g) > 0) print_types(&f);
        if (tensors) print_tensors(g);
    }
    gguf_close(g);
    if (status == 0 && (fflush(stdout) != 0 || ferror(stdout))) status = cli_failf("the output could not be written");
    return status;
}
