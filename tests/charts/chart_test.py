#!/usr/bin/env python3
"""The chart as helm reads it: for every value file and version of Kubernetes, and with mistakes.

usage: chart_test.py BUILD_FOLDER [CASE]
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

import chart_rules
import tools
from schemas import Schemas

GIVEN = {"own-certificate", "own-tokens"}  # Secrets of ci/existing-secret-values.yaml


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="deft-chart-test-")
    try:
        yield path
    finally:
        shutil.rmtree(path)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def all_problems(helm, chart, schemas, *words):
    """What schemas and rules say of a rendered chart."""
    items = helm.template(chart, schemas.version, *words)
    found = [sentence for item in items for sentence in schemas.problems(item)]
    return items, found or chart_rules.problems(items, GIVEN)


def config_of(items):
    [own] = [item for item in items if "controller.conf" in item.get("data", {})]
    return own["data"]["controller.conf"]


def controller(build, path, config, option):
    """What deft-controller says of a file of settings."""
    with open(os.path.join(path, "controller.conf"), "w", encoding="utf-8") as file:
        file.write(config)
    done = subprocess.run([os.path.join(build, "bin", "deft-controller"), option, "--config",
                           file.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    return done.returncode, done.stdout.decode()


# --- the chart as it is ---------------------------------------------------------------------------

def lint_is_content(build):
    with folder() as path:
        helm = tools.Tools(build, path)
        for values in tools.value_files():
            out, _ = helm.helm("lint", "--strict", tools.CHART, "--values", values)
            assert "0 chart(s) failed" in out, out
        assert len(tools.value_files()) == 6


def every_object_is_legal(build):
    with folder() as path:
        helm = tools.Tools(build, path)
        for version in tools.VERSIONS:
            schemas = Schemas(version)
            for values in tools.value_files():
                items, found = all_problems(helm, tools.CHART, schemas, "--values", values)
                assert not found, f"{values} {version}: {found}"
                status, said = controller(build, path, config_of(items), "--check-config")
                assert status == 0, f"{values}: {said}"


def a_package_has_dashboard_and_alerts(build):
    with folder() as path:
        helm = tools.Tools(build, path)
        helm.helm("package", tools.CHART, "--destination", path)
        [name] = [name for name in os.listdir(path) if name.endswith(".tgz")]
        items = helm.template(os.path.join(path, name), "1.33", "--values",
                              os.path.join(tools.CI, "everything-values.yaml"))
        [rule] = chart_rules.by_kind(items, "PrometheusRule")
        grafana = os.path.join(tools.ROOT, "charts", "grafana")
        with open(os.path.join(grafana, "deft-alerts.yaml"), encoding="utf-8") as file:
            assert rule["spec"]["groups"] == yaml.safe_load(file)["groups"]
        [board] = [item for item in items if "deft-dashboard.json" in item.get("data", {})]
        assert json.loads(board["data"]["deft-dashboard.json"]) == tools.read_json(
            os.path.join(grafana, "deft-dashboard.json"))


def an_old_kubernetes_is_refused(build):
    with folder() as path:
        _, said = tools.Tools(build, path).helm("template", "r", tools.CHART, "--kube-version",
                                                "1.28.9", status=1)
        assert "incompatible with Kubernetes" in said, said


def without_the_operator_there_is_no_monitor(build):
    with folder() as path:
        out, _ = tools.Tools(build, path).helm(
            "template", "r", tools.CHART, "--set", "serviceMonitor.enabled=true,"
            "prometheusRule.enabled=true")
        assert "monitoring.coreos.com" not in out


def the_default_settings_are_the_controllers_own(build):
    with folder() as path:
        helm = tools.Tools(build, path)
        ours = config_of(helm.template(tools.CHART, "1.33"))
        status, printed = controller(build, path, ours, "--print-config")
        assert status == 0, printed
        _, plain = controller(build, path, "", "--print-config")
        wanted = dict(re.findall(r"^#? ?([a-z-]+) = (\S+)", plain, re.MULTILINE))
        settings = yaml.safe_load(read(os.path.join(tools.CHART, "values.yaml")))["settings"]
        lines = dict(re.findall(r"^([a-z-]+) = (\S+)$", ours, re.MULTILINE))
        assert len(settings) >= 13 and "mode" in settings
        for key in settings:
            own = wanted.get(key)
            if key not in ("max-rate", "max-connections-per-client"):  # 0 on a loopback address
                assert lines[key] == own, f"{key}: {lines[key]}, and the controller has {own}"


def a_change_rolls_the_pod(build):
    with folder() as path:
        helm = tools.Tools(build, path)

        def notes(*words):
            [own] = chart_rules.by_kind(helm.template(
                tools.CHART, "1.33", "--values", os.path.join(tools.CI, "cert-manager-values.yaml"),
                "--set", "webhook.path=0123456789abcdef", *words), "StatefulSet")
            return own["spec"]["template"]["metadata"]["annotations"]
        same = notes()
        assert same == notes()
        assert notes("--set", "settings.warmup=7")["checksum/config"] != same["checksum/config"]
        other = notes("--set", "webhook.path=0123456789abcdeg")
        assert other["checksum/secrets"] != same["checksum/secrets"]


# --- values and what is said of them --------------------------------------------------------------

def leaves(values, path=()):
    """Dotted names of what a user sets: empty maps, and what is no map."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield ".".join((*path, key))


