"""The measurement of tests/bench/ddp, inside hosts that it has made (HOSTS_DIR)."""
import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import page

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"
CAPS_MB = (1, 4, 8, 25)
#: Iterations that follow a pause: pipelines fill, caches are cold.
DROPPED = 3
#: Iterations at a time until the tuned job's plan is committed, and at most how many times.
TURN, MOST_TURNS = 50, 20
#: Rounds in which the tuned job ran anything else than the plan it had settled on are left out of
#: the means and counted; at most this many.
MOST_LEFT_OUT = 10
LAST_LOSSES = 16
#: Unless asked otherwise, one above the controller's default: at 500 Mbit/s three iterations do not
#: hide an all-reduce with margin. The accuracy part of docs/benchmarks.md has its price.
MAX_MERGE = 4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--rate", type=int)
    parser.add_argument("--links", type=int)
    parser.add_argument("--world", type=int)
    parser.add_argument("--max-merge", type=int, default=MAX_MERGE)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=12)
    return parser.parse_args()


class Job:
    """The ranks of one variant, and the FIFOs through which they are told to train."""

    def __init__(self, bench, variant, command, env):
        self.variant = variant
        self.n_ranks = bench.options.world
        self.said = None
        folder = bench.folder
        for rank in range(self.n_ranks):
            for end in ("in", "out"):
                path = folder / f"{variant}.{rank}.{end}"
                path.unlink(missing_ok=True)
                os.mkfifo(path)
        self.log = open(folder / f"{variant}.log", "w", encoding="utf-8")
        self.processes = [subprocess.Popen(line, env={**os.environ, **bench.env, **more},
                                           stdin=subprocess.DEVNULL, stdout=self.log,
                                           stderr=subprocess.STDOUT)
                          for line, more in command(env)]
        self.commands = [self._open(folder / f"{variant}.{rank}.in", os.O_WRONLY)
                         for rank in range(self.n_ranks)]
        self.answers = [open(folder / f"{variant}.{rank}.out", encoding="ascii")
                        for rank in range(self.n_ranks)]

    def _open(self, path, flags):
        """Opening to write succeeds once the rank reads; a rank that died never does."""
        while True:
            with contextlib.suppress(OSError):
                return os.fdopen(os.open(path, flags | os.O_NONBLOCK), "w", encoding="ascii")
            if any(process.poll() is not None for process in self.processes):
                sys.exit(f"ddp: {self.variant} ended early: "
                         + Path(self.log.name).read_text(encoding="utf-8")[-2000:])
            time.sleep(0.05)

    def run(self, n):
        """The ranks' step times, less what follows the pause. Their mean is what a step takes: a
        plan that merges has long and short steps in turn, of which a median names one."""
        for stream in self.commands:
            print(f"run {n}", file=stream, flush=True)
        lines = [stream.readline() for stream in self.answers]
        if not all(lines):
            sys.exit(f"ddp: {self.variant} ended early: "
                     + Path(self.log.name).read_text(encoding="utf-8")[-2000:])
        self.said = [json.loads(line) for line in lines]
        return [t for said in self.said for t in said["times"][DROPPED:]]

    def reduced(self):
        """All-reduces of all gradients per iteration, of the newest turn."""
        return statistics.mean(x for said in self.said for x in said["reduced"][DROPPED:])

    def end(self):
        for stream in self.commands:
            print("end", file=stream, flush=True)
        for process in self.processes:
            process.wait()


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.env = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                    "PYTHONPATH": str(ROOT / "agent" / "python"),
                    "DEFT_LIBRARY": str(options.build / "lib" / "libdeft.so.0"),
                    "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29555"}
        self.links = ",".join(f"gloo:link{i}" for i in range(options.links))

    def worker(self, variant):
        return [str(ROOT / "scripts" / "in-host"), PYTHON,
                str(ROOT / "tests" / "bench" / "ddp_worker.py"), variant, str(self.folder)]

    def job(self):
        """The tuned job as its controller sees it."""
        said = subprocess.run([str(self.options.build / "bin" / "deft"), "job", "bench", "--json"],
                              env={**os.environ, **self.env}, stdout=subprocess.PIPE, check=True)
        return json.loads(said.stdout)

    def by_hand(self, variant):
        """One process per host, without our agent."""
        def command(env):
            for rank in range(self.options.world):
                yield self.worker(variant), {
                    "DEFT_RANK": str(rank), "DEFT_WORLD_SIZE": str(self.options.world),
                    "DEFT_MASTER_ADDR": "10.77.0.1", "DEFT_MASTER_PORT": "29556",
                    "DEFT_LINKS": self.links, **env}
        return command

    def by_deft(self, variant):
        def command(env):
            yield [str(self.options.build / "bin" / "deft"), "run", "--nproc",
                   str(self.options.world), "--mode", "auto", "--max-merge",
                   str(self.options.max_merge), "--job", "bench", "--",
                   *self.worker(variant)], {"DEFT_LINKS": self.links, **env}
        return command

    def start(self, variant, env=None):
        command = self.by_deft(variant) if variant == "auto" else self.by_hand(variant)
        return Job(self, variant, command, env or {})

    def best_ddp(self):
        """Bucket sizes and, with several links, interfaces: what the ranks do fastest."""
        interfaces = ["link0"]
        if self.options.links > 1:
            interfaces.append(",".join(f"link{i}" for i in range(self.options.links)))
        found = []
        for names in interfaces:
            for cap in CAPS_MB:
                env = {"GLOO_SOCKET_IFNAME": names, "BENCH_CAP_MB": str(cap)}
                job = self.start("ddp", env)
                found.append((statistics.mean(job.run(DROPPED + 5)), cap, names, env))
                job.end()
        return min(found, key=lambda item: item[0])

    @contextlib.contextmanager
    def controller(self):
        port_file = self.folder / "port"
        process = subprocess.Popen(
            [str(self.options.build / "bin" / "deft-controller"), "--listen", "127.0.0.1",
             "--port", "0", "--db", str(self.folder / "deft.db"), "--port-file", str(port_file)],
            stdout=subprocess.DEVNULL, stderr=open(self.folder / "controller.log", "wb"),
            stdin=subprocess.DEVNULL)
        try:
            while not port_file.exists() or not port_file.read_text(encoding="ascii").strip():
                if process.poll() is not None:
                    sys.exit("ddp: the controller did not start")
                time.sleep(0.05)
            port = port_file.read_text(encoding="ascii").strip()
            self.env["DEFT_CONTROLLER"] = f"http://127.0.0.1:{port}"
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def settle(bench, job):
    """Trains until the controller has committed a plan, so that its comparison with exact is over,
    or has found that none is worth it. Returns the number of turns."""
    for turn in range(MOST_TURNS):
        job.run(TURN)
        view = bench.job()
        if view["phase"] == "committed" or (view["phase"] == "observing" and view["decision"]):
            return turn + 1
    sys.exit(f"ddp: no plan was committed in {MOST_TURNS * TURN} iterations: {bench.job()}")


