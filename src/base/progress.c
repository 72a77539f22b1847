/* progress.c: the progress bar. It writes to stderr alone, and only when that is a terminal. */
#include "brim/console.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/thread.h"

enum { BAR_CELLS = 24, DRAW_EVERY_NS = 100000000, COLUMNS_DEFAULT = 80 };

void brim_progress_start(brim_progress *progress, const char *what, uint64_t total,
                         const char *unit)
{
    const char *term = getenv("TERM");
    bool dumb = !term || strcmp(term, "dumb") == 0;
    *progress = (brim_progress){.what = what,
                                .unit = unit,
                                .total = total,
                                .started_ns = brim__now_ns(),
                                .active = !dumb && isatty(STDERR_FILENO)};
}

static size_t terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return COLUMNS_DEFAULT;
    return size.ws_col;
}

static void write_amount(char *out, size_t size, double amount, const char *unit)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    if (strcmp(unit, "B") != 0) {
        snprintf(out, size, "%.0f %s", amount, unit);
        return;
    }
    size_t i = 0;
    while (amount >= 1024 && i + 1 < sizeof names / sizeof *names) {
        amount /= 1024;
        i++;
    }
    snprintf(out, size, i ? "%.1f %s" : "%.0f %s", amount, names[i]);
}

static void write_bar(char *out, size_t size, const brim_progress *progress, uint64_t done)
{
    if (progress->total == 0) {
        out[0] = 0;
        return;
    }
    double part = (double)done / (double)progress->total;
    part = part > 1 ? 1 : part;
    char cells[BAR_CELLS + 1];
    memset(cells, '.', BAR_CELLS);
    memset(cells, '#', (size_t)(part * BAR_CELLS));
    cells[BAR_CELLS] = 0;
    snprintf(out, size, "[%s] %3.0f %%  ", cells, part * 100);
}

static void draw(const brim_progress *progress, uint64_t done)
{
    char line[256], bar[64], amount[48], rate[48];
    double seconds = (double)(progress->drawn_ns - progress->started_ns) * 1e-9;
    write_bar(bar, sizeof bar, progress, done);
    write_amount(amount, sizeof amount, (double)done, progress->unit);
    double made = (double)(done - progress->first);
    write_amount(rate, sizeof rate, seconds > 0 ? made / seconds : 0, progress->unit);
    int n = snprintf(line, sizeof line, "%s  %s%s  %s/s", progress->what, bar, amount, rate);
    if (progress->total > done && made > 0 && n > 0 && (size_t)n < sizeof line)
        snprintf(line + n, sizeof line - (size_t)n, "  %.0f s left",
                 seconds / made * (double)(progress->total - done));
    /* One column is left free: a full line would wrap and scroll. */
    fprintf(stderr, "\r%.*s\033[K", (int)terminal_columns() - 1, line);
    fflush(stderr);
}

void brim_progress_update(brim_progress *progress, uint64_t done)
{
    if (!progress->active)
        return;
    if (!progress->seen) {
        progress->first = done;
        progress->seen = true;
    }
    uint64_t now = brim__now_ns();
    if (progress->drawn_ns && now - progress->drawn_ns < DRAW_EVERY_NS)
        return;
    progress->drawn_ns = now;
    draw(progress, done);
}

void brim_progress_finish(brim_progress *progress)
{
    if (progress->active && progress->drawn_ns) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress->active = false;
}
