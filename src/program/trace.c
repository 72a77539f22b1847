/* trace.c: what lanes did when, as Chrome trace events (loaded by Perfetto and chrome://tracing;
 * the format is the "Trace Event Format" document of the Chromium project). trace_svg.c draws. */
#include "program/trace.h"

#include <string.h>

#include "base/file.h"
#include "program/executor.h"

#define PUT(...) BRIM_TRY(brim__string_format(out, __VA_ARGS__))

brim_status brim__trace_put_text(brim__string *out, const char *text, bool xml)
{
    size_t size = strlen(text);
    while (size) {
        uint32_t codepoint = 0;
        size_t n = brim__utf8_decode(&codepoint, text, size);
        unsigned char c = (unsigned char)*text;
        if (n == 0 || codepoint < 0x20)
            PUT("?");
        else if (xml ? c == '<' || c == '>' || c == '&' || c == '"' : false)
            PUT("&#%u;", c);
        else if (!xml && (c == '"' || c == '\\'))
            PUT("\\%c", c);
        else
            BRIM_TRY(brim__string_append(out, text, n));
        n = n ? n : 1;
        text += n;
        size -= n;
    }
    return BRIM_OK;
}

static brim_status put_slice(brim__string *out, const brim_trace_event *e, const char *name,
                             const char *category, uint64_t begin, uint64_t end)
{
    PUT(",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": %u, \"name\": \"", e->lane);
    BRIM_TRY(brim__trace_put_text(out, name, false));
    PUT("\", \"cat\": \"%s\", \"ts\": %llu.%03u, \"dur\": %llu.%03u, ", category,
        (unsigned long long)(begin / 1000), (unsigned)(begin % 1000),
        (unsigned long long)((end - begin) / 1000), (unsigned)((end - begin) % 1000));
    PUT("\"args\": {\"epoch\": %llu, \"instruction\": %u%s%s%s}}", (unsigned long long)e->epoch,
        e->instruction, e->flags & 1 ? ", \"helped\": true" : "",
        e->flags & 2 ? ", \"redone\": true" : "", e->flags & 4 ? ", \"lost\": true" : "");
    return BRIM_OK;
}

brim_status brim__trace_render_json(brim__string *out, const brim_program *program,
                                    const brim_trace_event *events, size_t count)
{
    PUT("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n"
        "{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\", \"args\": {\"name\": \"");
    BRIM_TRY(brim__trace_put_text(out, program->name, false));
    PUT("\"}}");
    for (uint32_t l = 0; l < program->lane_count; l++)
        PUT(",\n{\"ph\": \"M\", \"pid\": 1, \"tid\": %u, \"name\": \"thread_name\", \"args\": "
            "{\"name\": "
            "\"lane %u\"}},\n{\"ph\": \"M\", \"pid\": 1, \"tid\": %u, \"name\": "
            "\"thread_sort_index\", \"args\": "
            "{\"sort_index\": %u}}",
            l, l, l, l);
    uint64_t origin = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        origin = events[i].taken_ns < origin ? events[i].taken_ns : origin;
    for (size_t i = 0; i < count; i++) {
        const brim_trace_event *e = &events[i];
        const char *op = brim_op_get(program->ops, program->instructions[e->instruction].op)->name;
        if (e->started_ns > e->taken_ns)
            BRIM_TRY(
                put_slice(out, e, "wait", "wait", e->taken_ns - origin, e->started_ns - origin));
        BRIM_TRY(put_slice(out, e, op, "op", e->started_ns - origin, e->ended_ns - origin));
    }
    PUT("\n]}\n");
    return BRIM_OK;
}

/* All lanes' events in one list, freed by the caller. */
static brim_status gather(brim_trace_event **out, size_t *out_count, brim_executor *executor)
{
    const brim_program *p = brim__executor_program(executor);
    size_t capacity = 0;
    for (uint32_t l = 0; l < p->lane_count; l++) {
        const brim_trace_event *events = NULL;
        size_t count = brim_executor_trace(&events, executor, l);
        if (count == 0)
            continue;
        BRIM_TRY(BRIM_GROW(p->ctx, *out, capacity, *out_count + count));
        memcpy(*out + *out_count, events, count * sizeof *events);
        *out_count += count;
    }
    BRIM_FAIL_IF(*out_count == 0, STATE, "trace.empty",
                 "there is no trace: set trace_events when the executor is made, and run it");
    return BRIM_OK;
}

/* An event that goes backwards would make a slice of negative length. */
static void straighten(brim_trace_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        brim_trace_event *e = &events[i];
        e->started_ns = e->started_ns < e->taken_ns ? e->taken_ns : e->started_ns;
        e->ended_ns = e->ended_ns < e->started_ns ? e->started_ns : e->ended_ns;
    }
}

static brim_status write_rendered(brim__string *text, brim_status status, const char *path)
{
    if (status == BRIM_OK)
        status = brim__write_file(path, text->data, text->size);
    brim__string_done(text);
    return status;
}

static brim_status write_executor(brim_executor *executor, const char *path, bool svg)
{
    const brim_program *p = brim__executor_program(executor);
    brim_trace_event *events = NULL;
    size_t count = 0;
    brim__string text = {.ctx = p->ctx};
    brim_status status = gather(&events, &count, executor);
    if (status == BRIM_OK) {
        straighten(events, count);
        status = svg ? brim__trace_render_svg(&text, p, events, count, p->name)
                     : brim__trace_render_json(&text, p, events, count);
    }
    status = write_rendered(&text, status, path);
    brim__free(p->ctx, events);
    return status;
}

brim_status brim_trace_write_json(brim_executor *executor, const char *path)
{
    return write_executor(executor, path, false);
}

brim_status brim_trace_write_svg(brim_executor *executor, const char *path)
{
    return write_executor(executor, path, true);
}

brim_status brim_trace_write_events_svg(const brim_program *program, brim_context *ctx,
                                        const brim_trace_event *events, size_t count,
                                        const char *title, const char *path)
{
    for (size_t i = 0; i < count; i++)
        BRIM_FAIL_IF(events[i].lane >= program->lane_count ||
                         events[i].instruction >= program->instruction_count ||
                         events[i].taken_ns > events[i].started_ns ||
                         events[i].started_ns > events[i].ended_ns,
                     USAGE, "trace.event", "event %zu is not one of this program", i);
    brim__string text = {.ctx = ctx};
    return write_rendered(&text, brim__trace_render_svg(&text, program, events, count, title),
                          path);
}
