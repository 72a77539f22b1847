/* answer_stream.h: one answer: the prompt's tokens go in, text streams out, figures are kept.
 */
#ifndef BRIM_CLI_ANSWER_STREAM_H
#define BRIM_CLI_ANSWER_STREAM_H

#include "model_open.h"

typedef enum answer_end {
    ANSWER_END_TOKEN,   /* the model ended it */
    ANSWER_END_LENGTH,  /* -n */
    ANSWER_END_STOP,    /* --stop */
    ANSWER_END_CONTEXT, /* the context is full */
    ANSWER_END_INTERRUPT,
} answer_end;

/* What stays the same from answer to answer. */
typedef struct answer_settings {
    cli_model *model;
    brim_session *session;
    brim_sampling sampling;
    int64_t max_tokens; /* 0: until the model ends it or the context is full */
    cli_list stops;
    bool shift;      /* forget the oldest tokens when the context is full */
    bool quiet;      /* print no text and no figures: --json */
    bool hash;       /* compute logits_hash */
    bool trim_space; /* the answer's first space belongs to the chat template */
} answer_settings;

typedef struct answer {
    const answer_settings *settings;
    char *text; /* 0-terminated, never NULL after a good answer_make(); may hold 0 bytes */
    size_t text_size, text_capacity;
    brim_token *tokens; /* as generated, an end token included */
    size_t token_count, token_capacity;
    answer_end end;
    uint32_t prompt_tokens; /* evaluated for this answer */
    uint32_t shifts;        /* times that the context was shifted */
    uint64_t prefill_ns, decode_ns;
    uint32_t decode_steps; /* steps that decode_ns measures: tokens that had one before them */
    double kv_bytes;       /* KV cache bytes read by them, summed */
    uint64_t logits_hash;
    /* while it is made */
    brim_text_stream *stream;
    brim_status failed; /* of a callback */
    bool stopped;
    uint32_t keep; /* first positions that a shift leaves alone */
    brim_progress progress;
} answer;

/* Evaluates `prompt` at the end of the session and generates. `keep`: positions at the start of the
 * session that --shift never forgets. False: the failure was printed, *code is the exit code.
 * answer_done() is called in either case. */
bool answer_make(answer *a, const answer_settings *settings, const brim_token *prompt,
                 uint32_t prompt_count, uint32_t keep, int *code);
void answer_done(answer *a);

/* Figures: 0 when nothing was measured. */
double answer_prefill_tok_s(const answer *a);
double answer_decode_tok_s(const answer *a);
double answer_decode_gb_s(const answer *a);
/* The line of figures on stderr. */
void answer_print_figures(const answer *a);
const char *answer_end_name(answer_end end);
/* The document of --json, with the caller's own fields still to be added; NULL: no memory. */
json_t *answer_json(const answer *a);

#endif
