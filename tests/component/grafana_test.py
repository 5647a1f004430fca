#!/usr/bin/env python3
"""Dashboard and alerts of charts/grafana, by the real Prometheus at a real controller.

usage: grafana_test.py DEFT_CONTROLLER [CASE]
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

import metrics_test
import rest_controller
from rest_controller import DEADLINE_S, Agent, Controller, await_true

HERE = os.path.dirname(os.path.abspath(__file__))
CHARTS = os.path.join(HERE, "..", "..", "charts", "grafana")
RULES = os.path.join(CHARTS, "deft-alerts.yaml")
DASHBOARD = os.path.join(CHARTS, "deft-dashboard.json")
SERIES = os.path.join(HERE, "alert_series.yaml")
METRIC = re.compile(r"\b(?:deft|process)_[a-z0-9_]+")
JOB = 'quote"s <b> \\ \U0001f600'
TLS_ONLY = {"deft_tls_certificate_expiry_timestamp_seconds"}  # nothing to show without one
CONFIG = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: deft
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            print(f"skipped: there is no {program}; scripts/packages --install test")
            sys.exit(77)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def alerts():
    return [rule for group in yaml.safe_load(read(RULES))["groups"] for rule in group["rules"]]


def panels():
    return json.loads(read(DASHBOARD))["panels"]


def expressions():
    """(where, expression) of the dashboard, with its variables as Grafana fills them in."""
    for panel in panels():
        for target in panel.get("targets", []):
            text = target["expr"].replace("$__rate_interval", "20s")
            yield panel["title"], re.sub(r"\$(instance|job_id)\b", ".*", text)


def promtool(*words):
    done = subprocess.run(["promtool", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    assert done.returncode == 0, done.stdout.decode()


class Prometheus:
    """Scrapes one controller; the alerts are the real ones without their minutes of `for`."""

    def __init__(self, folder, controller):
        rules = os.path.join(folder, "rules.yaml")
        with open(rules, "w", encoding="utf-8") as file:
            file.write(re.sub(r"(?m)^(\s+for:) \d+m$", r"\1 0s", read(RULES)))
        config = os.path.join(folder, "prometheus.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(rules=rules, port=controller.port))
        self.log = os.path.join(folder, "prometheus.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={config}", "--web.listen-address=127.0.0.1:0",
                 f"--storage.tsdb.path={folder}/data", "--log.format=json"],
                stderr=log, stdout=log)
        self.port = None

    def find_port(self):
        assert self.process.poll() is None, read(self.log)
        found = re.search(r'"address":"127\.0\.0\.1:([1-9]\d*)"', read(self.log))
        self.port = int(found.group(1)) if found else None
        return self.port is not None

    def ask(self, path):
        """The data of an answer; None while it is not up."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}",
                                        timeout=DEADLINE_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            assert error.code == 503, f"{path}: {error.read()}"
            return None

    def query(self, expression):
        data = self.ask("query?" + urllib.parse.urlencode({"query": expression}))
        return data["result"] if data else []

    def firing(self):
        data = self.ask("alerts")
        return {alert["labels"]["alertname"] for alert in (data["alerts"] if data else [])
                if alert["state"] == "firing"}

    def await_alert(self, name):
        until = time.monotonic() + DEADLINE_S
        while name not in self.firing():
            assert time.monotonic() < until, f"{name} does not fire: {self.firing()}"
            time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(DEADLINE_S) == 0, read(self.log)


@contextlib.contextmanager
def prometheus(controller):
    need("prometheus")
    with rest_controller.folder() as folder:
        process = Prometheus(folder, controller)
        try:
            await_true(process.find_port)
            await_true(lambda: process.query("count_over_time(deft_build_info[1h]) > 1"))
            yield process
            process.stop()
        finally:
            if process.process.poll() is None:
                process.process.kill()
                process.process.wait()


