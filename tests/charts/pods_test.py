#!/usr/bin/env python3
"""Two pods train together: what the real webhook put into them, run for real, each with a network
of its own, while the controller that the chart started is there, is upgraded, or is not there.

usage: pods_test.py BUILD_FOLDER [CASE]
"""

import json
import os
import shutil
import statistics
import sys
import time

import chart_test
import node
import tools
from release_test import pod_of, release

DATA = "/usr/share/datasets/fashion-mnist"
JOB = "team-a.job.train"
N_STEPS = 900  # longer than the controller takes to start again
TRAIN = ["deft-train", "--data=/data", "--width=128", "--depth=2", "--batch=128", "--seed=3",
         "--lr=0.02", "--epochs=100", "--json=/results/result", "--steps=/results/steps"]


def need(build_folder):
    if not os.path.exists(os.path.join(build_folder, "bin", "deft-train")):
        tools.skip("this build has no trainer")
    if not os.path.isdir(DATA):
        tools.skip("there is no dataset-fashion-mnist; scripts/packages --install run")


def training_pod(index, iterations, mode, is_injected=True):
    """Of an indexed Job of two."""
    item = pod_of("Job", "train", False)
    item["metadata"]["name"] = f"train-{index}" + ("" if is_injected else "-plain")
    item["metadata"]["annotations"].update({
        "batch.kubernetes.io/job-completion-index": str(index), "deft.dev/world-size": "2",
        "deft.dev/mode": mode, "deft.dev/links": "gloo:eth0",
        "deft.dev/master-addr": "10.88.0.2"})
    [own] = item["spec"]["containers"]
    own["command"] = TRAIN + [f"--limit-iterations={iterations}"]
    own["env"] = [{"name": "OPENBLAS_NUM_THREADS", "value": "1"}]
    own["securityContext"]["readOnlyRootFilesystem"] = True
    own["volumeMounts"] = [{"name": "data", "mountPath": "/data", "readOnly": True},
                           {"name": "results", "mountPath": "/results"}]
    item["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "results", "emptyDir": {}}]
    if not is_injected:
        del item["metadata"]["labels"]["deft.dev/inject"]
        own["env"] += [{"name": "DEFT_RANK", "value": str(index)},
                       {"name": "DEFT_WORLD_SIZE", "value": "2"},
                       {"name": "DEFT_LINKS", "value": "gloo:eth0"},
                       {"name": "DEFT_MASTER_ADDR", "value": "10.88.0.2"}]
    return item


class Job:
    """Both pods; ends with the `with` block."""

    def __init__(self, it, iterations, mode="observe", is_injected=True):
        self.networks = [node.Network(index) for index in range(2)]
        self.pods = []
        claim = os.path.join(it.node.folder, "claim-data")
        if not os.path.isdir(claim):
            shutil.copytree(DATA, claim)
        for index, network in enumerate(self.networks):
            made, warnings = it.make_pod(training_pod(index, iterations, mode, is_injected))
            assert warnings == [] and it.cluster.webhook_errors == []
            assert ("initContainers" in made["spec"]) == is_injected
            self.pods.append(node.Pod(it.node, made, network).start())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pod in self.pods:
            pod.kill()
        for network in self.networks:
            network.close()

    def path(self, index, name):
        return os.path.join(self.pods[index].volumes["results"], name + (f".{index}" * (index > 0)))

    def end(self, seconds=4 * node.DEADLINE_S):
        """Waits for all to end well; the results of the ranks."""
        for pod in self.pods:
            statuses = pod.wait(seconds)
            assert set(statuses.values()) == {0}, (
                f"{statuses} {[pod.log(name) for name in pod.logs]}")
        found = []
        for index in range(2):
            with open(self.path(index, "result"), encoding="utf-8") as file:
                found.append(json.loads(file.read()))
        assert found[0]["parameters_hash"] == found[1]["parameters_hash"]
        return found

    def steps(self):
        """(begin, length) of the iterations of rank 0, in ns."""
        with open(self.path(0, "steps"), encoding="ascii") as file:
            rows = [line.split(",") for line in file if line[0].isdigit()]
        return [(int(row[1]), int(row[2])) for row in rows]


def look(it, *words):
    return json.loads(it.deft(*words, "--json"))


def has_reported(it, n):
    listed = look(it, "jobs")["jobs"]
    return listed and listed[0]["iterations"] >= n


def await_state(it, state):
    node.await_true(f"the job to be {state}",
                    lambda: look(it, "job", JOB)["state"] == state)
    return look(it, "job", JOB)


def two_pods_train_through_the_webhook(build):
    need(build)
    with release(build) as it:
        it.sync()
        with Job(it, 200, "auto") as job:
            results = job.end()
            seen = await_state(it, "finished")
            assert seen["mode"] == "auto" and seen["n_ranks"] == 2, seen
            assert seen["iterations"] == 200 and seen["user"] == "1000", seen
            for own in results:  # under whatever plan: a slow machine merges
                n_iterations = own["all"]["warm_up"] + own["all"]["iterations"]
                assert n_iterations == 200 and own["agent_connected"], own
            listed = it.deft("token", "list")
            assert listed.count(JOB) == 1, listed  # both pods have the one


def an_upgrade_leaves_training_alone(build):
    need(build)
    with release(build) as it:
        it.sync()
        with Job(it, N_STEPS) as job:
            node.await_true("300 iterations", lambda: has_reported(it, 300))
            before = look(it, "job", JOB)
            it.upgrade("--set", "settings.warmup=7")
            begin_ns = time.monotonic_ns()
            assert it.sync(), "the controller was not started again"
            end_ns = time.monotonic_ns()
            after = look(it, "job", JOB)
            assert after["registered_at"] == before["registered_at"], "the history is another one"
            [tuned, _] = job.end()
            seen = await_state(it, "finished")
            assert seen["incarnation"] == before["incarnation"], seen  # one start
            assert seen["iterations"] == N_STEPS, seen  # and nothing of it is lost
            beside = [own[1] for own in job.steps() if begin_ns <= own[0] < end_ns]
            others = [own[1] for own in job.steps()[100:] if not begin_ns <= own[0] < end_ns]
            assert len(beside) > 10 and others, "nothing trained beside the restart"
            ratio = statistics.median(beside) / statistics.median(others)
            print(f"step beside the restart over other steps: {ratio:.3f}, {len(beside)} steps in "
                  f"{(end_ns - begin_ns) / 1e9:.1f} s")
        it.controller.kill()
        with Job(it, N_STEPS, is_injected=False) as job:  # bit for bit what it would have been
            assert job.end()[0]["parameters_hash"] == tuned["parameters_hash"]


CASES = (two_pods_train_through_the_webhook, an_upgrade_leaves_training_alone)

if __name__ == "__main__":
    node.isolate()
    chart_test.main(CASES, sys.argv)
