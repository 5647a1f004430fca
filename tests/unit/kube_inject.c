/* What pods get from the admission webhook, applied by a JSON patch of the test's
 * own: the sidecar and variables, and nothing else changed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "json_patch.h"
#include "kube/inject.h"
#include "testing.h"
#include "wire/wire_admission.h"

static const struct inject_options options = {.image = "deft/agent:1",
                                              .controller = "http://deft.deft.svc:7600"};
static const struct inject_options with_ca = {
    .image = "deft/agent:1",
    .controller = "https://deft.deft.svc:7600",
    .ca_pem = "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"};

static const char plain_pod[] =
    "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"generateName\":\"train-0-\","
    "\"labels\":{\"deft.dev/inject\":\"true\"},\"ownerReferences\":[{\"apiVersion\":\"batch/v1\","
    "\"kind\":\"Job\",\"name\":\"train\",\"uid\":\"u\",\"controller\":true}]},"
    "\"spec\":{\"securityContext\":{\"runAsUser\":1000},\"containers\":[{\"name\":\"main\","
    "\"image\":\"x\"}]}}";

/* --- reviews ---------------------------------------------------------------------------------- */

static cJSON *parse(const char *text) {
    cJSON *node = cJSON_Parse(text);
    assert_non_null(node);
    return node;
}

static cJSON *at(cJSON *node, const char *pointer) {
    return json_patch_get(node, pointer);
}

static cJSON *need(cJSON *node, const char *pointer) {
    cJSON *found = at(node, pointer);
    if (found == NULL) {
        fail_msg("there is no %s", pointer);
    }
    return found;
}

static const char *text_at(cJSON *node, const char *pointer) {
    cJSON *found = need(node, pointer);
    assert_true(cJSON_IsString(found));
    return found->valuestring;
}

static char *review_of(const cJSON *pod, const char *namespace) {
    cJSON *root = parse("{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\","
                        "\"request\":{\"uid\":\"0f6c\",\"operation\":\"CREATE\",\"kind\":"
                        "{\"group\":\"\",\"version\":\"v1\",\"kind\":\"Pod\"}}}");
    cJSON *request = need(root, "/request");
    assert_non_null(cJSON_AddStringToObject(request, "namespace", namespace));
    assert_true(cJSON_AddItemToObject(request, "object", cJSON_Duplicate(pod, 1)));
    char *text = cJSON_PrintUnformatted(root);
    assert_non_null(text);
    cJSON_Delete(root);
    return text;
}

