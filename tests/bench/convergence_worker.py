"""One rank of the race of tests/bench/convergence: trains on command, as ddp_worker.py does, a
perceptron on Fashion-MNIST. usage: convergence_worker.py VARIANT FOLDER   (exact or auto)
"""
import importlib.machinery
import importlib.util
import os
from pathlib import Path

import torch

import ddp_worker

WIDTH, BATCH, RATE = 1024, 256, 0.02


def images():
    loader = importlib.machinery.SourceFileLoader("accuracy",
                                                  str(Path(__file__).with_name("accuracy")))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("accuracy", loader))
    loader.exec_module(module)
    return module.load_images("train")


class Racer(ddp_worker.Trainer):
    def __init__(self, variant, rank, world):  # pylint: disable=super-init-not-called
        import deft.torch
        seed = int(os.environ.get("BENCH_SEED", "1"))
        torch.manual_seed(seed)
        self.variant, self.rank, self.world, self.n = variant, rank, world, 0
        self.plain = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(784, WIDTH), torch.nn.ReLU(),
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 10))
        optimizer = torch.optim.SGD(self.plain.parameters(), lr=RATE, momentum=0.9)
        self.images, self.labels = images()
        self.generator = torch.Generator().manual_seed(seed)
        self.deft = deft.torch
        self.model, self.optimizer = deft.torch.wrap(self.plain, optimizer, batch_size=BATCH)

    def iterate(self):
        rows = torch.randint(len(self.labels), (self.world, BATCH), generator=self.generator)
        mine = rows[self.rank]
        self.n += 1
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.model(self.images[mine]), self.labels[mine])
        loss.backward()
        self.optimizer.step()
        value = float(loss)
        self.deft.report_loss(self.model, value)
        return value


if __name__ == "__main__":
    ddp_worker.Trainer = Racer
    ddp_worker.main()
