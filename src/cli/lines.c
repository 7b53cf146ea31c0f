#include "cli/lines.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "cli/interrupt.h"

enum { LONGEST_LINE = 16 << 20, MOST_HISTORY = 1000 };

struct lines {
    EditLine *edit; /* NULL: not a terminal */
    History *history;
    char *history_path; /* NULL: not kept */
    const char *prompt;
    char chunk[4096]; /* of other input: what was read, and how much of it was taken */
    size_t taken, filled;
};

static char *prompt_now(EditLine *edit) {
    lines *l = NULL;
    el_get(edit, EL_CLIENTDATA, &l);
    return (char *)l->prompt;
}

/* Like the reader that the library has, but Ctrl-C ends the wait, however early it comes. */
static int read_character(EditLine *edit, wchar_t *out) {
    (void)edit;
    mbstate_t state = {0};
    for (;;) {
        char byte;
        if (!interrupt_wait(STDIN_FILENO)) return -1;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return (int)n;
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used != (size_t)-1 && used != (size_t)-2) return 1;
        if (used == (size_t)-1) state = (mbstate_t){0}; /* not a character: dropped */
    }
}

/* $XDG_STATE_HOME/hearth/history or ~/.local/state/hearth/history; NULL when there is no place for it. */
static char *find_history(void) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    buf path = {0};
    bool ok = state && state[0] == '/' ? buf_addf(&path, NULL, "%s/hearth/", state)
                                       : home && home[0] == '/' && buf_addf(&path, NULL, "%s/.local/state/hearth/", home);
    for (char *p = path.data; ok && (p = strchr(p + 1, '/'));) {
        *p = 0;
        ok = mkdir(path.data, 0700) == 0 || errno == EEXIST || access(path.data, F_OK) == 0;
        *p = '/';
    }
    if (ok && buf_adds(&path, "history", NULL)) return path.data;
    buf_free(&path);
    return NULL;
}

static bool open_editor(lines *l, err *e) {
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    HistEvent event;
    l->edit = el_init("hearth", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->edit || !l->history) return err_nomem(e, sizeof *l);
    history(l->history, &event, H_SETSIZE, MOST_HISTORY);
    history(l->history, &event, H_SETUNIQUE, 1);
    l->history_path = find_history();
    if (l->history_path) history(l->history, &event, H_LOAD, l->history_path);
    el_set(l->edit, EL_CLIENTDATA, l);
    el_set(l->edit, EL_PROMPT, prompt_now);
    el_set(l->edit, EL_EDITOR, "emacs");
    el_set(l->edit, EL_HIST, history, l->history);
    el_set(l->edit, EL_GETCFN, read_character);
    el_set(l->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    return true;
}

lines *lines_open(err *e) {
    lines *l = mem_zalloc(1, sizeof *l, e);
    if (!l || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return l;
    if (open_editor(l, e)) return l;
    lines_close(l);
    return NULL;
}

void lines_close(lines *l) {
    if (!l) return;
    if (l->history) history_end(l->history);
    if (l->edit) el_end(l->edit);
    mem_free(l->history_path);
    mem_free(l);
}

bool lines_terminal(const lines *l) { return l->edit != NULL; }

static lines_result read_edited(lines *l, const char *prompt, buf *out, err *e) {
    int n = 0;
    l->prompt = prompt;
    el_resize(l->edit);
    el_set(l->edit, EL_PREP_TERM, 1); /* before the prompt shows: what is typed from then on is not echoed twice */
    const char *line = el_gets(l->edit, &n);
    if (!line || n <= 0) {
        putchar('\n');
        fflush(stdout);
        return interrupt_pending() ? LINES_INTERRUPTED : LINES_END;
    }
    HistEvent event;
    size_t len = (size_t)n;
    bool blank = strspn(line, " \t\r\n") == len;
    if (!blank) {
        history(l->history, &event, H_ENTER, line);
        /* Written at once, so that it is there however the program ends. */
        if (l->history_path) history(l->history, &event, H_SAVE, l->history_path);
    }
    if (line[len - 1] == '\n') len--;
    return buf_add(out, line, len, e) ? LINES_GOT : LINES_FAILED;
}

/* The next byte of input that is no terminal. */
static lines_result next_byte(lines *l, char *out, err *e) {
    while (l->taken == l->filled) {
        if (!interrupt_wait(STDIN_FILENO)) return LINES_INTERRUPTED;
        ssize_t n = read(STDIN_FILENO, l->chunk, sizeof l->chunk);
        if (n == 0) return LINES_END;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(e, HEARTH_IO, "standard input cannot be read: %s", strerror(errno)), LINES_FAILED;
        l->taken = 0;
        l->filled = (size_t)n;
    }
    *out = l->chunk[l->taken++];
    return LINES_GOT;
}

static lines_result read_plain(lines *l, buf *out, err *e) {
    for (;;) {
        char c = 0;
        lines_result result = next_byte(l, &c, e);
        if (result == LINES_END && out->len) break; /* a last line without an end */
        if (result != LINES_GOT) return result;
        if (c == '\n') break;
        if (out->len >= LONGEST_LINE) return err_set(e, HEARTH_LIMIT, "a line is longer than %d bytes", LONGEST_LINE), LINES_FAILED;
        if (!buf_addc(out, c, e)) return LINES_FAILED;
    }
    if (out->len && out->data[out->len - 1] == '\r') out->len--;
    return buf_add(out, "", 0, e) ? LINES_GOT : LINES_FAILED;
}

lines_result lines_read(lines *l, const char *prompt, buf *out, err *e) {
    out->len = 0;
    return l->edit ? read_edited(l, prompt, out, e) : read_plain(l, out, e);
}