static struct wire_admission *decode(const char *text) {
    struct wire_admission *review = NULL;
    struct deft_error error = {0};
    if (wire_admission_decode(text, strlen(text), &review, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    return review;
}

/* The pod as the API server would have it, or NULL when it stays as it is. */
static cJSON *inject(const cJSON *pod, const struct inject_options *how, const char *token,
                     struct inject_verdict *verdict) {
    char *text = review_of(pod, "team-a");
    char *patch = NULL;
    cJSON *out = NULL;
    struct wire_admission *review = decode(text);
    inject_judge(review, verdict);
    if (verdict->injects) {
        assert_int_equal(inject_patch(review, verdict, how, token, &patch, NULL), DEFT_OK);
        cJSON *operations = parse(patch);
        out = cJSON_Duplicate(pod, 1);
        assert_int_equal(json_patch_apply(out, operations), 0);
        cJSON_Delete(operations);
        free(patch);
    }
    wire_admission_close(review);
    free(text);
    return out;
}

static cJSON *inject_text(const char *pod, struct inject_verdict *verdict) {
    cJSON *node = parse(pod);
    cJSON *out = inject(node, &options, "deft_secret", verdict);
    cJSON_Delete(node);
    return out;
}

static void refuse(const cJSON *pod, const char *says) {
    struct inject_verdict verdict;
    cJSON *out = inject(pod, &options, NULL, &verdict);
    assert_null(out);
    assert_int_equal(verdict.n_warnings, 1);
    if (strstr(verdict.warnings[0], says) == NULL) {
        fail_msg("'%s' is not in: %s", says, verdict.warnings[0]);
    }
}

static void set(cJSON *pod, const char *pointer, const char *key, const char *json) {
    cJSON *node = need(pod, pointer);
    cJSON_DeleteItemFromObjectCaseSensitive(node, key);
    assert_true(cJSON_AddItemToObject(node, key, parse(json)));
}

static void annotate(cJSON *pod, const char *key, const char *value) {
    if (at(pod, "/metadata/annotations") == NULL) {
        set(pod, "/metadata", "annotations", "{}");
    }
    cJSON *notes = need(pod, "/metadata/annotations");
    cJSON_DeleteItemFromObjectCaseSensitive(notes, key);
    assert_non_null(cJSON_AddStringToObject(notes, key, value));
}

/* The value of a variable, or "@FIELD" of one that refers to a field; NULL: there is none. */
static const char *variable(cJSON *container, const char *name) {
    cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, at(container, "/env")) {
        if (strcmp(text_at(entry, "/name"), name) == 0) {
            return at(entry, "/value") != NULL ? text_at(entry, "/value")
                                               : text_at(entry, "/valueFrom/fieldRef/fieldPath");
        }
    }
    return NULL;
}

/* --- what is undone is what was there --------------------------------------------------------- */

static void drop_named(cJSON *pod, const char *parent, const char *key, const char *name,
                       const cJSON *before) {
    cJSON *owner = at(pod, parent);
    cJSON *list = cJSON_GetObjectItemCaseSensitive(owner, key);
    for (int i = cJSON_GetArraySize(list) - 1; i >= 0; i--) {
        cJSON *member = cJSON_GetArrayItem(list, i);
        if (strncmp(text_at(member, "/name"), name, strlen(name)) == 0) {
            cJSON_DeleteItemFromArray(list, i);
        }
    }
    if (cJSON_GetObjectItemCaseSensitive(before, key) == NULL && cJSON_GetArraySize(list) == 0) {
        cJSON_DeleteItemFromObjectCaseSensitive(owner, key);
    }
}

/* Leaves of variables those that were there, which begin otherwise than ours. */
static void undo(cJSON *pod, cJSON *before) {
    char path[64];
    cJSON *notes = at(pod, "/metadata/annotations");
    drop_named(pod, "/spec", "initContainers", INJECT_NAME, at(before, "/spec"));
    drop_named(pod, "/spec", "volumes", INJECT_NAME, at(before, "/spec"));
    for (int i = 0; i < cJSON_GetArraySize(at(before, "/spec/containers")); i++) {
        (void)snprintf(path, sizeof(path), "/spec/containers/%d", i);
        drop_named(pod, path, "env", "DEFT_", at(before, path));
    }
    cJSON_DeleteItemFromObjectCaseSensitive(notes, "deft.dev/controller-ca");
    if (at(before, "/metadata/annotations") == NULL && cJSON_GetArraySize(notes) == 0) {
        cJSON_DeleteItemFromObjectCaseSensitive(at(pod, "/metadata"), "annotations");
    }
}

static void expect_same(cJSON *a, cJSON *b) {
    if (!cJSON_Compare(a, b, 1)) {
        char *left = cJSON_Print(a);
        char *right = cJSON_Print(b);
        fail_msg("%s\nis not\n%s", left, right);
    }
}

static cJSON *random_pod(uint64_t *random) {
    static const char *const names[] = {"main", "a\\\"b\\n", "\\u00e9", "/0/~1", "log"};
    cJSON *pod = parse(plain_pod);
    char json[256];
    set(pod, "/spec", "containers", "[]");
    size_t n = 1 + testing_random_below(random, 4);
    for (size_t i = 0; i < n; i++) {
        static const char *const envs[] = {"", ",\"env\":[]", ",\"env\":null",
                                           ",\"env\":[{\"name\":\"A\",\"value\":\"$(B)\"}]"};
        (void)snprintf(json, sizeof(json), "{\"name\":\"%s\",\"image\":\"i%zu\"%s}",
                       names[testing_random_below(random, 5)], i,
                       envs[testing_random_below(random, 4)]);
        assert_true(cJSON_AddItemToArray(need(pod, "/spec/containers"), parse(json)));
    }
    if (testing_random_below(random, 2) != 0) {
        set(pod, "/spec", "initContainers", "[{\"name\":\"first\",\"image\":\"f\"}]");
    }
    if (testing_random_below(random, 2) != 0) {
        set(pod, "/spec", "volumes", "[{\"name\":\"data\",\"emptyDir\":{}}]");
    }
    if (testing_random_below(random, 2) != 0) {
        annotate(pod, "deft.dev/mode", "auto");
        annotate(pod, "other/~note", "\"\\\n");
    }
    return pod;
}

static void nothing_else_changes_and_twice_is_once(void **unused) {
    uint64_t random = testing_seed();
    (void)unused;
    for (int i = 0; i < 500; i++) {
        struct inject_verdict verdict;
        cJSON *pod = random_pod(&random);
        const struct inject_options *how =
            testing_random_below(&random, 2) != 0 ? &options : &with_ca;
        cJSON *once = inject(pod, how, "deft_secret", &verdict);
        assert_non_null(once);
        assert_int_equal(verdict.n_warnings, 0);
        assert_string_equal(text_at(once, "/spec/initContainers/0/name"), INJECT_NAME);
        assert_null(inject(once, how, "deft_secret", &verdict));
        assert_int_equal(verdict.n_warnings, 0);
        for (int c = 0; c < cJSON_GetArraySize(at(pod, "/spec/containers")); c++) {
            cJSON *container = cJSON_GetArrayItem(at(once, "/spec/containers"), c);
            assert_string_equal(variable(container, "DEFT_JOB_ID"), "team-a.job.train");
        }
        undo(once, pod);
        /* `env: null` is a list that is not there. */
        cJSON *container = NULL;
        cJSON_ArrayForEach(container, at(pod, "/spec/containers")) {
            if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(container, "env"))) {
                set(container, "", "env", "[]");
            }
        }
        expect_same(once, pod);
        cJSON_Delete(once);
        cJSON_Delete(pod);
    }
}