def each_alert_fires_and_keeps_quiet_on_series(_program):
    need("promtool")
    promtool("check", "rules", RULES)
    promtool("test", "rules", SERIES)
    cases = [(case["alertname"], bool(case["exp_alerts"]))
             for test in yaml.safe_load(read(SERIES))["tests"] for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in alerts()}
    for name in names:
        assert {(name, True), (name, False)} <= set(cases), f"{name} is not tried both ways"
    page = read(os.path.join(HERE, "..", "..", "docs", "monitoring.md"))
    assert set(re.findall(r"`(Deft[A-Za-z]+)`", page)) == names, "docs/monitoring.md has others"


def panels_and_alerts_name_what_is_exported(program):
    with Controller(program) as controller:
        Agent(controller, JOB)
        _, types = metrics_test.parse(controller.expect(200, "GET", "/metrics").text)
    known = set(types) | TLS_ONLY
    known |= {f"{name}_{part}" for name, kind in types.items() if kind == "histogram"
              for part in ("bucket", "sum", "count")}
    used = set()
    variables = json.loads(read(DASHBOARD))["templating"]["list"]
    texts = [rule["expr"] for rule in alerts()] + [text for _, text in expressions()]
    for text in texts + [variable.get("definition", "") for variable in variables]:
        used |= set(METRIC.findall(text))
    assert used <= known, f"nothing exports {used - known}"
    assert len(used) > 20, used


def panels_lie_beside_each_other(_program):
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids), "two panels have one id"
    taken = {}
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                assert other == panel["title"], f"{panel['title']} lies on {other}"
        refs = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(refs)) == len(refs), panel["title"]


def panels_show_a_tuned_job(program):
    with Controller(program, "--guard", "100000") as controller, prometheus(controller) as server:
        agent = Agent(controller, JOB)
        agent.run_to("committed", 600)
        agent.run(60)  # a window of the plan that is kept
        for where, expression in expressions():
            until = time.monotonic() + DEADLINE_S
            while not server.query(expression):
                assert time.monotonic() < until, f"{where} shows nothing: {expression}"
                time.sleep(0.05)
        shown = server.query("deft_job_rule_info")[0]["metric"]
        assert shown["job"] == "deft" and shown["job_id"] == JOB, shown
        assert float(server.query("deft_job_gain_ratio")[0]["value"][1]) > 1.2
        assert server.firing() == set(), "an alert fires for a job that does well"


def a_refused_plan_fires_and_so_does_a_dead_controller(program):
    with Controller(program, "--guard", "100000") as controller, prometheus(controller) as server:
        agent = Agent(controller, "j")
        agent.run_to("switching", 600)
        assert server.firing() == set()
        agent.report(events=[{"rank": 0, "kind": "refused", "plan_seq": agent.plan_seq,
                              "text": "a test"}])
        server.await_alert("DeftPlanRefused")
        assert server.firing() == {"DeftPlanRefused"}, server.firing()
        controller.end()
        server.await_alert("DeftControllerDown")
        controller.launch()


def a_full_disk_fires(program):
    with rest_controller.folder() as folder:
        with Controller(program, folder=folder, file_bytes=1 << 20) as controller, \
                prometheus(controller) as server:
            agent = Agent(controller, "j")
            assert server.firing() == set()
            while controller.is_well():
                agent.seq += 1
                controller.ask("POST", rest_controller.API + agent.path("/reports"),
                               {"agent": "host-1", "seq": agent.seq, "iterations": agent.rows(200)})
            server.await_alert("DeftDatabaseDegraded")


CASES = (each_alert_fires_and_keeps_quiet_on_series, panels_and_alerts_name_what_is_exported,
         panels_lie_beside_each_other, panels_show_a_tuned_job,
         a_refused_plan_fires_and_so_does_a_dead_controller, a_full_disk_fires)


if __name__ == "__main__":
    rest_controller.main(CASES, sys.argv)
