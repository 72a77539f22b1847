/* make.c: `brim make`: a model file of a known shape with random weights: the size of model that a
 * benchmark needs, without a download. */
#include <stdlib.h>
#include <string.h>

#include "brim/model.h"
#include "cli.h"

typedef struct make_view {
    brim_progress progress;
    bool started;
} make_view;

static void show_progress(uint64_t done, uint64_t total, void *user)
{
    make_view *view = user;
    if (!view->started)
        brim_progress_start(&view->progress, "making", total, "B");
    view->started = true;
    brim_progress_update(&view->progress, done);
}

static bool was_interrupted(void *user)
{
    (void)user;
    return cli_interrupts() > 0;
}

static int list_shapes(cli *c)
{
    if (!c->json) {
        for (size_t i = 0; brim_make_shape_at(i); i++)
            printf("%s\n", brim_make_shape_at(i));
        return CLI_OK;
    }
    json_t *shapes = json_array();
    for (size_t i = 0; brim_make_shape_at(i); i++)
        json_array_append_new(shapes, json_string(brim_make_shape_at(i)));
    return cli_print_json(c, json_pack("{s:o}", "shapes", shapes));
}

/* Says what was made, read back from the file itself. */
static int report_made(cli *c, const brim_make_desc *desc, const char *path)
{
    brim_model_file *file;
    brim_model_config config;
    brim_status status = brim_model_file_open(&file, c->ctx, path);
    if (status != BRIM_OK)
        return cli_fail(c, status);
    status = brim_model_config_read(&config, file);
    uint64_t size = brim_model_file_size(file);
    brim_model_file_close(file);
    if (status != BRIM_OK)
        return cli_fail(c, status);
    if (c->json)
        return cli_print_json(
            c,
            json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "file", path, "shape",
                      desc->shape, "type", desc->type, "seed", (json_int_t)desc->seed, "layers",
                      (json_int_t)config.layer_count, "vocab", (json_int_t)config.vocab_size,
                      "parameters", (json_int_t)config.parameter_count, "bytes", (json_int_t)size));
    printf("%s: %s, %s, %.2f M parameters with random weights, %.1f MiB\n", path, desc->shape,
           desc->type, (double)config.parameter_count / 1e6, (double)size / (1 << 20));
    return CLI_OK;
}

static int make_file(cli *c, brim_make_desc *desc, const char *path)
{
    make_view view = {0};
    desc->progress = show_progress;
    desc->cancelled = was_interrupted;
    desc->user = &view;
    cli_catch_interrupt();
    brim_status status = brim_make(c->ctx, path, desc);
    if (view.started)
        brim_progress_finish(&view.progress);
    return status == BRIM_OK ? report_made(c, desc, path) : cli_fail(c, status);
}

int brim_cli_make(cli *c, int argc, char **argv)
{
    brim_make_desc desc = brim_make_desc_default();
    const char *path = NULL;
    int64_t seed = 1, layers = 0, vocab = 0;
    bool list = false;
    const cli_option options[] = {
        CLI_TEXT("shape", 's', "NAME", &desc.shape,
                 "the model whose dimensions it has (see --list)"),
        CLI_TEXT("type", 't', "TYPE", &desc.type,
                 "of the matrices: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, "
                 "Q4_K_M or Q5_K_M (default: Q4_1)"),
        CLI_TEXT("output", 'o', "FILE", &path, "the file to write"),
        CLI_INT("seed", 0, "N", &seed, 0, INT64_MAX,
                "the same seed gives the same bytes (default: 1)"),
        CLI_INT("layers", 0, "N", &layers, 1, 1024, "this many layers instead of the shape's own"),
        CLI_INT("vocab", 0, "N", &vocab, 1, 1 << 20, "this many tokens instead of the shape's own"),
        CLI_FLAG("list", 0, &list, "list the shapes"),
        CLI_JSON(c),
    };
    const cli_spec spec = {
        .usage = "brim make --shape NAME -o FILE [options]\nbrim make --list",
        .about = "Writes a GGUF file with the dimensions of a published model, random weights\n"
                 "whose scales are like a real model's, and a vocabulary. It answers nonsense\n"
                 "at the speed of the real one.",
        .examples =
            "  brim make --shape llama-3.2-1b --type Q4_0 -o 1b.gguf && brim bench ./1b.gguf\n",
        .options = options,
        .option_count = CLI_COUNT(options),
        .args_max = 0,
    };
    int code;
    if (!cli_parse(c, &spec, argc, argv, &code))
        return code;
    if (list)
        return list_shapes(c);
    if (!path)
        return cli_error(c, BRIM_USAGE, "cli.option", "the file to write is missing: -o FILE");
    desc.seed = (uint64_t)seed;
    desc.layer_count = (uint32_t)layers;
    desc.vocab_size = (uint32_t)vocab;
    return make_file(c, &desc, path);
}
