"""One rank of tests/bench/ddp: trains on command.

usage: ddp_worker.py VARIANT FOLDER   (floor, beside, ddp, exact or auto; environment DEFT_RANK ...)

Reads lines from the FIFO FOLDER/VARIANT.RANK.in and answers each with one line of JSON on
FOLDER/VARIANT.RANK.out: `run N` trains N iterations, `end` ends. While it waits it costs nothing,
which is what lets variants take turns.
"""
import hashlib
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

WIDTH, LAYERS, BATCH, CLASSES, N_BATCHES = 1024, 10, 512, 10, 8


def model_of():
    torch.manual_seed(1)
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, CLASSES))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):  # so that ten layers learn
            torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return model


def batches_of(rank):
    teacher = torch.randn(WIDTH, CLASSES, generator=torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(N_BATCHES):
        inputs = torch.randn(BATCH, WIDTH, generator=generator)
        yield inputs, (inputs @ teacher).argmax(1)


class Traffic:
    """Keeps the link busy with torch's all-reduces of as many bytes as there are gradients, which
    nothing waits for: what busy links alone take from computing."""

    def __init__(self, model):
        self.pieces = [torch.zeros_like(parameter.detach()).flatten()
                       for parameter in model.parameters() if parameter.dim() > 1]
        self.n_done = 0
        self.thread = None
        self.stopping = False

    def begin(self):
        self.stopping = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while True:
            for piece in self.pieces:
                piece[0] = float(self.stopping)
                dist.all_reduce(piece)
                self.n_done += 1
                if piece[0] > 0:  # on all ranks behind the same piece
                    return

    def end(self):
        self.stopping = True
        self.thread.join()


class Trainer:
    def __init__(self, variant, rank, world):
        self.variant = variant
        self.model = model_of()
        self.plain = self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9)
        self.batches = list(batches_of(rank))
        self.n = 0
        self.traffic = None
        if variant in ("ddp", "beside"):
            dist.init_process_group("gloo", rank=rank, world_size=world)
        if variant == "beside":
            self.traffic = Traffic(self.model)
        elif variant == "ddp":
            self.model = torch.nn.parallel.DistributedDataParallel(
                self.model, bucket_cap_mb=int(os.environ["BENCH_CAP_MB"]))
        elif variant in ("exact", "auto"):
            import deft.torch
            self.deft = deft.torch
            self.model, self.optimizer = deft.torch.wrap(self.model, self.optimizer,
                                                         batch_size=BATCH)

    def iterate(self):
        inputs, labels = self.batches[self.n % N_BATCHES]
        self.n += 1
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        self.optimizer.step()
        value = float(loss)
        if self.variant in ("exact", "auto"):
            self.deft.report_loss(self.model, value)
        return value

    def run(self, n):
        times, losses, plans, reduced = [], [], [], []
        is_ours = self.variant in ("exact", "auto")
        if self.traffic is not None:
            self.traffic.begin()
        for _ in range(n):
            begin = time.perf_counter()
            n_done = self.traffic.n_done if self.traffic is not None else 0
            losses.append(self.iterate())
            times.append(time.perf_counter() - begin)
            if self.traffic is not None:
                reduced.append((self.traffic.n_done - n_done) / len(self.traffic.pieces))
            if is_ours:
                stats = self.deft.stats(self.model)
                plans.append([stats["plan_seq"], stats["rule"]])  # a fuse keeps the number
        if self.traffic is not None:
            self.traffic.end()
        said = {"times": times, "losses": losses, "n": self.n, "plans": plans, "reduced": reduced}
        if is_ours:
            said["updates"] = self.deft.stats(self.model)["updates"]
            self.deft.drain(self.model)  # a pause follows, which is no step time
        digest = hashlib.sha256()
        for parameter in self.plain.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        said["hash"] = digest.hexdigest()
        return said


def main():
    variant, folder = sys.argv[1:3]
    rank, world = int(os.environ["DEFT_RANK"]), int(os.environ["DEFT_WORLD_SIZE"])
    torch.set_num_threads(1)
    trainer = Trainer(variant, rank, world)
    with open(f"{folder}/{variant}.{rank}.in", encoding="ascii") as commands, \
            open(f"{folder}/{variant}.{rank}.out", "w", encoding="ascii") as answers:
        for line in commands:
            word, *arguments = line.split()
            if word == "end":
                break
            print(json.dumps(trainer.run(int(arguments[0]))), file=answers, flush=True)


if __name__ == "__main__":
    main()
