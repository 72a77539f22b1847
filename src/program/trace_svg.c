/* trace_svg.c: draws a timeline: a row a lane, coloured by op, waits grey, a time axis, a legend
 * with what each op took. Hovering names the instruction. A picture holds some thousands of
 * shapes: older epochs are left out (said in the picture), and neighbours too narrow to be told
 * apart are drawn as one. */
#include "program/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 1200,
    LEFT = 64,
    RIGHT = 24,
    TOP = 64,
    ROW = 26,
    BAR = 20,
    EVENTS_SHOWN_MAX = 6000,
    COLORS = 12,
    LEGEND_COLUMN = 190,
};
static const double narrow_px = 0.6; /* shapes below this cannot be told apart */
static const double letter_px = 6.2;

/* Told apart by people with the common forms of colour blindness as far as twelve can be; the
 * commonest op gets the first. */
static const char *const colors[COLORS] = {"#4477aa", "#ee8866", "#44aa77", "#ddaa33",
                                           "#aa6699", "#77ccdd", "#bb4455", "#99bb44",
                                           "#8877cc", "#cc9977", "#557788", "#eeaacc"};

typedef struct op_total {
    uint32_t op;
    uint64_t ns;
    size_t count;
} op_total;

typedef struct view {
    brim__string *out;
    const brim_program *p;
    brim_trace_event *events; /* a copy, by lane and time */
    size_t count;
    uint64_t first_ns, last_ns, first_epoch, last_epoch, epochs_left_out;
    double px_per_ns;
    op_total *ops; /* by time, descending */
    size_t op_count;
    uint64_t busy_ns, wait_ns;
    uint32_t flags; /* all that occur */
} view;

#define PUT(...) BRIM_TRY(brim__string_format(v->out, __VA_ARGS__))

static const char *op_name(const view *v, uint32_t op)
{
    return brim_op_get(v->p->ops, op)->name;
}

static uint32_t op_of(const view *v, const brim_trace_event *e)
{
    return v->p->instructions[e->instruction].op;
}

static const char *color_of(const view *v, uint32_t op)
{
    for (size_t i = 0; i < v->op_count; i++)
        if (v->ops[i].op == op)
            return colors[i % COLORS];
    return colors[0];
}

static double x_of(const view *v, uint64_t ns)
{
    return LEFT + (double)(ns - v->first_ns) * v->px_per_ns;
}

/* ---- what to show ---- */

static int compare_events(const void *a, const void *b)
{
    const brim_trace_event *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    return (x->taken_ns > y->taken_ns) - (x->taken_ns < y->taken_ns);
}

static int compare_epochs(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The last epochs that fit, and always the last one. */
static brim_status choose_epochs(view *v, const brim_trace_event *events, size_t count)
{
    uint64_t *epochs;
    BRIM_ALLOC(v->out->ctx, epochs, (count + 1) * sizeof *epochs);
    for (size_t i = 0; i < count; i++)
        epochs[i] = events[i].epoch;
    if (count)
        qsort(epochs, count, sizeof *epochs, compare_epochs);
    v->last_epoch = count ? epochs[count - 1] : 0;
    v->first_epoch = count ? epochs[0] : 0;
    uint64_t oldest = v->first_epoch;
    /* The rings of busy lanes have lost the beginning of the oldest epoch: it is cut off too. */
    if (count > EVENTS_SHOWN_MAX) {
        uint64_t cut = epochs[count - EVENTS_SHOWN_MAX];
        v->first_epoch = cut < v->last_epoch ? cut + 1 : v->last_epoch;
    }
    v->epochs_left_out = v->first_epoch - oldest;
    brim__free(v->out->ctx, epochs);
    return BRIM_OK;
}

static void take_events(view *v, const brim_trace_event *events, size_t count)
{
    v->first_ns = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (events[i].epoch < v->first_epoch)
            continue;
        const brim_trace_event *e = &events[i];
        v->events[v->count++] = *e;
        v->first_ns = e->taken_ns < v->first_ns ? e->taken_ns : v->first_ns;
        v->last_ns = e->ended_ns > v->last_ns ? e->ended_ns : v->last_ns;
        v->busy_ns += e->ended_ns - e->started_ns;
        v->wait_ns += e->started_ns - e->taken_ns;
        v->flags |= e->flags;
    }
    if (v->count)
        qsort(v->events, v->count, sizeof *v->events, compare_events);
    else
        v->first_ns = 0;
    uint64_t span = v->last_ns > v->first_ns ? v->last_ns - v->first_ns : 1;
    v->px_per_ns = (double)(WIDTH - LEFT - RIGHT) / (double)span;
}

