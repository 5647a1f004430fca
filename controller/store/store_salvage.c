#include "store/store_salvage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store_salvage_log.h"

#define SALVAGE_DEFAULT_PAGE_BYTES 4096u /* what we make, when the header does not tell */
#define SALVAGE_HEADER_BYTES       100u

struct store_salvage {
    int fd;
    uint32_t page_bytes;
    uint32_t usable_bytes;
    uint32_t n_pages;
    struct store_salvage_log *log;
    uint8_t *seen; /* [n_pages + 1] */
    uint8_t *page; /* of the row that is being read */
    uint8_t *overflow;
    uint8_t *payload; /* of a row that overflows its page */
    size_t payload_capacity;
};

static uint32_t salvage_u16(const uint8_t *at) {
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t salvage_u32(const uint8_t *at) {
    return salvage_u16(at) << 16 | salvage_u16(at + 2);
}

/* --- pages --------------------------------------------------------------------------------------
 */

/* What lies beyond the end of the file is zero. 0: there is no such page, or a disk that fails. */
static int salvage_read(struct store_salvage *salvage, uint32_t page, uint8_t *out) {
    if (page == 0 || page > salvage->n_pages) {
        return 0;
    }
    if (store_salvage_log_read(salvage->log, page, out)) {
        return 1;
    }
    memset(out, 0, salvage->page_bytes);
    return pread(salvage->fd, out, salvage->page_bytes,
                 (off_t)(page - 1) * (off_t)salvage->page_bytes) >= 0;
}

static int salvage_is_size(uint32_t n_bytes) {
    return n_bytes >= 512 && n_bytes <= 65536 && (n_bytes & (n_bytes - 1)) == 0;
}

static void salvage_take_header(struct store_salvage *salvage, const uint8_t *head) {
    uint32_t page_bytes = salvage_u16(head + 16);
    page_bytes = page_bytes == 1 ? 65536 : page_bytes;
    salvage->page_bytes = salvage_is_size(page_bytes) ? page_bytes : SALVAGE_DEFAULT_PAGE_BYTES;
    /* We reserve nothing at the end of pages; another number would be damage. */
    salvage->usable_bytes = salvage->page_bytes;
}

static enum deft_status salvage_prepare(struct store_salvage *salvage, const char *path,
                                        struct deft_error *error) {
    uint8_t head[SALVAGE_HEADER_BYTES] = {0};
    struct stat stat_of;
    salvage->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (salvage->fd < 0 || fstat(salvage->fd, &stat_of) != 0) {
        return deft_fail(error, DEFT_INVALID, errno, "'%s' cannot be read: %s", path,
                         strerrordesc_np(errno));
    }
    if (!S_ISREG(stat_of.st_mode) || stat_of.st_size == 0) {
        return deft_fail(error, DEFT_INVALID, 0, "'%s' %s", path,
                         S_ISREG(stat_of.st_mode) ? "is empty" : "is no regular file");
    }
    if (pread(salvage->fd, head, sizeof(head), 0) < 0) {
        return deft_fail(error, DEFT_INVALID, errno, "'%s' cannot be read: %s", path,
                         strerrordesc_np(errno));
    }
    salvage_take_header(salvage, head);
    uint64_t n_pages = ((uint64_t)stat_of.st_size + salvage->page_bytes - 1) / salvage->page_bytes;
    enum deft_status status =
        store_salvage_log_open(path, salvage->page_bytes, &salvage->log, error);
    if (status != DEFT_OK) {
        return status;
    }
    uint32_t n_logged = store_salvage_log_n_pages(salvage->log);
    salvage->n_pages = n_logged > n_pages ? n_logged : (uint32_t)n_pages;
    salvage->seen = calloc((size_t)salvage->n_pages + 1, 1);
    salvage->page = malloc(salvage->page_bytes);
    salvage->overflow = malloc(salvage->page_bytes);
    return salvage->seen != NULL && salvage->page != NULL && salvage->overflow != NULL
               ? DEFT_OK
               : deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read '%s'", path);
}

enum deft_status store_salvage_open(const char *path, struct store_salvage **out,
                                    struct deft_error *error) {
    struct store_salvage *salvage = calloc(1, sizeof(*salvage));
    if (salvage == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read '%s'", path);
    }
    enum deft_status status = salvage_prepare(salvage, path, error);
    if (status != DEFT_OK) {
        store_salvage_close(salvage);
        return status;
    }
    *out = salvage;
    return DEFT_OK;
}

void store_salvage_close(struct store_salvage *salvage) {
    if (salvage != NULL) {
        store_salvage_log_close(salvage->log);
        if (salvage->fd >= 0) {
            (void)close(salvage->fd);
        }
        free(salvage->seen);
        free(salvage->page);
        free(salvage->overflow);
        free(salvage->payload);
        free(salvage);
    }
}

uint32_t store_salvage_n_pages(const struct store_salvage *salvage) {
    return salvage->n_pages;
}

uint32_t store_salvage_version(struct store_salvage *salvage) {
    return salvage_read(salvage, 1, salvage->page) ? salvage_u32(salvage->page + 60) : 0;
}

int store_salvage_was_seen(const struct store_salvage *salvage, uint32_t page) {
    return salvage->seen[page];
}

void store_salvage_skip_free(struct store_salvage *salvage) {
    uint32_t trunk = 0;
    uint32_t vacuum = 0;
    if (salvage_read(salvage, 1, salvage->page)) {
        trunk = salvage_u32(salvage->page + 32);
        vacuum = salvage_u32(salvage->page + 52); /* the largest root; 0: no pointers are kept */
    }
    for (uint32_t n = 0; n < salvage->n_pages && salvage_read(salvage, trunk, salvage->page) &&
                         !salvage->seen[trunk];
         n++) {
        uint32_t n_leaves = salvage_u32(salvage->page + 4);
        salvage->seen[trunk] = 1;
        if (n_leaves > salvage->usable_bytes / 4 - 2) {
            break; /* damaged: what follows are no numbers of pages */
        }
        for (uint32_t i = 0; i < n_leaves; i++) {
            uint32_t leaf = salvage_u32(salvage->page + 8 + (size_t)4 * i);
            if (leaf > 1 && leaf <= salvage->n_pages) {
                salvage->seen[leaf] = 1;
            }
        }
        trunk = salvage_u32(salvage->page);
    }
    /* A page of pointers has 5 bytes for each of the pages behind it. */
    uint32_t span = salvage->usable_bytes / 5 + 1;
    for (uint64_t page = 2; vacuum != 0 && page <= salvage->n_pages; page += span) {
        salvage->seen[page] = 1;
    }
}

/* --- cells --------------------------------------------------------------------------------------
 */

/* A variable-length integer within [at, end); the bytes it takes, 0 when it does not end there. */
static size_t salvage_varint(const uint8_t *at, const uint8_t *end, uint64_t *out) {
    uint64_t value = 0;
    for (size_t i = 0; i < 9 && at + i < end; i++) {
        if (i == 8) {
            *out = value << 8 | at[i];
            return 9;
        }
        value = value << 7 | (at[i] & 0x7f);
        if (at[i] < 0x80) {
            *out = value;
            return i + 1;
        }
    }
    return 0;
}

static enum store_salvage_kind salvage_kind_of(const uint8_t *head) {
    switch (head[0]) {
    case 0x0d:
        return STORE_SALVAGE_TABLE_LEAF;
    case 0x05:
        return STORE_SALVAGE_TABLE_INNER;
    case 0x0a:
        return STORE_SALVAGE_INDEX_LEAF;
    case 0x02:
        return STORE_SALVAGE_INDEX_INNER;
    default:
        return STORE_SALVAGE_OTHER;
    }
}

/* A page as a tree's. */
struct salvage_node {
    enum store_salvage_kind kind;
    uint32_t n_cells;
    const uint8_t *pointers;
    uint32_t right; /* last child of an inner page */
};

static int salvage_is_inner(const struct salvage_node *node) {
    return node->kind == STORE_SALVAGE_TABLE_INNER || node->kind == STORE_SALVAGE_INDEX_INNER;
}

/* 0 when the page can be none. */
static int salvage_node(const struct store_salvage *salvage, uint32_t page, const uint8_t *bytes,
                        struct salvage_node *out) {
    size_t begin = page == 1 ? SALVAGE_HEADER_BYTES : 0;
    const uint8_t *head = bytes + begin;
    out->kind = salvage_kind_of(head);
    out->n_cells = salvage_u16(head + 3);
    size_t head_bytes = salvage_is_inner(out) ? 12 : 8;
    out->pointers = head + head_bytes;
    out->right = salvage_is_inner(out) ? salvage_u32(head + 8) : 0;
    return out->kind != STORE_SALVAGE_OTHER &&
           begin + head_bytes + (size_t)2 * out->n_cells <= salvage->page_bytes;
}

enum store_salvage_kind store_salvage_kind(struct store_salvage *salvage, uint32_t page) {
    struct salvage_node node;
    return salvage_read(salvage, page, salvage->page) &&
                   salvage_node(salvage, page, salvage->page, &node)
               ? node.kind
               : STORE_SALVAGE_OTHER;
}

static int salvage_reserve(struct store_salvage *salvage, size_t n_bytes) {
    if (n_bytes > salvage->payload_capacity) {
        uint8_t *grown = realloc(salvage->payload, n_bytes);
        if (grown == NULL) {
            return 0;
        }
        salvage->payload = grown;
        salvage->payload_capacity = n_bytes;
    }
    return 1;
}

/* The part of a payload that lies on the page itself. */
static size_t salvage_local_bytes(const struct store_salvage *salvage, int is_table,
                                  uint64_t n_bytes) {
    uint64_t usable = salvage->usable_bytes;
    uint64_t most = is_table ? usable - 35 : (usable - 12) * 64 / 255 - 23;
    uint64_t least = (usable - 12) * 32 / 255 - 23;
    if (n_bytes <= most) {
        return (size_t)n_bytes;
    }
    uint64_t some = least + (n_bytes - least) % (usable - 4);
    return (size_t)(some <= most ? some : least);
}

/* A payload in one piece, following its overflow pages. NULL when it is broken. */
static const uint8_t *salvage_payload(struct store_salvage *salvage, int is_table,
                                      const uint8_t *at, const uint8_t *end, uint64_t n_bytes) {
    size_t done = salvage_local_bytes(salvage, is_table, n_bytes);
    if (n_bytes == done) {
        return at + done <= end ? at : NULL;
    }
    if (at + done + 4 > end || !salvage_reserve(salvage, (size_t)n_bytes)) {
        return NULL;
    }
    memcpy(salvage->payload, at, done);
    uint32_t page = salvage_u32(at + done);
    while (done < n_bytes) {
        size_t n = salvage->usable_bytes - 4;
        if (page <= 1 || !salvage_read(salvage, page, salvage->overflow)) {
            return NULL;
        }
        n = n < n_bytes - done ? n : (size_t)(n_bytes - done);
        memcpy(salvage->payload + done, salvage->overflow + 4, n);
        salvage->seen[page] = 1;
        done += n;
        page = salvage_u32(salvage->overflow);
    }
    return page == 0 ? salvage->payload : NULL; /* a chain that goes on is not this row's */
}

static int64_t salvage_integer(const uint8_t *at, size_t n_bytes) {
    uint64_t value = at[0] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = 0; i < n_bytes; i++) {
        value = value << 8 | at[i];
    }
    return (int64_t)value;
}

