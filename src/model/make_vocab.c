/* make_vocab.c: vocabularies of the size and kind that a shape's own model has.
 *
 * Byte-level BPE (tokenizer.ggml.model "gpt2"): the 256 bytes in GPT-2's order and spelling, then
 * one token a merge, and the special tokens where the family keeps them. SentencePiece ("llama"):
 * unknown, begin, end, 256 byte tokens, pieces, and single characters at the end.
 *
 * The pieces form a tree: a piece of two or more characters is a shorter piece and one letter, in
 * the order of length. So every piece has one merge, all are distinct, and the n-th one is
 * computed without a list. */
#include "model/make.h"

#include <stdio.h>
#include <string.h>

enum {
    LETTER_COUNT = 26,
    STARTER_COUNT = 1 + 2 * LETTER_COUNT, /* the space mark, small letters, capitals */
    BYTE_COUNT = 256,
    PIECE_BYTES = 32,
    SPM_CONTROL_COUNT = 3,                  /* <unk>, <s>, </s> */
    SPM_SINGLE_COUNT = 1 + ('~' - '!' + 1), /* the space mark and printable ASCII */
};

/* Kinds of tokens: tokenizer.ggml.token_type. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct special {
    const char *text;
    int kind;
} special;

/* What a family's vocabulary has besides its pieces. */
typedef struct family {
    const char *pre; /* tokenizer.ggml.pre; NULL: SentencePiece */
    const special *specials;
    uint32_t special_count;
    bool specials_first;
    int filler_kind; /* of the fillers at the end: CONTROL or UNUSED */
    const char *bos, *eos, *eot, *unknown, *padding; /* texts of special tokens; NULL: none */
    int add_bos;                                     /* -1: the file does not say */
    const char *chat_template;
} family;

static const special smollm_specials[] = {
    {"<|endoftext|>", CONTROL},    {"<|im_start|>", CONTROL},   {"<|im_end|>", CONTROL},
    {"<repo_name>", CONTROL},      {"<reponame>", CONTROL},     {"<file_sep>", CONTROL},
    {"<filename>", CONTROL},       {"<gh_stars>", CONTROL},     {"<issue_start>", CONTROL},
    {"<issue_comment>", CONTROL},  {"<issue_closed>", CONTROL}, {"<jupyter_start>", CONTROL},
    {"<jupyter_text>", CONTROL},   {"<jupyter_code>", CONTROL}, {"<jupyter_output>", CONTROL},
    {"<jupyter_script>", CONTROL}, {"<empty_output>", CONTROL},
};

static const special llama3_specials[] = {
    {"<|begin_of_text|>", CONTROL},
    {"<|end_of_text|>", CONTROL},
    {"<|reserved_special_token_0|>", CONTROL},
    {"<|reserved_special_token_1|>", CONTROL},
    {"<|finetune_right_pad_id|>", CONTROL},
    {"<|reserved_special_token_2|>", CONTROL},
    {"<|start_header_id|>", CONTROL},
    {"<|end_header_id|>", CONTROL},
    {"<|eom_id|>", CONTROL},
    {"<|eot_id|>", CONTROL},
    {"<|python_tag|>", CONTROL},
};

/* Qwen2.5 has the first 22 of these, Qwen3 all. */
enum { QWEN2_SPECIAL_COUNT = 22 };
static const special qwen_specials[] = {
    {"<|endoftext|>", CONTROL},        {"<|im_start|>", CONTROL},
    {"<|im_end|>", CONTROL},           {"<|object_ref_start|>", CONTROL},
    {"<|object_ref_end|>", CONTROL},   {"<|box_start|>", CONTROL},
    {"<|box_end|>", CONTROL},          {"<|quad_start|>", CONTROL},
    {"<|quad_end|>", CONTROL},         {"<|vision_start|>", CONTROL},
    {"<|vision_end|>", CONTROL},       {"<|vision_pad|>", CONTROL},
    {"<|image_pad|>", CONTROL},        {"<|video_pad|>", CONTROL},
    {"<tool_call>", USER_DEFINED},     {"</tool_call>", USER_DEFINED},
    {"<|fim_prefix|>", CONTROL},       {"<|fim_middle|>", CONTROL},
    {"<|fim_suffix|>", CONTROL},       {"<|fim_pad|>", CONTROL},
    {"<|repo_name|>", CONTROL},        {"<|file_sep|>", CONTROL},
    {"<tool_response>", USER_DEFINED}, {"</tool_response>", USER_DEFINED},
    {"<think>", USER_DEFINED},         {"</think>", USER_DEFINED},
};

