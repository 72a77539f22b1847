/* trace.h: pictures of what lanes did when. */
#ifndef BRIM_PROGRAM_TRACE_H
#define BRIM_PROGRAM_TRACE_H

#include "base/text.h"
#include "program/program.h"

/* Appends an SVG timeline of `events` (of any lanes and epochs, in any order) to `out`. */
brim_status brim__trace_render_svg(brim__string *out, const brim_program *program,
                                   const brim_trace_event *events, size_t count, const char *title);
/* Appends Chrome/Perfetto JSON. */
brim_status brim__trace_render_json(brim__string *out, const brim_program *program,
                                    const brim_trace_event *events, size_t count);
/* Text for XML, or for a JSON string: what would end it is escaped, what is not UTF-8 replaced. */
brim_status brim__trace_put_text(brim__string *out, const char *text, bool xml);

#endif
