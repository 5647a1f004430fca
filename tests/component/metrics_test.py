#!/usr/bin/env python3
"""What deft-controller says at /metrics, read by the rules of the text format.

usage: metrics_test.py DEFT_CONTROLLER

https://prometheus.io/docs/instrumenting/exposition_formats/ has the format. On top of it: families
do not mix, no series is there twice, histograms add up, counters never fall, and job names that are
quotes, backslashes or newlines come back as they were.
"""

import http.client
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
HELP = re.compile(rf"^# HELP ({NAME}) (.*)$")
TYPE = re.compile(rf"^# TYPE ({NAME}) (counter|gauge|histogram)$")
SAMPLE = re.compile(rf"^({NAME})(?:{{(.*)}})? ([^ ]+)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
DEADLINE_S = 60 * int(os.environ.get("DEFT_TEST_SLOWNESS", "1"))
JOBS = ["plain", 'quote"s', "back\\slash", "emoji \U0001f600", "<script>alert(1)</script>",
        "a" * 127]


def unescape(text):
    return re.sub(r"\\.", lambda m: ESCAPES[m.group()], text)


def labels_of(text):
    found = {}
    at = 0
    while text and at < len(text):
        match = LABEL.match(text, at)
        assert match, f"labels are malformed: {text!r}"
        assert match.group(1) not in found, f"a label is there twice: {text!r}"
        found[match.group(1)] = unescape(match.group(2))
        at = match.end()
        assert match.group(3) == "" or at < len(text), f"a comma is left over: {text!r}"
    return found


def family_of(name, types):
    for ending in ("_bucket", "_sum", "_count"):
        base = name[:-len(ending)] if name.endswith(ending) else None
        if base in types and types[base] == "histogram":
            return base
    return name


def parse(text):
    """{(name, labels as a sorted tuple): value} and {family: type}."""
    assert text.endswith("\n"), "the last line has no end"
    samples, types, helped = {}, {}, set()
    current, closed = None, set()
    for line in text[:-1].split("\n"):
        about = HELP.match(line) or TYPE.match(line)
        if about:
            name = about.group(1)
            assert name not in closed, f"{name} is begun twice"
            if current not in (None, name):
                closed.add(current)
            current = name
            if line.startswith("# HELP"):
                assert name not in helped, f"{name} has two HELP lines"
                helped.add(name)
            else:
                assert name not in types, f"{name} has two TYPE lines"
                types[name] = about.group(2)
            continue
        match = SAMPLE.match(line)
        assert match, f"no sample: {line!r}"
        name, value = match.group(1), match.group(3)
        assert family_of(name, types) == current, f"{name} stands among {current}"
        assert re.fullmatch(r"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|Inf)", value), f"no number: {line!r}"
        key = (name, tuple(sorted(labels_of(match.group(2)).items())))
        assert key not in samples, f"{key} is there twice"
        samples[key] = float(value)
    assert helped == set(types), "a family lacks HELP or TYPE"
    for name, kind in types.items():
        if kind == "counter":
            assert name.endswith("_total"), f"a counter is called {name}"
    return samples, types


def check_histograms(samples, types):
    n = 0
    for family in (f for f, kind in types.items() if kind == "histogram"):
        groups = {}
        for (name, labels), value in samples.items():
            if name == family + "_bucket":
                rest = tuple(kv for kv in labels if kv[0] != "le")
                bound = dict(labels)["le"]
                groups.setdefault(rest, []).append(
                    (math.inf if bound == "+Inf" else float(bound), value))
        for rest, buckets in groups.items():
            buckets.sort()
            counts = [count for _, count in buckets]
            assert counts == sorted(counts), f"{family}{rest} falls"
            assert buckets[-1][0] == math.inf, f"{family}{rest} has no +Inf"
            assert counts[-1] == samples[(family + "_count", rest)]
            assert samples[(family + "_sum", rest)] >= 0
            n += 1
    assert n > 0, "there is no histogram"


class Controller:
    def __init__(self, program, folder, *options):
        port_file = os.path.join(folder, "port")
        self.process = subprocess.Popen(
            [program, "--port", "0", "--port-file", port_file, "--db",
             os.path.join(folder, "deft.db"), *options], stderr=subprocess.DEVNULL)
        until = time.monotonic() + DEADLINE_S
        while not os.path.exists(port_file):
            assert self.process.poll() is None, "the controller has ended"
            assert time.monotonic() < until, "the controller does not listen"
            time.sleep(0.01)
        with open(port_file, encoding="ascii") as file:
            self.port = int(file.read())

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, answer.headers

    def register(self, job, key="start-1"):
        body = {"key": key, "agent": "host-1", "n_ranks": 1, "table_hash": "0" * 15 + "7",
                "local_ranks": [0], "tensors": [{"name": "a", "elements": 1024, "dtype": "f32"}],
                "links": [{"name": "mem:a", "probes": [[4096, 1000], [1048576, 9000]]}]}
        from urllib.parse import quote
        status, text, _ = self.ask("POST", f"/api/v1/jobs/{quote(job, safe='')}/incarnations",
                                   json.dumps(body))
        assert status == 201, text

    def scrape(self):
        status, text, headers = self.ask("GET", "/metrics")
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return parse(text)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE_S) == 0