static const special spm_specials[] = {{"<unk>", UNKNOWN}, {"<s>", CONTROL}, {"</s>", CONTROL}};

/* Short templates that render as each family's own does for chats of text; what more the originals
 * do (tools, dates) is left out. */
#define CHATML_TEMPLATE(system)                                                                    \
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"             \
    "{{ '<|im_start|>system\\n" system "<|im_end|>\\n' }}{% endif %}"                              \
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"        \
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

static const char smollm_template[] =
    CHATML_TEMPLATE("You are a helpful AI assistant named SmolLM, trained by Hugging Face");
static const char qwen2_template[] =
    CHATML_TEMPLATE("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
/* Answers before the last question lose what they thought. */
static const char qwen3_template[] =
    "{%- set ns = namespace(last_query_index=0) %}{%- for message in messages %}"
    "{%- if message.role == 'user' %}{%- set ns.last_query_index = loop.index0 %}{%- endif %}"
    "{%- endfor %}{%- for message in messages %}{%- set content = message.content %}"
    "{%- if message.role == 'assistant' and loop.index0 < ns.last_query_index %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}";
static const char llama3_template[] =
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
    "{{ message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";
static const char llama2_template[] =
    "{% set ns = namespace(system='') %}{% for message in messages %}"
    "{% if message['role'] == 'system' %}"
    "{% set ns.system = '<<SYS>>\\n' + message['content'] + '\\n<</SYS>>\\n\\n' %}"
    "{% elif message['role'] == 'user' %}{% set content = ns.system + message['content'] %}"
    "{% set ns.system = '' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% else %}{% set content = message['content'] %}"
    "{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}";
static const char mistral_template[] =
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}"
    "{{ message['content'] + eos_token }}{% endif %}{% endfor %}";

#define SPECIALS(list) .specials = list, .special_count = sizeof(list) / sizeof *(list)

static const family families[] = {
    [MAKE_VOCAB_SMOLLM] = {.pre = "smollm",
                           SPECIALS(smollm_specials),
                           .specials_first = true,
                           .bos = "<|im_start|>",
                           .eos = "<|im_end|>",
                           .unknown = "<|endoftext|>",
                           .padding = "<|im_end|>",
                           .add_bos = 0,
                           .chat_template = smollm_template},
    [MAKE_VOCAB_LLAMA3] = {.pre = "llama-bpe",
                           SPECIALS(llama3_specials),
                           .filler_kind = CONTROL,
                           .bos = "<|begin_of_text|>",
                           .eos = "<|eot_id|>",
                           .eot = "<|eot_id|>",
                           .padding = "<|finetune_right_pad_id|>",
                           .add_bos = 1,
                           .chat_template = llama3_template},
    [MAKE_VOCAB_QWEN2] = {.pre = "qwen2",
                          .specials = qwen_specials,
                          .special_count = QWEN2_SPECIAL_COUNT,
                          .filler_kind = UNUSED,
                          .bos = "<|endoftext|>",
                          .eos = "<|im_end|>",
                          .padding = "<|endoftext|>",
                          .add_bos = 0,
                          .chat_template = qwen2_template},
    [MAKE_VOCAB_QWEN3] = {.pre = "qwen2",
                          SPECIALS(qwen_specials),
                          .filler_kind = UNUSED,
                          .bos = "<|endoftext|>",
                          .eos = "<|im_end|>",
                          .padding = "<|endoftext|>",
                          .add_bos = 0,
                          .chat_template = qwen3_template},
    [MAKE_VOCAB_LLAMA2] = {SPECIALS(spm_specials), .specials_first = true, .bos = "<s>",
                           .eos = "</s>", .unknown = "<unk>", .add_bos = 1,
                           .chat_template = llama2_template},
    [MAKE_VOCAB_MISTRAL] = {SPECIALS(spm_specials), .specials_first = true, .bos = "<s>",
                            .eos = "</s>", .unknown = "<unk>", .add_bos = 1,
                            .chat_template = mistral_template},
};

