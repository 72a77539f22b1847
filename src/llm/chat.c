/* chat.c: the kinds of chat templates and how a file's own template is recognised.
 *
 * A template is a program in Jinja. It is not run: its text is searched for the marks of the few
 * published templates that are supported, and refused when it has marks of any other. Quotes and
 * white space vary between copies of one template, so they are not compared. */
#include "llm/chat.h"

#include <string.h>

static const char *const kind_names[] = {
#define CHAT_NAME(name, text) text,
    BRIM_CHAT_LIST(CHAT_NAME)
#undef CHAT_NAME
};

enum { KIND_COUNT = sizeof kind_names / sizeof *kind_names };

#define CHAT_TEXT(name, text) " " text
#define KINDS_TEXT BRIM_CHAT_LIST(CHAT_TEXT)

const char *brim_chat_name(brim_chat_kind kind)
{
    return (unsigned)kind < KIND_COUNT ? kind_names[kind] : "unknown";
}

bool brim_chat_parse(brim_chat_kind *out, const char *name)
{
    for (int i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kind_names[i], name))
            continue;
        *out = (brim_chat_kind)i;
        return true;
    }
    return false;
}

typedef struct template_text {
    const char *text;
    size_t size;
} template_text;

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Whether the pattern stands at text[at..): blanks in the text are skipped, both quotes are the
 * same, patterns are written with '. */
static bool stands_at(const template_text *t, size_t at, const char *pattern)
{
    for (; *pattern; pattern++, at++) {
        while (at < t->size && is_blank(t->text[at]))
            at++;
        if (at == t->size || (t->text[at] == '"' ? '\'' : t->text[at]) != *pattern)
            return false;
    }
    return true;
}

static bool has(const template_text *t, const char *pattern)
{
    for (size_t at = 0; at < t->size; at++) {
        bool starts = t->text[at] == *pattern || (t->text[at] == '"' && *pattern == '\'');
        if (starts && stands_at(t, at, pattern))
            return true;
    }
    return false;
}

/* Where `word` stands, byte for byte, at or behind `from`; the text's size if nowhere. */
static size_t find(const template_text *t, const char *word, size_t from)
{
    size_t size = strlen(word);
    for (size_t at = from; at + size <= t->size; at++) {
        const char *first = memchr(t->text + at, *word, t->size - at - size + 1);
        if (!first)
            break;
        at = (size_t)(first - t->text);
        if (!memcmp(first, word, size))
            return at;
    }
    return t->size;
}

static bool has_word(const template_text *t, const char *word)
{
    return find(t, word, 0) < t->size;
}

