/* answer.c: the shortest program that answers a question with libbrim:
 *
 *     build/examples/answer models/smollm2-135m.gguf "What is the capital of France?"
 * [cpu|cuda|cuda:N]
 */
#include <stdio.h>
#include <string.h>

#include <brim/llm.h>

typedef struct printer {
    const brim_tokenizer *tokenizer;
    brim_text_stream *stream; /* holds back what is not a whole character yet */
} printer;

static bool print_token(const brim_generated *generated, void *user)
{
    printer *p = user;
    const char *bytes, *text;
    size_t size, shown;
    bool stopped = false;
    if (!generated->ended &&
        brim_token_bytes(&bytes, &size, p->tokenizer, generated->token, false) == BRIM_OK &&
        brim_text_stream_push(&text, &shown, &stopped, p->stream, bytes, size) == BRIM_OK) {
        fwrite(text, 1, shown, stdout);
        fflush(stdout);
    }
    return !stopped;
}

/* Everything that was made is destroyed by the caller, whatever fails. */
typedef struct engine {
    brim_context *ctx;
    brim_device *device; /* where the weights are; NULL: as tiles for the CPU */
    brim_model_file *file;
    brim_tokenizer *tokenizer;
    brim_llm *llm;
    brim_runner *runner;
    brim_session *session;
    brim_tokens prompt;
    printer printer;
} engine;

static brim_status open_device(engine *e, const char *name)
{
    brim_device_kind kind;
    uint32_t index;
    brim_status status = brim_device_parse(&kind, &index, name);
    if (status != BRIM_OK || kind == BRIM_DEVICE_CPU)
        return status;
    return brim_device_open_index(&e->device, e->ctx, kind, index);
}

static brim_status answer(engine *e, const char *path, const char *question, const char *device)
{
    brim_llm_desc llm = brim_llm_desc_default();
    brim_chat_kind chat;
    brim_message message = {BRIM_ROLE_USER, question, strlen(question)};
    brim_generate_desc desc = brim_generate_desc_default();
    brim_generate_stats stats;
    brim_status status = brim_context_create(&e->ctx, NULL);
    if (status == BRIM_OK)
        status = open_device(e, device);
    llm.device = e->device;
    if (status == BRIM_OK)
        status = brim_model_file_open(&e->file, e->ctx, path);
    if (status == BRIM_OK)
        status = brim_tokenizer_create(&e->tokenizer, e->ctx, e->file);
    if (status == BRIM_OK)
        status = brim_chat_recognise(&chat, e->file);
    if (status == BRIM_OK)
        status = brim_llm_create(&e->llm, e->ctx, e->file, &llm);
    if (status == BRIM_OK)
        status = brim_runner_create(&e->runner, e->ctx, e->llm, NULL);
    if (status == BRIM_OK)
        status = brim_session_create(&e->session, e->runner);
    if (status == BRIM_OK)
        status = brim_chat_encode(&e->prompt, NULL, e->ctx, e->tokenizer, chat, &message, 1, false,
                                  true);
    if (status == BRIM_OK)
        status = brim_text_stream_create(&e->printer.stream, e->ctx, NULL, 0);
    if (status != BRIM_OK)
        return status;
    e->printer.tokenizer = e->tokenizer;
    desc.sampling.temperature = 0;
    desc.token = print_token;
    desc.user = &e->printer;
    brim_generate_ends(&desc, e->tokenizer);
    return brim_session_generate(&stats, e->session, e->prompt.ids, (uint32_t)e->prompt.count,
                                 &desc);
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: answer MODEL QUESTION [DEVICE]\n");
        return 2;
    }
    engine e = {0};
    brim_status status = answer(&e, argv[1], argv[2], argc == 4 ? argv[3] : "cpu");
    if (status != BRIM_OK)
        fprintf(stderr, "answer: %s\n", brim_last_message());
    else
        putchar('\n');
    brim_text_stream_destroy(e.printer.stream);
    brim_session_destroy(e.session);
    brim_runner_destroy(e.runner);
    brim_llm_destroy(e.llm);
    brim_tokens_done(&e.prompt, e.ctx);
    brim_tokenizer_destroy(e.tokenizer);
    brim_model_file_close(e.file);
    brim_device_close(e.device);
    brim_context_destroy(e.ctx);
    return status == BRIM_OK ? 0 : 1;
}
