/* What the API server of Kubernetes asks before it makes a pod, and what it is told:
 * AdmissionReview of admission.k8s.io/v1.
 *
 * A pod is free-form JSON of which a few parts matter here, so it is kept as it came and asked for
 * those parts. Whatever has another type than Kubernetes gives it counts as absent: whether a pod
 * is legal is for the API server to say, after this. */
#ifndef WIRE_ADMISSION_H
#define WIRE_ADMISSION_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

/* etcd takes objects of at most 1.5 MiB, and a review has the new one and may have the old one. */
#define WIRE_ADMISSION_BYTES ((size_t)3 << 20)
/* Clients of the API server see warnings of at most so many bytes. */
#define WIRE_ADMISSION_WARNING_BYTES 256u

struct wire_admission;

/* DEFT_INVALID for what is no AdmissionReview with a request and its uid, DEFT_LIMIT beyond
 * WIRE_ADMISSION_BYTES. */
DEFT_NODISCARD enum deft_status wire_admission_decode(const char *text, size_t n_bytes,
                                                      struct wire_admission **out,
                                                      struct deft_error *error);
/* Takes NULL. */
void wire_admission_close(struct wire_admission *review);

/* Texts live as long as the review. */
const char *wire_admission_uid(const struct wire_admission *review);
const char *wire_admission_namespace(const struct wire_admission *review); /* "": none */
/* 1 when a pod is to be made, and not a part of one that is there. */
int wire_admission_makes_pod(const struct wire_admission *review);
int wire_admission_is_dry_run(const struct wire_admission *review);

/* --- the pod ---------------------------------------------------------------------------------- */

const char *wire_admission_label(const struct wire_admission *review,
                                 const char *key); /* or NULL */
const char *wire_admission_annotation(const struct wire_admission *review,
                                      const char *key); /* or NULL */
int wire_admission_has_annotations(const struct wire_admission *review);

/* The owner that controls it. 0: there is none. */
struct wire_admission_owner {
    const char *api_version; /* "batch/v1" */
    const char *kind;
    const char *name;
};
int wire_admission_owner(const struct wire_admission *review, struct wire_admission_owner *out);

enum wire_admission_list { WIRE_ADMISSION_CONTAINERS, WIRE_ADMISSION_INIT, WIRE_ADMISSION_VOLUMES };
/* 1 when the list is there, be it empty. */
int wire_admission_has_list(const struct wire_admission *review, enum wire_admission_list list);
size_t wire_admission_count(const struct wire_admission *review, enum wire_admission_list list);
/* 1 when a member of the list has this name. */
int wire_admission_has_named(const struct wire_admission *review, enum wire_admission_list list,
                             const char *name);

/* Of container `i`: its name or "", whether it has a list of variables, and this one in it. */
const char *wire_admission_container(const struct wire_admission *review, size_t i);
int wire_admission_has_env(const struct wire_admission *review, size_t i);
int wire_admission_has_variable(const struct wire_admission *review, size_t i, const char *name);
/* The user that container `i` runs as, its own or the pod's; -1: the image decides. */
int64_t wire_admission_user(const struct wire_admission *review, size_t i);
/* "linux", "windows" or "". */
const char *wire_admission_os(const struct wire_admission *review);

/* --- the answer ------------------------------------------------------------------------------- */

/* The pod is always allowed. `patch`: a JSON patch in base64, or NULL: none. Warnings are cut at
 * WIRE_ADMISSION_WARNING_BYTES, and what is not printable ASCII in them is replaced. */
DEFT_NODISCARD enum deft_status wire_admission_answer(const char *uid, const char *patch,
                                                      const char *const *warnings,
                                                      size_t n_warnings, char **out,
                                                      struct deft_error *error);

#endif
