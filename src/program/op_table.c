/* op_table.c: the table of ops: built-in ones first, then the user range. */
#include "program/ops.h"

#include <string.h>

enum { USER_OPS_MAX = 1024, OP_NAME_BYTES_MAX = 31 };

static const brim_op_desc *const builtin_ops[] = {
#define OP_ENTRY(name, text) [BRIM__OP_##name] = &brim__op_##name,
    BRIM__OP_LIST(OP_ENTRY)
#undef OP_ENTRY
};
_Static_assert(sizeof builtin_ops / sizeof *builtin_ops == BRIM__OP_COUNT, "every op has a body");
_Static_assert(BRIM__OP_COUNT <= BRIM_OP_USER, "the user range starts after the built-in ops");

struct brim_op_table {
    brim_context *ctx;
    brim_op_desc *user;
    size_t user_count, user_capacity;
};

brim_status brim_op_table_create(brim_op_table **out, brim_context *ctx)
{
    *out = NULL;
    brim_op_table *table;
    BRIM_CALLOC(ctx, table, 1);
    table->ctx = ctx;
    *out = table;
    return BRIM_OK;
}

void brim_op_table_destroy(brim_op_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->user_count; i++)
        brim__free(table->ctx, (char *)table->user[i].name);
    brim__free(table->ctx, table->user);
    brim__free(table->ctx, table);
}

static bool name_is_plain(const char *name)
{
    size_t size = name ? strlen(name) : 0;
    return size > 0 && size <= OP_NAME_BYTES_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.") == size;
}

brim_status brim_op_register(uint32_t *out, brim_op_table *table, const brim_op_desc *desc)
{
    BRIM_FAIL_IF(!desc->body, USAGE, "op.body", "an op needs a body");
    BRIM_FAIL_IF(!name_is_plain(desc->name), USAGE, "op.name",
                 "an op's name has 1 to %d characters of [a-z0-9_.]", OP_NAME_BYTES_MAX);
    BRIM_FAIL_IF(brim_op_find(table, desc->name) != BRIM_NONE, USAGE, "op.name",
                 "an op named '%s' exists", desc->name);
    BRIM_FAIL_IF(table->user_count == USER_OPS_MAX, LIMIT, "op.limit", "more than %d user ops",
                 USER_OPS_MAX);
    BRIM_TRY(BRIM_GROW(table->ctx, table->user, table->user_capacity, table->user_count + 1));
    brim_op_desc copy = *desc;
    copy.name = brim__strdup(table->ctx, desc->name);
    if (!copy.name)
        return BRIM_NO_MEMORY;
    *out = BRIM_OP_USER + (uint32_t)table->user_count;
    table->user[table->user_count++] = copy;
    return BRIM_OK;
}

const brim_op_desc *brim_op_get(const brim_op_table *table, uint32_t op)
{
    if (op < BRIM__OP_COUNT)
        return builtin_ops[op];
    if (op >= BRIM_OP_USER && op - BRIM_OP_USER < table->user_count)
        return &table->user[op - BRIM_OP_USER];
    return NULL;
}

uint32_t brim_op_find(const brim_op_table *table, const char *name)
{
    for (uint32_t i = 0; i < BRIM__OP_COUNT; i++)
        if (strcmp(builtin_ops[i]->name, name) == 0)
            return i;
    for (size_t i = 0; i < table->user_count; i++)
        if (strcmp(table->user[i].name, name) == 0)
            return BRIM_OP_USER + (uint32_t)i;
    return BRIM_NONE;
}
