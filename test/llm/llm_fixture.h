/* llm_fixture.h: models for the tests of src/llm: the real one where it is there, and small made
 * ones that are always there. */
#ifndef BRIM_TEST_LLM_FIXTURE_H
#define BRIM_TEST_LLM_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "brim/llm.h"

#define assert_ok(expr)                                                                            \
    do {                                                                                           \
        brim_status status_ = (expr);                                                              \
        if (status_ != BRIM_OK)                                                                    \
            fail_msg("%s: %s [%s]", #expr, brim_last_message(), brim_last_id());                   \
    } while (0)

/* The real model's path, or NULL: $BRIM_MODEL, then models/ of the repository. */
static inline const char *real_model(void)
{
    static char path[4096];
    const char *given = getenv("BRIM_MODEL");
    snprintf(path, sizeof path, "%s", given ? given : BRIM_SOURCE_DIR "/models/smollm2-135m.gguf");
    return access(path, R_OK) == 0 ? path : NULL;
}

typedef struct fixture {
    brim_context *ctx;
    brim_model_file *file;
    brim_llm *llm;
} fixture;

static inline void fixture_open(fixture *f, const char *path)
{
    assert_ok(brim_context_create(&f->ctx, NULL));
    assert_ok(brim_model_file_open(&f->file, f->ctx, path));
    assert_ok(brim_llm_create(&f->llm, f->ctx, f->file, NULL));
}

/* A made model, few layers and a small vocabulary. */
static inline void fixture_make(fixture *f, const char *shape, const char *type, uint32_t layers)
{
    char path[] = "/tmp/brim-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    brim_context *ctx;
    assert_ok(brim_context_create(&ctx, NULL));
    brim_make_desc desc = brim_make_desc_default();
    desc.shape = shape;
    desc.type = type;
    desc.seed = 7;
    desc.layer_count = layers;
    desc.vocab_size = 512;
    assert_ok(brim_make(ctx, path, &desc));
    brim_context_destroy(ctx);
    fixture_open(f, path);
    unlink(path);
}

static inline void fixture_close(fixture *f)
{
    brim_llm_destroy(f->llm);
    brim_model_file_close(f->file);
    assert_int_equal(brim_context_bytes(f->ctx), 0);
    brim_context_destroy(f->ctx);
}

/* Token ids of a file of white-space-separated numbers. */
static inline uint32_t read_ids(brim_token *out, uint32_t capacity, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, BRIM_SOURCE_DIR "/test/golden/%s", name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    uint32_t count = 0;
    for (int id; count < capacity && fscanf(file, "%d", &id) == 1;)
        out[count++] = id;
    fclose(file);
    return count;
}

#endif