static int compare_totals(const void *a, const void *b)
{
    const op_total *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns > y->ns ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

static brim_status total_ops(view *v)
{
    size_t capacity = 0;
    for (size_t i = 0; i < v->count; i++) {
        uint32_t op = op_of(v, &v->events[i]);
        size_t k = 0;
        while (k < v->op_count && v->ops[k].op != op)
            k++;
        if (k == v->op_count) {
            BRIM_TRY(BRIM_GROW(v->out->ctx, v->ops, capacity, v->op_count + 1));
            v->ops[v->op_count++] = (op_total){.op = op};
        }
        v->ops[k].ns += v->events[i].ended_ns - v->events[i].started_ns;
        v->ops[k].count++;
    }
    if (v->op_count)
        qsort(v->ops, v->op_count, sizeof *v->ops, compare_totals);
    return BRIM_OK;
}

/* ---- drawing ---- */

/* "12.3 us" and the like. */
static brim_status put_time(view *v, double ns)
{
    double abs_ns = fabs(ns);
    if (abs_ns < 1e3)
        PUT("%.0f ns", ns);
    else if (abs_ns < 1e6)
        PUT("%.3g µs", ns / 1e3);
    else if (abs_ns < 1e9)
        PUT("%.4g ms", ns / 1e6);
    else
        PUT("%.4g s", ns / 1e9);
    return BRIM_OK;
}

static double plot_bottom(const view *v)
{
    return TOP + (double)v->p->lane_count * ROW;
}

static double legend_top(const view *v)
{
    return plot_bottom(v) + 44;
}

static size_t legend_columns(void)
{
    return (WIDTH - LEFT - RIGHT) / LEGEND_COLUMN;
}

static size_t legend_entries(const view *v)
{
    return v->op_count + 1 + (v->flags & 1) + (v->flags >> 1 & 1) + (v->flags >> 2 & 1);
}

static brim_status put_head(view *v, const char *title)
{
    size_t lines = (legend_entries(v) + legend_columns() - 1) / legend_columns();
    double height = legend_top(v) + 22.0 * (double)lines + 8;
    PUT("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d "
        "%.0f\" "
        "font-family=\"Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif\" font-size=\"11\">\n"
        "<rect width=\"%d\" height=\"%.0f\" fill=\"#ffffff\"/>\n"
        "<text x=\"%d\" y=\"26\" font-size=\"16\" font-weight=\"600\" fill=\"#1b2733\">",
        WIDTH, height, WIDTH, height, WIDTH, height, LEFT);
    BRIM_TRY(brim__trace_put_text(v->out, title, true));
    PUT("</text>\n<text x=\"%d\" y=\"46\" fill=\"#5b6773\">%u lane%s, %zu instructions in ", LEFT,
        v->p->lane_count, v->p->lane_count == 1 ? "" : "s", v->count);
    BRIM_TRY(put_time(v, (double)(v->last_ns - v->first_ns)));
    double lane_ns =
        (double)(v->last_ns > v->first_ns ? v->last_ns - v->first_ns : 1) * v->p->lane_count;
    PUT("; lanes work %.1f %%, wait %.1f %%", 100.0 * (double)v->busy_ns / lane_ns,
        100.0 * (double)v->wait_ns / lane_ns);
    if (v->epochs_left_out)
        PUT("; the last %llu epochs, %llu earlier ones left out",
            (unsigned long long)(v->last_epoch - v->first_epoch + 1),
            (unsigned long long)v->epochs_left_out);
    PUT("</text>\n");
    return BRIM_OK;
}

/* The distance of ticks: 1, 2 or 5 times a power of ten, some ten of them. */
static double tick_ns(const view *v)
{
    double span = (double)(v->last_ns > v->first_ns ? v->last_ns - v->first_ns : 1);
    double power = pow(10, floor(log10(span / 10)));
    double steps = span / 10 / power;
    double tick = power * (steps <= 1 ? 1 : steps <= 2 ? 2 : steps <= 5 ? 5 : 10);
    return tick < 1 ? 1 : tick;
}

static brim_status put_axis(view *v)
{
    double bottom = plot_bottom(v), tick = tick_ns(v);
    double span = (double)(v->last_ns - v->first_ns);
    for (double t = 0; t <= span; t += tick) {
        double x = LEFT + t * v->px_per_ns;
        PUT("<path d=\"M%.1f %d V%.1f\" stroke=\"#e3e8ed\"/>\n<text x=\"%.1f\" y=\"%.1f\" "
            "text-anchor=\"middle\" "
            "fill=\"#5b6773\">",
            x, TOP - 4, bottom + 4, x, bottom + 18);
        BRIM_TRY(put_time(v, t));
        PUT("</text>\n");
    }
    for (uint32_t l = 0; l < v->p->lane_count; l++)
        PUT("<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#1b2733\">lane %u</text>\n",
            LEFT - 10, TOP + l * (double)ROW + BAR * 0.72, l);
    return BRIM_OK;
}

/* A dashed line where an epoch begins (its first instruction is taken). */
static brim_status put_epochs(view *v)
{
    uint64_t epochs = v->last_epoch - v->first_epoch + 1;
    if (v->count == 0 || epochs > 64)
        return BRIM_OK;
    for (uint64_t n = 1; n < epochs; n++) {
        uint64_t begin = UINT64_MAX;
        for (size_t i = 0; i < v->count; i++)
            if (v->events[i].epoch == v->first_epoch + n && v->events[i].started_ns < begin)
                begin = v->events[i].started_ns;
        if (begin == UINT64_MAX)
            continue;
        double x = x_of(v, begin);
        PUT("<path d=\"M%.1f %d V%.1f\" stroke=\"#1b2733\" stroke-opacity=\"0.55\" "
            "stroke-dasharray=\"3 3\"/>\n",
            x, TOP - 8, plot_bottom(v));
        if (epochs <= 24)
            PUT("<text x=\"%.1f\" y=\"%d\" fill=\"#5b6773\" font-size=\"10\">epoch %llu</text>\n",
                x + 3, TOP - 3, (unsigned long long)(v->first_epoch + n));
    }
    return BRIM_OK;
}

static brim_status put_wait(view *v, const brim_trace_event *e)
{
    double x = x_of(v, e->taken_ns), width = x_of(v, e->started_ns) - x;
    if (width < narrow_px)
        return BRIM_OK;
    PUT("<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"#d5dbe1\"><title>lane %u "
        "waits for ",
        x, TOP + (int)e->lane * ROW + 6, width, BAR - 12, e->lane);
    BRIM_TRY(brim__trace_put_text(v->out, op_name(v, op_of(v, e)), true));
    PUT(" (instruction %u): ", e->instruction);
    BRIM_TRY(put_time(v, (double)(e->started_ns - e->taken_ns)));
    PUT("</title></rect>\n");
    return BRIM_OK;
}

static const char *flag_style(uint32_t flags)
{
    return flags & 4   ? " fill-opacity=\"0.35\" stroke=\"#bb2233\" stroke-dasharray=\"2 2\""
           : flags & 2 ? " stroke=\"#bb2233\""
           : flags & 1 ? " stroke=\"#1b2733\""
                       : "";
}

/* Events [first, end) of one lane and op, drawn as one. */
static brim_status put_bar(view *v, size_t first, size_t end)
{
    const brim_trace_event *e = &v->events[first], *last = &v->events[end - 1];
    uint32_t op = op_of(v, e);
    double x = x_of(v, e->started_ns), width = x_of(v, last->ended_ns) - x;
    const char *name = op_name(v, op);
    PUT("<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"%s><title>", x,
        TOP + (int)e->lane * ROW, width < narrow_px ? narrow_px : width, BAR, color_of(v, op),
        end - first == 1 ? flag_style(e->flags) : "");
    BRIM_TRY(brim__trace_put_text(v->out, name, true));
    if (end - first == 1)
        PUT(" (instruction %u), epoch %llu, lane %u%s%s%s: ", e->instruction,
            (unsigned long long)e->epoch, e->lane, e->flags & 1 ? ", done for another lane" : "",
            e->flags & 2 ? ", done again" : "", e->flags & 4 ? ", lost the race" : "");
    else
        PUT(", %zu instructions, epoch %llu, lane %u: ", end - first, (unsigned long long)e->epoch,
            e->lane);
    BRIM_TRY(put_time(v, (double)(last->ended_ns - e->started_ns)));
    PUT("</title></rect>\n");
    if (width > letter_px * (double)strlen(name) + 6) {
        PUT("<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"%s\" "
            "pointer-events=\"none\">",
            x + width / 2, TOP + e->lane * (double)ROW + BAR * 0.72,
            e->flags & 4 ? "#1b2733" : "#ffffff");
        BRIM_TRY(brim__trace_put_text(v->out, name, true));
        PUT("</text>\n");
    }
    return BRIM_OK;
}

static bool joins(const view *v, size_t first, size_t next)
{
    const brim_trace_event *a = &v->events[next - 1], *b = &v->events[next];
    return b->lane == a->lane && op_of(v, b) == op_of(v, a) && b->epoch == a->epoch && !a->flags &&
           !b->flags && x_of(v, b->ended_ns) - x_of(v, b->started_ns) < narrow_px &&
           x_of(v, b->started_ns) - x_of(v, v->events[first].started_ns) < 2 * narrow_px;
}

static brim_status put_lanes(view *v)
{
    for (size_t i = 0; i < v->count;) {
        size_t end = i + 1;
        BRIM_TRY(put_wait(v, &v->events[i]));
        while (end < v->count && joins(v, i, end))
            end++;
        BRIM_TRY(put_bar(v, i, end));
        i = end;
    }
    return BRIM_OK;
}

static brim_status put_legend_entry(view *v, size_t index, const char *fill, const char *style,
                                    const char *text)
{
    double x = LEFT + (double)(index % legend_columns()) * LEGEND_COLUMN;
    double y = legend_top(v) + (double)(index / legend_columns()) * 22;
    PUT("<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"12\" rx=\"2\" fill=\"%s\"%s/>\n"
        "<text x=\"%.1f\" y=\"%.1f\" fill=\"#1b2733\">",
        x, y, fill, style, x + 20, y + 10);
    BRIM_TRY(brim__trace_put_text(v->out, text, true));
    return BRIM_OK;
}

static brim_status put_legend(view *v)
{
    size_t index = 0;
    for (size_t i = 0; i < v->op_count; i++, index++) {
        BRIM_TRY(put_legend_entry(v, index, colors[i % COLORS], "", op_name(v, v->ops[i].op)));
        PUT(" <tspan fill=\"#5b6773\">%.1f %%, %zu×</tspan></text>\n",
            v->busy_ns ? 100.0 * (double)v->ops[i].ns / (double)v->busy_ns : 0, v->ops[i].count);
    }
    BRIM_TRY(put_legend_entry(v, index++, "#d5dbe1", "", "waiting"));
    PUT("</text>\n");
    static const char *const texts[] = {"done for another lane", "done again", "lost the race"};
    for (unsigned bit = 0; bit < 3; bit++) {
        if (!(v->flags >> bit & 1))
            continue;
        BRIM_TRY(put_legend_entry(v, index++, "#ffffff", flag_style(1u << bit), texts[bit]));
        PUT("</text>\n");
    }
    return BRIM_OK;
}

brim_status brim__trace_render_svg(brim__string *out, const brim_program *program,
                                   const brim_trace_event *events, size_t count, const char *title)
{
    view v = {.out = out, .p = program};
    BRIM_ALLOC(out->ctx, v.events, (count + 1) * sizeof *v.events);
    brim_status status = choose_epochs(&v, events, count);
    if (status == BRIM_OK) {
        take_events(&v, events, count);
        status = total_ops(&v);
    }
    brim_status (*const parts[])(view *) = {put_axis, put_lanes, put_epochs, put_legend};
    if (status == BRIM_OK)
        status = put_head(&v, title);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == BRIM_OK; i++)
        status = parts[i](&v);
    if (status == BRIM_OK)
        status = brim__string_text(out, "</svg>\n");
    brim__free(out->ctx, v.events);
    brim__free(out->ctx, v.ops);
    return status;
}
