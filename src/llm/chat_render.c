/* chat_render.c: conversations as the published templates write them, and as tokens.
 *
 * The marks of a template (<|im_start|>, [INST], ...) are kept apart from the text between them,
 * so that they alone become special tokens: whatever a message says is plain text. */
#include <string.h>

#include "llm/chat.h"
#include "llm/tokenizer.h"

typedef struct renderer {
    brim__chat_text *out;
    brim_context *ctx;
    const brim__chat_rules *rules;
} renderer;

void brim__chat_text_done(brim__chat_text *text)
{
    if (!text->text.ctx)
        return;
    brim__free(text->text.ctx, text->marks);
    brim__string_done(&text->text);
    *text = (brim__chat_text){0};
}

static brim_status put(renderer *r, const char *text)
{
    return brim__string_append(&r->out->text, text, strlen(text));
}

static brim_status put_bytes(renderer *r, const char *text, size_t size)
{
    return brim__string_append(&r->out->text, text, size);
}

static brim_status mark(renderer *r, brim__chat_mark kind, const char *text)
{
    brim__chat_text *out = r->out;
    BRIM_TRY(BRIM_GROW(r->ctx, out->marks, out->mark_capacity, out->mark_count + 1));
    out->marks[out->mark_count++] = (brim__chat_piece){out->text.size, strlen(text), kind};
    return put(r, text);
}

static const char *role_name(brim_role role)
{
    return role == BRIM_ROLE_SYSTEM ? "system" : role == BRIM_ROLE_USER ? "user" : "assistant";
}

/* What Python's str.strip() removes. */
static bool is_python_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static brim__slice trimmed(const char *text, size_t size)
{
    uint32_t c;
    size_t length, from = 0;
    while ((length = brim__utf8_decode(&c, text + from, size - from)) && is_python_space(c))
        from += length;
    for (size_t end = size; end > from; end = size) {
        do {
            end--;
        } while (end > from && ((unsigned char)text[end] & 0xC0) == 0x80);
        length = brim__utf8_decode(&c, text + end, size - end);
        if (length != size - end || !is_python_space(c))
            break;
        size = end;
    }
    return (brim__slice){text + from, size - from};
}

static brim__slice trim_newlines(brim__slice s, bool left, bool right)
{
    while (left && s.size && s.text[0] == '\n')
        s.text++, s.size--;
    while (right && s.size && s.text[s.size - 1] == '\n')
        s.size--;
    return s;
}

static brim_status put_trimmed(renderer *r, const char *text, size_t size)
{
    brim__slice s = trimmed(text, size);
    return put_bytes(r, s.text, s.size);
}

/* ---- <|im_start|> ---- */

static brim_status im_start(renderer *r, const char *role)
{
    BRIM_TRY(mark(r, BRIM__MARK_TOKEN, "<|im_start|>"));
    BRIM_TRY(put(r, role));
    return put(r, "\n");
}

static brim_status im_end(renderer *r)
{
    BRIM_TRY(mark(r, BRIM__MARK_TOKEN, "<|im_end|>"));
    return put(r, "\n");
}

static brim_status render_im(renderer *r, const brim_message *messages, size_t count,
                             bool continued, bool generate)
{
    if (continued)
        BRIM_TRY(im_end(r));
    else
        BRIM_TRY(mark(r, BRIM__MARK_BOS_IF_ADDED, ""));
    if (!continued && r->rules->system_size && count && messages[0].role != BRIM_ROLE_SYSTEM) {
        BRIM_TRY(im_start(r, "system"));
        BRIM_TRY(put_bytes(r, r->rules->system, r->rules->system_size));
        BRIM_TRY(im_end(r));
    }
    for (size_t i = 0; i < count; i++) {
        BRIM_TRY(im_start(r, role_name(messages[i].role)));
        BRIM_TRY(put_bytes(r, messages[i].text, messages[i].size));
        BRIM_TRY(im_end(r));
    }
    return generate ? im_start(r, "assistant") : BRIM_OK;
}

/* ---- Qwen 3 ---- */