/* One value by its type; the bytes it takes, or SIZE_MAX. */
static size_t salvage_value(uint64_t type, const uint8_t *at, size_t n_left,
                            struct store_salvage_value *out) {
    static const uint8_t widths[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};
    memset(out, 0, sizeof(*out));
    if (type < 10) {
        size_t width = widths[type];
        if (width > n_left) {
            return SIZE_MAX;
        }
        out->type = type == 0   ? STORE_SALVAGE_NULL
                    : type == 7 ? STORE_SALVAGE_REAL
                                : STORE_SALVAGE_INT;
        out->integer = type >= 8 ? (int64_t)type - 8 : width > 0 ? salvage_integer(at, width) : 0;
        memcpy(&out->real, &out->integer, sizeof(out->real));
        return width;
    }
    uint64_t n_bytes = (type - 12) / 2;
    if (type < 12 || n_bytes > n_left) {
        return SIZE_MAX;
    }
    out->type = type % 2 == 0 ? STORE_SALVAGE_BLOB : STORE_SALVAGE_TEXT;
    out->bytes = at;
    out->n_bytes = (size_t)n_bytes;
    return (size_t)n_bytes;
}

/* A record fills its payload exactly, which hardly anything else does. */
static int salvage_record(const uint8_t *payload, uint64_t n_bytes, struct store_salvage_row *out) {
    const uint8_t *end = payload + n_bytes;
    uint64_t n_head = 0;
    size_t at = salvage_varint(payload, end, &n_head);
    if (at == 0 || n_head > n_bytes || n_head < at) {
        return 0;
    }
    const uint8_t *body = payload + n_head;
    out->n_values = 0;
    while (at < n_head) {
        uint64_t type = 0;
        size_t width = salvage_varint(payload + at, payload + n_head, &type);
        if (width == 0 || out->n_values == STORE_SALVAGE_MAX_VALUES) {
            return 0;
        }
        size_t n = salvage_value(type, body, (size_t)(end - body), &out->values[out->n_values]);
        if (n == SIZE_MAX) {
            return 0;
        }
        at += width;
        body += n;
        out->n_values++;
    }
    return body == end && at == n_head;
}