def documented(text):
    """{dotted name: comment} of the values that have a `# --` comment."""
    found, stack, comment = {}, [], None
    for line in text.splitlines():
        mark = re.match(r"^ *# ?(-- )?(.*)$", line)
        if mark and mark.group(1):
            comment = mark.group(2)
        elif mark and comment is not None:
            comment += " " + mark.group(2)
        member = re.match(r"^( *)([A-Za-z][\w-]*):", line)
        if member:
            stack = stack[:len(member.group(1)) // 2] + [member.group(2)]
            if comment is not None:
                found[".".join(stack)] = comment
            comment = None
    return found


def value_problems(chart):
    text = read(os.path.join(chart, "values.yaml"))
    values = yaml.safe_load(text)
    comments = documented(text)
    rows = dict(re.findall(r"^\| `([^`]+)` \| .* \| (.*) \|$", read(os.path.join(
        chart, "README.md")), re.MULTILINE))
    for name in leaves(values):
        parts = name.split(".")
        covers = [".".join(parts[:i + 1]) for i in range(len(parts))]
        if not any(cover in comments for cover in covers):
            yield f"value {name} has no comment"
    for name in set(comments) | set(rows):
        if comments.get(name) != rows.get(name):
            yield f"the README's row of {name} is not its comment"


def every_value_has_a_comment_and_a_row(_build):
    found = list(value_problems(tools.CHART))
    assert not found, found


def wrong_values_are_refused(build):
    wrong = ["replicas=2", "image.tagg=1", "settings.maxMerge=3", "settings.mode=on",
             "settings.epsilon=2", "settings.max-db-bytes=16Gi", "webhook.path=short",
             "webhook.path=0123456789abcde/", "webhook.timeoutSeconds=0", "image.digest=sha256:12",
             "webhook.failurePolicy=ignore", "persistence.accessMode=ReadWriteMany",
             "service.port=443", "service.port=0", "certificates.certManager.duration=1y",
             "tls.enabled=perhaps", "fullnameOverride=Upper", "podAnnotations.a=1",
             "certificates.caBundle=$", "tokens.operator=x"]
    with folder() as path:
        helm = tools.Tools(build, path)
        for words in wrong:
            _, said = helm.helm("template", "r", tools.CHART, "--set", words, status=1)
            assert "values don't meet the specifications" in said, f"{words}: {said}"
        for words in ("global.x=1", "enabled=true", "settings.guard=null"):
            helm.helm("template", "r", tools.CHART, "--set", words)


def values_that_do_not_go_together_are_refused(build):
    bundle = yaml.safe_load(read(os.path.join(tools.CI, "existing-secret-values.yaml")))
    bundle = re.sub(r"\s", "", bundle["certificates"]["caBundle"])
    cases = [("certificates.existingSecret=a", "needs certificates.caBundle"),
             (f"certificates.caBundle={bundle}", "which is not given"),
             (f"certificates.existingSecret=a,certificates.caBundle={bundle},"
              "certificates.certManager.enabled=true", "exclude each other"),
             ("certificates.existingSecret=a,certificates.caBundle=bm9uZQ==", "no base64 of"),
             ("ingress.enabled=true", "ingress.host is needed")]
    with folder() as path:
        helm = tools.Tools(build, path)
        for words, says in cases:
            _, said = helm.helm("template", "r", tools.CHART, "--set", words, status=1)
            assert says in said, f"{words}: {said}"


# --- mistakes -------------------------------------------------------------------------------------

# Name: file of the chart, what is there, what is put instead, what must be said, value file.
T = "templates/"
MISTAKES = {
    "a member that there is not": (
        T + "statefulset.yaml", "  replicas: 1", "  replica: 1", "'replica' was unexpected"),
    "a number as text": (
        T + "statefulset.yaml", "  replicas: 1", "  replicas: \"1\"", "is not of type 'integer'"),
    "a required member is missing": (
        T + "statefulset.yaml", "- name: controller\n          image:", "- image:",
        "'name' is a required property"),
    "an empty caBundle": (
        T + "webhook.yaml", "{{ index .Values.made \"ca.crt\" | b64enc }}", "\"\"",
        "caBundle is empty"),
    "two authorities": (
        T + "webhook.yaml", "{{ index .Values.made \"ca.crt\" | b64enc }}",
        "{{ (genCA \"other\" 1).Cert | b64enc }}",
        "not that of the certificate"),
    "a volume that there is not": (
        T + "statefulset.yaml", "        - name: tokens\n          secret:",
        "        - name: token\n          secret:", "which the pod lacks"),
    "a port that there is not": (
        T + "service.yaml", "targetPort: webhook", "targetPort: hook", "no port hook"),
    "a selector of nothing": (
        T + "service.yaml", "  selector:\n    {{- include \"deft.selectorLabels\" . | nindent 4 }}",
        "  selector:\n    app: deft", "selects no pod"),
    "a root that can be written": (
        "values.yaml", "  readOnlyRootFilesystem: true\n", "", "can be written"),
    "privileges": (
        "values.yaml", "  allowPrivilegeEscalation: false\n", "", "allowPrivilegeEscalation"),
    "a user who may be root": (
        "values.yaml", "  runAsNonRoot: true\n", "", "runAsNonRoot is not true"),
    "a key for everybody": (
        T + "_pod.tpl", "defaultMode: 0440", "defaultMode: 0444", "everybody may read"),
    "claims with a version": (
        T + "statefulset.yaml", "include \"deft.selectorLabels\" . | nindent 10",
        "include \"deft.labels\" . | nindent 10", "volumeClaimTemplates"),
    "agents for the system": (
        T + "webhook.yaml", "\"kube-system\" ", "", "kube-system"),
    "pods wait for us": (
        "values.yaml", "failurePolicy: Ignore", "failurePolicy: Fail", "failurePolicy Ignore"),
    "a monitor of everything twice": (
        T + "service.yaml", "    - name: pod\n", "    - name: api\n", "2 Services have a port api"),
    "a change that stays outside": (
        T + "statefulset.yaml", "checksum/config:", "checksum/settings:", "would not reach"),
    "services as variables": (
        T + "statefulset.yaml", "enableServiceLinks: false", "enableServiceLinks: true",
        "services become variables"),
    "a value without a comment": (
        "values.yaml", "  # -- Port of the API\n", "", "service.port has no comment"),
    "a row of yesterday": (
        "README.md", "Port of the API", "Port of old", "row of service.port"),
}


def planted_mistakes_are_found(build):
    schemas = Schemas("1.33")
    values = os.path.join(tools.CI, "everything-values.yaml")
    with folder() as path:
        helm = tools.Tools(build, path)
        for i, (name, (file, old, new, says)) in enumerate(MISTAKES.items()):
            chart = os.path.join(path, str(i), "deft")
            shutil.copytree(tools.CHART, chart)
            text = read(os.path.join(chart, file))
            assert old in text, f"{name}: {file} has no '{old}'"
            with open(os.path.join(chart, file), "w", encoding="utf-8") as out:
                out.write(text.replace(old, new))
            words = ["--values", values]
            if "b64enc" in old:  # certificates of the chart's own
                words += ["--set", "certificates.certManager.enabled=false"]
            _, found = all_problems(helm, chart, schemas, *words)
            found += list(value_problems(chart))
            assert any(says in sentence for sentence in found), f"{name}: {found}"
        assert len(MISTAKES) >= 12


CASES = (lint_is_content, every_object_is_legal, a_package_has_dashboard_and_alerts,
         an_old_kubernetes_is_refused, without_the_operator_there_is_no_monitor,
         the_default_settings_are_the_controllers_own, a_change_rolls_the_pod,
         every_value_has_a_comment_and_a_row, wrong_values_are_refused,
         values_that_do_not_go_together_are_refused, planted_mistakes_are_found)


def main(cases, argv):
    """usage: NAME_test.py BUILD_FOLDER [CASE]"""
    found = {case.__name__: case for case in cases}
    for name in argv[2:] or found:
        found[name](os.path.abspath(argv[1]))
        print(f"{name}: fine")


if __name__ == "__main__":
    main(CASES, sys.argv)
