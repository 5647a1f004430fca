#!/usr/bin/env python3
"""The chart's life, by real helm and kubectl, at a stand-in for the API server; its controller and
its pods run for real, in root filesystems of their own.

usage: release_test.py BUILD_FOLDER [CASE]
"""

import base64
import contextlib
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile

import yaml

import chart_test
import node
import pod_security
import tools
from apiserver import ApiServer, Cluster, Refusal
from schemas import Schemas

SPACE = "deft-system"
HOST = f"deft.{SPACE}.svc"
IMAGES = {"deft-controller": (("deft-controller", "deft"),
                              {"PATH": "/usr/bin", "SQLITE_TMPDIR": "/var/lib/deft"}),
          "deft-agent": (("deft-agent",), {"PATH": "/usr/bin"}),
          "deft-train": (("deft-train",), {"PATH": "/usr/bin"})}


class Release:
    """A cluster, helm, and a node that runs what the release says."""

    def __init__(self, build, path, roots=None):
        self.path = path
        self.cluster = Cluster(Schemas("1.33"), self.resolve)
        self.cluster.make_namespace("team-a", **{
            "pod-security.kubernetes.io/enforce": "restricted"})
        kubeconfig = os.path.join(path, "kubeconfig")
        self.server = ApiServer(self.cluster, kubeconfig)
        self.tools = tools.Tools(build, path, kubeconfig)
        self.node = node.Node(path, build, self.cluster, IMAGES, roots)
        self.node.name_service(HOST)
        self.controller = None
        self.notes = None

    def resolve(self, service):
        """Through the Service that is there, to the pod."""
        own = self.cluster.find("services", service["name"])
        [port] = [port for port in own["spec"]["ports"]
                  if port["port"] == service.get("port", 443)]
        return node.ADDRESS, {"api": 7600, "webhook": 7601}[port["targetPort"]]

    def helm(self, *words, **more):
        return self.tools.helm(*words, "--namespace", SPACE, **more)

    def install(self, *words):
        out, _ = self.helm("install", "deft", tools.CHART, "--create-namespace", *words)
        assert "STATUS: deployed" in out, out

    def upgrade(self, *words, status=0):
        return self.helm("upgrade", "deft", tools.CHART, *words, status=status)

    def sync(self):
        """What the StatefulSet's controller does: another template is another pod."""
        item = self.cluster.find("statefulsets", "deft")
        if self.notes == item["spec"]["template"] and self.controller:
            return False
        if self.controller:
            statuses = self.controller.stop()
            assert statuses == {"controller": 0}, statuses
        self.notes = item["spec"]["template"]
        self.controller = node.Pod(self.node, node.pod_of_set(item)).start()
        self.controller.await_ready()
        return True

    def secret(self, name, key):
        return base64.b64decode(self.cluster.find("secrets", f"deft-{name}")["data"][key]).decode()

    def deft(self, *words, role="operator"):
        """The command line, as from another pod."""
        for name, text in (("token", self.secret("tokens", role)),
                           ("ca.pem", self.secret("certificate", "ca.crt"))):
            with open(os.path.join(self.path, name), "w", encoding="ascii") as file:
                file.write(text)
            os.chmod(file.name, 0o600)
        done = subprocess.run(
            [os.path.join(self.node.build, "bin", "deft"), *words, "--controller",
             f"https://{HOST}:7600", "--token-file", f"{self.path}/token", "--ca-file",
             f"{self.path}/ca.pem"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout.decode()
        return done.stdout.decode()

    def make_pod(self, item, dry_run=False):
        """As the API server would; (pod, warnings)."""
        name = item["metadata"]["name"]
        made, warnings, _ = self.cluster.write(("", "v1", "pods", "team-a", name), item, dry_run)
        return made, warnings


@contextlib.contextmanager
def release(build, roots=None, prepare=None):
    """Installed. `prepare`: what is there before, returning more words for helm."""
    path = tempfile.mkdtemp(prefix="deft-release-test-")
    try:
        it = Release(build, path, roots)
        # Names of services, in this mount namespace alone.
        with open("/etc/hosts", encoding="utf-8") as file:
            known = file.read()
        with open(it.node.hosts, "a", encoding="utf-8") as file:
            file.write(known)
        subprocess.run(["mount", "--bind", it.node.hosts, "/etc/hosts"], check=True)
        with it.server:
            try:
                it.install(*(prepare(it) if prepare else ()))
                yield it
            finally:
                if it.controller:
                    it.controller.kill()
    finally:
        subprocess.run(["umount", "/etc/hosts"], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(path, ignore_errors=True)


# --- the life of a release ------------------------------------------------------------------------

def an_upgrade_keeps_certificate_path_and_tokens(build):
    with release(build) as it:
        before = it.cluster.find("secrets")
        hook = it.cluster.find("mutatingwebhookconfigurations")
        kept = {item["metadata"]["name"]: item["data"] for item in before if "data" in item}
        it.upgrade("--set", "settings.warmup=7")
        it.upgrade("--reuse-values", "--set", "podAnnotations.note=x")
        for name in ("deft-certificate", "deft-webhook-path", "deft-tokens"):
            assert it.cluster.find("secrets", name)["data"] == kept[name], name
        own = it.cluster.find("mutatingwebhookconfigurations")
        assert own[0]["webhooks"] == hook[0]["webhooks"]
        config = it.cluster.find("configmaps", "deft")["data"]["controller.conf"]
        assert "warmup = 7\n" in config  # of the upgrade before
        values = yaml.safe_load(it.helm("get", "values", "deft", "--all")[0])
        assert "made" not in values, "secrets are a part of the values"


def a_failed_upgrade_is_rolled_back_and_all_goes(build):
    with release(build) as it:
        before = it.cluster.find("statefulsets", "deft")["spec"]
        _, said = it.upgrade("--set", "podSecurityContext.runAsuser=7", status=1)
        assert "'runAsuser' was unexpected" in said, said
        _, said = it.upgrade("--set", "persistence.size=1Gi", status=1)
        assert "volumeClaimTemplates may not change" in said, said
        history = json.loads(it.helm("history", "deft", "--output", "json")[0])
        assert [own["status"] for own in history] == ["deployed", "failed", "failed"], history
        it.helm("rollback", "deft", "1")
        assert it.cluster.find("statefulsets", "deft")["spec"] == before
        it.helm("uninstall", "deft")
        left = [key for key in it.cluster.objects if key[2] != "namespaces"]
        assert left == [], left


def kubectl_takes_everything(build):
    with release(build) as it:
        text, _ = it.helm("template", "deft", tools.CHART)
        before = copy.deepcopy(it.cluster.objects)
        out, _ = it.tools.kubectl("apply", "--server-side", "--dry-run=server", "--force-conflicts",
                                  "--filename", "-", data=text.encode())
        assert out.count("serverside-applied (server dry run)") >= 10, out
        assert it.cluster.objects == before, "a dry run has left something"
        wrong = text.replace("replicas: 1", "replica: 1")
        _, said = it.tools.kubectl("apply", "--server-side", "--dry-run=server",
                                   "--force-conflicts", "--filename", "-", data=wrong.encode(),
                                   status=1)
        assert "'replica' was unexpected" in said, said


# --- the controller, as the chart starts it -------------------------------------------------------

def the_controller_starts_as_the_chart_says(build):
    with release(build) as it:
        assert it.sync()
        it.deft("jobs", role="viewer")
        tokens = it.deft("token", "list")
        assert tokens.count("chart-operator-") == 1 and tokens.count("chart-viewer-") == 1, tokens
        item = it.cluster.find("statefulsets", "deft")["spec"]["template"]["spec"]
        assert pod_security.problems(item) == []
        root = os.path.join(it.controller.place, "root-controller")
        assert not os.path.exists(root + "/bin/sh") and not os.path.exists(root + "/usr/bin/sh")
        own = it.controller.containers[0][1].pid
        with open(f"/proc/{own}/status", encoding="ascii") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        assert status["Uid"].split() == ["10001"] * 4 and status["NoNewPrivs"] == "1", status
        assert int(status["CapEff"], 16) == 0, status["CapEff"]
        with open(f"/proc/{own}/mountinfo", encoding="ascii") as file:
            [flags] = [line.split()[5] for line in file if line.split()[4] == "/"]
        assert "ro" in flags.split(","), flags
        assert it.controller.stop() == {"controller": 0}


def sign(path, *words):
    subprocess.run(["openssl", *words], check=True, cwd=path, stderr=subprocess.DEVNULL)


def own_secrets(it):
    """A certificate and tokens of somebody else, for ci/existing-secret-values.yaml."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    sign(it.path, "req", "-x509", *key, "-days", "2", "-subj", "/CN=own", "-keyout", "ca.key",
         "-out", "ca.crt")
    sign(it.path, "req", *key, "-subj", "/CN=own leaf", "-addext", f"subjectAltName=DNS:{HOST}",
         "-keyout", "tls.key", "-out", "tls.csr")
    sign(it.path, "x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-days",
         "2", "-copy_extensions", "copy", "-out", "tls.crt")
    data = {}
    for name in ("tls.crt", "tls.key", "ca.crt"):
        with open(os.path.join(it.path, name), "rb") as file:
            data[name] = base64.b64encode(file.read()).decode()
    bundle = data.pop("ca.crt")
    tokens = {role: base64.b64encode(b"deft_" + letter * 43).decode()
              for role, letter in (("operator", b"o"), ("viewer", b"v"))}
    it.cluster.make_namespace(SPACE)
    for name, own in (("own-certificate", data), ("own-tokens", tokens)):
        it.cluster.write(("", "v1", "secrets", SPACE, name), {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": own})
    return ["--values", os.path.join(tools.CI, "existing-secret-values.yaml"), "--set",
            f"certificates.caBundle={bundle}"]


def a_certificate_of_ones_own_serves(build):
    if shutil.which("openssl") is None:
        tools.skip("there is no openssl")
    with release(build, prepare=own_secrets) as it:
        it.sync()
        made, warnings = it.make_pod(pod_of("Job", "own", False))
        assert it.cluster.webhook_errors == [] and warnings == []
        with open(os.path.join(it.path, "ca.crt"), encoding="ascii") as file:
            assert made["metadata"]["annotations"]["deft.dev/controller-ca"] == file.read()
        assert "deft-certificate" not in [own["metadata"]["name"]
                                          for own in it.cluster.find("secrets")]


def the_least_starts(build):
    def words(_):
        return ["--values", os.path.join(tools.CI, "minimal-values.yaml"), "--set",
                "persistence.enabled=false"]
    with release(build, prepare=words) as it:
        for _ in range(2):  # its probes are plain HTTP
            it.sync()
            said = it.controller.log("operator-token")
            assert " is made, live" in said, said  # also in the second, whose volume is new
            it.upgrade("--reuse-values", "--set", "settings.warmup=7")


def helm_test_passes_and_fails_rightly(build):
    with release(build) as it:
        def run(key, item):
            it.cluster.set_status(key, {"phase": "Running"})
            statuses = node.Pod(it.node, item).start().wait()
            is_fine = set(statuses.values()) == {0}
            it.cluster.set_status(key, {"phase": "Succeeded" if is_fine else "Failed"})
        it.cluster.on_pod = run
        _, said = it.helm("test", "deft", "--timeout", "60s", status=1)  # no controller yet
        assert "failed" in said.lower(), said
        it.sync()
        out, _ = it.helm("test", "deft", "--timeout", "60s")
        assert "Phase:          Succeeded" in out, out


def a_restart_keeps_tokens_and_history(build):
    with release(build) as it:
        it.sync()
        it.deft("token", "create", "--name", "mine", "--role", "viewer")
        it.upgrade("--set", "settings.warmup=7")
        assert it.sync(), "another setting is another pod"
        assert not it.sync()
        listed = it.deft("token", "list")
        assert "mine" in listed and listed.count("chart-operator-") == 1, listed


# --- pods of jobs ---------------------------------------------------------------------------------

HARD = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
POD_CONTEXT = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
               "seccompProfile": {"type": "RuntimeDefault"}}


def pod_of(kind, name, is_full):
    """As the controllers of Job, JobSet and PyTorchJob make them."""
    owner = {"Job": ("batch/v1", "Job", name), "JobSet": ("batch/v1", "Job", name + "-workers-0"),
             "PyTorchJob": ("kubeflow.org/v1", "PyTorchJob", name)}[kind]
    labels = {"deft.dev/inject": "true"}
    notes = {}
    if kind != "PyTorchJob":
        notes["batch.kubernetes.io/job-completion-index"] = "0"
        labels["batch.kubernetes.io/job-name"] = owner[2]
    if kind == "JobSet":
        labels.update({"jobset.sigs.k8s.io/jobset-name": name,
                       "jobset.sigs.k8s.io/replicatedjob-replicas": "1",
                       "jobset.sigs.k8s.io/restart-attempt": "2"})
    own = {"name": "main", "image": "deft-train:1", "command": ["deft-train"],
           "securityContext": dict(HARD)}
    spec = {"restartPolicy": "Never", "securityContext": dict(POD_CONTEXT), "containers": [own]}
    if is_full:
        own["env"] = [{"name": "DEFT_LINKS", "value": "gloo:eth1"}, {"name": "A", "value": "b"}]
        own["volumeMounts"] = [{"name": "scratch", "mountPath": "/scratch"}]
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
        spec["initContainers"] = [{"name": "fetch", "image": "fetch:1",
                                   "securityContext": dict(HARD)}]
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": f"{name}-0-{'full' if is_full else 'bare'}", "labels": labels,
                         "annotations": notes, "ownerReferences": [
                             {"apiVersion": owner[0], "kind": owner[1], "name": owner[2],
                              "uid": "00000000-0000-0000-0000-000000000001", "controller": True,
                              "blockOwnerDeletion": True}]}}


def variables(own):
    return {entry["name"]: entry for entry in own.get("env", [])}


def pods_of_every_kind_are_injected(build):
    others = [Schemas(version) for version in ("1.29", "1.35")]
    with release(build) as it:
        it.sync()
        for kind in ("Job", "JobSet", "PyTorchJob"):
            for is_full in (False, True):
                wish = pod_of(kind, kind.lower(), is_full)
                made, warnings = it.make_pod(wish)  # schemas and pod security are held there
                assert it.cluster.webhook_errors == [] and warnings == [], warnings
                first = made["spec"]["initContainers"][0]
                assert first["name"] == "deft-agent" and first["restartPolicy"] == "Always"
                assert first["image"] == "deft-agent:0.1.0"
                own = variables(made["spec"]["containers"][0])
                assert own["DEFT_JOB_ID"]["value"] == f"team-a.{kind.lower()}.{kind.lower()}"
                assert ("DEFT_RESTART_COUNT" in own) == (kind == "JobSet")
                if is_full:
                    assert own["DEFT_LINKS"]["value"] == "gloo:eth1" and "A" in own
                    assert made["spec"]["initContainers"][1]["name"] == "fetch"
                bare = copy.deepcopy(made)
                bare["metadata"] = {key: bare["metadata"][key] for key in wish["metadata"]}
                for schemas in others:
                    assert schemas.problems(bare) == []
                bare["metadata"]["name"] += "-again"
                again, _ = it.make_pod(bare)  # asked once more: nothing changes
                assert again["spec"] == made["spec"]


def the_example_job_is_injected(build):
    path = os.path.join(tools.ROOT, "agent", "examples", "kubernetes_job.yaml")
    with open(path, encoding="utf-8") as file:
        items = list(yaml.safe_load_all(file))
    for version in tools.VERSIONS:
        schemas = Schemas(version)
        assert [schemas.problems(item) for item in items] == [[], []], version
    job = items[1]
    with release(build) as it:
        it.sync()
        wish = pod_of("Job", job["metadata"]["name"], False)
        template = job["spec"]["template"]
        wish["metadata"]["labels"].update(template["metadata"]["labels"])
        wish["metadata"]["annotations"].update(template["metadata"]["annotations"])
        wish["spec"] = template["spec"]
        made, warnings = it.make_pod(wish)  # under the restricted level
        assert warnings == [] and it.cluster.webhook_errors == []
        own = variables(made["spec"]["containers"][0])
        assert own["DEFT_WORLD_SIZE"]["value"] == str(job["spec"]["completions"])
        assert own["DEFT_MASTER_ADDR"]["value"] == "train-0.train" and "DEFT_RANK" in own


def what_is_not_ours_stays_as_it_is(build):
    with release(build) as it:
        it.sync()
        before = it.deft("token", "list")
        wish = pod_of("Job", "dry", False)
        made, _ = it.make_pod(wish, dry_run=True)
        assert "DEFT_TOKEN" not in variables(made["spec"]["initContainers"][0])
        assert it.deft("token", "list") == before  # so a dry run leaves nothing
        wish = pod_of("Job", "plain", False)
        del wish["metadata"]["labels"]["deft.dev/inject"]
        assert "initContainers" not in it.make_pod(wish)[0]["spec"]
        for space in ("kube-system", SPACE):
            key = ("", "v1", "pods", space, "own")
            made, _, _ = it.cluster.write(key, pod_of("Job", "own", False))
            assert "initContainers" not in made["spec"], space
        wish = pod_of("Job", "wrong", False)
        wish["metadata"]["annotations"]["deft.dev/mode"] = "on"
        made, warnings = it.make_pod(wish)
        assert "initContainers" not in made["spec"] and "deft.dev/mode is 'on'" in warnings[0]
        wish = pod_of("Job", "loose", False)
        del wish["spec"]["containers"][0]["securityContext"]
        try:
            it.make_pod(wish)
            raise AssertionError("restricted pod security takes anything")
        except Refusal as refusal:
            assert "PodSecurity" in str(refusal)


def pods_start_without_a_controller(build):
    with release(build) as it:
        made, _ = it.make_pod(pod_of("Job", "early", False))
        assert "initContainers" not in made["spec"]
        assert len(it.cluster.webhook_errors) == 1, it.cluster.webhook_errors


CASES = (a_certificate_of_ones_own_serves, the_least_starts,
         an_upgrade_keeps_certificate_path_and_tokens, a_failed_upgrade_is_rolled_back_and_all_goes,
         kubectl_takes_everything, the_controller_starts_as_the_chart_says,
         helm_test_passes_and_fails_rightly, a_restart_keeps_tokens_and_history,
         pods_of_every_kind_are_injected, the_example_job_is_injected,
         what_is_not_ours_stays_as_it_is, pods_start_without_a_controller)

if __name__ == "__main__":
    node.isolate()
    chart_test.main(CASES, sys.argv)
