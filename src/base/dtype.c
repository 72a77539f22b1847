/* dtype.c: names and block sizes of element types. Ids and names: the GGUF specification. */
#include "brim/dtype.h"

#include <strings.h>

bool brim_dtype_known(uint32_t id)
{
    return brim_dtype_block((brim_dtype)id) != 0;
}

const char *brim_dtype_name(uint32_t id)
{
    static const char *const names[] = {
        [0] = "F32",     [1] = "F16",      [2] = "Q4_0",    [3] = "Q4_1",     [4] = "Q4_2",
        [5] = "Q4_3",    [6] = "Q5_0",     [7] = "Q5_1",    [8] = "Q8_0",     [9] = "Q8_1",
        [10] = "Q2_K",   [11] = "Q3_K",    [12] = "Q4_K",   [13] = "Q5_K",    [14] = "Q6_K",
        [15] = "Q8_K",   [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
        [20] = "IQ4_NL", [21] = "IQ3_S",   [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",
        [25] = "I16",    [26] = "I32",     [27] = "I64",    [28] = "F64",     [29] = "IQ1_M",
        [30] = "BF16",   [34] = "TQ1_0",   [35] = "TQ2_0",  [39] = "MXFP4",
    };
    return id < sizeof names / sizeof *names ? names[id] : NULL;
}

uint32_t brim_dtype_block(brim_dtype type)
{
    switch (type) {
#define DTYPE_BLOCK(name, id, block, bytes)                                                        \
    case BRIM_DTYPE_##name:                                                                        \
        return block;
        BRIM_DTYPE_LIST(DTYPE_BLOCK)
#undef DTYPE_BLOCK
    }
    return 0;
}

uint32_t brim_dtype_block_bytes(brim_dtype type)
{
    switch (type) {
#define DTYPE_BYTES(name, id, block, bytes)                                                        \
    case BRIM_DTYPE_##name:                                                                        \
        return bytes;
        BRIM_DTYPE_LIST(DTYPE_BYTES)
#undef DTYPE_BYTES
    }
    return 0;
}

bool brim_dtype_parse(brim_dtype *out, const char *name)
{
#define DTYPE_PARSE(type, id, block, bytes)                                                        \
    if (strcasecmp(name, #type) == 0) {                                                            \
        *out = BRIM_DTYPE_##type;                                                                  \
        return true;                                                                               \
    }
    BRIM_DTYPE_LIST(DTYPE_PARSE)
#undef DTYPE_PARSE
    return false;
}
