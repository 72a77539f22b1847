/* line_edit.h: lines typed by a person: editing and history through libedit.
 */
#ifndef BRIM_CLI_LINE_EDIT_H
#define BRIM_CLI_LINE_EDIT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct line_edit line_edit;

typedef enum line_result { LINE_TEXT, LINE_END, LINE_INTERRUPT } line_result;

/* NULL when the terminal refuses. The history is $XDG_STATE_HOME/brim/history, else
 * ~/.local/state/brim/history; without a home it is not kept. */
line_edit *line_edit_open(void);
/* Reads a line, without its line feed; *out is valid until the next call. LINE_END: Ctrl-D on an
 * empty line. LINE_INTERRUPT: Ctrl-C, which cli_interrupts() counts; what was typed is dropped, its
 * size is in *out_size. */
line_result line_edit_read(line_edit *edit, const char *prompt, const char **out, size_t *out_size);
/* Puts a line into the history, and the history on disk. */
void line_edit_remember(line_edit *edit, const char *line);
void line_edit_close(line_edit *edit);

#endif
