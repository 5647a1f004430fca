#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/settings.h"
#include "base/settings_impl.h"

/* --- file ------------------------------------------------------------------------------------- */

static int file_is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* Moves both ends inwards over blanks. */
static void file_trim(const char **begin, const char **end) {
    while (*begin < *end && file_is_blank(**begin)) {
        (*begin)++;
    }
    while (*begin < *end && file_is_blank((*end)[-1])) {
        (*end)--;
    }
}

static enum deft_status file_line(struct settings *settings, const char *file, unsigned number,
                                  const char *begin, const char *end, struct deft_error *error) {
    file_trim(&begin, &end);
    for (const char *c = begin; c < end; c++) {
        if (iscntrl((unsigned char)*c) && *c != '\t') {
            return deft_fail(error, DEFT_INVALID, 0,
                             "%.200s:%u: there is a control character, expected text", file,
                             number);
        }
    }
    if (begin == end || *begin == '#') {
        return DEFT_OK;
    }
    const char *equals = memchr(begin, '=', (size_t)(end - begin));
    if (equals == NULL) {
        return deft_fail(error, DEFT_INVALID, 0, "%.200s:%u: '%.*s', expected KEY = VALUE", file,
                         number, (int)(end - begin > 60 ? 60 : end - begin), begin);
    }
    const char *key = begin;
    const char *key_end = equals;
    const char *value = equals + 1;
    file_trim(&key, &key_end);
    file_trim(&value, &end);
    size_t i = settings_find(settings, key, (size_t)(key_end - key));
    if (i == SETTINGS_MAX_ROWS) {
        return deft_fail(error, DEFT_INVALID, 0, "%.200s:%u: '%.*s' is no setting of %s", file,
                         number, (int)(key_end - key > 60 ? 60 : key_end - key), key,
                         settings->program->name);
    }
    const char *name = settings_row(settings->program, i)->name;
    if ((settings_row(settings->program, i)->flags & SETTING_ONLY_FLAG) != 0) {
        return deft_fail(error, DEFT_INVALID, 0, "%.200s:%u: %s belongs on the command line only",
                         file, number, name);
    }
    if (settings->texts[SETTINGS_FILE][i] != NULL) {
        return deft_fail(error, DEFT_INVALID, 0, "%.200s:%u: %s is in line %u already", file,
                         number, name, settings->lines[i]);
    }
    if (value == end) {
        return deft_fail(error, DEFT_INVALID, 0, "%.200s:%u: %s has no value", file, number, name);
    }
    settings->lines[i] = number;
    return settings_store(settings, SETTINGS_FILE, i, value, (size_t)(end - value), error);
}

enum deft_status settings_read_text(struct settings *settings, const char *name, const char *text,
                                    size_t n_bytes, struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    const char *end = text + n_bytes;
    unsigned number = 0;
    for (const char *line = text; line < end && status == DEFT_OK;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *line_end = newline != NULL ? newline : end;
        status = file_line(settings, name, ++number, line, line_end, error);
        line = line_end + (newline != NULL);
    }
    return status;
}

/* Reads at most SETTINGS_FILE_BYTES + 1, so that what is longer shows. */
static enum deft_status file_load(const char *path, char *out, size_t *out_n_bytes,
                                  struct deft_error *error) {
    struct stat info;
    size_t n = 0;
    ssize_t got = 1;
    /* A FIFO would be waited for, at the latest on SIGHUP. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return deft_fail(error, DEFT_INVALID, errno,
                         "the settings cannot be read from '%.200s': %s", path,
                         strerrordesc_np(errno));
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        (void)close(fd);
        return deft_fail(error, DEFT_INVALID, 0, "'%.200s' is no regular file of settings", path);
    }
    while (got > 0 && n <= SETTINGS_FILE_BYTES) {
        got = read(fd, out + n, SETTINGS_FILE_BYTES + 1 - n);
        n += got > 0 ? (size_t)got : 0;
        got = got < 0 && errno == EINTR ? 1 : got;
    }
    int code = errno;
    (void)close(fd);
    if (got < 0) {
        return deft_fail(error, DEFT_INVALID, code, "the settings cannot be read from '%.200s': %s",
                         path, strerrordesc_np(code));
    }
    if (n > SETTINGS_FILE_BYTES) {
        return deft_fail(error, DEFT_INVALID, 0, "'%.200s' is longer than %u bytes", path,
                         SETTINGS_FILE_BYTES);
    }
    *out_n_bytes = n;
    return DEFT_OK;
}

enum deft_status settings_read_file(struct settings *settings, struct deft_error *error) {
    size_t n_bytes = 0;
    if (settings->file == NULL) {
        return DEFT_OK;
    }
    char *text = malloc(SETTINGS_FILE_BYTES + 1);
    if (text == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the settings");
    }
    enum deft_status status = file_load(settings->file, text, &n_bytes, error);
    if (status == DEFT_OK) {
        status = settings_read_text(settings, settings->file, text, n_bytes, error);
    }
    free(text);
    return status;
}

/* --- environment ------------------------------------------------------------------------------ */

/* Kubernetes tells every container of every service in its namespace: of one called like this
 * program PREFIX_SERVICE_HOST, PREFIX_SERVICE_PORT and so on, PREFIX_PORT_7600_TCP and so on, and
 * PREFIX_PORT, which is a URL. */
static int file_is_service_link(const char *rest, size_t n_name, const char *value) {
    return strncmp(rest, "SERVICE_HOST", 12) == 0 || strncmp(rest, "SERVICE_PORT", 12) == 0 ||
           (strncmp(rest, "PORT_", 5) == 0 && isdigit((unsigned char)rest[5])) ||
           (n_name == 4 && strncmp(rest, "PORT", 4) == 0 && strstr(value, "://") != NULL);
}

static enum deft_status file_variable(struct settings *settings, const char *variable,
                                      struct deft_error *error) {
    char name[64];
    size_t n_prefix = strlen(settings->program->prefix);
    const char *rest = variable + n_prefix;
    size_t n_name = strcspn(rest, "=");
    const char *value = rest + n_name + (rest[n_name] == '=');
    size_t i = SETTINGS_MAX_ROWS;
    for (size_t c = 0; c < n_name && n_name < sizeof(name); c++) {
        name[c] = (char)tolower((unsigned char)rest[c]);
        if (name[c] == '_') {
            name[c] = '-';
        }
    }
    if (file_is_service_link(rest, n_name, value)) {
        return DEFT_OK;
    }
    if (n_name < sizeof(name) && memchr(rest, '-', n_name) == NULL) {
        i = settings_find(settings, name, n_name);
    }
    for (size_t c = 0; c < n_name; c++) {
        i = islower((unsigned char)rest[c]) ? SETTINGS_MAX_ROWS : i;
    }
    if (i == SETTINGS_MAX_ROWS ||
        (settings_row(settings->program, i)->flags & SETTING_ONLY_FLAG) != 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "%.*s is in the environment, but is no setting of %s",
                         (int)(n_prefix + n_name > 120 ? 120 : n_prefix + n_name), variable,
                         settings->program->name);
    }
    return value[0] == '\0'
               ? DEFT_OK
               : settings_store(settings, SETTINGS_ENVIRONMENT, i, value, strlen(value), error);
}

enum deft_status settings_read_environment(struct settings *settings, char *const *environment,
                                           struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    const char *prefix = settings->program->prefix;
    for (size_t i = 0; environment[i] != NULL && status == DEFT_OK; i++) {
        if (strncmp(environment[i], prefix, strlen(prefix)) == 0) {
            status = file_variable(settings, environment[i], error);
        }
    }
    return status;
}