/* The i-th cell; `*out_child` is 0 on leaves. `*out_is_row` 0: it has no row that can be read. */
static int salvage_cell(struct store_salvage *salvage, const struct salvage_node *node, uint32_t i,
                        uint32_t *out_child, struct store_salvage_row *out, int *out_is_row) {
    const uint8_t *end = salvage->page + salvage->usable_bytes;
    const uint8_t *at = salvage->page + salvage_u16(node->pointers + (size_t)2 * i);
    int is_table = node->kind == STORE_SALVAGE_TABLE_LEAF;
    uint64_t n_bytes = 0;
    uint64_t rowid = 0;
    *out_child = 0;
    *out_is_row = 0;
    if (at < node->pointers || at + 4 > end) {
        return 0;
    }
    if (salvage_is_inner(node)) {
        *out_child = salvage_u32(at);
        at += 4;
    }
    if (node->kind == STORE_SALVAGE_TABLE_INNER) {
        return 1;
    }
    size_t width = salvage_varint(at, end, &n_bytes);
    at += width;
    size_t id_width = is_table && width > 0 ? salvage_varint(at, end, &rowid) : 0;
    at += id_width;
    if (width == 0 || (is_table && id_width == 0) || n_bytes > STORE_SALVAGE_MAX_ROW_BYTES) {
        return 0;
    }
    out->has_rowid = is_table;
    out->rowid = (int64_t)rowid;
    const uint8_t *payload = salvage_payload(salvage, is_table, at, end, n_bytes);
    *out_is_row = payload != NULL && salvage_record(payload, n_bytes, out);
    return *out_is_row;
}