uint32_t make__vocab_min(make_vocab_kind kind)
{
    const family *f = &families[kind];
    return BYTE_COUNT + f->special_count + (f->pre ? 0 : SPM_SINGLE_COUNT);
}

/* ---- pieces ---- */

/* By frequency in English, so that the few that fit are the likely ones. */
static const char letters[] = "etaoinshrdlcumwfgypbvkjxqz";

/* Text of piece `n`, of at least two characters; *out_last is where its last letter begins. */
static void piece_text(char out[PIECE_BYTES], size_t *out_last, uint64_t n, const char *space)
{
    uint64_t level_size = STARTER_COUNT * LETTER_COUNT;
    int letter_count = 1;
    for (; n >= level_size; level_size *= LETTER_COUNT, letter_count++)
        n -= level_size;
    char tail[PIECE_BYTES / 2];
    for (int i = letter_count; i-- > 0; n /= LETTER_COUNT)
        tail[i] = letters[n % LETTER_COUNT];
    tail[letter_count] = 0;
    /* n is now the starter's index. */
    if (n == 0)
        snprintf(out, PIECE_BYTES, "%s%s", space, tail);
    else if (n <= LETTER_COUNT)
        snprintf(out, PIECE_BYTES, "%c%s", letters[n - 1], tail);
    else
        snprintf(out, PIECE_BYTES, "%c%s", letters[n - 1 - LETTER_COUNT] - 'a' + 'A', tail);
    *out_last = strlen(out) - 1;
}

