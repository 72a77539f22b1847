/* table.c: tables of text cells. All cells live in one growing string, 0-terminated; `cells` holds
 * where each begins, row after row, so that a row always has `column_count` of them once the next
 * has begun or the table is printed. */
#include "brim/console.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>
#include <utf8proc.h>

#include "base/text.h"

struct brim_table {
    brim_context *ctx;
    brim__string text;
    size_t *cells;
    size_t cell_count, cell_capacity;
    size_t column_count, row_count;
    bool right[BRIM_TABLE_COLUMNS_MAX];
    brim_status failed; /* the first failure, kept */
};

/* The names are the first row of cells. */
static brim_status add_cell(brim_table *table, const char *text, size_t size)
{
    BRIM_TRY(BRIM_GROW(table->ctx, table->cells, table->cell_capacity, table->cell_count + 1));
    size_t start = table->text.size;
    BRIM_TRY(brim__string_append(&table->text, text, size));
    BRIM_TRY(brim__string_append(&table->text, "", 1));
    table->cells[table->cell_count++] = start;
    return BRIM_OK;
}

static brim_status add_columns(brim_table *table, const char *const *columns)
{
    for (; *columns; columns++) {
        BRIM_FAIL_IF(table->column_count == BRIM_TABLE_COLUMNS_MAX, USAGE, "table.columns",
                     "a table has at most %d columns", BRIM_TABLE_COLUMNS_MAX);
        bool right = **columns == '>';
        const char *name = *columns + right;
        table->right[table->column_count++] = right;
        BRIM_TRY(add_cell(table, name, strlen(name)));
    }
    BRIM_FAIL_IF(table->column_count == 0, USAGE, "table.columns", "a table needs a column");
    table->row_count = 1;
    return BRIM_OK;
}

brim_status brim_table_create(brim_table **out, brim_context *ctx, const char *const *columns)
{
    *out = NULL;
    brim_table *table;
    BRIM_CALLOC(ctx, table, 1);
    table->ctx = ctx;
    table->text.ctx = ctx;
    brim_status status = add_columns(table, columns);
    if (status != BRIM_OK) {
        brim_table_destroy(table);
        return status;
    }
    *out = table;
    return BRIM_OK;
}

void brim_table_destroy(brim_table *table)
{
    if (!table)
        return;
    brim__string_done(&table->text);
    brim__free(table->ctx, table->cells);
    brim__free(table->ctx, table);
}

brim_status brim_table_row(brim_table *table)
{
    while (table->failed == BRIM_OK && table->cell_count < table->row_count * table->column_count)
        table->failed = add_cell(table, "", 0);
    table->row_count++;
    return table->failed;
}

brim_status brim_table_cell(brim_table *table, const char *fmt, ...)
{
    if (table->failed != BRIM_OK)
        return table->failed;
    if (table->cell_count >= table->row_count * table->column_count) {
        table->failed =
            brim__fail(BRIM_USAGE, "table.cells",
                       "row %zu has no room for another cell; start a row", table->row_count - 1);
        return table->failed;
    }
    size_t start = table->text.size;
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    size = size < 0 ? 0 : size; /* a format that cannot be written leaves the cell empty */
    brim__string *s = &table->text;
    brim_status status = BRIM_GROW(table->ctx, s->data, s->capacity, start + (size_t)size + 1);
    if (status == BRIM_OK)
        status = BRIM_GROW(table->ctx, table->cells, table->cell_capacity, table->cell_count + 1);
    if (status == BRIM_OK) {
        vsnprintf(s->data + start, (size_t)size + 1, fmt, again);
        s->size = start + (size_t)size + 1; /* the 0 belongs to the cell */
        table->cells[table->cell_count++] = start;
    }
    va_end(again);
    table->failed = status;
    return status;
}

static const char *cell_at(const brim_table *table, size_t row, size_t column)
{
    size_t index = row * table->column_count + column;
    return index < table->cell_count ? table->text.data + table->cells[index] : "";
}

/* Columns of a terminal that brim_print_safe() will use. */
static size_t cell_width(const char *text)
{
    size_t width = 0, size = strlen(text);
    for (size_t at = 0; at < size;) {
        uint32_t codepoint;
        size_t n = brim__utf8_decode(&codepoint, text + at, size - at);
        if (n == 0 || codepoint < 0x20 || (codepoint >= 0x7F && codepoint < 0xA0)) {
            bool short_escape = text[at] == '\n' || text[at] == '\t';
            width += short_escape ? 2 : 4 * (n ? n : 1);
            at += n ? n : 1;
            continue;
        }
        int columns = utf8proc_charwidth((utf8proc_int32_t)codepoint);
        width += columns > 0 ? (size_t)columns : 0;
        at += n;
    }
    return width;
}

static void print_spaces(FILE *file, size_t count)
{
    fprintf(file, "%*s", (int)count, "");
}

