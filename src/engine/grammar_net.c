#include "engine/grammar_net.h"

#include <stdlib.h>
#include <string.h>

typedef struct compiler {
    grammar_net *net;
    const grammar_build *b;
    err *e;
} compiler;

static bool add_node(compiler *c, uint32_t *node) {
    grammar_net *net = c->net;
    if (net->n_nodes >= GRAMMAR_MAX_SIZE)
        return err_set(c->e, HEARTH_LIMIT, "the grammar is too large: it has more than %d places", GRAMMAR_MAX_SIZE);
    if (!grammar_grow(&net->flags, &net->cap_flags, net->n_nodes, sizeof *net->flags, c->e)) return false;
    net->flags[net->n_nodes] = 0;
    *node = (uint32_t)net->n_nodes++;
    return true;
}

static bool add_edge(compiler *c, grammar_edge edge) {
    grammar_net *net = c->net;
    if (net->n_edges >= 4 * GRAMMAR_MAX_SIZE)
        return err_set(c->e, HEARTH_LIMIT, "the grammar is too large: it has more than %d steps", 4 * GRAMMAR_MAX_SIZE);
    if (!grammar_grow(&net->edges, &net->cap_edges, net->n_edges, sizeof *net->edges, c->e)) return false;
    net->edges[net->n_edges++] = edge;
    return true;
}

static bool add_byte(compiler *c, uint32_t from, uint32_t target, unsigned lo, unsigned hi) {
    return add_edge(c, (grammar_edge){.from = from, .target = target, .kind = EDGE_BYTE, .lo = (uint8_t)lo, .hi = (uint8_t)hi});
}
static bool add_free(compiler *c, uint32_t from, uint32_t target) {
    return add_edge(c, (grammar_edge){.from = from, .target = target, .kind = EDGE_FREE});
}

/* ---- characters to bytes ---- */

/* One set of characters between two nodes. tails[k], once made, reads k more continuation bytes of any value. */
typedef struct char_set {
    uint32_t from, to, tails[4];
} char_set;

static bool tail(compiler *c, char_set *s, int k, uint32_t *node) {
    if (k == 0) return *node = s->to, true;
    if (!s->tails[k]) {
        uint32_t rest = 0, made = 0;
        if (!tail(c, s, k - 1, &rest) || !add_node(c, &made) || !add_byte(c, made, rest, 0x80, 0xBF)) return false;
        s->tails[k] = made;
    }
    return *node = s->tails[k], true;
}

/* lo to hi where each byte of the encoding runs on its own from lo's to hi's. */
static bool add_even_range(compiler *c, char_set *s, uint32_t lo, uint32_t hi) {
    char low[4], high[4];
    uint8_t a[4], z[4];
    int n = (int)grammar_encode(lo, low), i = 0;
    grammar_encode(hi, high);
    memcpy(a, low, 4);
    memcpy(z, high, 4);
    uint32_t at = s->from, next = 0;
    for (; i < n; i++) {
        int left = n - 1 - i;
        bool rest_is_any = true;
        for (int k = i + 1; k < n; k++) rest_is_any = rest_is_any && a[k] == 0x80 && z[k] == 0xBF;
        if (rest_is_any) return tail(c, s, left, &next) && add_byte(c, at, next, a[i], z[i]);
        if (!add_node(c, &next) || !add_byte(c, at, next, a[i], z[i])) return false;
        at = next;
    }
    return true;
}

static bool add_char_range(compiler *c, char_set *s, uint32_t lo, uint32_t hi) {
    static const uint32_t last[] = {0x7F, 0x7FF, 0xFFFF};
    for (int i = 0; i < 3; i++)
        if (lo <= last[i] && hi > last[i]) return add_char_range(c, s, lo, last[i]) && add_char_range(c, s, last[i] + 1, hi);
    for (int i = 1; i < 4 && hi >= 0x80; i++) {
        uint32_t low = (1u << (6 * i)) - 1;
        if ((lo & ~low) == (hi & ~low)) continue;
        if ((lo & low) != 0) return add_char_range(c, s, lo, lo | low) && add_char_range(c, s, (lo | low) + 1, hi);
        if ((hi & low) != low) return add_char_range(c, s, lo, (hi & ~low) - 1) && add_char_range(c, s, hi & ~low, hi);
    }
    return add_even_range(c, s, lo, hi);
}