/* GPT-2 writes each byte as a printable character: itself, or one from U+0100 on. */
static bool printable_byte(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

/* The 256 byte tokens in GPT-2's order: the printable ones, then the others. */
static void put_byte_tokens(make_bytes *b)
{
    uint32_t other = 256;
    for (int printable = 1; printable >= 0; printable--)
        for (int byte = 0; byte < BYTE_COUNT; byte++) {
            if (printable_byte(byte) != (printable == 1))
                continue;
            char text[5] = {0};
            brim__utf8_encode(text, printable ? (uint32_t)byte : other++);
            make__put_string(b, text);
        }
}

static const char bpe_space[] = "\xc4\xa0";     /* U+0120: how GPT-2 writes a space */
static const char spm_space[] = "\xe2\x96\x81"; /* U+2581: how SentencePiece does */

/* ---- the arrays ---- */

/* How the ids are laid out: [specials] bytes pieces [singles] [specials] fillers. */
typedef struct layout {
    const family *family;
    uint32_t size, piece_count, filler_count;
} layout;

/* Named as the originals are: Qwen's converter counts ids, Llama 3 goes on after its token 2. */
static void put_filler(make_bytes *b, const layout *l, uint32_t index)
{
    char text[PIECE_BYTES * 2];
    if (l->family->filler_kind == UNUSED)
        snprintf(text, sizeof text, "[PAD%u]", l->size - l->filler_count + index);
    else
        snprintf(text, sizeof text, "<|reserved_special_token_%u|>", 3 + index);
    make__put_string(b, text);
}

static void put_bpe_tokens(make_bytes *b, const layout *l)
{
    const family *f = l->family;
    for (uint32_t i = 0; f->specials_first && i < f->special_count; i++)
        make__put_string(b, f->specials[i].text);
    put_byte_tokens(b);
    char text[PIECE_BYTES];
    size_t last;
    for (uint32_t i = 0; i < l->piece_count; i++) {
        piece_text(text, &last, i, bpe_space);
        make__put_string(b, text);
    }
    for (uint32_t i = 0; !f->specials_first && i < f->special_count; i++)
        make__put_string(b, f->specials[i].text);
    for (uint32_t i = 0; i < l->filler_count; i++)
        put_filler(b, l, i);
}

static void put_spm_tokens(make_bytes *b, const layout *l)
{
    char text[PIECE_BYTES];
    size_t last;
    for (uint32_t i = 0; i < l->family->special_count; i++)
        make__put_string(b, l->family->specials[i].text);
    for (int i = 0; i < BYTE_COUNT; i++) {
        snprintf(text, sizeof text, "<0x%02X>", i);
        make__put_string(b, text);
    }
    for (uint32_t i = 0; i < l->piece_count; i++) {
        piece_text(text, &last, i, spm_space);
        make__put_string(b, text);
    }
    make__put_string(b, spm_space);
    for (char c = '!'; c <= '~'; c++)
        make__put_string(b, (char[]){c, 0});
}

static void put_kinds(make_bytes *b, uint32_t count, int kind)
{
    for (uint32_t i = 0; i < count; i++)
        make__put_u32(b, (uint32_t)kind);
}

static void put_token_types(make_bytes *b, const layout *l)
{
    const family *f = l->family;
    make__key_array(b, "tokenizer.ggml.token_type", BRIM_META_I32, l->size);
    for (uint32_t i = 0; f->specials_first && i < f->special_count; i++)
        make__put_u32(b, (uint32_t)f->specials[i].kind);
    put_kinds(b, BYTE_COUNT, f->pre ? NORMAL : BYTE);
    put_kinds(b, l->piece_count + (f->pre ? 0 : SPM_SINGLE_COUNT), NORMAL);
    for (uint32_t i = 0; !f->specials_first && i < f->special_count; i++)
        make__put_u32(b, (uint32_t)f->specials[i].kind);
    put_kinds(b, l->filler_count, f->filler_kind);
}

/* Earlier pieces merge first: the score is minus the rank, and 0 for what never merges. */
static void put_scores(make_bytes *b, const layout *l)
{
    make__key_array(b, "tokenizer.ggml.scores", BRIM_META_F32, l->size);
    for (uint32_t i = 0; i < l->size; i++) {
        uint32_t fixed = SPM_CONTROL_COUNT + BYTE_COUNT;
        float score = i < fixed ? 0.0f : -(float)(i - fixed);
        make__put(b, &score, sizeof score);
    }
}

static void put_merges(make_bytes *b, const layout *l)
{
    make__key_array(b, "tokenizer.ggml.merges", BRIM_META_STRING, l->piece_count);
    for (uint32_t i = 0; i < l->piece_count; i++) {
        char text[PIECE_BYTES], merge[2 * PIECE_BYTES];
        size_t last;
        piece_text(text, &last, i, bpe_space);
        snprintf(merge, sizeof merge, "%.*s %s", (int)last, text, text + last);
        make__put_string(b, merge);
    }
}

static void put_id(make_bytes *b, const layout *l, const char *key, const char *text)
{
    const family *f = l->family;
    uint32_t first = f->specials_first ? 0 : l->size - l->filler_count - f->special_count;
    for (uint32_t i = 0; text && i < f->special_count; i++)
        if (strcmp(f->specials[i].text, text) == 0)
            make__key_u32(b, key, first + i);
}

void make__put_vocab(make_bytes *b, make_vocab_kind kind, uint32_t size, uint32_t padding)
{
    const family *f = &families[kind];
    layout l = {.family = f, .size = size, .filler_count = padding};
    l.piece_count = size - make__vocab_min(kind) - padding;
    make__key_string(b, "tokenizer.ggml.model", f->pre ? "gpt2" : "llama");
    make__key_string(b, "tokenizer.ggml.pre", f->pre ? f->pre : "default");
    make__key_array(b, "tokenizer.ggml.tokens", BRIM_META_STRING, size);
    if (f->pre)
        put_bpe_tokens(b, &l);
    else
        put_spm_tokens(b, &l);
    if (!f->pre)
        put_scores(b, &l);
    put_token_types(b, &l);
    if (f->pre)
        put_merges(b, &l);
    put_id(b, &l, "tokenizer.ggml.bos_token_id", f->bos);
    put_id(b, &l, "tokenizer.ggml.eos_token_id", f->eos);
    put_id(b, &l, "tokenizer.ggml.eot_token_id", f->eot);
    put_id(b, &l, "tokenizer.ggml.unknown_token_id", f->unknown);
    put_id(b, &l, "tokenizer.ggml.padding_token_id", f->padding);
    if (f->add_bos >= 0)
        make__key_bool(b, "tokenizer.ggml.add_bos_token", f->add_bos == 1);
    make__key_string(b, "tokenizer.chat_template", f->chat_template);
}
