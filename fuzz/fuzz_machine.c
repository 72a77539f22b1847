/* fuzz_machine.c: machine descriptions from any bytes. What is accepted must lie in the ranges
 * that `predict` computes with. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "brim/hw.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    brim_context *ctx;
    brim_machine m;
    if (brim_context_create(&ctx, NULL) != BRIM_OK)
        return 0;
    brim_status status = brim_machine_parse(&m, ctx, (const char *)data, size);
    if (status == BRIM_OK) {
        const double values[] = {m.read_gb_s,       m.lane_read_gb_s, m.lane_gflop_s,
                                 m.lane_gop_int8_s, m.signal_ns,      m.instruction_ns};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            require(isfinite(values[i]) && values[i] > 0);
        require(m.lane_count >= 1 && m.lane_count <= BRIM_HW_THREADS_MAX);
        require(memchr(m.name, 0, sizeof m.name) != NULL && m.name[0]);
    } else {
        require(strncmp(brim_last_id(), "machine.", 8) == 0 || status == BRIM_NO_MEMORY);
    }
    require(brim_context_bytes(ctx) == 0);
    brim_context_destroy(ctx);
    return 0;
}
