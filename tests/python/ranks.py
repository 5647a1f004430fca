"""Runs a function as every rank of a small world: forked processes that meet over loopback.

A test calls ``run(n, function, ...)`` and gets what each rank returned. A rank that raises makes
the test fail with its traceback. Torch is imported before the fork, so that ranks start at once.
"""
import os
import pickle
import signal
import socket
import sys
import traceback
import unittest
from typing import Any, Callable, Dict, List, Optional

import torch

DEADLINE_S = 120 * int(os.environ.get("DEFT_TEST_SLOWNESS", "1"))


class Killed(Exception):
    """The rank ended without returning: its signal, or its exit status."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(rank: int, world: int, port: int) -> Dict[str, str]:
    return {"DEFT_RANK": str(rank), "DEFT_WORLD_SIZE": str(world), "DEFT_JOB_ID": "test",
            "DEFT_MASTER_ADDR": "127.0.0.1", "DEFT_MASTER_PORT": str(port)}


def _be_rank(function: Callable, pipe: int, settings: Dict[str, str], args: tuple,
             kwargs: dict) -> None:
    status = 1
    try:
        os.environ.update(settings)
        torch.set_num_threads(1)
        result = ("returned", function(*args, **kwargs))
    except BaseException:  # pylint: disable=broad-except
        result = ("raised", traceback.format_exc())
    try:
        with os.fdopen(pipe, "wb") as stream:
            pickle.dump(result, stream)
        status = 0
        import deft.torch.session  # closes what the function left open
        deft.torch.session.close_all()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(world: int, function: Callable, *args: Any, env: Optional[Dict[str, str]] = None,
        may_fail: bool = False, meet: Callable[[int, int, int], Dict[str, str]] = environment,
        **kwargs: Any) -> List[Any]:
    """What `function(*args, **kwargs)` returned on each rank. With `may_fail` the place of a rank
    that raised holds its traceback as a string, of one that was killed a Killed."""
    port = free_port()
    pipes, pids = [], []
    for rank in range(world):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            signal.alarm(DEADLINE_S)
            _be_rank(function, writer, {**meet(rank, world, port), **(env or {})}, args, kwargs)
        os.close(writer)
        pipes.append(reader)
        pids.append(pid)
    results: List[Any] = []
    for rank, (pipe, pid) in enumerate(zip(pipes, pids)):
        with os.fdopen(pipe, "rb") as stream:
            data = stream.read()
        _, status = os.waitpid(pid, 0)
        if not data:
            results.append(Killed(f"rank {rank} ended with wait status {status}"))
            continue
        kind, value = pickle.loads(data)
        if kind == "raised" and not may_fail:
            value = AssertionError(f"rank {rank}:\n{value}")
        results.append(value)
    for result in results:
        if not may_fail and isinstance(result, (AssertionError, Killed)):
            raise result
    return results


def rank_of() -> int:
    return int(os.environ["DEFT_RANK"])


def main() -> None:
    """`FILE CASE` runs one test case, `FILE` all of them; 77 when all that ran were skipped."""
    names = sys.argv[1:]
    loader = unittest.TestLoader()
    module = sys.modules["__main__"]
    suite = unittest.TestSuite()
    for test in loader.loadTestsFromModule(module):
        for case in test:
            if not names or case.id().rsplit(".", 1)[1] in names:
                suite.addTest(case)
    if suite.countTestCases() == 0:
        print(f"there is no case {' '.join(names)}", file=sys.stderr)
        sys.exit(2)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if result.wasSuccessful() and len(result.skipped) == suite.countTestCases():
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() else 1)
