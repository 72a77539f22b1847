/* tokenizer.c: brim_tokenizer: made from a file's metadata, asked about its tokens. */
#include "llm/tokenizer.h"

#include <string.h>

/* Texts of tokens that end a turn or a document in the families of models that are supported.
 * Those in <| |> never come out of plain text: they are control tokens whatever type the file
 * gives them. The others may be words of a vocabulary (Qwen's has a normal token </s>) and count
 * only where the file says that they are special. */
static const char *const end_texts[] = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>",    "<|endoftext|>", "<|end_of_text|>",
    "<|end|>",    "</s>",       "<end_of_turn>", "<EOT>",
};

static void mark_end(brim_tokenizer *t, brim_token id)
{
    if (id != BRIM_TOKEN_NONE)
        t->ends[id / 64] |= 1ull << id % 64;
}

/* *out stays as it is when the key is absent. */
static brim_status read_id(brim_token *out, const brim_tokenizer *t, const brim_model_file *file,
                           const char *key)
{
    const brim_meta *meta = brim_model_file_meta(file, key);
    if (!meta)
        return BRIM_OK;
    uint64_t id;
    BRIM_TRY(brim_meta_u64(&id, file, meta, 0));
    BRIM_FAIL_IF(id >= t->vocab.size, FORMAT, "tokenizer.id",
                 "%s is %llu, the vocabulary has %u tokens", key, (unsigned long long)id,
                 t->vocab.size);
    *out = (brim_token)id;
    return BRIM_OK;
}

/* An optional text. */
static brim_status read_text(const char **out, size_t *out_size, const brim_model_file *file,
                             const char *key)
{
    const brim_meta *meta = brim_model_file_meta(file, key);
    *out = "";
    *out_size = 0;
    return meta ? brim_meta_string(out, out_size, file, meta, 0) : BRIM_OK;
}

static brim_status read_family(brim_tokenizer *t, brim__vocab_family *out,
                               const brim_model_file *file)
{
    const char *model, *pre;
    size_t model_size, pre_size;
    BRIM_TRY(read_text(&model, &model_size, file, "tokenizer.ggml.model"));
    BRIM_TRY(read_text(&pre, &pre_size, file, "tokenizer.ggml.pre"));
    BRIM_FAIL_IF(!model_size, FORMAT, "tokenizer.model",
                 "tokenizer.ggml.model is absent: the file has no tokenizer");
    if (model_size == 5 && !memcmp(model, "llama", 5)) {
        *out = BRIM__VOCAB_SPM;
        return BRIM_OK;
    }
    BRIM_FAIL_IF(model_size != 4 || memcmp(model, "gpt2", 4), UNSUPPORTED, "tokenizer.model",
                 "tokenizer.ggml.model is \"%s\"; supported are gpt2 (byte-level BPE) and llama "
                 "(SentencePiece)",
                 brim__label(model, model_size).text);
    *out = BRIM__VOCAB_BPE;
    t->pre = BRIM__PRE_DEFAULT;
    BRIM_FAIL_IF(pre_size && !brim__pre_parse(&t->pre, pre, pre_size), UNSUPPORTED, "tokenizer.pre",
                 "tokenizer.ggml.pre is \"%s\"; supported are %s", brim__label(pre, pre_size).text,
                 BRIM__PRE_NAMES);
    return BRIM_OK;
}

/* A file that says nothing gets BOS in the families whose reference tokenizers add it. */
static brim_status read_adds_bos(brim_tokenizer *t, brim__vocab_family family,
                                 const brim_model_file *file)
{
    const brim_meta *meta = brim_model_file_meta(file, "tokenizer.ggml.add_bos_token");
    t->adds_bos = family == BRIM__VOCAB_SPM || t->pre == BRIM__PRE_LLAMA3;
    if (meta)
        BRIM_TRY(brim_meta_bool(&t->adds_bos, file, meta, 0));
    t->adds_bos = t->adds_bos && t->bos != BRIM_TOKEN_NONE;
    return BRIM_OK;
}