/* --- what pods get ---------------------------------------------------------------------------- */

static void the_sidecar_is_restricted_and_finds_its_ranks(void **unused) {
    struct inject_verdict verdict;
    cJSON *pod = inject_text(plain_pod, &verdict);
    (void)unused;
    assert_non_null(pod);
    cJSON *sidecar = need(pod, "/spec/initContainers/0");
    cJSON *main = need(pod, "/spec/containers/0");
    assert_string_equal(text_at(sidecar, "/restartPolicy"), "Always");
    assert_string_equal(text_at(sidecar, "/image"), options.image);
    cJSON *security = need(sidecar, "/securityContext");
    cJSON *expected = parse("{\"runAsUser\":1000,\"runAsNonRoot\":true,"
                            "\"readOnlyRootFilesystem\":true,\"allowPrivilegeEscalation\":false,"
                            "\"capabilities\":{\"drop\":[\"ALL\"]},"
                            "\"seccompProfile\":{\"type\":\"RuntimeDefault\"}}");
    expect_same(security, expected);
    cJSON_Delete(expected);
    assert_string_equal(variable(sidecar, "DEFT_AGENT_SOCKET"),
                        variable(main, "DEFT_AGENT_SOCKET"));
    assert_string_equal(variable(sidecar, "DEFT_POD_UID"), "metadata.uid");
    assert_string_equal(variable(main, "DEFT_POD_UID"), "metadata.uid");
    assert_string_equal(variable(sidecar, "DEFT_AGENT_JOB"), variable(main, "DEFT_JOB_ID"));
    assert_string_equal(variable(sidecar, "DEFT_AGENT_CONTROLLER"), options.controller);
    assert_string_equal(variable(sidecar, "DEFT_TOKEN"), "deft_secret");
    assert_null(variable(main, "DEFT_TOKEN"));
    assert_null(variable(main, "DEFT_RANK"));
    assert_null(variable(main, "DEFT_RESTART_COUNT"));
    cJSON_Delete(pod);
}

