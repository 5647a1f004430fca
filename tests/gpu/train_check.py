#!/usr/bin/env python3
"""deft-train with its tensors on CUDA devices must come to the parameters that it comes to on the
host, bit for bit, on every rank. Prints one JSON line.

usage: train_check.py DEFT_TRAIN LINKS N_RANKS [--stand-in]

Rank r has device r. With --stand-in what each process tells of its calls must be right, too.
"""

import gzip
import json
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

N_TRAINING = 512
N_TEST = 64
N_PIXELS = 28 * 28
TIMEOUT_S = 50  # of a GPU's machine, whose first calls take seconds


class Failure(Exception):
    """What is wrong, in a sentence."""


def write_samples(folder):
    """Ten easy classes: noise, and a bright band whose place is the class."""
    noise = random.Random(1)
    for name, n in (("train", N_TRAINING), ("t10k", N_TEST)):
        labels = bytes(noise.randrange(10) for _ in range(n))
        pixels = bytearray(noise.randbytes(n * N_PIXELS))
        for image, label in enumerate(labels):
            band = image * N_PIXELS + label * 78
            pixels[band:band + 78] = b"\xff" * 78
        for what, header, body in (
                ("images-idx3", struct.pack(">4I", 0x803, n, 28, 28), pixels),
                ("labels-idx1", struct.pack(">2I", 0x801, n), labels)):
            with gzip.open(os.path.join(folder, f"{name}-{what}-ubyte.gz"), "wb", 1) as file:
                file.write(header + body)


def free_port():
    """One that was free a moment ago."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


def train(program, folder, on, links, n_ranks):
    """The results of all ranks, as they tell them; `on` is cpu or cuda."""
    port = free_port()
    children = []
    for rank in range(n_ranks):
        device = on if on == "cpu" else f"{on}:{rank}"
        environment = dict(os.environ, DEFT_RANK=str(rank), DEFT_WORLD_SIZE=str(n_ranks),
                           DEFT_MASTER_ADDR="127.0.0.1", DEFT_MASTER_PORT=str(port),
                           DEFT_JOB_ID="train_check", DEFT_AGENT_SOCKET="", DEFT_LINKS=links,
                           GPU_STANDIN_REPORT=os.path.join(folder, f"calls.{rank}"))
        children.append(subprocess.Popen(
            [program, "--data", folder, "--device", device, "--width", "48", "--depth", "2",
             "--batch", "32", "--epochs", "2", "--lr", "0.05", f"--json={folder}/{on}"],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    results = []
    try:
        said = [child.communicate(timeout=TIMEOUT_S)[1] for child in children]
    except subprocess.TimeoutExpired as late:
        raise Failure(f"deft-train on {on} had not ended after {TIMEOUT_S} s") from late
    finally:
        for child in children:
            child.kill()
            child.wait()
    for rank, child in enumerate(children):
        if child.returncode != 0 or said[rank]:
            raise Failure(f"rank {rank} on {on} ended with {child.returncode}: "
                          f"{said[rank].strip()}")
        name = on if rank == 0 else f"{on}.{rank}"
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            results.append(json.load(file))
    return results


def check_calls(folder, links, n_ranks):
    """What the processes on the stand-in have left behind."""
    for rank in range(n_ranks):
        with open(os.path.join(folder, f"calls.{rank}"), encoding="utf-8") as file:
            told = json.load(file)
        if told["violation"]:
            raise Failure(f"rank {rank}: {told['violation']}")
        used = "ncclAllReduce" if links.startswith("nccl") else "cudaHostAlloc"
        for call in (used, "cudaMemcpyAsync", "cudaStreamSynchronize"):
            if told["calls"].get(call, 0) == 0:
                raise Failure(f"rank {rank} never called {call}")
        made, ended = (told["calls"].get(call, 0) for call in ("cudaMalloc", "cudaFree"))
        if made != ended:
            raise Failure(f"rank {rank} called cudaMalloc {made} times and cudaFree {ended} times")


def check(program, links, n_ranks, on_stand_in):
    """The step times of device and host, in ms."""
    folder = tempfile.mkdtemp()
    try:
        write_samples(folder)
        host = train(program, folder, "cpu", "gloo:lo", n_ranks)
        if os.path.exists(os.path.join(folder, "calls.0")):
            raise Failure("deft-train --device cpu has loaded the stand-in")
        device = train(program, folder, "cuda", links, n_ranks)
        if on_stand_in:
            check_calls(folder, links, n_ranks)
    finally:
        shutil.rmtree(folder)
    hashes = {result["parameters_hash"] for result in host + device}
    if len(hashes) != 1 or re.fullmatch("0*", hashes.copy().pop()):
        told = ", ".join(f"{where} rank {result['rank']}: {result['parameters_hash']}"
                         for where, results in (("host", host), ("device", device))
                         for result in results)
        raise Failure(f"parameters differ: {told}")
    if device[0]["accuracy"] < 0.9 or device[0]["updates"] != 2 * (N_TRAINING // 32 // n_ranks):
        raise Failure(f"{device[0]['updates']} updates, accuracy {device[0]['accuracy']}")
    return device[0]["all"]["step_ms"], host[0]["all"]["step_ms"]


def main():
    program, links, n_ranks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    line = {"check": "deft-train", "passed": True, "links": links, "ranks": n_ranks}
    try:
        step_ms, host_step_ms = check(program, links, n_ranks, sys.argv[4:] == ["--stand-in"])
        line.update(step_ms=step_ms, host_step_ms=host_step_ms)
    except Failure as failure:
        line.update(passed=False, why=str(failure))
    print(json.dumps(line))
    return int(not line["passed"])


if __name__ == "__main__":
    sys.exit(main())
