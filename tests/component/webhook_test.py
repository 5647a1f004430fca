#!/usr/bin/env python3
"""The admission webhook of a real controller, over TLS: pods in, JSON patches out.

usage: webhook_test.py DEFT_CONTROLLER [CASE]

What the API server would do with a patch is done here, and the pod that comes out is held against
the schema of Kubernetes where ../shared has it.
"""

import base64
import concurrent.futures
import contextlib
import copy
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys

import rest_controller
from rest_controller import API, DEADLINE_S, Controller, Reply, folder, registration

KEY = "0123456789abcdefXYZ_-"
SHARED = os.environ.get("DEFT_SHARED_DIR", "")
URL = "http://deft.deft.svc:7600"


def make_certificate(path, name="controller.deft.svc"):
    """crt.pem and key.pem in the folder, replaced in one piece each."""
    if shutil.which("openssl") is None:
        print("skipped: there is no openssl")
        sys.exit(77)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", f"subjectAltName=DNS:{name}", "-keyout", f"{path}/new-key.pem",
                    "-out", f"{path}/new-crt.pem"], check=True, stderr=subprocess.DEVNULL)
    os.chmod(f"{path}/new-key.pem", 0o600)
    for file in ("key.pem", "crt.pem"):
        os.rename(f"{path}/new-{file}", f"{path}/{file}")


class Webhook:
    """A controller with a webhook, and tokens unless it is `open`."""

    def __init__(self, program, path, *options, is_open=False):
        make_certificate(path)
        with open(f"{path}/path", "w", encoding="ascii") as file:
            file.write(KEY + "\n")
        self.path = path
        token = None
        if not is_open:
            token = subprocess.run(
                [program, "token", "--db", f"{path}/deft.db", "create", "--name", "root", "--role",
                 "operator"], check=True, stdout=subprocess.PIPE).stdout.decode().strip()
        self.controller = Controller(
            program, "--webhook-port", "0", "--webhook-cert", f"{path}/crt.pem", "--webhook-key",
            f"{path}/key.pem", "--webhook-path-file", f"{path}/path", "--webhook-image",
            "deft/agent:1", "--webhook-controller", URL, *options, folder=path)
        self.controller.token = token
        self.controller.await_log("admission webhook on ")
        said = self.controller.log().rsplit("admission webhook on ", 1)[1]
        self.port = int(said.split(" port ")[1].split()[0])

    def connect(self, name="controller.deft.svc"):
        context = ssl.create_default_context(cafile=f"{self.path}/crt.pem")
        peer = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)
        return context.wrap_socket(peer, server_hostname=name)

    def ask(self, body, path=f"/admission/{KEY}?timeout=5s", method="POST",
            kind="application/json", name="controller.deft.svc"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.sock = self.connect(name)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, {"Content-Type": kind})
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def review(self, pod, **more):
        """The response to one review."""
        reply = self.ask(review_of(pod, **more))
        assert reply.status == 200, f"{reply.status} {reply.text}"
        answer = reply.json
        assert answer["apiVersion"] == "admission.k8s.io/v1"
        assert answer["kind"] == "AdmissionReview"
        response = answer["response"]
        assert response["allowed"] is True and response["uid"] == "705ab4f5-6393-11e8"
        return response

    def inject(self, pod, **more):
        response = self.review(pod, **more)
        assert response["patchType"] == "JSONPatch", response
        return patched(pod, json.loads(base64.b64decode(response["patch"], validate=True)))

    def tokens(self):
        return [token for token in self.controller.get("/tokens")["tokens"]
                if token["name"].startswith("pod-")]


@contextlib.contextmanager
def webhook(program, *options, **more):
    with folder() as path:
        it = Webhook(program, path, *options, **more)
        with it.controller:
            yield it


def pod_of(name="train", **spec):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"generateName": f"{name}-0-", "labels": {"deft.dev/inject": "true"},
                         "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name,
                                              "uid": "u", "controller": True,
                                              "blockOwnerDeletion": True}]},
            "spec": {"restartPolicy": "Never", "securityContext": {"runAsUser": 1000},
                     "containers": [{"name": "main", "image": "train:1"}], **spec}}


def review_of(pod, namespace="team-a", **more):
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "705ab4f5-6393-11e8", "operation": "CREATE", "dryRun": False,
                        "kind": {"group": "", "version": "v1", "kind": "Pod"},
                        "resource": {"group": "", "version": "v1", "resource": "pods"},
                        "namespace": namespace, "object": pod, "oldObject": None, **more}}