def same_samples(jobs):
    """Mean loss of the last LAST_LOSSES iterations, all jobs at the same iteration."""
    end = max(job.said[0]["n"] for job in jobs.values()) + LAST_LOSSES
    found = {}
    for name, job in jobs.items():
        job.run(end - job.said[0]["n"])
        found[name] = statistics.mean(loss for said in job.said
                                      for loss in said["losses"][-LAST_LOSSES:])
    return found


def spread(ratios):
    return [round(min(ratios), 3), round(max(ratios), 3)]


def measure(bench):
    options = bench.options
    ddp_tuned, cap, names, ddp_env = bench.best_ddp()
    with bench.controller():
        jobs = {"floor": bench.start("floor"),
                "beside": bench.start("beside", {"MASTER_PORT": "29554",
                                                 "GLOO_SOCKET_IFNAME": "link0"}),
                "ddp": bench.start("ddp", ddp_env),
                "exact": bench.start("exact"), "auto": bench.start("auto")}
        turns = settle(bench, jobs["auto"])
        rounds, left_out, n_updates, n_iterations = [], 0, 0, 0
        plan = jobs["auto"].said[0]["plans"][-1]
        while len(rounds) < options.rounds:
            before = jobs["auto"].said[0]
            order = list(jobs)[::-1] if (len(rounds) + left_out) % 2 else list(jobs)
            times = {name: statistics.mean(jobs[name].run(DROPPED + options.iterations))
                     for name in order}
            times["lost"] = (times["beside"] - times["floor"]) / jobs["beside"].reduced()
            said = jobs["auto"].said[0]
            if all(ran == plan for ran in said["plans"]):
                rounds.append(times)
                n_updates += said["updates"] - before["updates"]
                n_iterations += said["n"] - before["n"]
            elif left_out < MOST_LEFT_OUT:
                left_out += 1
            else:
                sys.exit(f"ddp: {left_out} rounds did not keep to the plan: {bench.job()}")
        losses = same_samples({name: jobs[name] for name in ("ddp", "auto")})
        said = jobs["auto"].said
        result = {"rate_mbit": options.rate, "links": options.links, "world": options.world}
        for name in ("floor", "ddp", "exact", "auto", "lost"):
            result[f"{name}_ms"] = round(1e3 * statistics.median(r[name] for r in rounds), 1)
        rate = n_updates / n_iterations
        gains = [r["ddp"] / r["auto"] for r in rounds]
        over = [r["auto"] / r["floor"] for r in rounds]
        least = [1 + rate * r["lost"] / r["floor"] for r in rounds]
        result.update(
            speedup_vs_ddp=round(statistics.median(gains), 3), speedup_range=spread(gains),
            auto_over_floor=round(statistics.median(over), 3), over_range=spread(over),
            least_over_floor=round(statistics.median(least), 3), least_range=spread(least),
            exact_over_ddp=round(statistics.median(r["exact"] / r["ddp"] for r in rounds), 3),
            loss_ddp=round(losses["ddp"], 5), loss_auto=round(losses["auto"], 5),
            iterations=said[0]["n"],
            bit_equal=len({s["hash"] for s in said}) == 1, rule=plan[1],
            max_merge=options.max_merge, updates_per_iteration=round(rate, 3),
            rounds_left_out=left_out, settled_after=turns * TURN, ddp_cap_mb=cap,
            ddp_interfaces=names)
        for job in jobs.values():
            job.end()
    return result