static size_t find_text(brim__slice s, const char *word, size_t from)
{
    size_t size = strlen(word);
    for (size_t at = from; at + size <= s.size; at++)
        if (!memcmp(s.text + at, word, size))
            return at;
    return s.size;
}

static size_t find_last(brim__slice s, const char *word)
{
    size_t last = s.size;
    for (size_t at = 0; (at = find_text(s, word, at)) < s.size; at++)
        last = at;
    return last;
}

/* The answer behind the last </think>, and the thoughts before the first one. */
static brim__slice split_thoughts(brim__slice *thoughts, const brim_message *message)
{
    brim__slice whole = {message->text, message->size};
    *thoughts = (brim__slice){message->text, 0};
    size_t first = find_text(whole, "</think>", 0), last = find_last(whole, "</think>");
    if (first == whole.size)
        return whole;
    brim__slice before = trim_newlines((brim__slice){whole.text, first}, false, true);
    size_t opened = find_last(before, "<think>");
    if (opened < before.size)
        before = (brim__slice){before.text + opened + 7, before.size - opened - 7};
    *thoughts = trim_newlines(before, true, true);
    return trim_newlines((brim__slice){whole.text + last + 8, whole.size - last - 8}, true, false);
}

static bool is_tool_response(const brim_message *m)
{
    static const char start[] = "<tool_response>", end[] = "</tool_response>";
    return m->size >= sizeof end - 1 && !memcmp(m->text, start, sizeof start - 1) &&
           !memcmp(m->text + m->size - (sizeof end - 1), end, sizeof end - 1);
}

/* The user's last question: answers behind it keep their thoughts. */
static size_t last_question(const brim_message *messages, size_t count)
{
    for (size_t i = count; i-- > 0;)
        if (messages[i].role == BRIM_ROLE_USER && !is_tool_response(&messages[i]))
            return i;
    return count ? count - 1 : 0;
}

static brim_status render_answer(renderer *r, const brim_message *message, bool recent, bool last)
{
    brim__slice thoughts, answer = split_thoughts(&thoughts, message);
    if (recent && (last || thoughts.size)) {
        BRIM_TRY(mark(r, BRIM__MARK_OPTIONAL, "<think>"));
        BRIM_TRY(put(r, "\n"));
        BRIM_TRY(put_bytes(r, thoughts.text, thoughts.size));
        BRIM_TRY(put(r, "\n"));
        BRIM_TRY(mark(r, BRIM__MARK_OPTIONAL, "</think>"));
        BRIM_TRY(put(r, "\n\n"));
        answer = trim_newlines(answer, true, false);
    }
    return put_bytes(r, answer.text, answer.size);
}

static brim_status render_qwen3(renderer *r, const brim_message *messages, size_t count,
                                bool continued, bool generate)
{
    size_t question = last_question(messages, count);
    if (continued)
        BRIM_TRY(im_end(r));
    else
        BRIM_TRY(mark(r, BRIM__MARK_BOS_IF_ADDED, ""));
    for (size_t i = 0; i < count; i++) {
        BRIM_TRY(im_start(r, role_name(messages[i].role)));
        if (messages[i].role == BRIM_ROLE_ASSISTANT)
            BRIM_TRY(render_answer(r, &messages[i], i > question, i + 1 == count));
        else
            BRIM_TRY(put_bytes(r, messages[i].text, messages[i].size));
        BRIM_TRY(im_end(r));
    }
    return generate ? im_start(r, "assistant") : BRIM_OK;
}

/* ---- Llama 3 ---- */

static brim_status header(renderer *r, const char *role)
{
    BRIM_TRY(mark(r, BRIM__MARK_TOKEN, "<|start_header_id|>"));
    BRIM_TRY(put(r, role));
    BRIM_TRY(mark(r, BRIM__MARK_TOKEN, "<|end_header_id|>"));
    return put(r, "\n\n");
}

/* The date that the templates of 3.1 to 3.3 fall back to when they are not told today's: a
 * conversation is the same tokens on every day. */
#define LLAMA3_DATES "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

