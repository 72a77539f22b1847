/* probe_amx.c: the rates of the tile unit (AMX). Linux gives a process the tile registers only
 * when it asks (arch_prctl, Documentation/arch/x86/xstate.rst); where it refuses, the rate is left
 * out. Each iteration multiplies two tiles of A by two of B into four sums. */
#include "hw/hw.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REQUEST_XCOMP_PERMISSION = 0x1023, XFEATURE_TILE_DATA = 18 };

bool brim__amx_permit(void)
{
    return syscall(SYS_arch_prctl, REQUEST_XCOMP_PERMISSION, XFEATURE_TILE_DATA) == 0;
}

/* Palette 1: eight tiles of 16 rows of 64 bytes. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "the layout that ldtilecfg reads");

__attribute__((target("amx-tile"))) static void open_tiles(void)
{
    _Alignas(64) tile_config config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int t = 0; t < 8; t++) {
        config.rows[t] = 16;
        config.row_bytes[t] = 64;
    }
    /* gcc 12 believes that ldtilecfg reads 8 bytes and drops the stores to the others. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

__attribute__((target("amx-tile,amx-int8"))) void brim__rate_u8s8_amx(uint64_t iterations)
{
    open_tiles();
    for (uint64_t i = 0; i < iterations; i++) {
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_release();
}

__attribute__((target("amx-tile,amx-bf16"))) void brim__rate_bf16_amx(uint64_t iterations)
{
    open_tiles();
    for (uint64_t i = 0; i < iterations; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
}

#endif
