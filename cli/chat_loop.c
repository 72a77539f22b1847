/* chat_loop.c: `brim run MODEL` on a terminal: a conversation.
 *
 * Each turn encodes the whole conversation and evaluates only what the session doesn't hold yet:
 * the template stays exact however an answer ended, and a change of the system's words needs no
 * case of its own.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "line_edit.h"
#include "run.h"

typedef struct chat {
    run_state *r;
    line_edit *edit;
    char *system;           /* NULL: none */
    brim_message *messages; /* texts are owned */
    size_t count, capacity;
    bool bold_prompt;
    bool leaving;
    int code;
} chat;

/* ---- the conversation ---- */

static void drop_messages(chat *h, size_t from)
{
    for (size_t i = from; i < h->count; i++)
        free((char *)(uintptr_t)h->messages[i].text);
    h->count = from;
}

/* Appends a copy; false when there is no memory. */
static bool add_message(chat *h, brim_role role, const char *text, size_t size)
{
    if (h->count == h->capacity) {
        size_t capacity = h->capacity ? h->capacity * 2 : 16;
        brim_message *grown = realloc(h->messages, capacity * sizeof *grown);
        if (!grown)
            return false;
        h->messages = grown;
        h->capacity = capacity;
    }
    char *copy = malloc(size + 1);
    if (!copy)
        return false;
    memcpy(copy, text, size);
    copy[size] = 0;
    h->messages[h->count++] = (brim_message){role, copy, size};
    return true;
}

/* Forgets the oldest question and its answer; false when only the last question is left. */
static bool drop_oldest(chat *h)
{
    size_t first = 1;
    while (first < h->count && h->messages[first].role != BRIM_ROLE_USER)
        first++;
    if (first >= h->count)
        return false;
    for (size_t i = 0; i < first; i++)
        free((char *)(uintptr_t)h->messages[i].text);
    memmove(h->messages, h->messages + first, (h->count - first) * sizeof *h->messages);
    h->count -= first;
    return true;
}

static brim_status encode(chat *h, brim_tokens *out, uint64_t *lost)
{
    run_state *r = h->r;
    brim_message *all = malloc((h->count + 1) * sizeof *all);
    if (!all)
        return BRIM_NO_MEMORY;
    size_t count = 0;
    if (h->system)
        all[count++] = (brim_message){BRIM_ROLE_SYSTEM, h->system, strlen(h->system)};
    memcpy(all + count, h->messages, h->count * sizeof *all);
    out->count = 0;
    brim_status status = brim_chat_encode(out, lost, r->c->ctx, r->model.tokenizer, r->chat, all,
                                          count + h->count, false, true);
    free(all);
    return status;
}

/* With --shift the oldest turns are forgotten until the prompt and an eighth of the context for the
 * answer fit. Only what fits is encoded into *out. */
static brim_status encode_fitting(chat *h, brim_tokens *out, uint64_t *lost)
{
    uint32_t context = brim_runner_context(h->r->model.runner);
    size_t before = h->count;
    brim_status status = encode(h, out, lost);
    while (status == BRIM_OK && h->r->settings.shift && out->count > context - context / 8 &&
           drop_oldest(h))
        status = encode(h, out, lost);
    if (h->count < before)
        fprintf(stderr,
                "brim run: the context of %u positions is full: the oldest %zu messages are "
                "forgotten (--shift)\n",
                context, before - h->count);
    return status;
}

/* Leaves in the session what it shares with the prompt, and at least one token to evaluate. */
static uint32_t keep_common(brim_session *session, const brim_tokens *tokens)
{
    uint32_t same = 0, length = brim_session_length(session);
    while (same < length && same + 1 < tokens->count &&
           brim_session_token(session, same) == tokens->ids[same])
        same++;
    brim_session_truncate(session, same);
    return same;
}

/* ---- a turn ---- */

static void finish_turn(chat *h, const answer *a)
{
    answer_print_figures(a);
    if (a->end == ANSWER_END_CONTEXT)
        run_full(h->r, a);
    if (a->end == ANSWER_END_INTERRUPT)
        fputs("(Ctrl-C again, or /exit, leaves)\n", stderr);
    if (a->end == ANSWER_END_INTERRUPT && a->text_size == 0)
        drop_messages(h, h->count - 1); /* stopped before it said anything: as if never asked */
    else if (!add_message(h, BRIM_ROLE_ASSISTANT, a->text, a->text_size)) {
        h->code =
            cli_error(h->r->c, BRIM_NO_MEMORY, "memory.out", "no memory for the conversation");
        h->leaving = true;
    }
}