/* $(NAME) is expanded only where NAME stands before it. */
static void variables_stand_before_their_use(void **unused) {
    struct inject_verdict verdict;
    cJSON *pod = inject_text(plain_pod, &verdict);
    (void)unused;
    assert_string_equal(text_at(pod, "/spec/initContainers/0/env/0/name"), "DEFT_POD_UID");
    assert_string_equal(text_at(pod, "/spec/containers/0/env/0/name"), "DEFT_POD_UID");
    assert_string_equal(text_at(pod, "/spec/containers/0/env/1/value"), "@deft-$(DEFT_POD_UID)");
    cJSON_Delete(pod);
}

static void without_a_token_there_is_none(void **unused) {
    struct inject_verdict verdict;
    cJSON *pod = parse(plain_pod);
    (void)unused;
    cJSON *out = inject(pod, &options, NULL, &verdict);
    assert_non_null(out);
    assert_null(variable(need(out, "/spec/initContainers/0"), "DEFT_TOKEN"));
    cJSON_Delete(out);
    cJSON_Delete(pod);
}

static void jobs_are_named_by_what_owns_them(void **unused) {
    struct inject_verdict verdict;
    cJSON *pod = parse(plain_pod);
    (void)unused;
    set(pod, "/metadata", "ownerReferences",
        "[{\"apiVersion\":\"kubeflow.org/v1\",\"kind\":\"PyTorchJob\",\"name\":\"bert\","
        "\"uid\":\"u\",\"controller\":true}]");
    cJSON_Delete(inject(pod, &options, NULL, &verdict));
    assert_string_equal(verdict.job, "team-a.pytorchjob.bert");
    set(pod, "/metadata", "labels",
        "{\"deft.dev/inject\":\"true\",\"jobset.sigs.k8s.io/jobset-name\":\"set.1\","
        "\"jobset.sigs.k8s.io/restart-attempt\":\"2\"}");
    cJSON *out = inject(pod, &options, NULL, &verdict);
    assert_string_equal(verdict.job, "team-a.jobset.set.1");
    assert_string_equal(variable(need(out, "/spec/containers/0"), "DEFT_RESTART_COUNT"),
                        "metadata.labels['jobset.sigs.k8s.io/restart-attempt']");
    cJSON_Delete(out);
    cJSON_Delete(pod);
}

static void annotations_become_variables(void **unused) {
    struct inject_verdict verdict;
    cJSON *pod = parse(plain_pod);
    (void)unused;
    annotate(pod, "deft.dev/mode", "auto");
    annotate(pod, "deft.dev/max-merge", "4");
    annotate(pod, "deft.dev/max-delay", "2");
    annotate(pod, "deft.dev/epsilon", "0.02");
    annotate(pod, "deft.dev/links", "gloo:eth0,gloo:eth1");
    annotate(pod, "deft.dev/master-addr", "train-0.train");
    annotate(pod, "deft.dev/world-size", "8");
    annotate(pod, "batch.kubernetes.io/job-completion-index", "3");
    cJSON *out = inject(pod, &options, NULL, &verdict);
    assert_non_null(out);
    cJSON *sidecar = need(out, "/spec/initContainers/0");
    cJSON *main = need(out, "/spec/containers/0");
    assert_string_equal(variable(sidecar, "DEFT_AGENT_MODE"), "auto");
    assert_string_equal(variable(sidecar, "DEFT_AGENT_MAX_MERGE"), "4");
    assert_string_equal(variable(sidecar, "DEFT_AGENT_MAX_DELAY"), "2");
    assert_string_equal(variable(sidecar, "DEFT_AGENT_EPSILON"), "0.02");
    assert_string_equal(variable(main, "DEFT_LINKS"), "gloo:eth0,gloo:eth1");
    assert_string_equal(variable(main, "DEFT_MASTER_ADDR"), "train-0.train");
    assert_string_equal(variable(main, "DEFT_WORLD_SIZE"), "8");
    assert_string_equal(variable(main, "DEFT_RANK"),
                        "metadata.annotations['batch.kubernetes.io/job-completion-index']");
    cJSON_Delete(out);
    cJSON_Delete(pod);
}