static brim_status render_llama3(renderer *r, const brim_message *messages, size_t count,
                                 bool continued, bool generate)
{
    size_t from = 0;
    if (continued)
        BRIM_TRY(mark(r, BRIM__MARK_TOKEN, "<|eot_id|>"));
    else
        BRIM_TRY(mark(r, BRIM__MARK_BOS, ""));
    if (!continued && r->rules->style == BRIM__CHAT_LLAMA3_DATED) {
        BRIM_TRY(header(r, "system"));
        BRIM_TRY(put(r, LLAMA3_DATES));
        if (count && messages[0].role == BRIM_ROLE_SYSTEM) {
            BRIM_TRY(put_trimmed(r, messages[0].text, messages[0].size));
            from = 1;
        }
        BRIM_TRY(mark(r, BRIM__MARK_TOKEN, "<|eot_id|>"));
    }
    for (size_t i = from; i < count; i++) {
        BRIM_TRY(header(r, role_name(messages[i].role)));
        BRIM_TRY(put_trimmed(r, messages[i].text, messages[i].size));
        BRIM_TRY(mark(r, BRIM__MARK_TOKEN, "<|eot_id|>"));
    }
    return generate ? header(r, "assistant") : BRIM_OK;
}

/* ---- [INST] ---- */

/* A system message, if any, comes first; then user and assistant take turns. */
static brim_status check_turns(size_t *out_first, const brim_message *messages, size_t count,
                               const char *name)
{
    *out_first = count && messages[0].role == BRIM_ROLE_SYSTEM;
    for (size_t i = *out_first; i < count; i++)
        BRIM_FAIL_IF(messages[i].role !=
                         ((i - *out_first) % 2 ? BRIM_ROLE_ASSISTANT : BRIM_ROLE_USER),
                     USAGE, "chat.order",
                     "message %zu is of the role %s; in a %s conversation user and assistant take "
                     "turns after an "
                     "optional system message",
                     i, role_name(messages[i].role), name);
    BRIM_FAIL_IF(
        *out_first && count == 1, USAGE, "chat.order",
        "a %s conversation has no place for a system message without a message of the user", name);
    return BRIM_OK;
}

/* The user's text with the system prompt before it, trimmed as one. */
static brim_status put_llama2_user(renderer *r, const brim_message *system,
                                   const brim_message *user)
{
    if (!system)
        return put_trimmed(r, user->text, user->size);
    brim__string joined = {.ctx = r->ctx};
    brim_status status;
    BRIM_TRY_GOTO(brim__string_text(&joined, "<<SYS>>\n"), done);
    BRIM_TRY_GOTO(brim__string_append(&joined, system->text, system->size), done);
    BRIM_TRY_GOTO(brim__string_text(&joined, "\n<</SYS>>\n\n"), done);
    BRIM_TRY_GOTO(brim__string_append(&joined, user->text, user->size), done);
    status = put_trimmed(r, joined.data, joined.size);
done:
    brim__string_done(&joined);
    return status;
}

static brim_status render_llama2(renderer *r, const brim_message *messages, size_t count,
                                 bool continued)
{
    size_t first;
    BRIM_TRY(check_turns(&first, messages, count, "llama2"));
    if (continued) {
        BRIM_TRY(put(r, " "));
        BRIM_TRY(mark(r, BRIM__MARK_EOS, ""));
    }
    for (size_t i = first; i < count; i++) {
        if (messages[i].role == BRIM_ROLE_USER) {
            BRIM_TRY(mark(r, BRIM__MARK_BOS, ""));
            BRIM_TRY(put(r, "[INST] "));
            BRIM_TRY(put_llama2_user(r, first && i == 1 ? &messages[0] : NULL, &messages[i]));
            BRIM_TRY(put(r, " [/INST]"));
            continue;
        }
        BRIM_TRY(put(r, " "));
        BRIM_TRY(put_trimmed(r, messages[i].text, messages[i].size));
        BRIM_TRY(put(r, " "));
        BRIM_TRY(mark(r, BRIM__MARK_EOS, ""));
    }
    return BRIM_OK;
}

