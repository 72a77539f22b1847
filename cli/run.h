/* run.h: what `brim run` has parsed, shared by its one-shot form (run.c), the conversation
 * (chat_loop.c) and the trace (trace_out.c).
 */
#ifndef BRIM_CLI_RUN_H
#define BRIM_CLI_RUN_H

#include "answer_stream.h"

typedef struct run_state {
    cli *c;
    cli_model model;
    cli_execution execution;
    answer_settings settings;
    brim_chat_kind chat;
    bool raw;           /* no template */
    const char *system; /* NULL: none */
    const char *trace;  /* a file's path, or NULL */
} run_state;

/* The conversation on a terminal. Returns the exit code. */
int run_chat(run_state *r);
/* Tokens at the start of a conversation that do not depend on what the user says: BOS and the
 * system's words. A shift keeps them. */
uint32_t run_constant_start(run_state *r, const brim_tokens *tokens);
/* Warns of bytes that the vocabulary cannot express. */
void run_say_lost(uint64_t lost);
/* After an answer that ended because the context is full: prints why, returns the exit code. */
int run_full(run_state *r, const answer *a);

/* Events to keep a lane, by the trace's suffix; 0 and a printed failure when the suffix is neither
 * .json nor .svg. */
uint32_t run_trace_events(cli *c, const char *path, int *code);
/* Writes what was traced. Returns the exit code. */
int run_trace_write(run_state *r);

#endif