static void variables_of_the_program_stay(void **unused) {
    struct inject_verdict verdict;
    cJSON *pod = parse(plain_pod);
    (void)unused;
    set(pod, "/spec/containers/0", "env", "[{\"name\":\"DEFT_JOB_NAME\",\"value\":\"mine\"}]");
    cJSON *out = inject(pod, &options, NULL, &verdict);
    cJSON *env = need(out, "/spec/containers/0/env");
    assert_string_equal(variable(need(out, "/spec/containers/0"), "DEFT_JOB_NAME"), "mine");
    for (int i = 1; i < cJSON_GetArraySize(env); i++) {
        assert_string_not_equal(text_at(cJSON_GetArrayItem(env, i), "/name"), "DEFT_JOB_NAME");
    }
    cJSON_Delete(out);
    cJSON_Delete(pod);
}

static void only_containers_of_one_user_share_an_agent(void **unused) {
    struct inject_verdict verdict;
    cJSON *pod = parse(plain_pod);
    (void)unused;
    set(pod, "/spec", "containers",
        "[{\"name\":\"a\"},{\"name\":\"b\",\"securityContext\":{\"runAsUser\":7}},{\"name\":\"c\"}"
        "]");
    cJSON *out = inject(pod, &options, NULL, &verdict);
    assert_non_null(out);
    assert_int_equal(verdict.n_warnings, 1);
    assert_non_null(strstr(verdict.warnings[0], "container 'b' has no agent"));
    assert_non_null(variable(need(out, "/spec/containers/0"), "DEFT_AGENT_SOCKET"));
    assert_null(at(out, "/spec/containers/1/env"));
    assert_non_null(variable(need(out, "/spec/containers/2"), "DEFT_AGENT_SOCKET"));
    cJSON_Delete(out);
    annotate(pod, "deft.dev/containers", "x,b");
    out = inject(pod, &options, NULL, &verdict);
    assert_int_equal(verdict.n_warnings, 0);
    assert_int_equal(
        (int)need(out, "/spec/initContainers/0/securityContext/runAsUser")->valuedouble, 7);
    assert_null(at(out, "/spec/containers/0/env"));
    cJSON_Delete(out);
    cJSON_Delete(pod);
}

static void root_has_an_agent_of_root(void **unused) {
    struct inject_verdict verdict;
    cJSON *pod = parse(plain_pod);
    (void)unused;
    set(pod, "/spec", "securityContext", "{}");
    annotate(pod, "deft.dev/user", "0");
    cJSON *out = inject(pod, &options, NULL, &verdict);
    cJSON *security = need(out, "/spec/initContainers/0/securityContext");
    assert_int_equal((int)need(security, "/runAsUser")->valuedouble, 0);
    assert_true(cJSON_IsFalse(need(security, "/runAsNonRoot")));
    cJSON_Delete(out);
    cJSON_Delete(pod);
}

/* --- what stays as it is ---------------------------------------------------------------------- */

static void what_does_not_ask_stays_without_a_word(void **unused) {
    static const char *const labels[] = {"{}", "null", "{\"deft.dev/inject\":\"false\"}",
                                         "{\"deft.dev/inject\":true}", "[\"deft.dev/inject\"]"};
    struct inject_verdict verdict;
    cJSON *pod = parse(plain_pod);
    (void)unused;
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        set(pod, "/metadata", "labels", labels[i]);
        assert_null(inject(pod, &options, NULL, &verdict));
        assert_int_equal(verdict.n_warnings, 0);
    }
    cJSON_Delete(pod);
}

static void only_new_pods_are_looked_at(void **unused) {
    static const char *const changes[][3] = {{"/request", "operation", "\"UPDATE\""},
                                             {"/request", "subResource", "\"ephemeralcontainers\""},
                                             {"/request/kind", "kind", "\"Job\""},
                                             {"/request/kind", "group", "\"apps\""},
                                             {"/request", "object", "null"},
                                             {"/request", "object", "[1]"}};
    (void)unused;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct inject_verdict verdict;
        cJSON *pod = parse(plain_pod);
        char *text = review_of(pod, "team-a");
        cJSON *root = parse(text);
        set(root, changes[i][0], changes[i][1], changes[i][2]);
        char *changed = cJSON_PrintUnformatted(root);
        struct wire_admission *review = decode(changed);
        inject_judge(review, &verdict);
        assert_false(verdict.injects);
        assert_int_equal(verdict.n_warnings, 0);
        wire_admission_close(review);
        free(changed);
        free(text);
        cJSON_Delete(root);
        cJSON_Delete(pod);
    }
}