/* Answers the last message, which is the user's; it is taken back when that fails. */
static void answer_turn(chat *h)
{
    run_state *r = h->r;
    brim_tokens tokens = {0};
    uint64_t lost = 0;
    int code = CLI_OK;
    brim_status status = encode_fitting(h, &tokens, &lost);
    if (status != BRIM_OK) {
        cli_fail(r->c, status);
        drop_messages(h, h->count - 1);
    } else {
        answer a;
        run_say_lost(lost);
        cli_clear_interrupts();
        uint32_t same = keep_common(r->settings.session, &tokens);
        if (answer_make(&a, &r->settings, tokens.ids + same, (uint32_t)tokens.count - same,
                        run_constant_start(r, &tokens), &code))
            finish_turn(h, &a);
        else
            drop_messages(h, h->count - 1);
        answer_done(&a);
    }
    brim_tokens_done(&tokens, r->c->ctx);
}

static void ask(chat *h, const char *text, size_t size)
{
    size_t bad = brim_utf8_check(text, size);
    if (bad < size)
        cli_error(h->r->c, BRIM_USAGE, "run.utf8", "that is not UTF-8 at byte %zu (0x%02x)", bad,
                  (unsigned char)text[bad]);
    else if (!add_message(h, BRIM_ROLE_USER, text, size))
        cli_error(h->r->c, BRIM_NO_MEMORY, "memory.out", "no memory for the conversation");
    else
        answer_turn(h);
}

/* ---- commands ---- */

static void command_help(chat *h, const char *rest)
{
    (void)h, (void)rest;
    fputs("  /help           this text\n"
          "  /clear          forget the conversation\n"
          "  /system [TEXT]  show, or set, what the model is told first; starts afresh\n"
          "  /retry          answer the last question again, with the next seed\n"
          "  /context        how much of the context is in use\n"
          "  /exit           leave (also Ctrl-D)\n"
          "A line that ends with \\ goes on. Ctrl-C stops an answer; twice leaves.\n"
          "Up and Down walk through the history, Ctrl-R searches it.\n",
          stderr);
}

static void command_clear(chat *h, const char *rest)
{
    (void)rest;
    drop_messages(h, 0);
    fputs("(a new conversation)\n", stderr);
}

static void command_system(chat *h, const char *rest)
{
    if (!*rest) {
        fprintf(stderr, "%s\n",
                h->system ? h->system
                          : "(nothing was set; the template may have words of its own)");
        return;
    }
    char *copy = strdup(rest);
    if (!copy) {
        cli_error(h->r->c, BRIM_NO_MEMORY, "memory.out", "no memory for that");
        return;
    }
    free(h->system);
    h->system = copy;
    h->r->system = copy;
    command_clear(h, "");
}

static void command_retry(chat *h, const char *rest)
{
    (void)rest;
    if (h->count && h->messages[h->count - 1].role == BRIM_ROLE_ASSISTANT)
        drop_messages(h, h->count - 1);
    if (!h->count) {
        fputs("(nothing was asked yet)\n", stderr);
        return;
    }
    brim_sampling *sampling = &h->r->settings.sampling;
    sampling->seed++;
    if (sampling->temperature > 0)
        fprintf(stderr, "(seed %llu)\n", (unsigned long long)sampling->seed);
    else
        fputs("(at temperature 0 the answer is always the same)\n", stderr);
    answer_turn(h);
}

static void command_context(chat *h, const char *rest)
{
    (void)rest;
    uint32_t context = brim_runner_context(h->r->model.runner);
    uint32_t length = h->count ? brim_session_length(h->r->settings.session) : 0;
    fprintf(stderr, "%u of %u positions, %zu messages\n", length, context, h->count);
}

static void command_exit(chat *h, const char *rest)
{
    (void)rest;
    h->leaving = true;
}

static const struct chat_command {
    const char *name;
    void (*run)(chat *h, const char *rest);
} chat_commands[] = {
    {"/help", command_help},   {"/clear", command_clear},     {"/system", command_system},
    {"/retry", command_retry}, {"/context", command_context}, {"/exit", command_exit},
    {"/quit", command_exit},
};

