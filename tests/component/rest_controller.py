"""deft-controller as a process of its own, asked over HTTP, and an agent whose ranks are made up.

For tests: what a client may do, and what real ranks would report, without any.
"""

import contextlib
import http.client
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from urllib.parse import quote

DEADLINE_S = 60 * int(os.environ.get("DEFT_TEST_SLOWNESS", "1"))
API = "/api/v1"
SEED = int(os.environ.get("DEFT_TEST_SEED", "1"))


class Reply:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)


def limit_files(n_bytes):
    """Writes beyond fail, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


@contextlib.contextmanager
def folder():
    """One of the test's own, which is gone behind it."""
    path = tempfile.mkdtemp(prefix="deft-rest-test-")
    try:
        yield path
    finally:
        shutil.rmtree(path)


class Controller:
    """`options`: behind --port, --db and --mode auto. Ends with the `with` block."""

    def __init__(self, program, *options, folder=None, file_bytes=0, environment=None):
        self.program = program
        self.options = options
        self.own = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix="deft-rest-test-")
        self.db = os.path.join(self.folder, "deft.db")
        self.token = None
        self.file_bytes = file_bytes
        self.environment = environment
        self.process = None
        self.port = 0
        self.launch()

    def launch(self):
        port_file = os.path.join(self.folder, "port")
        if os.path.exists(port_file):
            os.unlink(port_file)
        limit = (lambda: limit_files(self.file_bytes)) if self.file_bytes else None
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "--port", "0", "--port-file", port_file, "--db", self.db,
                 "--mode", "auto", *self.options],
                stderr=log, preexec_fn=limit, env=self.environment)
        until = time.monotonic() + DEADLINE_S
        while not os.path.exists(port_file):
            assert self.process.poll() is None, f"the controller has ended: {self.log()}"
            assert time.monotonic() < until, "the controller does not listen"
            time.sleep(0.01)
        with open(port_file, encoding="ascii") as file:
            self.port = int(file.read())

    def log(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as file:
            return file.read()

    def await_log(self, needle):
        until = time.monotonic() + DEADLINE_S
        while needle not in self.log():
            assert time.monotonic() < until, f"'{needle}' was not said: {self.log()}"
            time.sleep(0.01)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        status = self.process.wait(DEADLINE_S)
        assert number != signal.SIGTERM or status == 0, f"exit status {status}: {self.log()}"

    def restart(self, number=signal.SIGTERM):
        self.end(number)
        self.launch()

    def __enter__(self):
        return self

    def __exit__(self, kind, _value, _trace):
        if self.process.poll() is None:
            if kind is None:
                self.end()
            else:
                self.process.kill()
                self.process.wait()
        elif kind is None:
            raise AssertionError(f"the controller has ended: {self.log()}")
        if self.own:
            shutil.rmtree(self.folder)

    # --- requests ---------------------------------------------------------------------------------

    def ask(self, method, path, body=None, headers=None, token=None, kind="application/json"):
        """`body`: text or bytes as they are, anything else as JSON."""
        all_headers = dict(headers or {})
        token = token if token is not None else self.token
        if token:
            all_headers["Authorization"] = f"Bearer {token}"
        if body is not None and kind:
            all_headers.setdefault("Content-Type", kind)
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, all_headers)
            answer = connection.getresponse()
            if answer.headers.get_content_type() == "text/event-stream":
                return Reply(answer.status, answer.headers, self.read_events(answer))
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def listen(self, path, headers=""):
        """An event stream; the caller closes it. `headers`: lines with their ends."""
        peer = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)
        peer.sendall(f"GET {API}{path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        stream = peer.makefile("rb")
        peer.close()
        return stream

    @staticmethod
    def read_events(answer):
        """The first of a stream, up to the mode or the job: the last of what is there at once."""
        text = b""
        while not (b"event: mode" in text or b"event: job" in text) or not text.endswith(b"\n\n"):
            got = answer.read1(65536)
            assert got, f"the stream has ended: {text!r}"
            text += got
        return text

    def raw(self, data):
        """Bytes as they are; what came back until the other side ended, or one answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S) as peer:
            peer.sendall(data)
            answer = http.client.HTTPResponse(peer)
            answer.begin()
            return Reply(answer.status, answer.headers, answer.read())

    def expect(self, status, method, path, body=None, **more):
        reply = self.ask(method, path, body, **more)
        assert reply.status == status, f"{method} {path}: {reply.status} {reply.text[:400]}"
        return reply

    def get(self, path, **more):
        return self.expect(200, "GET", API + path, **more).json

    def is_well(self):
        return self.expect(200, "GET", "/healthz").json["status"] == "ok"


def await_true(look):
    until = time.monotonic() + DEADLINE_S
    while not look():
        assert time.monotonic() < until, "it does not become so"
        time.sleep(0.01)


def job_path(job):
    return f"/jobs/{quote(job, safe='')}"


def registration(key="start-1", agent="host-1", n_ranks=2, ranks=None, **more):
    body = {"key": key, "agent": agent, "user": "user-1", "n_ranks": n_ranks,
            "table_hash": "0" * 15 + "7", "capabilities": ["preview", "average"],
            "optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.05, "batch_per_rank": 512,
            "local_ranks": list(range(n_ranks)) if ranks is None else ranks,
            "tensors": [{"name": c, "elements": 1 << 20, "dtype": "f32"} for c in "abcdefgh"],
            "links": [{"name": "mem:a",
                       "probes": [[4096, 200000], [1 << 20, 9000000], [1 << 25, 280000000]]}]}
    body.update(more)
    return body


class Agent:
    """Ranks that compute for 200 ms and, under exact, wait 180 ms for a slow link."""

    COMPUTE_NS = 200000000
    EXPOSED_NS = 180000000
    BATCH = 5  # fewer than any window of the tuner

    def __init__(self, controller, job, stretch=1.0, **more):
        self.controller = controller
        self.job = job
        self.body = registration(**more)
        reply = controller.expect(201, "POST", API + job_path(job) + "/incarnations", self.body)
        self.id = reply.json["incarnation"]
        self.seq = reply.json["committed_seq"]
        self.n_ranks = self.body["n_ranks"]
        self.stretch = stretch  # of steps under a plan
        self.iteration = 0
        self.plan_seq = 0
        self.is_exact = True
        self.step_ns = self.COMPUTE_NS + self.EXPOSED_NS
        self.random = random.Random(SEED)
        self.view = None

    def path(self, rest=""):
        return f"/incarnations/{self.id}{rest}"

    def report(self, status=200, **content):
        self.seq += 1
        body = {"agent": self.body["agent"], "seq": self.seq, **content}
        return self.controller.expect(status, "POST", API + self.path("/reports"), body)

    def loss(self):
        noise = self.random.uniform(-1, 1)
        return 2.0 / (1.0 + self.iteration / 200.0) ** 0.5 * (1 + 0.05 * noise)

    def rows(self, n):
        rows = []
        for i in range(n):
            loss = self.loss()
            for rank in range(self.n_ranks):
                rows.append([rank, self.iteration, self.plan_seq, 60000000, 120000000,
                             max(0, self.step_ns - self.COMPUTE_NS), 20000000, 0,
                             self.step_ns + i % 3 * 10000, 0, loss, 4,
                             3 if self.is_exact else None, 1, 0, 1, 0, None, 0.05])
            self.iteration += 1
        return rows

    def look(self):
        self.view = self.controller.get(job_path(self.job))
        return self.view

    def switch(self):
        """Takes up the next plan, which is there or on its way."""
        until = time.monotonic() + DEADLINE_S
        while True:
            plans = self.controller.get(self.path("/plans"))["plans"]
            if plans and plans[-1]["seq"] > self.plan_seq:
                break
            assert time.monotonic() < until, "no plan has come"
            time.sleep(0.005)
        plan = self.controller.get(f"/plans/{plans[-1]['id']}")
        self.plan_seq = plan["seq"]
        self.is_exact = plan["plan"]["rule"] == "exact"
        self.step_ns = (self.COMPUTE_NS + self.EXPOSED_NS if self.is_exact else
                        int(plan["plan"]["forecast"]["step_ns"] * self.stretch))

    def run(self, n):
        """Reports so many iterations, and does what is pushed by then."""
        while n > 0:
            batch = min(n, self.BATCH)
            before = self.view["phase"] if self.view else ""
            self.report(iterations=self.rows(batch))
            until = time.monotonic() + DEADLINE_S
            while self.look()["phase"] == "solving":
                assert time.monotonic() < until, "the solver does not come back"
                time.sleep(0.002)
            phase = self.view["phase"]
            pushed = (phase in ("switching", "resuming", "returning") or
                      (phase in ("comparing", "halted") and not self.is_exact))
            if pushed and phase != before:
                self.switch()
            n -= batch

    def run_to(self, phase, most):
        end = self.iteration + most
        while not self.view or self.view["phase"] != phase:
            assert self.iteration < end, (
                f"{most} iterations, and {self.job} is {self.view['phase']}: "
                f"{self.view['status']}; {self.view['decision']}")
            self.run(self.BATCH)
        if phase == "committed":  # what was decided is written down beside it
            await_true(lambda: self.decisions()[-1]["kind"] == "commit")

    def decisions(self):
        return self.controller.get(self.path("/decisions"))["decisions"]

    def finish(self, kind="finished"):
        self.report(events=[{"rank": r, "kind": kind} for r in range(self.n_ranks)])
        until = time.monotonic() + DEADLINE_S
        while self.controller.get(self.path())["state"] != kind:
            assert time.monotonic() < until, "the start does not end"
            time.sleep(0.01)


def main(cases, argv):
    """usage: NAME_test.py CONTROLLER [CASE]; `cases` take the program."""
    wanted = argv[2:] or [case.__name__ for case in cases]
    found = {case.__name__: case for case in cases}
    for name in wanted:
        found[name](argv[1])
        print(f"{name}: fine")