static void wrong_annotations_are_told(void **unused) {
    static const char *const wrong[][3] = {
        {"deft.dev/mode", "on", "expected one of off, observe, auto"},
        {"deft.dev/max-merge", "0", "deft.dev/max-merge is '0', expected a whole number"},
        {"deft.dev/max-delay", "x", "deft.dev/max-delay is 'x'"},
        {"deft.dev/epsilon", "2", "deft.dev/epsilon is '2', expected a number from 0 to 1"},
        {"deft.dev/links", "", "deft.dev/links: 1 to 255 printable"},
        {"deft.dev/links", "$(DEFT_POD_UID)", "without blanks or $"},
        {"deft.dev/master-addr", "a b", "deft.dev/master-addr: 1 to 255 printable"},
        {"deft.dev/world-size", "0", "deft.dev/world-size is '0'"},
        {"deft.dev/world-size", "2", "deft.dev/world-size is for the pods of one indexed Job"},
        {"deft.dev/user", "root", "deft.dev/user is 'root'"},
        {"deft.dev/containers", "other", "deft.dev/containers names none"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cJSON *pod = parse(plain_pod);
        annotate(pod, wrong[i][0], wrong[i][1]);
        refuse(pod, wrong[i][2]);
        cJSON_Delete(pod);
    }
}

static void pods_that_cannot_have_one_are_told_why(void **unused) {
    static const char *const wrong[][4] = {
        {"/metadata", "ownerReferences", "[]", "it has no owner, expected a Job"},
        {"/metadata", "ownerReferences",
         "[{\"apiVersion\":\"apps/"
         "v1\",\"kind\":\"ReplicaSet\",\"name\":\"r\",\"controller\":true}]",
         "its owner is a ReplicaSet"},
        {"/metadata/ownerReferences/0", "name", "\"../x\"", "is no name of a job"},
        {"/metadata/ownerReferences/0", "name",
         "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
         "is no name of a job of at most 127 bytes"},
        {"/spec", "securityContext", "{}", "securityContext.runAsUser of container 'main'"},
        {"/spec/securityContext", "runAsUser", "-1", "securityContext.runAsUser of container"},
        {"/spec/securityContext", "runAsUser", "1.5", "securityContext.runAsUser of container"},
        {"/spec", "containers", "[]", "it has 0 containers"},
        {"/spec/containers/0", "name", "\"deft-agent\"", "a container or volume named deft-agent"},
        {"/spec", "volumes", "[{\"name\":\"deft-agent\"}]", "volume named deft-agent"},
        {"/spec", "volumes", "[{\"name\":\"deft-agent-ca\"}]", "volume named deft-agent"},
        {"/spec", "os", "{\"name\":\"windows\"}", "agents are for Linux"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cJSON *pod = parse(plain_pod);
        set(pod, wrong[i][0], wrong[i][1], wrong[i][2]);
        refuse(pod, wrong[i][3]);
        cJSON_Delete(pod);
    }
}

static void containers_have_a_bound(void **unused) {
    struct inject_verdict verdict;
    cJSON *pod = parse(plain_pod);
    cJSON *containers = need(pod, "/spec/containers");
    (void)unused;
    while (cJSON_GetArraySize(containers) < (int)INJECT_MAX_CONTAINERS) {
        assert_true(cJSON_AddItemToArray(containers, parse("{\"name\":\"x\"}")));
    }
    cJSON *out = inject(pod, &options, NULL, &verdict);
    assert_non_null(out);
    assert_non_null(variable(need(out, "/spec/containers/63"), "DEFT_JOB_ID"));
    cJSON_Delete(out);
    assert_true(cJSON_AddItemToArray(containers, parse("{\"name\":\"x\"}")));
    refuse(pod, "it has 65 containers, expected 1 to 64");
    cJSON_Delete(pod);
}

/* --- the review itself ------------------------------------------------------------------------ */

static void what_is_no_review_is_refused(void **unused) {
    static const char *const wrong[][2] = {
        {"", "ends too early"},
        {"{\"kind\":\"AdmissionReview\"", "comma or a closing"},
        {"[]", "kind: 'AdmissionReview' was expected"},
        {"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1beta1\"}",
         "apiVersion: 'admission.k8s.io/v1' was expected"},
        {"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":[]}",
         "request: an object was expected"},
        {"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":"
         "{\"uid\":\"\"}}",
         "request.uid: 1 to 127 bytes"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct wire_admission *review = NULL;
        struct deft_error error = {0};
        assert_int_equal(wire_admission_decode(wrong[i][0], strlen(wrong[i][0]), &review, &error),
                         DEFT_INVALID);
        assert_null(review);
        if (strstr(error.text, wrong[i][1]) == NULL) {
            fail_msg("'%s' is not in: %s", wrong[i][1], error.text);
        }
    }
}

static void reviews_have_a_bound(void **unused) {
    cJSON *pod = parse(plain_pod);
    char *text = review_of(pod, "team-a");
    size_t n_bytes = strlen(text);
    char *padded = malloc(WIRE_ADMISSION_BYTES + 1);
    struct wire_admission *review = NULL;
    (void)unused;
    assert_non_null(padded);
    memset(padded, ' ', WIRE_ADMISSION_BYTES + 1);
    for (size_t i = 0; i < n_bytes; i++) {
        padded[i] = text[i];
    }
    assert_int_equal(wire_admission_decode(padded, WIRE_ADMISSION_BYTES, &review, NULL), DEFT_OK);
    wire_admission_close(review);
    review = NULL;
    assert_int_equal(wire_admission_decode(padded, WIRE_ADMISSION_BYTES + 1, &review, NULL),
                     DEFT_LIMIT);
    assert_null(review);
    free(padded);
    free(text);
    cJSON_Delete(pod);
}

static void answers_are_clean(void **unused) {
    static const char *const warnings[] = {"a\nb\xff", NULL};
    char *text = NULL;
    (void)unused;
    assert_int_equal(wire_admission_answer("u\"1", "W10=", warnings, 1, &text, NULL), DEFT_OK);
    assert_string_equal(text,
                        "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\","
                        "\"response\":{\"uid\":\"u\\\"1\",\"allowed\":true,"
                        "\"patchType\":\"JSONPatch\",\"patch\":\"W10=\",\"warnings\":[\"a?b?\"]}}");
    free(text);
    assert_int_equal(wire_admission_answer("u", NULL, NULL, 0, &text, NULL), DEFT_OK);
    assert_string_equal(text,
                        "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\","
                        "\"response\":{\"uid\":\"u\",\"allowed\":true}}");
    free(text);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(nothing_else_changes_and_twice_is_once),
    cmocka_unit_test(the_sidecar_is_restricted_and_finds_its_ranks),
    cmocka_unit_test(variables_stand_before_their_use),
    cmocka_unit_test(without_a_token_there_is_none),
    cmocka_unit_test(jobs_are_named_by_what_owns_them),
    cmocka_unit_test(annotations_become_variables),
    cmocka_unit_test(variables_of_the_program_stay),
    cmocka_unit_test(only_containers_of_one_user_share_an_agent),
    cmocka_unit_test(root_has_an_agent_of_root),
    cmocka_unit_test(what_does_not_ask_stays_without_a_word),
    cmocka_unit_test(only_new_pods_are_looked_at),
    cmocka_unit_test(wrong_annotations_are_told),
    cmocka_unit_test(pods_that_cannot_have_one_are_told_why),
    cmocka_unit_test(containers_have_a_bound),
    cmocka_unit_test(what_is_no_review_is_refused),
    cmocka_unit_test(reviews_have_a_bound),
    cmocka_unit_test(answers_are_clean),
};
TESTING_MAIN(cases)