/* ---- expressions ---- */

/* Every function here adds ways from one node to another, and neither edges into from nor edges out of to: alternatives may share both. */
static bool compile(compiler *c, uint32_t expr, uint32_t from, uint32_t to);

static bool compile_bytes(compiler *c, const grammar_node_expr *x, uint32_t from, uint32_t to) {
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t next = to;
        unsigned byte = c->b->bytes[x->at + i];
        if (i + 1 < x->n && !add_node(c, &next)) return false;
        if (!add_byte(c, from, next, byte, byte)) return false;
        from = next;
    }
    return true;
}

/* ---- choices ---- */

typedef struct literal {
    const unsigned char *bytes;
    uint32_t n;
} literal;

static int by_bytes(const void *a, const void *b) {
    const literal *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    return order ? order : x->n < y->n ? -1 : x->n > y->n;
}

/* Texts that begin alike share what they have in common, but for the last byte of each: a long list of words is then one walk. */
static bool compile_literals(compiler *c, literal *list, size_t n, uint32_t longest, uint32_t from, uint32_t to) {
    uint32_t *path = mem_alloc((size_t)longest + 1, sizeof *path, c->e); /* path[k]: after k bytes of the text before */
    bool ok = path != NULL;
    qsort(list, n, sizeof *list, by_bytes);
    for (size_t i = 0; ok && i < n; i++) {
        const literal *x = &list[i], *before = i ? &list[i - 1] : &(const literal){0};
        if (i && by_bytes(x, before) == 0) continue;
        uint32_t k = 0;
        while (k + 1 < x->n && k + 1 < before->n && x->bytes[k] == before->bytes[k]) k++;
        path[0] = from;
        for (; ok && k < x->n; k++) {
            path[k + 1] = to;
            ok = (k + 1 == x->n || add_node(c, &path[k + 1])) && add_byte(c, path[k], path[k + 1], x->bytes[k], x->bytes[k]);
        }
    }
    mem_free(path);
    return ok;
}

static bool compile_alt(compiler *c, const grammar_node_expr *x, uint32_t from, uint32_t to) {
    literal *list = mem_alloc(x->n, sizeof *list, c->e);
    size_t n = 0;
    uint32_t longest = 0;
    bool ok = list != NULL;
    for (uint32_t i = 0; ok && i < x->n; i++) {
        uint32_t part = c->b->parts[x->at + i];
        const grammar_node_expr *p = &c->b->exprs[part];
        if (part && p->kind == GRAMMAR_BYTES) {
            list[n++] = (literal){c->b->bytes + p->at, p->n};
            if (p->n > longest) longest = p->n;
        } else ok = compile(c, part, from, to);
    }
    ok = ok && compile_literals(c, list, n, longest, from, to);
    mem_free(list);
    return ok;
}

static bool compile_seq(compiler *c, const grammar_node_expr *x, uint32_t from, uint32_t to) {
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t next = to;
        if (i + 1 < x->n && !add_node(c, &next)) return false;
        if (!compile(c, c->b->parts[x->at + i], from, next)) return false;
        from = next;
    }
    return true;
}

/* The body of a counted repetition is a fragment of its own, whose frame counts. */
static bool compile_loop(compiler *c, const grammar_node_expr *x, uint32_t from, uint32_t to) {
    grammar_net *net = c->net;
    uint32_t start = 0, last = 0, callee = (uint32_t)net->n_fragments;
    if (!grammar_grow(&net->fragments, &net->cap_fragments, net->n_fragments, sizeof *net->fragments, c->e)) return false;
    if (!add_node(c, &start) || !add_node(c, &last)) return false;
    net->flags[last] |= NODE_LAST;
    net->fragments[net->n_fragments++] = (grammar_fragment){.start = start, .min = x->min, .max = x->max, .next = to};
    return add_edge(c, (grammar_edge){.from = from, .target = to, .callee = callee, .kind = EDGE_LOOP}) && compile(c, x->at, start, last);
}