/* Marks of templates that look like a supported one and render otherwise. */
static bool has_foreign_marks(const template_text *t)
{
    static const char *const words[] = {
        "<|im_sep|>",       "<end_of_utterance>",
        "<|im_middle|>",    "<start_of_turn>",
        "\xEF\xBD\x9C",     "<|user|>",
        "<|assistant|>",    "[gMASK]",
        "<|header_start|>", "<|start_of_role|>",
        "[SYSTEM_PROMPT]",  "<|START_OF_TURN_TOKEN|>",
        "<|channel|>",      "### Instruction",
        "[THINK]",          "<|system|>",
        "enable_citations", "keep_past_thinking",
        "reasoning_effort", "functools",
        "function calling", "<|eom|>",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (has_word(t, words[i]))
            return true;
    return false;
}

/* The text of a string literal, text[from..to), unescaped; false when it is more than a literal or
 * does not fit. */
static bool copy_literal(brim__chat_rules *out, const template_text *t, size_t from, size_t to)
{
    out->system_size = 0;
    for (size_t i = from; i < to; i++) {
        char c = t->text[i];
        bool pair = i + 1 < to;
        if (out->system_size == sizeof out->system ||
            (pair && (c == '{' || c == '}') && strchr("{}%#", t->text[i + 1]) &&
             !(c == '{' && t->text[i + 1] == '}')))
            return false;
        if (c == '\\' && pair) {
            c = t->text[++i];
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
        }
        out->system[out->system_size++] = c;
    }
    return true;
}

/* The default system prompt: a literal between <|im_start|>system and <|im_end|>; false when there
 * seems to be one that is not understood. */
static bool find_default_system(brim__chat_rules *out, const template_text *t)
{
    static const char start[] = "<|im_start|>system";
    out->system_size = 0;
    for (size_t at = 0; (at = find(t, start, at)) < t->size; at++) {
        size_t from = at + sizeof start - 1;
        if (from < t->size && t->text[from] == '\n')
            from++;
        else if (from + 1 < t->size && !memcmp(t->text + from, "\\n", 2))
            from += 2;
        else
            continue;
        size_t to = find(t, "<|im_end|>", from);
        if (to == t->size || t->text[from] == '\'' || t->text[from] == '"')
            continue; /* the literal ends here: the message's own text follows */
        return copy_literal(out, t, from, to);
    }
    return !has_word(t, "You are");
}

static bool system_is(const brim__chat_rules *rules, const char *text)
{
    return strlen(text) == rules->system_size && !memcmp(text, rules->system, rules->system_size);
}

#define QWEN1_SYSTEM "You are a helpful assistant"
#define QWEN2_SYSTEM "You are a helpful assistant."
#define QWEN25_SYSTEM "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
#define SMOLLM2_SYSTEM "You are a helpful AI assistant named SmolLM, trained by Hugging Face"

static bool set_kind(brim__chat_rules *out, brim_chat_kind kind, brim__chat_style style)
{
    out->kind = kind;
    out->style = style;
    return true;
}

/* <|im_start|> and <|im_end|>: chatml and what came of it. */
static bool analyse_im(brim__chat_rules *out, const template_text *t)
{
    bool thinks = has_word(t, "<think>") || has_word(t, "</think>");
    if (thinks) {
        /* Qwen 3: thinking is on unless enable_thinking is false; older turns lose theirs. Later
         * ones that always or never think start the answer otherwise. */
        return has(t, "enable_thinkingisdefinedandenable_thinkingisfalse") &&
               has(t, "ns.last_query_index") && !has(t, "{%-else%}{{-'<think>") &&
               set_kind(out, BRIM_CHAT_QWEN3, BRIM__CHAT_IM_THINK);
    }
    if (!has(t, "'<|im_start|>'+message") || has(t, "|trim") || has_word(t, ".strip()") ||
        !find_default_system(out, t))
        return false;
    if (system_is(out, SMOLLM2_SYSTEM))
        return set_kind(out, BRIM_CHAT_SMOLLM2, BRIM__CHAT_IM);
    if (system_is(out, QWEN1_SYSTEM) || system_is(out, QWEN2_SYSTEM) ||
        system_is(out, QWEN25_SYSTEM))
        return set_kind(out, BRIM_CHAT_QWEN2, BRIM__CHAT_IM);
    return set_kind(out, BRIM_CHAT_CHATML, BRIM__CHAT_IM);
}

static bool analyse_llama3(brim__chat_rules *out, const template_text *t)
{
    if (!has_word(t, "<|eot_id|>") || !has(t, "message['content']|trim"))
        return false;
    if (!has_word(t, "Cutting Knowledge Date: December 2023"))
        return !has_word(t, "system_message") && set_kind(out, BRIM_CHAT_LLAMA3, BRIM__CHAT_LLAMA3);
    return has_word(t, "26 Jul 2024") && has_word(t, "ipython") &&
           set_kind(out, BRIM_CHAT_LLAMA3, BRIM__CHAT_LLAMA3_DATED);
}

static bool analyse_inst(brim__chat_rules *out, const template_text *t)
{
    if (has_word(t, "<<SYS>>"))
        return has(t, "bos_token+'[INST]'+content.strip()+'[/INST]'") &&
               has(t, "content.strip()+''+eos_token") && !has_word(t, "USE_DEFAULT_PROMPT") &&
               set_kind(out, BRIM_CHAT_LLAMA2, BRIM__CHAT_LLAMA2);
    if (has_word(t, "[AVAILABLE_TOOLS]")) {
        if (has_word(t, "' [INST] '") || has_word(t, "\" [INST] \""))
            return false;
        bool spaced = has_word(t, "\"[INST] \"") || has_word(t, "'[INST] '");
        return set_kind(out, BRIM_CHAT_MISTRAL,
                        spaced ? BRIM__CHAT_MISTRAL_V3 : BRIM__CHAT_MISTRAL_TEKKEN);
    }
    if (has(t, "bos_token+'[INST]") || !has_word(t, "[/INST]"))
        return false;
    if (has_word(t, "' [INST] ' + system_message") && has_word(t, "' [/INST]'"))
        return set_kind(out, BRIM_CHAT_MISTRAL, BRIM__CHAT_MISTRAL_V1);
    return has_word(t, "'[INST] ' + message['content'] + ' [/INST]'") &&
           has(t, "message['content']+eos_token") && !has_word(t, "system") &&
           set_kind(out, BRIM_CHAT_MISTRAL, BRIM__CHAT_MISTRAL_PLAIN);
}

/* The longest published templates have some 20,000 bytes; a text far above is none. */
enum { TEMPLATE_MAX = 256 << 10 };

void brim__chat_analyse(brim__chat_rules *out, const char *text, size_t size)
{
    template_text t = {text, size};
    out->known = false;
    out->system_size = 0;
    if (size > TEMPLATE_MAX)
        return;
    bool im = has_word(&t, "<|im_start|>") && has_word(&t, "<|im_end|>");
    bool llama3 = has_word(&t, "<|start_header_id|>") && has_word(&t, "<|end_header_id|>");
    bool inst = has_word(&t, "[INST]");
    if (im + llama3 + inst != 1 || has_foreign_marks(&t))
        return;
    out->known = im       ? analyse_im(out, &t)
                 : llama3 ? analyse_llama3(out, &t)
                          : analyse_inst(out, &t);
}

void brim__chat_rules_of(brim__chat_rules *out, brim_chat_kind kind)
{
    static const brim__chat_style styles[KIND_COUNT] = {
        [BRIM_CHAT_CHATML] = BRIM__CHAT_IM,          [BRIM_CHAT_SMOLLM2] = BRIM__CHAT_IM,
        [BRIM_CHAT_LLAMA2] = BRIM__CHAT_LLAMA2,      [BRIM_CHAT_LLAMA3] = BRIM__CHAT_LLAMA3,
        [BRIM_CHAT_MISTRAL] = BRIM__CHAT_MISTRAL_V1, [BRIM_CHAT_QWEN2] = BRIM__CHAT_IM,
        [BRIM_CHAT_QWEN3] = BRIM__CHAT_IM_THINK,
    };
    const char *system = kind == BRIM_CHAT_SMOLLM2 ? SMOLLM2_SYSTEM
                         : kind == BRIM_CHAT_QWEN2 ? QWEN25_SYSTEM
                                                   : "";
    out->known = true;
    out->kind = kind;
    out->style = styles[kind];
    out->system_size = strlen(system);
    memcpy(out->system, system, out->system_size);
}

brim_status brim_chat_recognise_text(brim_chat_kind *out, const char *text, size_t size)
{
    brim__chat_rules rules;
    brim__chat_analyse(&rules, text, size);
    BRIM_FAIL_IF(!rules.known, UNSUPPORTED, "chat.unknown",
                 "the file's chat template (%zu bytes) is none of those supported; choose one with "
                 "--template:" KINDS_TEXT,
                 size);
    *out = rules.kind;
    return BRIM_OK;
}

brim_status brim_chat_recognise(brim_chat_kind *out, const brim_model_file *file)
{
    const brim_meta *meta = brim_model_file_meta(file, "tokenizer.chat_template");
    BRIM_FAIL_IF(!meta, NOT_FOUND, "chat.none",
                 "the file has no chat template (tokenizer.chat_template); choose one with "
                 "--template:" KINDS_TEXT);
    const char *text;
    size_t size;
    BRIM_TRY(brim_meta_string(&text, &size, file, meta, 0));
    return brim_chat_recognise_text(out, text, size);
}