def patched(document, operations):
    document = copy.deepcopy(document)
    for operation in operations:
        assert set(operation) == {"op", "path", "value"} and operation["op"] == "add", operation
        *parents, last = [part.replace("~1", "/").replace("~0", "~")
                          for part in operation["path"].split("/")[1:]]
        node = document
        for part in parents:
            node = node[int(part) if isinstance(node, list) else part]
        if isinstance(node, list):
            node.insert(len(node) if last == "-" else int(last), operation["value"])
        else:
            node[last] = operation["value"]
    return document


def sidecar(pod):
    first = pod["spec"]["initContainers"][0]
    assert first["name"] == "deft-agent"
    return first


def token_of(pod):
    values = [entry["value"] for entry in sidecar(pod)["env"] if entry["name"] == "DEFT_TOKEN"]
    return values[0] if values else None


def a_pod_gets_an_agent_once(program):
    with webhook(program) as it:
        pod = pod_of()
        once = it.inject(pod)
        assert sidecar(once)["restartPolicy"] == "Always"
        again = it.review(once)
        assert "patch" not in again and "warnings" not in again, again
        assert len(it.tokens()) == 1


def the_token_is_good_for_its_job_alone(program):
    with webhook(program) as it:
        token = token_of(it.inject(pod_of()))
        agent = {"token": token}
        path = API + "/jobs/team-a.job.{}/incarnations"
        it.controller.expect(201, "POST", path.format("train"), registration(), **agent)
        it.controller.expect(403, "POST", path.format("other"), registration(), **agent)
        it.controller.expect(403, "GET", API + "/jobs", **agent)
        [made] = it.tokens()
        assert made["role"] == "agent" and made["job"] == "team-a.job.train", made
        assert made["name"].startswith("pod-705ab4f5-6393-11e8-") and made["expires_at"], made
        assert token not in it.controller.log()


def pods_of_a_job_share_a_token_while_it_holds(program):
    with webhook(program) as it:
        first = token_of(it.inject(pod_of()))
        assert token_of(it.inject(pod_of())) == first
        assert token_of(it.inject(pod_of(), namespace="team-b")) != first
        assert token_of(it.inject(pod_of("other"))) != first
        assert len(it.tokens()) == 3
        name = [token["name"] for token in it.tokens() if token["job"] == "team-a.job.train"][0]
        it.controller.expect(200, "DELETE", f"{API}/tokens/{name}")
        assert token_of(it.inject(pod_of())) != first


def pods_that_come_at_once_share_a_token(program):
    with webhook(program) as it:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: token_of(it.inject(pod_of())), range(32)))
        assert len(set(found)) == 1 and len(it.tokens()) == 1


def a_dry_run_leaves_nothing(program):
    with webhook(program) as it:
        before = it.controller.get("/audit")
        pod = it.inject(pod_of(), dryRun=True)
        assert token_of(pod) is None
        assert it.tokens() == [] and it.controller.get("/audit") == before


def a_controller_open_to_all_stays_so(program):
    with webhook(program, is_open=True) as it:
        assert token_of(it.inject(pod_of())) is None
        it.controller.get("/jobs")


def only_those_who_know_the_path_are_answered(program):
    with webhook(program) as it:
        body = review_of(pod_of())
        for path in ("/admission", "/admission/", "/admission/x", f"/admission/{KEY}x",
                     f"/admission/{KEY[:-1]}", f"/admission/{KEY}/", "/", "/api/v1/jobs"):
            reply = it.ask(body, path=path)
            assert reply.status == 404, f"{path}: {reply.status}"
        assert it.ask(body, method="GET").status == 405
        assert it.tokens() == []
        reply = it.controller.ask("POST", f"/admission/{KEY}", body)
        assert reply.status == 404  # nor is it a part of the API


def what_is_no_review_is_refused(program):
    with webhook(program) as it:
        assert it.ask(b"{").status == 400
        assert it.ask(b"").status == 400
        assert it.ask(b'{"kind":"AdmissionReview"}').json["detail"].startswith("apiVersion: ")
        assert it.ask(review_of(pod_of()), kind="text/plain").status == 415
        body = json.dumps(review_of(pod_of())).encode()
        most = 3 << 20
        assert it.ask(body + b" " * (most - len(body))).status == 200
        with it.connect() as peer:  # it is refused by its head
            peer.sendall(f"POST /admission/{KEY} HTTP/1.1\r\nHost: a\r\nContent-Type: application/"
                         f"json\r\nContent-Length: {most + 1}\r\n\r\n".encode())
            answer = http.client.HTTPResponse(peer)
            answer.begin()
            assert answer.status == 413


def refusals_are_warnings(program):
    with webhook(program) as it:
        pod = pod_of()
        pod["metadata"]["annotations"] = {"deft.dev/mode": "on"}
        response = it.review(pod)
        assert "patch" not in response
        [warning] = response["warnings"]
        assert "deft.dev/mode is 'on'" in warning and len(warning) <= 256
        it.controller.await_log("webhook: namespace team-a: DeFT: the pod stays as it is")
        assert it.tokens() == []