static bool compile_repeat(compiler *c, const grammar_node_expr *x, uint32_t from, uint32_t to) {
    uint32_t first = 0, last;
    if (x->min == 0 && x->max == 1) return add_free(c, from, to) && compile(c, x->at, from, to);
    if (x->min > 1 || x->max < GRAMMAR_MANY) return compile_loop(c, x, from, to);
    if (!add_node(c, &first)) return false;
    last = first;
    if (x->min == 1 && (!add_node(c, &last) || !add_free(c, last, first))) return false;
    return add_free(c, from, first) && compile(c, x->at, first, last) && add_free(c, last, to);
}

static bool compile(compiler *c, uint32_t expr, uint32_t from, uint32_t to) {
    const grammar_node_expr *x = expr ? &c->b->exprs[expr] : &(const grammar_node_expr){.kind = GRAMMAR_EMPTY};
    char_set set = {.from = from, .to = to};
    switch ((grammar_expr_kind)x->kind) {
    case GRAMMAR_EMPTY:
        return add_free(c, from, to);
    case GRAMMAR_NEVER:
        return true;
    case GRAMMAR_BYTES:
        return compile_bytes(c, x, from, to);
    case GRAMMAR_CHARS:
        for (uint32_t i = 0; i < x->n; i++)
            if (!add_char_range(c, &set, c->b->ranges[x->at + i].lo, c->b->ranges[x->at + i].hi)) return false;
        return true;
    case GRAMMAR_SEQ:
        return compile_seq(c, x, from, to);
    case GRAMMAR_ALT:
        return compile_alt(c, x, from, to);
    case GRAMMAR_REPEAT:
        return compile_repeat(c, x, from, to);
    case GRAMMAR_RULE:
        return add_edge(c, (grammar_edge){.from = from, .target = to, .callee = x->at, .kind = EDGE_CALL});
    }
    return true;
}

static bool compile_fragment(compiler *c, uint32_t fragment, uint32_t expr) {
    uint32_t start = 0, last = 0;
    if (!add_node(c, &start) || !add_node(c, &last)) return false;
    c->net->flags[last] |= NODE_LAST;
    c->net->fragments[fragment].start = start;
    return compile(c, expr, start, last);
}

static bool compile_all(compiler *c, uint32_t root) {
    grammar_net *net = c->net;
    const size_t n_rules = c->b->n_rules + 1; /* the last one is the whole text */
    for (size_t i = 0; i < n_rules; i++) {
        if (!grammar_grow(&net->fragments, &net->cap_fragments, i, sizeof *net->fragments, c->e)) return false;
        net->fragments[i] = (grammar_fragment){0};
        net->n_fragments++;
    }
    net->n_rules = n_rules;
    for (size_t i = 0; i + 1 < n_rules; i++) {
        const grammar_rule *r = &c->b->rules[i];
        if (!r->defined) return err_set(c->e, HEARTH_ARGUMENT, "the grammar uses the rule '%s' but does not define it", r->name);
        if (!compile_fragment(c, (uint32_t)i, r->expr)) return false;
    }
    if (!compile_fragment(c, (uint32_t)n_rules - 1, root)) return false;
    net->root = net->fragments[n_rules - 1].start;
    return true;
}

static int by_from(const void *a, const void *b) {
    const grammar_edge *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return x->kind - y->kind;
}

/* Orders the edges, so that each node's are together. */
static bool index_edges(grammar_net *net, err *e) {
    mem_free(net->first);
    net->first = mem_zalloc(net->n_nodes + 1, sizeof *net->first, e);
    if (!net->first) return false;
    if (net->n_edges) qsort(net->edges, net->n_edges, sizeof *net->edges, by_from);
    for (size_t i = 0; i < net->n_edges; i++) net->first[net->edges[i].from + 1]++;
    for (size_t i = 0; i < net->n_nodes; i++) {
        net->first[i + 1] += net->first[i];
        net->flags[i] &= NODE_LAST;
        for (size_t k = net->first[i]; k < net->first[i + 1]; k++)
            net->flags[i] |= net->edges[k].kind == EDGE_BYTE ? NODE_BYTES : NODE_MOVES;
    }
    return true;
}

/* ---- what can end ---- */

/* Edges by a node that they wait for. */
typedef struct waiting {
    uint32_t *first, *edges;
} waiting;

static uint32_t edge_waits_for(const grammar_net *net, const grammar_edge *x, int which) {
    return which == 0 ? x->target : net->fragments[x->callee].start;
}