def value(samples, name, **labels):
    return samples.get((name, tuple(sorted(labels.items()))))


def check_families(samples, types):
    for family in ("deft_http_requests_total", "deft_http_connections", "deft_http_streams",
                   "deft_store_writes_total", "deft_store_write_failures_total",
                   "deft_store_queue", "deft_jobs", "deft_running_jobs",
                   "deft_decisions_total", "deft_build_info", "deft_job_metrics_left_out",
                   "process_resident_memory_bytes"):
        assert family in types, f"{family} is not there"
    assert value(samples, "deft_store_upkeep_failing") == 0
    assert 0 <= value(samples, "deft_store_waiting_seconds") < DEADLINE_S
    assert 0 <= value(samples, "deft_tuner_silent_seconds") < DEADLINE_S
    for state in ("finished", "failed", "lost"):
        assert value(samples, "deft_jobs", state=state) == 0
    assert value(samples, "deft_jobs", state="running") == len(JOBS)
    assert value(samples, "deft_running_jobs", phase="observing") == len(JOBS)
    assert value(samples, "deft_job_metrics_left_out") == 0
    for family in ("deft_job_rule_info", "deft_job_mode_info"):
        named = {dict(labels)["job_id"] for (name, labels) in samples if name == family}
        assert named == set(JOBS), f"jobs are named {named}"
    for (name, labels) in samples:  # Prometheus names its targets so
        assert not {"job", "instance"} & set(dict(labels)), f"{name}{labels}"
    for job in JOBS:
        assert value(samples, "deft_job_ranks", job_id=job) == 1
        assert value(samples, "deft_job_ranks_heard", job_id=job) == 0
        assert value(samples, "deft_job_mode_info", job_id=job, mode="observe") == 1
    memory = value(samples, "process_resident_memory_bytes")
    assert 1e6 < memory < 1e10, memory
    start = value(samples, "process_start_time_seconds")
    assert abs(start - time.time()) < 3600, start


def check_counters(before, after, types):
    for (name, labels), old in before.items():
        if types[family_of(name, types)] in ("counter", "histogram") and (name, labels) in after:
            assert after[(name, labels)] >= old, f"{name}{labels} has fallen"
    asked = {"method": "GET", "route": "/api/v1/jobs/{job}", "class": "4xx"}
    assert value(after, "deft_http_requests_total", **asked) == 3 + value(
        before, "deft_http_requests_total", **asked)
    nowhere = {"method": "", "route": "", "class": "4xx"}
    assert value(after, "deft_http_requests_total", **nowhere) == 2 + value(
        before, "deft_http_requests_total", **nowhere)


def main():
    program = sys.argv[1]
    folder = tempfile.mkdtemp(prefix="deft-metrics-test-")
    try:
        controller = Controller(program, folder)
        for job in JOBS:
            controller.register(job)
        controller.register(JOBS[1], "start-2")  # a second start is not a second series
        before, types = controller.scrape()
        check_families(before, types)
        check_histograms(before, types)
        for _ in range(3):
            assert controller.ask("GET", "/api/v1/jobs/nobody")[0] == 404
        for path in ("/nowhere/1", "/nowhere/2"):  # paths are no labels
            assert controller.ask("GET", path)[0] == 404
        after, types = controller.scrape()
        check_counters(before, after, types)
        check_histograms(after, types)
        assert abs(len(after) - len(before)) < 60, "the number of series grows"
        controller.stop()
        os.unlink(os.path.join(folder, "port"))
        controller = Controller(program, folder, "--metrics-jobs", "2")
        few, _ = controller.scrape()
        assert value(few, "deft_job_metrics_left_out") == len(JOBS) - 2
        assert sum(name == "deft_job_rule_info" for name, _ in few) == 2
        controller.stop()
    finally:
        shutil.rmtree(folder)
    print("metrics are well-formed")


if __name__ == "__main__":
    main()
