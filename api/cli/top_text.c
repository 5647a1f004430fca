#include "top_text.h"

#include <string.h>
#include <wchar.h>
#include <wctype.h>

void top_text_fit(const char *text, unsigned columns, char out[TOP_TEXT_BYTES]) {
    size_t left = strlen(text);
    size_t n_out = 0;
    unsigned used = 0;
    columns = columns < TOP_TEXT_COLUMNS ? columns : TOP_TEXT_COLUMNS;
    while (left > 0 && used < columns) {
        mbstate_t state = {0};
        wchar_t letter = 0;
        size_t n = mbrtowc(&letter, text, left, &state);
        int is_whole = n != (size_t)-1 && n != (size_t)-2 && n > 0 && n <= 4;
        int width = is_whole && iswprint((wint_t)letter) ? wcwidth(letter) : 0;
        n = is_whole ? n : 1;
        if (width > 0 && used + (unsigned)width > columns) {
            break; /* half of a wide one does not fit */
        }
        if (width > 0) {
            memcpy(out + n_out, text, n);
            n_out += n;
            used += (unsigned)width;
        } else {
            out[n_out++] = '?';
            used++;
        }
        text += n;
        left -= n;
    }
    for (; used < columns; used++) {
        out[n_out++] = ' ';
    }
    out[n_out] = '\0';
}