static void print_text(const brim_table *table, FILE *file)
{
    size_t widths[BRIM_TABLE_COLUMNS_MAX] = {0};
    for (size_t row = 0; row < table->row_count; row++)
        for (size_t column = 0; column < table->column_count; column++) {
            size_t width = cell_width(cell_at(table, row, column));
            if (width > widths[column])
                widths[column] = width;
        }
    for (size_t row = 0; row < table->row_count; row++) {
        size_t owed = 0; /* spaces are written only when text follows */
        for (size_t column = 0; column < table->column_count; column++) {
            const char *text = cell_at(table, row, column);
            size_t pad = widths[column] - cell_width(text);
            owed += column ? 2 : 0;
            owed += table->right[column] ? pad : 0;
            if (*text) {
                print_spaces(file, owed);
                brim_print_safe(file, text, strlen(text));
                owed = 0;
            } else {
                owed += cell_width(text);
            }
            owed += table->right[column] ? 0 : pad;
        }
        putc('\n', file);
    }
}

static void print_markdown_cell(FILE *file, const char *text)
{
    putc(' ', file);
    for (; *text; text++) {
        if (*text == '|' || *text == '\\')
            putc('\\', file);
        if (*text == '\n' || *text == '\r')
            putc(' ', file);
        else
            putc(*text, file);
    }
    fputs(" |", file);
}

static void print_markdown(const brim_table *table, FILE *file)
{
    for (size_t row = 0; row < table->row_count; row++) {
        putc('|', file);
        for (size_t column = 0; column < table->column_count; column++)
            print_markdown_cell(file, cell_at(table, row, column));
        putc('\n', file);
        if (row != 0)
            continue;
        putc('|', file);
        for (size_t column = 0; column < table->column_count; column++)
            fputs(table->right[column] ? " ---: |" : " --- |", file);
        putc('\n', file);
    }
}

static void print_csv_cell(FILE *file, const char *text)
{
    if (!text[strcspn(text, ",\"\r\n")]) {
        fputs(text, file);
        return;
    }
    putc('"', file);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', file);
        putc(*text, file);
    }
    putc('"', file);
}

static void print_csv(const brim_table *table, FILE *file)
{
    for (size_t row = 0; row < table->row_count; row++) {
        for (size_t column = 0; column < table->column_count; column++) {
            if (column)
                putc(',', file);
            print_csv_cell(file, cell_at(table, row, column));
        }
        fputs("\r\n", file);
    }
}

/* RFC 8259, section 6. */
static bool is_json_number(const char *text)
{
    if (*text == '-')
        text++;
    if (!isdigit((unsigned char)*text) || (*text == '0' && isdigit((unsigned char)text[1])))
        return false;
    text += strspn(text, "0123456789");
    if (*text == '.') {
        size_t digits = strspn(text + 1, "0123456789");
        if (digits == 0)
            return false;
        text += 1 + digits;
    }
    if (*text == 'e' || *text == 'E') {
        text++;
        if (*text == '+' || *text == '-')
            text++;
        size_t digits = strspn(text, "0123456789");
        if (digits == 0)
            return false;
        text += digits;
    }
    return *text == 0;
}

/* Bytes that are not UTF-8 become U+FFFD: a JSON text cannot hold them. */
static void print_json_string(FILE *file, const char *text)
{
    size_t size = strlen(text);
    putc('"', file);
    for (size_t at = 0; at < size;) {
        uint32_t codepoint;
        size_t n = brim__utf8_decode(&codepoint, text + at, size - at);
        if (n == 0)
            fputs("\\ufffd", file);
        else if (codepoint < 0x20)
            fprintf(file, "\\u%04x", (unsigned)codepoint);
        else if (codepoint == '"' || codepoint == '\\')
            fprintf(file, "\\%c", (int)codepoint);
        else
            fwrite(text + at, 1, n, file);
        at += n ? n : 1;
    }
    putc('"', file);
}

static void print_json(const brim_table *table, FILE *file)
{
    putc('[', file);
    for (size_t row = 1; row < table->row_count; row++) {
        fputs(row > 1 ? ",\n  {" : "\n  {", file);
        for (size_t column = 0; column < table->column_count; column++) {
            const char *text = cell_at(table, row, column);
            if (column)
                fputs(", ", file);
            print_json_string(file, cell_at(table, 0, column));
            fputs(": ", file);
            if (table->right[column] && (!*text || is_json_number(text)))
                fputs(*text ? text : "null", file);
            else
                print_json_string(file, text);
        }
        putc('}', file);
    }
    fputs(table->row_count > 1 ? "\n]\n" : "]\n", file);
}

brim_status brim_table_print(const brim_table *table, FILE *file, brim_table_style style)
{
    if (table->failed != BRIM_OK)
        return table->failed;
    switch (style) {
    case BRIM_TABLE_TEXT:
        print_text(table, file);
        break;
    case BRIM_TABLE_MARKDOWN:
        print_markdown(table, file);
        break;
    case BRIM_TABLE_CSV:
        print_csv(table, file);
        break;
    case BRIM_TABLE_JSON:
        print_json(table, file);
        break;
    default:
        BRIM_FAIL(USAGE, "table.style", "%d is no table style", (int)style);
    }
    BRIM_FAIL_IF(ferror(file), IO, "table.write", "the table could not be written");
    return BRIM_OK;
}
