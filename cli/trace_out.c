/* trace_out.c: `brim run --trace FILE`. Two programs run: FILE shows decoding (a prompt of at most
 * 8 tokens too), FILE with "-prefill" before its suffix shows the steps of a longer prompt.
 */
#include <stdlib.h>
#include <string.h>

#include "run.h"

/* A picture is for eyes: the last steps are enough. */
enum { EVENTS_SVG = 4096, EVENTS_JSON = 65536 };

static const char *suffix_of(const char *path)
{
    const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
    return dot && (!slash || dot > slash) ? dot : "";
}

uint32_t run_trace_events(cli *c, const char *path, int *code)
{
    const char *suffix = suffix_of(path);
    if (strcmp(suffix, ".json") == 0)
        return EVENTS_JSON;
    if (strcmp(suffix, ".svg") == 0)
        return EVENTS_SVG;
    *code = cli_error(
        c, BRIM_USAGE, "run.trace",
        "--trace %s: the suffix says what is written: .json (Chrome, Perfetto) or .svg (a picture)",
        path);
    return 0;
}

static bool has_events(brim_executor *executor, uint32_t lanes)
{
    const brim_trace_event *events;
    for (uint32_t lane = 0; lane < lanes; lane++)
        if (brim_executor_trace(&events, executor, lane) > 0)
            return true;
    return false;
}

static int write_one(run_state *r, brim_executor *executor, const char *path, const char *what)
{
    bool svg = strcmp(suffix_of(path), ".svg") == 0;
    brim_status status =
        svg ? brim_trace_write_svg(executor, path) : brim_trace_write_json(executor, path);
    if (status != BRIM_OK)
        return cli_fail(r->c, status);
    fprintf(stderr, "brim run: %s traced to %s\n", what, path);
    return CLI_OK;
}

int run_trace_write(run_state *r)
{
    brim_runner *runner = r->model.runner;
    brim_executor *decode = brim_runner_executor(runner, false),
                  *prefill = brim_runner_executor(runner, true);
    uint32_t lanes = brim_runner_lanes(runner);
    int code = CLI_OK;
    if (has_events(decode, lanes))
        code = write_one(r, decode, r->trace, "decoding");
    if (code != CLI_OK || !has_events(prefill, lanes))
        return code;
    const char *suffix = suffix_of(r->trace);
    char path[CLI_PATH_MAX];
    int n =
        snprintf(path, sizeof path, "%.*s-prefill%s", (int)(suffix - r->trace), r->trace, suffix);
    if (n < 0 || n >= CLI_PATH_MAX)
        return cli_error(r->c, BRIM_USAGE, "run.trace", "--trace: the path is too long");
    return write_one(r, prefill, path, "the prompt");
}