static brim_status put_system(renderer *r, const brim_message *system)
{
    BRIM_TRY(put_bytes(r, system->text, system->size));
    return put(r, "\n\n");
}

/* v1 and before: [INST] is text. */
static brim_status put_v1(renderer *r, const brim_message *message, const brim_message *system,
                          bool plain)
{
    if (message->role == BRIM_ROLE_ASSISTANT) {
        BRIM_TRY(put(r, plain ? "" : " "));
        BRIM_TRY(put_bytes(r, message->text, message->size));
        return mark(r, BRIM__MARK_EOS, "");
    }
    BRIM_TRY(put(r, plain ? "[INST] " : " [INST] "));
    if (system)
        BRIM_TRY(put_system(r, system));
    BRIM_TRY(put_bytes(r, message->text, message->size));
    return put(r, " [/INST]");
}

/* v3 and tekken: [INST] is a token. */
static brim_status put_v3(renderer *r, const brim_message *message, const brim_message *system,
                          bool spaced)
{
    if (message->role == BRIM_ROLE_ASSISTANT) {
        brim__slice text = {message->text, message->size};
        if (spaced)
            text = trimmed(text.text, text.size);
        BRIM_TRY(put(r, spaced ? " " : ""));
        BRIM_TRY(put_bytes(r, text.text, text.size));
        return mark(r, BRIM__MARK_EOS, "");
    }
    BRIM_TRY(mark(r, BRIM__MARK_TOKEN, "[INST]"));
    BRIM_TRY(put(r, spaced ? " " : ""));
    if (system)
        BRIM_TRY(put_system(r, system));
    BRIM_TRY(put_bytes(r, message->text, message->size));
    return mark(r, BRIM__MARK_TOKEN, "[/INST]");
}

static brim_status render_mistral(renderer *r, const brim_message *messages, size_t count,
                                  bool continued)
{
    brim__chat_style style = r->rules->style;
    bool v1 = style == BRIM__CHAT_MISTRAL_V1 || style == BRIM__CHAT_MISTRAL_PLAIN;
    size_t first, last = 0;
    BRIM_TRY(check_turns(&first, messages, count, "mistral"));
    BRIM_FAIL_IF(
        first && style == BRIM__CHAT_MISTRAL_PLAIN, USAGE, "chat.order",
        "the file's chat template has no place for a system message; leave it out, or choose "
        "another template with --template");
    for (size_t i = first; i < count; i++)
        if (messages[i].role == BRIM_ROLE_USER)
            last = i;
    BRIM_TRY(mark(r, continued ? BRIM__MARK_EOS : BRIM__MARK_BOS, ""));
    for (size_t i = first; i < count; i++) {
        /* v1 puts the system prompt before the first question, v3 before the last. */
        const brim_message *system = first && i == (v1 ? first : last) ? &messages[0] : NULL;
        BRIM_TRY(v1 ? put_v1(r, &messages[i], system, style == BRIM__CHAT_MISTRAL_PLAIN)
                    : put_v3(r, &messages[i], system, style == BRIM__CHAT_MISTRAL_V3));
    }
    return BRIM_OK;
}

brim_status brim__chat_render(brim__chat_text *out, brim_context *ctx,
                              const brim__chat_rules *rules, const brim_message *messages,
                              size_t count, bool continued, bool generate)
{
    renderer r = {out, ctx, rules};
    *out = (brim__chat_text){.text = {.ctx = ctx}};
    BRIM_TRY(put(&r, "")); /* so that there is a text, if an empty one */
    switch (rules->style) {
    case BRIM__CHAT_IM:
        return render_im(&r, messages, count, continued, generate);
    case BRIM__CHAT_IM_THINK:
        return render_qwen3(&r, messages, count, continued, generate);
    case BRIM__CHAT_LLAMA3:
    case BRIM__CHAT_LLAMA3_DATED:
        return render_llama3(&r, messages, count, continued, generate);
    case BRIM__CHAT_LLAMA2:
        return render_llama2(&r, messages, count, continued);
    default:
        return render_mistral(&r, messages, count, continued);
    }
}
