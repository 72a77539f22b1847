/* line_edit.c: libedit, set up for UTF-8, Ctrl-C, window changes and a history on disk.
 *
 * libedit's own signal handling would send SIGINT to the whole process group. So signals interrupt
 * read_character() here, which tells libedit what happened.
 */
#define _GNU_SOURCE
#include "line_edit.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "cli.h"

/* A key that nobody types (Ctrl-]), bound to drawing the line again. */
enum { HISTORY_LINES = 1000, REDRAW_KEY = 0x1D };

struct line_edit {
    EditLine *editor;
    History *history;
    char path[CLI_PATH_MAX]; /* of the history, "" when it is not kept */
    const char *prompt;
    bool interrupted;
};

static volatile sig_atomic_t window_changed, continued;

static void on_window(int signal_number)
{
    (void)signal_number;
    window_changed = 1;
}

static void on_continue(int signal_number)
{
    (void)signal_number;
    continued = 1;
}

static char *show_prompt(EditLine *editor)
{
    line_edit *edit;
    el_get(editor, EL_CLIENTDATA, &edit);
    return (char *)(uintptr_t)edit->prompt;
}

/* A signal arrived while a character was awaited. True: the line must be drawn again. */
static bool after_signal(line_edit *edit)
{
    bool redraw = window_changed || continued;
    if (window_changed)
        el_resize(edit->editor);
    if (continued) { /* after Ctrl-Z the terminal is as the shell left it */
        el_set(edit->editor, EL_PREP_TERM, 0); /* else it believes that nothing changed */
        el_set(edit->editor, EL_PREP_TERM, 1);
    }
    window_changed = continued = 0;
    edit->interrupted = cli_interrupts() > 0;
    return redraw;
}

static int read_character(EditLine *editor, wchar_t *out)
{
    line_edit *edit;
    el_get(editor, EL_CLIENTDATA, &edit);
    mbstate_t state = {0};
    for (;;) {
        char byte;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR) {
            bool redraw = after_signal(edit);
            if (edit->interrupted)
                return -1;
            if (!redraw)
                continue;
            *out = REDRAW_KEY;
            return 1;
        }
        if (n <= 0)
            return (int)n;
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-2)
            continue; /* more bytes of the same character */
        if (used != (size_t)-1)
            return 1;
        state = (mbstate_t){0}; /* a byte that no character has: ignored */
    }
}

/* ---- the history ---- */

static void find_history(char out[CLI_PATH_MAX])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (state && *state == '/')
        n = snprintf(out, CLI_PATH_MAX, "%s/brim/history", state);
    else if (home && *home == '/')
        n = snprintf(out, CLI_PATH_MAX, "%s/.local/state/brim/history", home);
    if (n < 0 || n >= CLI_PATH_MAX || !cli_make_folders(out))
        out[0] = 0;
}

void line_edit_remember(line_edit *edit, const char *line)
{
    HistEvent event;
    history(edit->history, &event, H_ENTER, line);
    if (!edit->path[0])
        return;
    mode_t mask = umask(077); /* what is asked is nobody else's business */
    history(edit->history, &event, H_SAVE, edit->path);
    umask(mask);
}

/* ---- the editor ---- */

/* Keys that terminals send and libedit has not bound. */
static void bind_keys(EditLine *editor)
{
    static const char *const keys[][2] = {
        {"\033[3~", "ed-delete-next-char"},
        {"\033[H", "ed-move-to-beg"},
        {"\033[F", "ed-move-to-end"},
        {"\033[1~", "ed-move-to-beg"},
        {"\033[4~", "ed-move-to-end"},
        {"\033[1;5C", "em-next-word"},
        {"\033[1;5D", "ed-prev-word"},
        {"^R", "em-inc-search-prev"},
        {"^]", "ed-redisplay"},
    };
    for (size_t i = 0; i < CLI_COUNT(keys); i++)
        el_set(editor, EL_BIND, keys[i][0], keys[i][1], NULL);
}

static void set_locale(void)
{
    /* Editing needs to know what a character is; only the kind of characters is taken from the
     * environment, numbers stay as in C. */
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX < 4)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static void catch_signals(void)
{
    struct sigaction window = {.sa_handler = on_window}, resumed = {.sa_handler = on_continue};
    sigemptyset(&window.sa_mask);
    sigemptyset(&resumed.sa_mask);
    sigaction(SIGWINCH, &window, NULL);
    sigaction(SIGCONT, &resumed, NULL);
}

line_edit *line_edit_open(void)
{
    set_locale();
    line_edit *edit = calloc(1, sizeof *edit);
    if (!edit)
        return NULL;
    edit->editor = el_init("brim", stdin, stdout, stderr);
    edit->history = history_init();
    if (!edit->editor || !edit->history) {
        line_edit_close(edit);
        return NULL;
    }
    HistEvent event;
    history(edit->history, &event, H_SETSIZE, HISTORY_LINES);
    history(edit->history, &event, H_SETUNIQUE, 1);
    find_history(edit->path);
    if (edit->path[0])
        history(edit->history, &event, H_LOAD, edit->path);
    el_set(edit->editor, EL_CLIENTDATA, edit);
    el_set(edit->editor, EL_PROMPT_ESC, show_prompt, '\1');
    el_set(edit->editor, EL_EDITOR, "emacs");
    el_set(edit->editor, EL_HIST, history, edit->history);
    el_set(edit->editor, EL_GETCFN, read_character);
    bind_keys(edit->editor);
    el_source(edit->editor, NULL);
    catch_signals();
    return edit;
}

line_result line_edit_read(line_edit *edit, const char *prompt, const char **out, size_t *out_size)
{
    int count = 0;
    edit->prompt = prompt;
    edit->interrupted = false;
    const char *line = el_gets(edit->editor, &count);
    if (edit->interrupted) {
        const LineInfo *typed = el_line(edit->editor);
        *out = "";
        *out_size = typed ? (size_t)(typed->lastchar - typed->buffer) : 0;
        el_reset(edit->editor);
        el_set(edit->editor, EL_PREP_TERM, 0);
        putchar('\n');
        return LINE_INTERRUPT;
    }
    if (!line || count <= 0) {
        putchar('\n');
        return LINE_END;
    }
    while (count > 0 && (line[count - 1] == '\n' || line[count - 1] == '\r'))
        count--;
    *out = line;
    *out_size = (size_t)count;
    return LINE_TEXT;
}

void line_edit_close(line_edit *edit)
{
    if (!edit)
        return;
    if (edit->history)
        history_end(edit->history);
    if (edit->editor)
        el_end(edit->editor);
    free(edit);
}
