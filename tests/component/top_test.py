#!/usr/bin/env python3
"""`deft top` in a terminal that is a pseudo-terminal, at a real controller with jobs.

usage: top_test.py DEFT_CONTROLLER [CASE]
"""

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unicodedata

import rest_controller
from rest_controller import DEADLINE_S, Agent, Controller

HOSTILE = ["\u202eabc", "e\u0301\u0301\u0301", "\u6f22\u5b57", "\U0001f600", 'a"b\\c', "\u2028x",
           "\u009b31m"]
SEQUENCE = re.compile(r"\x1b(?:\[([?0-9;]*)([a-zA-Z])|[()][A-Z0-9]|[=>78M])")
SILENT = "mhl"  # looks and modes: no text moves


class Screen:
    """What a vt100 shows; a sequence that it does not know is a failure."""

    def __init__(self, lines, columns):
        self.resize(lines, columns)
        self.pending = ""

    def resize(self, lines, columns):
        self.lines, self.columns = lines, columns
        self.cells = [[" "] * columns for _ in range(lines)]
        self.y = self.x = 0
        self.top, self.bottom = 0, lines - 1

    def scroll(self, gone, new):
        del self.cells[gone]
        self.cells.insert(new, [" "] * self.columns)

    def erase(self, y, start, end):
        for x in range(start, end):
            self.cells[y][x] = " "

    def act(self, parameters, final):
        numbers = [int(n) if n.isdigit() else 0 for n in parameters.split(";")] + [0]
        n = max(1, numbers[0])
        if final in "Hf":
            self.y = min(n, self.lines) - 1
            self.x = min(max(1, numbers[1]), self.columns) - 1
        elif final in "ABCD":
            self.y += {"A": -n, "B": n}.get(final, 0)
            self.x += {"D": -n, "C": n}.get(final, 0)
        elif final == "K":
            self.erase(self.y, 0 if numbers[0] else self.x,
                       self.x + 1 if numbers[0] == 1 else self.columns)
        elif final == "J":
            self.erase(self.y, self.x if numbers[0] == 0 else 0, self.columns)
            for y in range(self.y + 1 if numbers[0] == 0 else 0, self.lines):
                self.erase(y, 0, self.columns)
        elif final == "r":
            self.top = n - 1
            self.bottom = min(numbers[1] or self.lines, self.lines) - 1
            self.y = self.x = 0
        else:
            assert final in SILENT, f"an unknown sequence: {parameters}{final}"
        self.y = min(max(0, self.y), self.lines - 1)
        self.x = min(max(0, self.x), self.columns - 1)

    def line_feed(self):
        if self.y == self.bottom:
            self.scroll(self.top, self.bottom)
        else:
            self.y = min(self.lines - 1, self.y + 1)

    def line_back(self):
        if self.y == self.top:
            self.scroll(self.bottom, self.top)
        else:
            self.y = max(0, self.y - 1)

    def letter(self, letter):
        if letter == "\n":
            self.line_feed()
        elif letter in "\r\b":
            self.x = 0 if letter == "\r" else max(0, self.x - 1)
        elif letter == "\t":
            self.x = min(self.columns - 1, (self.x // 8 + 1) * 8)
        elif letter not in "\x0e\x0f\0":
            assert letter.isprintable(), f"a raw {letter!r}"
            assert not unicodedata.combining(letter), f"a raw {letter!r}"
            wide = unicodedata.east_asian_width(letter) in "WF"
            if self.x >= self.columns:
                self.line_feed()
                self.x = 0
            self.cells[self.y][self.x] = letter
            if wide and self.x + 1 < self.columns:
                self.cells[self.y][self.x + 1] = ""
            self.x += 2 if wide else 1

    def feed(self, text):
        self.pending += text
        while self.pending:
            if self.pending[0] != "\x1b":
                self.letter(self.pending[0])
                self.pending = self.pending[1:]
                continue
            match = SEQUENCE.match(self.pending)
            if not match:
                assert len(self.pending) < 24, f"no sequence: {self.pending!r}"
                return
            if match.group(2):
                self.act(match.group(1), match.group(2))
            elif match.group() == "\x1bM":
                self.line_back()
            self.pending = self.pending[match.end():]

    def rows(self):
        return ["".join(cells).rstrip() for cells in self.cells]

    def text(self):
        return "\n".join(self.rows())


class Top:
    def __init__(self, controller, *options, lines=24, columns=120, **environment):
        program = os.path.join(os.path.dirname(controller.program), "deft")
        self.master, self.terminal = pty.openpty()
        self.screen = Screen(lines, columns)
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.process = None
        self.resize(lines, columns)
        self.before = termios.tcgetattr(self.terminal)
        variables = {**os.environ, "TERM": "vt100", "LC_ALL": "C.UTF-8",
                     "DEFT_CONTROLLER": f"http://127.0.0.1:{controller.port}", **environment}
        for name in ("LINES", "COLUMNS"):
            variables.pop(name, None)
        self.process = subprocess.Popen(
            [program, "top", *options], stdin=self.terminal, stdout=self.terminal,
            stderr=self.terminal, env=variables, start_new_session=True)

    def resize(self, lines, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if self.process:  # as the kernel does where it is the controlling terminal
            self.process.send_signal(signal.SIGWINCH)

    def read(self, timeout_s=0.1):
        if select.select([self.master], [], [], timeout_s)[0]:
            self.screen.feed(self.decoder.decode(os.read(self.master, 65536)))

    def expect(self, needle):
        """Until the screen shows it, a text or a condition of the rows."""
        look = needle if callable(needle) else lambda rows: needle in "\n".join(rows)
        until = time.monotonic() + DEADLINE_S
        while not look(self.screen.rows()):
            assert self.process.poll() is None, f"it has ended:\n{self.screen.text()}"
            assert time.monotonic() < until, f"{needle} is not shown:\n{self.screen.text()}"
            self.read()

    def press(self, keys):
        os.write(self.master, keys)

    def end(self, expected):
        until = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < until, "it does not end"
            self.read()
        assert self.process.returncode == expected, self.process.returncode
        after = termios.tcgetattr(self.terminal)
        assert after == self.before, "the terminal is not as it was"


@contextlib.contextmanager
def top(controller, *options, **more):
    process = Top(controller, *options, **more)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait()
        os.close(process.master)
        os.close(process.terminal)


def row_of(rows, job):
    found = [i for i, row in enumerate(rows) if row.startswith(job + " ")]
    return found[0] if found else -1


def jobs_are_shown_sorted_and_chosen(program):
    with Controller(program, "--guard", "100000") as controller:
        Agent(controller, "a-waits", key="a")
        tuned = Agent(controller, "z-tuned", key="z")
        tuned.run_to("committed", 600)
        tuned.run(60)
        with top(controller, "--interval", "1") as screen:
            screen.expect(lambda rows: "q quit" in rows[-1] and "committed" in "".join(rows))
            rows = screen.screen.rows()
            line = rows[row_of(rows, "z-tuned")]
            gain = float(re.search(r" (\d\.\d\d)x ", line).group(1))
            assert abs(gain - tuned.look()["gain"]) < 0.02 and gain > 1.2, line
            assert " 2/2 " in line and "observing" in rows[row_of(rows, "a-waits")], rows
            assert "2 jobs, 1 tuned, median gain" in rows[0], rows[0]
            assert row_of(rows, "z-tuned") < row_of(rows, "a-waits")
            screen.press(b"ssss")  # step, ranks, phase, job
            screen.expect(lambda rows: "now by job" in rows[-1])
            rows = screen.screen.rows()
            assert 0 < row_of(rows, "a-waits") < row_of(rows, "z-tuned"), rows
            waits = controller.get("/jobs/a-waits")["status"]
            screen.expect(lambda rows: waits[:40] in rows[-2])
            screen.press(b"\x1bOB")
            screen.expect(lambda rows: tuned.look()["status"][:40] in rows[-2])
            Agent(controller, "m-new", key="m")
            screen.expect("m-new")
            screen.press(b"q")
            screen.end(0)


def it_follows_the_size_of_the_terminal(program):
    with Controller(program) as controller:
        for i in range(30):
            Agent(controller, f"job-{i:02}", key=f"key-{i}")
        with top(controller, "--sort", "job", lines=40, columns=140) as screen:
            screen.expect("job-29")
            for lines, columns in ((12, 60), (3, 20), (1, 1), (30, 600), (24, 100)):
                screen.screen.resize(lines, columns)
                screen.resize(lines, columns)
                if lines > 3:
                    screen.expect(lambda rows: rows[2].startswith("JOB") and
                                  rows[-1].startswith("q quit"))
            for _ in range(29):
                screen.press(b"\x1bOB")
            screen.expect("job-29")
            assert "job-00" not in screen.screen.text()
            screen.press(b"q")
            screen.end(0)


def names_of_others_move_no_cursor(program):
    with Controller(program) as controller:
        n = 0
        for i, name in enumerate(HOSTILE):
            body = rest_controller.registration(key=f"key-{i}")
            path = rest_controller.API + rest_controller.job_path(name) + "/incarnations"
            n += controller.ask("POST", path, body).status == 201
        assert n >= 5, n
        with top(controller) as screen:
            screen.expect(f"{n} jobs, 0 tuned")
            screen.expect("\u6f22\u5b57")
            screen.expect("?abc")
            screen.press(b"q")
            screen.end(0)
        with top(controller, "--once", LC_ALL="C") as screen:
            screen.end(0)


def a_controller_that_dies_is_waited_for(program):
    with Controller(program) as controller:
        Agent(controller, "job-1")
        with top(controller, "--interval", "1") as screen:
            screen.expect("job-1")
            controller.end(signal.SIGKILL)
            screen.expect("no answer")
            assert "job-1" in screen.screen.text(), "what was known is gone"
            again = subprocess.Popen(
                [program, "--port", str(controller.port), "--db", controller.db],
                stderr=subprocess.DEVNULL)
            try:
                screen.expect(lambda rows: "no answer" not in rows[1] and "127.0.0.1" in rows[1])
                screen.press(b"q")
                screen.end(0)
            finally:
                again.terminate()
                assert again.wait(DEADLINE_S) == 0
        controller.launch()


def every_end_gives_the_terminal_back(program):
    with Controller(program) as controller:
        Agent(controller, "job-1")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with top(controller) as screen:
                screen.expect("job-1")
                screen.process.send_signal(number)
                screen.end(-number)
        with top(controller, TERM="no-such-terminal") as screen:
            screen.end(1)
            screen.read()
            assert "no-such-terminal" in screen.screen.text(), screen.screen.text()


def without_a_terminal_it_prints_once(program):
    with Controller(program) as controller:
        Agent(controller, "job-1")
        deft = os.path.join(os.path.dirname(program), "deft")
        variables = dict(os.environ, DEFT_CONTROLLER=f"http://127.0.0.1:{controller.port}")

        def run(*options):
            done = subprocess.run([deft, "top", *options], env=variables, check=False,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
            return done.returncode, done.stdout.decode(), done.stderr.decode()

        status, output, _ = run()
        assert status == 0 and len(output.splitlines()) == 3 and "\x1b" not in output, output
        assert output.splitlines()[2].startswith("job-1 "), output
        for wrong in (("--interval", "0"), ("--interval", "x"), ("--sort", "size"), ("job-1",)):
            status, output, sentence = run(*wrong)
            assert status == 2 and wrong[-1] in sentence and not output, (wrong, sentence)
        controller.end()
        status, output, sentence = run()
        assert status == 1 and not output and sentence.count("\n") == 1, sentence
        controller.launch()


CASES = (jobs_are_shown_sorted_and_chosen, it_follows_the_size_of_the_terminal,
         names_of_others_move_no_cursor, a_controller_that_dies_is_waited_for,
         every_end_gives_the_terminal_back, without_a_terminal_it_prints_once)


if __name__ == "__main__":
    rest_controller.main(CASES, sys.argv)