/* --- trees --------------------------------------------------------------------------------------
 */

static enum deft_status salvage_rows(struct store_salvage *salvage, const struct salvage_node *node,
                                     store_salvage_fn found, void *context,
                                     struct store_salvage_count *count, struct deft_error *error) {
    struct store_salvage_row row;
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < node->n_cells && status == DEFT_OK; i++) {
        uint32_t child = 0;
        int is_row = 0;
        if (!salvage_cell(salvage, node, i, &child, &row, &is_row)) {
            count->n_bad_rows++;
        } else if (is_row) {
            count->n_rows++;
            status = found(context, &row, error);
        }
    }
    return status;
}

enum deft_status store_salvage_page(struct store_salvage *salvage, uint32_t page,
                                    store_salvage_fn found, void *context,
                                    struct store_salvage_count *count, struct deft_error *error) {
    struct salvage_node node;
    count->n_pages++;
    if (!salvage_read(salvage, page, salvage->page) ||
        !salvage_node(salvage, page, salvage->page, &node)) {
        count->n_bad_pages++;
        return DEFT_OK;
    }
    return salvage_rows(salvage, &node, found, context, count, error);
}

/* The children of an inner page, read before the page is needed for something else; malloc'ed. */
static uint32_t *salvage_children(struct store_salvage *salvage, const struct salvage_node *node,
                                  uint32_t *out_n) {
    struct store_salvage_row row;
    uint32_t *children = calloc((size_t)node->n_cells + 1, sizeof(*children));
    *out_n = 0;
    for (uint32_t i = 0; i < node->n_cells && children != NULL; i++) {
        int is_row = 0;
        (void)salvage_cell(salvage, node, i, &children[*out_n], &row, &is_row);
        *out_n += children[*out_n] != 0;
    }
    if (children != NULL) {
        children[(*out_n)++] = node->right;
    }
    return children;
}

static enum deft_status salvage_walk(struct store_salvage *salvage, uint32_t page, unsigned depth,
                                     store_salvage_fn found, void *context,
                                     struct store_salvage_count *count, struct deft_error *error) {
    struct salvage_node node;
    if (page == 0 || page > salvage->n_pages || salvage->seen[page] ||
        depth > STORE_SALVAGE_MAX_DEPTH) {
        count->n_bad_pages++;
        return DEFT_OK;
    }
    salvage->seen[page] = 1;
    enum deft_status status = store_salvage_page(salvage, page, found, context, count, error);
    if (status != DEFT_OK || !salvage_read(salvage, page, salvage->page) ||
        !salvage_node(salvage, page, salvage->page, &node) || !salvage_is_inner(&node)) {
        return status;
    }
    uint32_t n = 0;
    uint32_t *children = salvage_children(salvage, &node, &n);
    if (children == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read a tree");
    }
    for (uint32_t i = 0; i < n && status == DEFT_OK; i++) {
        status = salvage_walk(salvage, children[i], depth + 1, found, context, count, error);
    }
    free(children);
    return status;
}

enum deft_status store_salvage_tree(struct store_salvage *salvage, uint32_t root,
                                    store_salvage_fn found, void *context,
                                    struct store_salvage_count *count, struct deft_error *error) {
    return salvage_walk(salvage, root, 0, found, context, count, error);
}