static bool index_waiting(const grammar_net *net, waiting *w, err *e) {
    w->first = mem_zalloc(net->n_nodes + 2, sizeof *w->first, e);
    w->edges = mem_alloc(2 * net->n_edges, sizeof *w->edges, e);
    if (!w->first || !w->edges) return false;
    for (size_t i = 0; i < net->n_edges; i++)
        for (int k = 0; k < (net->edges[i].kind >= EDGE_CALL ? 2 : 1); k++) w->first[edge_waits_for(net, &net->edges[i], k) + 2]++;
    for (size_t i = 0; i < net->n_nodes; i++) w->first[i + 2] += w->first[i + 1];
    for (size_t i = 0; i < net->n_edges; i++)
        for (int k = 0; k < (net->edges[i].kind >= EDGE_CALL ? 2 : 1); k++)
            w->edges[w->first[edge_waits_for(net, &net->edges[i], k) + 1]++] = (uint32_t)i;
    return true;
}

static bool edge_ends(const grammar_net *net, const grammar_edge *x, const bool *ends, bool empty) {
    if (!ends[x->target] || (empty && x->kind == EDGE_BYTE)) return false;
    if (x->kind < EDGE_CALL) return true;
    const grammar_fragment *f = &net->fragments[x->callee];
    return (x->kind == EDGE_LOOP && f->min == 0) || ends[f->start];
}

/* ends[n]: the end of its fragment can be reached from node n; with empty, without a byte. */
static bool find_ends(const grammar_net *net, bool empty, bool *ends, err *e) {
    waiting w = {0};
    uint32_t *todo = mem_alloc(net->n_nodes, sizeof *todo, e);
    size_t n = 0;
    bool ok = todo && index_waiting(net, &w, e);
    for (size_t i = 0; ok && i < net->n_nodes; i++) {
        ends[i] = (net->flags[i] & NODE_LAST) != 0;
        if (ends[i]) todo[n++] = (uint32_t)i;
    }
    while (ok && n > 0) {
        uint32_t node = todo[--n];
        for (uint32_t i = w.first[node]; i < w.first[node + 1]; i++) {
            const grammar_edge *x = &net->edges[w.edges[i]];
            if (ends[x->from] || !edge_ends(net, x, ends, empty)) continue;
            ends[x->from] = true;
            todo[n++] = x->from;
        }
    }
    mem_free(todo);
    mem_free(w.first);
    mem_free(w.edges);
    return ok;
}

/* Leaves out the edges that lead nowhere. */
static bool prune(grammar_net *net, const bool *ends, err *e) {
    size_t kept = 0;
    for (size_t i = 0; i < net->n_edges; i++) {
        grammar_edge x = net->edges[i];
        if (!edge_ends(net, &x, ends, false)) continue;
        /* A loop that need not be entered, and from which nothing returns, is a way past it. */
        if (x.kind == EDGE_LOOP && !ends[net->fragments[x.callee].start]) x.kind = EDGE_FREE;
        net->edges[kept++] = x;
    }
    net->n_edges = kept;
    return index_edges(net, e);
}

/* ---- what begins with itself ---- */

/* Calls that fragments make before they have read a byte. */
typedef struct first_calls {
    uint32_t *first, *callees;
    size_t n, cap;
} first_calls;

static bool find_first_calls(const grammar_net *net, first_calls *f, err *e) {
    bool *seen = mem_zalloc(net->n_nodes, sizeof *seen, e);
    uint32_t *todo = mem_alloc(net->n_nodes, sizeof *todo, e);
    f->first = mem_zalloc(net->n_fragments + 1, sizeof *f->first, e);
    bool ok = seen && todo && f->first;
    for (size_t i = 0; ok && i < net->n_fragments; i++) {
        size_t n = 0;
        todo[n++] = net->fragments[i].start;
        while (ok && n > 0) {
            uint32_t node = todo[--n];
            for (uint32_t k = net->first[node]; ok && k < net->first[node + 1]; k++) {
                const grammar_edge *x = &net->edges[k];
                if (x->kind == EDGE_BYTE) continue;
                bool passes = x->kind == EDGE_FREE || net->fragments[x->callee].nullable ||
                              (x->kind == EDGE_LOOP && net->fragments[x->callee].min == 0);
                if (passes && !seen[x->target]) seen[x->target] = true, todo[n++] = x->target;
                if (x->kind == EDGE_FREE) continue;
                ok = grammar_grow(&f->callees, &f->cap, f->n, sizeof *f->callees, e);
                if (ok) f->callees[f->n++] = x->callee;
            }
        }
        f->first[i + 1] = (uint32_t)f->n;
    }
    mem_free(seen);
    mem_free(todo);
    return ok;
}

