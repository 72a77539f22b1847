/* model_path.c: where models are kept, and how a name becomes a path. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

/* Joins; false when it does not fit. */
static bool join(char out[CLI_PATH_MAX], const char *a, const char *b, const char *c)
{
    int n = snprintf(out, CLI_PATH_MAX, "%s%s%s", a, b, c);
    return n >= 0 && n < CLI_PATH_MAX;
}

bool cli_models_folder(cli *c, char out[CLI_PATH_MAX], int *code)
{
    const char *models = getenv("BRIM_MODELS");
    const char *data = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    bool good;
    if (models && *models) {
        good = join(out, models, "", "");
    } else if (data && *data == '/') {
        good = join(out, data, "/brim/models", "");
    } else if (home && *home) {
        good = join(out, home, "/.local/share/brim/models", "");
    } else {
        *code = cli_error(c, BRIM_NOT_FOUND, "models.folder",
                          "there is no folder for models: neither BRIM_MODELS nor HOME is set");
        return false;
    }
    if (!good)
        *code =
            cli_error(c, BRIM_USAGE, "models.folder", "the path of the models folder is too long");
    return good;
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool cli_model_path(cli *c, char out[CLI_PATH_MAX], const char *name, int *code)
{
    if (strchr(name, '/') || exists(name)) {
        if (join(out, name, "", ""))
            return true;
        *code = cli_error(c, BRIM_USAGE, "models.path", "the model's path is too long");
        return false;
    }
    char folder[CLI_PATH_MAX], beside[CLI_PATH_MAX];
    if (!cli_models_folder(c, folder, code))
        return false;
    if (join(beside, folder, "/", name) && exists(beside) && join(out, beside, "", ""))
        return true;
    if (join(out, beside, ".gguf", "") && exists(out))
        return true;
    *code = cli_error(c, BRIM_NOT_FOUND, "models.absent",
                      "%s: no such file, nor a model in %s; `brim pull` gets the models it lists",
                      name, folder);
    return false;
}
