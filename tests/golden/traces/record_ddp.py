#!/usr/bin/env python3
"""Records DistributedDataParallel on two ranks of this host, over Gloo, with the PyTorch profiler.

usage: record_ddp.py FOLDER

Writes ddp_gloo_rank0.json.gz and ddp_gloo_rank1.json.gz, with shapes of inputs, and
ddp_plain_rank0.json.gz, which is what export_chrome_trace of a torch without Kineto writes.
"""

import gzip
import json
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

RANKS = 2
WIDTH = 640


def model():
    """Batch norm has buffers, which are broadcast in each forward."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(),
                         nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                         nn.Linear(WIDTH, 10))


def event(record, begin_us):
    """One event in Kineto's form."""
    notes = ("ProfilerStep#", "Optimizer.", "DistributedDataParallel.", "gloo:")
    name = record.trace_name or record.name  # the latter has '*' for the number of a step
    is_note = name.startswith(notes)
    made = {"ph": "X", "cat": "user_annotation" if is_note else "cpu_op", "name": name,
            "pid": 1, "tid": record.thread, "ts": record.time_range.start - begin_us,
            "dur": record.time_range.elapsed_us()}
    wanted = ("torch::autograd::AccumulateGrad", "gloo:", "c10d::")
    if name.startswith(wanted):
        made["args"] = {"Input Dims": record.input_shapes}
    return made


def compress(path, text):
    """Equal input gives equal bytes."""
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(text.encode())


def export_plain(prof, folder):
    path = os.path.join(folder, "ddp_plain_rank0.json")
    prof.export_chrome_trace(path)
    with open(path, encoding="utf-8") as file:
        compress(path + ".gz", file.read())
    os.remove(path)


def export(prof, rank, folder):
    records = prof.events()
    begin_us = min(r.time_range.start for r in records)
    trace = {"schemaVersion": 1,
             "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": RANKS},
             "traceEvents": [event(r, begin_us) for r in records]}
    compress(os.path.join(folder, f"ddp_gloo_rank{rank}.json.gz"),
             json.dumps(trace, separators=(",", ":")))
    if rank == 0:
        export_plain(prof, folder)


def train(rank, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    ddp = DistributedDataParallel(model(), bucket_cap_mb=2)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=2, warmup=2, active=5, repeat=1),
                 on_trace_ready=lambda prof: export(prof, rank, folder)) as prof:
        for _ in range(9):
            images, labels = torch.randn(256, 64), torch.randint(0, 10, (256,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(ddp(images), labels).backward()
            optimizer.step()
            prof.step()
    dist.destroy_process_group()


def main():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(train, (port, sys.argv[1]), nprocs=RANKS)


if __name__ == "__main__":
    main()