static void run_command(chat *h, const char *line)
{
    size_t size = strcspn(line, " \t");
    const char *rest = line + size + strspn(line + size, " \t");
    const char *known[CLI_COUNT(chat_commands) + 1];
    char word[64];
    for (size_t i = 0; i < CLI_COUNT(chat_commands); i++) {
        known[i] = chat_commands[i].name;
        if (strlen(known[i]) == size && memcmp(known[i], line, size) == 0) {
            chat_commands[i].run(h, rest);
            return;
        }
    }
    known[CLI_COUNT(chat_commands)] = NULL;
    snprintf(word, sizeof word, "%.*s", (int)(size < sizeof word ? size : sizeof word - 1), line);
    const char *near = brim_suggest(word, known);
    fputs("there is no command ", stderr);
    brim_print_safe(stderr, word, strlen(word));
    fprintf(stderr,
            near ? "; did you mean %s?\n"
                 : "; /help lists them, a space before it sends it as a question%s\n",
            near ? near : "");
}

/* ---- lines ---- */

static bool blank(const char *text, size_t size)
{
    while (size && isspace((unsigned char)text[size - 1]))
        size--;
    return size == 0;
}

/* Reads a question, which backslashes at the ends of lines continue, into *out (freed by the
 * caller; NULL when there is no memory). With LINE_INTERRUPT *out_size is what had been typed. */
static line_result read_question(chat *h, char **out, size_t *out_size)
{
    /* What stands between two \1 has no width: colours. */
    const char *first = h->bold_prompt ? "\1\033[1m\1>\1\033[0m\1 " : "> ";
    const char *line;
    size_t size, total = 0;
    bool more = true;
    char *text = NULL;
    line_result result = LINE_TEXT;
    while (more && result == LINE_TEXT) {
        result = line_edit_read(h->edit, total ? ". " : first, &line, &size);
        if (result != LINE_TEXT)
            break;
        more = size && line[size - 1] == '\\';
        char *grown = realloc(text, total + size + 2);
        if (!grown)
            break;
        text = grown;
        memcpy(text + total, line, size);
        total += size;
        if (more)
            text[total - 1] = '\n';
        text[total] = 0;
    }
    if (result != LINE_TEXT) {
        total += result == LINE_INTERRUPT ? size : 0;
        free(text);
        text = NULL;
    }
    *out = text;
    *out_size = total;
    return result;
}

static void take_line(chat *h, char *text, size_t size)
{
    if (blank(text, size))
        return;
    line_edit_remember(h->edit, text);
    /* "\n" of continued lines is part of the question; spaces around it are not. */
    while (size && isspace((unsigned char)text[size - 1]))
        text[--size] = 0;
    if (text[0] == '/')
        run_command(h, text);
    else
        ask(h, text, size);
}

static void converse(chat *h)
{
    bool warned = false;
    while (!h->leaving) {
        char *text = NULL;
        size_t size = 0;
        fflush(stdout);
        line_result result = read_question(h, &text, &size);
        if (result == LINE_END)
            return;
        if (result == LINE_INTERRUPT) {
            cli_clear_interrupts();
            if (warned && size == 0) { /* one that drops a line is the first of two */
                h->code = CLI_INTERRUPTED;
                return;
            }
            fputs("(Ctrl-C again, or /exit, leaves)\n", stderr);
            warned = true;
            continue;
        }
        warned = false;
        if (text)
            take_line(h, text, size);
        free(text);
        /* The Ctrl-C that stopped an answer is the first of two. */
        warned = cli_interrupts() > 0;
        cli_clear_interrupts();
    }
}

int run_chat(run_state *r)
{
    chat h = {.r = r, .code = CLI_OK};
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    h.bold_prompt = term && strcmp(term, "dumb") != 0 && !(no_color && *no_color);
    h.system = r->system ? strdup(r->system) : NULL;
    h.edit = line_edit_open();
    if (!h.edit || (r->system && !h.system)) {
        h.code = cli_error(r->c, BRIM_SYSTEM, "run.terminal",
                           "the terminal could not be set up for editing");
    } else {
        fprintf(stderr, "%s, %s template, %u lanes; /help lists the commands\n",
                cli_model_name(&r->model), brim_chat_name(r->chat),
                brim_runner_lanes(r->model.runner));
        converse(&h);
    }
    line_edit_close(h.edit);
    drop_messages(&h, 0);
    free(h.messages);
    free(h.system);
    if (r->trace && h.code == CLI_OK)
        h.code = run_trace_write(r);
    return h.code;
}