static brim_status read_ends(brim_tokenizer *t, const brim_model_file *file)
{
    brim_token eot = BRIM_TOKEN_NONE, eom = BRIM_TOKEN_NONE;
    BRIM_TRY(read_id(&eot, t, file, "tokenizer.ggml.eot_token_id"));
    BRIM_TRY(read_id(&eom, t, file, "tokenizer.ggml.eom_token_id"));
    BRIM_CALLOC(t->ctx, t->ends, t->vocab.size / 64 + 1);
    mark_end(t, t->eos);
    mark_end(t, eot);
    mark_end(t, eom);
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
        brim_token id = brim__vocab_find(&t->vocab, end_texts[i], strlen(end_texts[i]));
        bool bars = end_texts[i][1] == '|';
        if (id == BRIM_TOKEN_NONE || (!bars && brim__vocab_plain(&t->vocab, id)))
            continue;
        mark_end(t, id);
        t->vocab.kind[id] = BRIM_TOKEN_CONTROL;
    }
    return BRIM_OK;
}

/* A template that is absent or not supported is no error here: brim_chat_recognise() says so. */
static brim_status read_chat(brim_tokenizer *t, const brim_model_file *file)
{
    const char *text;
    size_t size;
    BRIM_TRY(read_text(&text, &size, file, "tokenizer.chat_template"));
    brim__chat_analyse(&t->chat, text, size);
    return BRIM_OK;
}

static brim_status read_all(brim_tokenizer *t, const brim_model_file *file)
{
    brim__vocab_family family;
    BRIM_TRY(read_family(t, &family, file));
    BRIM_TRY(brim__vocab_read(&t->vocab, t->ctx, family, file));
    BRIM_TRY(read_id(&t->bos, t, file, "tokenizer.ggml.bos_token_id"));
    BRIM_TRY(read_id(&t->eos, t, file, "tokenizer.ggml.eos_token_id"));
    BRIM_TRY(read_adds_bos(t, family, file));
    BRIM_TRY(read_ends(t, file));
    BRIM_TRY(read_chat(t, file));
    BRIM_TRY(brim__specials_create(&t->specials, &t->vocab));
    if (family == BRIM__VOCAB_SPM)
        return brim__spm_read(&t->spm, &t->vocab, file);
    BRIM_TRY(brim__classes_create(&t->classes, t->ctx));
    return brim__bpe_read(&t->bpe, &t->vocab, t->pre == BRIM__PRE_LLAMA3, file);
}

brim_status brim_tokenizer_create(brim_tokenizer **out, brim_context *ctx,
                                  const brim_model_file *file)
{
    *out = NULL;
    brim_tokenizer *t;
    BRIM_CALLOC(ctx, t, 1);
    t->ctx = ctx;
    t->bos = t->eos = BRIM_TOKEN_NONE;
    brim_status status = read_all(t, file);
    if (status != BRIM_OK) {
        brim_tokenizer_destroy(t);
        return status;
    }
    *out = t;
    return BRIM_OK;
}

void brim_tokenizer_destroy(brim_tokenizer *t)
{
    if (!t)
        return;
    brim__bpe_done(&t->bpe);
    brim__spm_done(&t->spm);
    brim__specials_done(&t->specials);
    brim__free(t->ctx, t->classes);
    brim__free(t->ctx, t->ends);
    if (t->vocab.ctx)
        brim__vocab_done(&t->vocab);
    brim__free(t->ctx, t);
}

uint32_t brim_tokenizer_size(const brim_tokenizer *t)
{
    return t->vocab.size;
}

brim_token brim_tokenizer_bos(const brim_tokenizer *t)
{
    return t->bos;
}

brim_token brim_tokenizer_eos(const brim_tokenizer *t)
{
    return t->eos;
}

bool brim_tokenizer_adds_bos(const brim_tokenizer *t)
{
    return t->adds_bos;
}

static bool in_range(const brim_tokenizer *t, brim_token id)
{
    return id >= 0 && (uint32_t)id < t->vocab.size;
}

bool brim_tokenizer_ends(const brim_tokenizer *t, brim_token id)
{
    return in_range(t, id) && (t->ends[id / 64] >> id % 64 & 1);
}

brim_token_kind brim_tokenizer_kind(const brim_tokenizer *t, brim_token id)
{
    return in_range(t, id) ? (brim_token_kind)t->vocab.kind[id] : BRIM_TOKEN_UNKNOWN;
}

brim_token brim_tokenizer_find(const brim_tokenizer *t, const char *text, size_t size)
{
    return brim__vocab_find(&t->vocab, text, size);
}