def table(path):
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        r = json.loads(line)
        rows.append([r["rate_mbit"] or "unshaped", r["links"], r["world"], r["floor_ms"],
                     f"{r['ddp_ms']} ({r['ddp_cap_mb']} MB)", r["exact_ms"], r["auto_ms"],
                     f"{r['speedup_vs_ddp']:.2f} ({r['speedup_range'][0]:.2f} to "
                     f"{r['speedup_range'][1]:.2f})",
                     f"{r['auto_over_floor']:.2f}", r.get("lost_ms", "-"),
                     r.get("least_over_floor", "-"), r["rule"], f"{r['updates_per_iteration']:.2f}",
                     r["max_merge"], f"{r['loss_ddp']:.4f}", f"{r['loss_auto']:.4f}",
                     "yes" if r["bit_equal"] else "no"])
    text = f"""
## PyTorch

`tests/bench/ddp --write`. A perceptron of 10.5 million parameters (11 linear layers, width 1024,
batch 512, one thread, momentum SGD) on hosts made of network namespaces on one machine, one rank
each; a second link has 0.6 of the rate of the first. Means over interleaved turns, of these the
median, in milliseconds. `floor` communicates nothing. `lost` is what one all-reduce of all
gradients, by torch alone and waited for by nobody, takes from the computing beside it: the hosts'
network runs on the processors that compute (-: not measured). `least` is (floor + updates per
iteration * lost) / floor: what auto / floor would be if nothing waited and libdeft cost nothing.
DDP is torch's over Gloo with the best of the bucket sizes 1, 4, 8 and 25 MB (with two links also
over both interfaces). Losses are means of the last {LAST_LOSSES} iterations at equal numbers of
iterations. Four hosts share this machine's processors, so their floor is no floor of real hosts.

{page.table(["Mbit/s", "links", "hosts", "floor", "DDP", "exact", "auto", "auto over DDP",
             "auto / floor", "lost", "least", "rule", "updates per iteration", "merge at most",
             "loss DDP", "loss auto", "ranks bit-equal"], rows, 0)}
"""
    print(text)
    page.write("pytorch", text)


def main():
    options = arguments()
    if options.table is not None:
        table(options.table)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Bench(options, Path(folder)))), flush=True)


if __name__ == "__main__":
    main()