def sighup_brings_a_new_certificate(program):
    with webhook(program) as it:
        it.inject(pod_of())
        make_certificate(it.path, "new.deft.svc")
        it.controller.process.send_signal(signal.SIGHUP)
        it.controller.await_log("SIGHUP: the webhook's certificate was read again")
        assert it.ask(review_of(pod_of()), name="new.deft.svc").status == 200
        with open(f"{it.path}/crt.pem", "w", encoding="ascii") as file:
            file.write("none")
        it.controller.process.send_signal(signal.SIGHUP)
        it.controller.await_log("SIGHUP: the webhook's old certificate stays in use")


def a_renewed_certificate_is_taken_up(program):
    with webhook(program) as it:  # nobody sends a signal in a cluster
        make_certificate(it.path, "new.deft.svc")
        it.controller.await_log("new files: the webhook's certificate was read again")
        assert it.ask(review_of(pod_of()), name="new.deft.svc").status == 200


def settings_that_do_not_go_together_are_refused(program):
    with folder() as path:
        make_certificate(path)
        own = ["--webhook-cert", f"{path}/crt.pem", "--webhook-key", f"{path}/key.pem"]
        image = ["--webhook-image", "i", "--webhook-controller", URL]
        key = ["--webhook-path-file", f"{path}/path"]
        cases = [(2, own[:2], "--webhook-cert and --webhook-key belong together"),
                 (2, own, "--webhook-cert needs --webhook-image and --webhook-controller"),
                 (2, own + image, "--webhook-path-file or --webhook-client-ca"),
                 (2, own + ["--webhook-expires", "3"], "--webhook-expires is '3', expected a time"),
                 (1, own + image + key, "cannot be read: No such file"),
                 (1, own + image + key + ["--webhook-controller-ca", f"{path}/key.pem"],
                  "has no certificate (PEM)"),
                 (1, own + image + key, "is unfit, expected one line of 16 to 128 letters")]
        for i, (status, words, says) in enumerate(cases):
            if i >= 5:
                with open(f"{path}/path", "w", encoding="ascii") as file:
                    file.write(KEY if i == 5 else "short\n")
            done = subprocess.run([program, "--port", "0", "--db", f"{path}/deft.db", *words],
                                  stderr=subprocess.PIPE, check=False, timeout=DEADLINE_S)
            text = done.stderr.decode()
            assert done.returncode == status and says in text, f"{done.returncode} {text}"


def schema_of(version):
    """A validator of pods that refuses members that Kubernetes does not know."""
    path = os.path.join(SHARED, "k8s-openapi", version, "api", "v1.json")
    try:
        import jsonschema
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(77)
    if not SHARED or not os.path.exists(path):
        print("skipped: there is no shared/k8s-openapi")
        sys.exit(77)
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    top = {"$ref": "#/components/schemas/io.k8s.api.core.v1.Pod", **document}
    return jsonschema.Draft202012Validator(top)


def injected_pods_are_legal(program):
    with folder() as more:
        make_certificate(more)
        with webhook(program, "--webhook-controller-ca", f"{more}/crt.pem") as it:
            pod = pod_of()
            pod["metadata"]["annotations"] = {
                "deft.dev/world-size": "4", "deft.dev/mode": "auto", "deft.dev/epsilon": "0.02",
                "batch.kubernetes.io/job-completion-index": "1"}
            pods = [it.inject(pod), it.inject(pod_of()), it.inject(pod_of(volumes=[]))]
            with open(f"{more}/crt.pem", encoding="ascii") as file:
                pem = file.read()
    for version in ("1.29", "1.33", "1.35"):
        schema = schema_of(version)
        for done in pods:
            problems = [f"{list(e.absolute_path)}: {e.message}" for e in schema.iter_errors(done)]
            assert not problems, f"{version}: {problems}"
        wrong = copy.deepcopy(pods[0])
        sidecar(wrong)["restartpolicy"] = "Always"
        assert list(schema.iter_errors(wrong)), "the schema takes anything"
    assert pods[0]["metadata"]["annotations"]["deft.dev/controller-ca"] == pem


CASES = (a_pod_gets_an_agent_once, the_token_is_good_for_its_job_alone,
         pods_of_a_job_share_a_token_while_it_holds, pods_that_come_at_once_share_a_token,
         a_dry_run_leaves_nothing,
         a_controller_open_to_all_stays_so, only_those_who_know_the_path_are_answered,
         what_is_no_review_is_refused, refusals_are_warnings, sighup_brings_a_new_certificate,
         a_renewed_certificate_is_taken_up,
         settings_that_do_not_go_together_are_refused, injected_pods_are_legal)

if __name__ == "__main__":
    rest_controller.main(CASES, sys.argv)
