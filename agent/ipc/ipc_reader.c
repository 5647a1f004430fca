/* Frames out of a byte stream that arrives in pieces of any size. */
#include "ipc/ipc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* One read: the default size of a Unix socket's buffer is a few times this. */
#define IPC_READER_CHUNK_BYTES 65536u

static size_t ipc_reader_pending(const struct ipc_reader *reader) {
    return reader->n_bytes - reader->begin;
}

/* Bytes the first pending frame needs; a malformed header asks for nothing, ipc_reader_next will
 * refuse it. */
static size_t ipc_reader_wanted(const struct ipc_reader *reader) {
    struct ipc_header header;
    if (ipc_reader_pending(reader) < sizeof(header)) {
        return sizeof(header);
    }
    memcpy(&header, reader->bytes + reader->begin, sizeof(header));
    if (ipc_check_header(&header, NULL) != DEFT_OK) {
        return 0;
    }
    return sizeof(header) + header.payload_bytes;
}

static void ipc_reader_compact(struct ipc_reader *reader) {
    if (reader->begin > 0) {
        memmove(reader->bytes, reader->bytes + reader->begin, ipc_reader_pending(reader));
        reader->n_bytes -= reader->begin;
        reader->begin = 0;
    }
}

static enum deft_status ipc_reader_reserve(struct ipc_reader *reader, struct deft_error *error) {
    size_t wanted_bytes = ipc_reader_wanted(reader);
    if (wanted_bytes < IPC_READER_CHUNK_BYTES) {
        wanted_bytes = IPC_READER_CHUNK_BYTES;
    }
    /* Large frames are rare (tensor tables, plans), so an idle reader gives their memory back. */
    if (reader->capacity_bytes < wanted_bytes ||
        (reader->n_bytes == 0 && reader->capacity_bytes > wanted_bytes)) {
        uint8_t *bytes = realloc(reader->bytes, wanted_bytes);
        if (bytes == NULL) {
            return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a frame of %zu bytes",
                             wanted_bytes);
        }
        reader->bytes = bytes;
        reader->capacity_bytes = wanted_bytes;
    }
    return DEFT_OK;
}

enum deft_status ipc_reader_fill(struct ipc_reader *reader, int fd, struct deft_error *error) {
    ipc_reader_compact(reader);
    enum deft_status status = ipc_reader_reserve(reader, error);
    if (status != DEFT_OK) {
        return status;
    }
    size_t room_bytes = reader->capacity_bytes - reader->n_bytes;
    if (room_bytes == 0) {
        return DEFT_OK;
    }
    ssize_t n;
    do {
        n = recv(fd, reader->bytes + reader->n_bytes, room_bytes, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        reader->n_bytes += (size_t)n;
        return DEFT_OK;
    }
    if (n == 0 || errno == ECONNRESET) {
        return deft_fail(error, DEFT_CLOSED, 0, "the peer has closed the connection");
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return DEFT_OK;
    }
    return deft_fail(error, DEFT_IO, errno, "reading from the peer failed: %s", strerror(errno));
}

int ipc_reader_next(struct ipc_reader *reader, uint16_t *out_type, const void **out_payload,
                    size_t *out_n_bytes, struct deft_error *error) {
    struct ipc_header header;
    if (ipc_reader_pending(reader) < sizeof(header)) {
        return 0;
    }
    /* A plan may have an odd size; what follows it is moved back to an aligned place. */
    if (reader->begin % 8 != 0) {
        ipc_reader_compact(reader);
    }
    memcpy(&header, reader->bytes + reader->begin, sizeof(header));
    if (ipc_check_header(&header, error) != DEFT_OK) {
        return -1;
    }
    size_t frame_bytes = sizeof(header) + header.payload_bytes;
    if (ipc_reader_pending(reader) < frame_bytes) {
        return 0;
    }
    const uint8_t *payload = reader->bytes + reader->begin + sizeof(header);
    if (ipc_check_payload(header.type, payload, header.payload_bytes, error) != DEFT_OK) {
        return -1;
    }
    reader->begin += frame_bytes;
    *out_type = header.type;
    *out_payload = header.payload_bytes > 0 ? payload : NULL;
    *out_n_bytes = header.payload_bytes;
    return 1;
}

void ipc_reader_done(struct ipc_reader *reader) {
    if (reader != NULL) {
        free(reader->bytes);
        *reader = (struct ipc_reader){0};
    }
}
