/* Texts of others for a terminal: names and sentences may hold control characters, escape
 * sequences and letters of any width. What comes out moves no cursor. */
#ifndef TOP_TEXT_H
#define TOP_TEXT_H

#include <stddef.h>

#define TOP_TEXT_COLUMNS 512u
/* A letter is at most 4 bytes of UTF-8. */
#define TOP_TEXT_BYTES (4u * TOP_TEXT_COLUMNS + 1)

/* `text` in the locale of the process, cut or filled with blanks to exactly `columns` of them, at
 * most TOP_TEXT_COLUMNS. In place of what is no printable letter of its own width, combining marks
 * and marks of direction among it, stands '?'. */
void top_text_fit(const char *text, unsigned columns, char out[TOP_TEXT_BYTES]);

#endif