/* Follows those calls depth first; coming back to a fragment that is still open means it begins with itself. */
static bool refuse_left_recursion(const grammar_net *net, const grammar_build *b, const first_calls *f, err *e) {
    enum { NEW, OPEN, CLOSED };
    uint8_t *color = mem_zalloc(net->n_fragments, 1, e);
    uint32_t *stack = mem_alloc(net->n_fragments, sizeof *stack, e), *next = mem_alloc(net->n_fragments, sizeof *next, e);
    bool ok = color && stack && next;
    for (size_t i = 0; ok && i < net->n_fragments; i++) {
        if (color[i] != NEW) continue;
        size_t n = 0;
        stack[n++] = (uint32_t)i;
        color[i] = OPEN;
        next[i] = f->first[i];
        while (ok && n > 0) {
            uint32_t at = stack[n - 1];
            if (next[at] == f->first[at + 1]) {
                color[at] = CLOSED;
                n--;
                continue;
            }
            uint32_t callee = f->callees[next[at]++];
            if (color[callee] == NEW) {
                color[callee] = OPEN;
                next[callee] = f->first[callee];
                stack[n++] = callee;
            } else if (color[callee] == OPEN) {
                while (callee >= b->n_rules && n > 0) callee = stack[--n]; /* name a rule rather than a repetition inside it */
                ok =
                    err_set(e, HEARTH_ARGUMENT, "the rule '%s' begins with itself; let it begin with something else and repeat with * or +",
                            callee < b->n_rules ? b->rules[callee].name : "root");
            }
        }
    }
    mem_free(color);
    mem_free(stack);
    mem_free(next);
    return ok;
}

static bool check_recursion(grammar_net *net, const grammar_build *b, err *e) {
    bool *empty = mem_alloc(net->n_nodes, sizeof *empty, e);
    first_calls f = {0};
    bool ok = empty && find_ends(net, true, empty, e);
    for (size_t i = 0; ok && i < net->n_fragments; i++) net->fragments[i].nullable = empty[net->fragments[i].start];
    ok = ok && find_first_calls(net, &f, e) && refuse_left_recursion(net, b, &f, e);
    mem_free(empty);
    mem_free(f.first);
    mem_free(f.callees);
    return ok;
}

/* ---- classes of bytes ---- */

static void find_classes(grammar_net *net) {
    bool border[257] = {true};
    for (size_t i = 0; i < net->n_edges; i++)
        if (net->edges[i].kind == EDGE_BYTE) border[net->edges[i].lo] = border[net->edges[i].hi + 1] = true;
    for (int byte = 0; byte < 256; byte++) {
        if (border[byte]) net->byte_of[net->n_classes++] = (uint8_t)byte;
        net->class_of[byte] = (uint8_t)(net->n_classes - 1);
    }
}

bool grammar_net_make(grammar_net *net, const grammar_build *b, uint32_t root, err *e) {
    *net = (grammar_net){0};
    compiler c = {.net = net, .b = b, .e = e};
    bool *ends = NULL;
    bool ok =
        compile_all(&c, root) && index_edges(net, e) && (ends = mem_alloc(net->n_nodes, sizeof *ends, e)) && find_ends(net, false, ends, e);
    if (ok && !ends[net->root])
        ok = err_set(e, HEARTH_ARGUMENT, "the grammar matches no text at all: every way through it goes on for ever or is impossible");
    ok = ok && prune(net, ends, e) && check_recursion(net, b, e);
    mem_free(ends);
    if (ok) find_classes(net);
    else grammar_net_free(net);
    return ok;
}

void grammar_net_free(grammar_net *net) {
    mem_free(net->edges);
    mem_free(net->first);
    mem_free(net->flags);
    mem_free(net->fragments);
    *net = (grammar_net){0};
}
