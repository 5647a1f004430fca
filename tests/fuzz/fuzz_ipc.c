/* Frames from a peer that may send anything, in pieces of any size.
 *
 * The bytes are one stream. A reader that gets them through a socket in random pieces must hand out
 * the same frames, and stop at the same place for the same cause, as a walk over the whole. */
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzzing.h"
#include "ipc/ipc.h"

/* Pieces up to this many bytes: below the buffer of any socket, so a send never blocks. */
#define FUZZ_IPC_MAX_PIECE_BYTES 3000u

/* The stream, and how far the walk over the whole has come. */
struct fuzz_ipc_walk {
    const uint8_t *data;
    size_t n_bytes;
    size_t at;
};

static void fuzz_ipc_require_sentence(const struct deft_error *error) {
    fuzzing_require(error->status != DEFT_OK, "a failure has a status");
    fuzzing_require(memchr(error->text, '\0', sizeof error->text) != NULL && error->text[0] != '\0',
                    "a failure has a sentence");
}

/* The next frame of the whole stream: 1, 0 when incomplete, -1 when malformed. */
static int fuzz_ipc_walk_next(struct fuzz_ipc_walk *walk, struct ipc_header *out_header,
                              const uint8_t **out_payload) {
    struct ipc_header header;
    struct deft_error error = {.status = DEFT_OK};
    size_t left = walk->n_bytes - walk->at;
    if (left < sizeof header) {
        return 0;
    }
    memcpy(&header, walk->data + walk->at, sizeof header);
    if (ipc_check_header(&header, &error) != DEFT_OK) {
        fuzz_ipc_require_sentence(&error);
        return -1;
    }
    fuzzing_require(header.payload_bytes <= IPC_MAX_PAYLOAD_BYTES, "payloads are bounded");
    if (left - sizeof header < header.payload_bytes) {
        return 0;
    }
    /* A block of its own is aligned, and lets a sanitizer see a read behind the payload. */
    uint8_t *payload = malloc(header.payload_bytes + (header.payload_bytes == 0));
    fuzzing_require(payload != NULL, "there is memory");
    memcpy(payload, walk->data + walk->at + sizeof header, header.payload_bytes);
    enum deft_status status = ipc_check_payload(header.type, payload, header.payload_bytes, &error);
    free(payload);
    if (status != DEFT_OK) {
        fuzz_ipc_require_sentence(&error);
        return -1;
    }
    *out_header = header;
    *out_payload = walk->data + walk->at + sizeof header;
    walk->at += sizeof header + header.payload_bytes;
    return 1;
}

/* Takes every frame the reader has. Returns 0 when it wants more, -1 when it refused. */
static int fuzz_ipc_take(struct ipc_reader *reader, struct fuzz_ipc_walk *walk) {
    for (;;) {
        uint16_t type = 0;
        const void *payload = NULL;
        size_t n_bytes = 0;
        struct deft_error error = {.status = DEFT_OK};
        int got = ipc_reader_next(reader, &type, &payload, &n_bytes, &error);
        if (got == 0) {
            return 0;
        }
        struct ipc_header expected = {0};
        const uint8_t *expected_payload = NULL;
        int expected_got = fuzz_ipc_walk_next(walk, &expected, &expected_payload);
        fuzzing_require(got == expected_got, "the reader ends where the stream does");
        if (got < 0) {
            fuzz_ipc_require_sentence(&error);
            return -1;
        }
        fuzzing_require(type == expected.type && n_bytes == expected.payload_bytes,
                        "type and size survive");
        fuzzing_require((uintptr_t)payload % 8 == 0, "payloads are aligned");
        fuzzing_require(n_bytes == 0 || memcmp(payload, expected_payload, n_bytes) == 0,
                        "payloads survive");
    }
}

static int fuzz_ipc_unread_bytes(int fd) {
    int n_bytes = 0;
    fuzzing_require(ioctl(fd, FIONREAD, &n_bytes) == 0, "a socket tells what is unread");
    return n_bytes;
}

/* Feeds one piece. Returns -1 when the reader refused the stream. */
static int fuzz_ipc_feed(struct ipc_reader *reader, const int fds[2], const uint8_t *piece,
                         size_t n_bytes, struct fuzz_ipc_walk *walk) {
    fuzzing_require(send(fds[0], piece, n_bytes, MSG_NOSIGNAL) == (ssize_t)n_bytes,
                    "a piece fits into the socket");
    int unread = (int)n_bytes;
    while (unread > 0) {
        fuzzing_require(ipc_reader_fill(reader, fds[1], NULL) == DEFT_OK, "a fill works");
        int left = fuzz_ipc_unread_bytes(fds[1]);
        fuzzing_require(left < unread, "a reader without whole frames has room");
        unread = left;
        if (fuzz_ipc_take(reader, walk) != 0) {
            return -1;
        }
    }
    return 0;
}

static void fuzz_ipc_stream(const uint8_t *data, size_t size) {
    struct ipc_reader reader = {0};
    struct fuzz_ipc_walk walk = {.data = data, .n_bytes = size};
    int fds[2];
    int refused = 0;
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15) ^ size;
    fuzzing_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0,
                    "there are sockets");
    for (size_t at = 0; at < size && !refused;) {
        /* The pieces follow from the bytes, so that a finding can be repeated. */
        state = (state ^ data[at]) * UINT64_C(2685821657736338717);
        size_t piece = 1 + (state >> 33) % ((state >> 20) % 2 ? 40 : FUZZ_IPC_MAX_PIECE_BYTES);
        piece = piece < size - at ? piece : size - at;
        refused = fuzz_ipc_feed(&reader, fds, data + at, piece, &walk) != 0;
        at += piece;
    }
    if (!refused) {
        struct ipc_header header;
        const uint8_t *payload = NULL;
        fuzzing_require(fuzz_ipc_walk_next(&walk, &header, &payload) == 0,
                        "the reader missed nothing");
        (void)shutdown(fds[0], SHUT_WR);
        fuzzing_require(ipc_reader_fill(&reader, fds[1], NULL) == DEFT_CLOSED,
                        "the end of the stream is told");
    }
    ipc_reader_done(&reader);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

/* Payloads of any size under any type, not only those a header may announce. */
static void fuzz_ipc_payload(const uint8_t *data, size_t size) {
    uint16_t type = 0;
    struct deft_error error = {.status = DEFT_OK};
    if (size < sizeof type) {
        return;
    }
    memcpy(&type, data, sizeof type);
    size_t n_bytes = size - sizeof type;
    uint8_t *payload = malloc(n_bytes + (n_bytes == 0));
    fuzzing_require(payload != NULL, "there is memory");
    memcpy(payload, data + sizeof type, n_bytes);
    if (ipc_check_payload(type, payload, n_bytes, &error) != DEFT_OK) {
        fuzz_ipc_require_sentence(&error);
    }
    free(payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_ipc_stream(data, size);
    fuzz_ipc_payload(data, size);
    return 0;
}
