"""Ranks that part ways: other numbers of iterations, a death that a child outlives."""
import os
import signal
import unittest

import torch

import deft
import deft.torch
import ranks
from deft.plan import Plan
from jobs import LOSS, WORLD, batch, linear, momentum


def train(wrapped, optimizer, n):
    for step in range(n):
        optimizer.zero_grad()
        inputs, labels = batch(ranks.rank_of(), step)
        LOSS(wrapped(inputs), labels).backward()
        optimizer.step()


class Apart(unittest.TestCase):
    def uneven(self, rule, merge, delay, with_buffers):
        """One rank has one more iteration than the other before both drain."""
        def run():
            model = linear()
            if with_buffers:
                model = torch.nn.Sequential(torch.nn.BatchNorm1d(6), model)
            total = sum(p.numel() for p in model.parameters())
            wrapped, optimizer = deft.torch.wrap(
                model, momentum(model), rules=deft.torch.ALL_RULES,
                plan=Plan.uniform(rule, [total], merge, delay).encode())
            train(wrapped, optimizer, 4 + ranks.rank_of())
            deft.torch.drain(wrapped)
        first, second = ranks.run(WORLD, run, may_fail=True)
        told = "deft_drain after 4 iterations, and another is elsewhere in its loop"
        self.assertIn(f"deft.errors.Mismatch: this rank calls {told}", str(first))
        self.assertRegex(str(second), f"PeerLost: rank 0 .* ended: this rank calls {told}")

    def test_an_uneven_drain_is_told_under_exact(self):
        self.uneven("exact", 1, 0, False)
        self.uneven("exact", 1, 0, True)

    def test_an_uneven_drain_is_told_under_delayed(self):
        self.uneven("delayed", 2, 1, False)
        self.uneven("delayed", 2, 1, True)

    def test_an_uneven_drain_is_told_under_lookahead(self):
        self.uneven("lookahead", 1, 1, False)
        self.uneven("lookahead", 1, 1, True)

    def test_an_uneven_drain_is_told_under_averaged(self):
        self.uneven("averaged", 2, 1, False)
        self.uneven("averaged", 2, 1, True)

    def test_a_rank_is_lost_though_a_child_of_it_lives(self):
        reader, writer = os.pipe()

        def run():
            model = linear()
            wrapped, optimizer = deft.torch.wrap(model, momentum(model))
            train(wrapped, optimizer, 3)
            if ranks.rank_of() == 1:
                if os.fork() == 0:
                    signal.alarm(ranks.DEADLINE_S)
                    os.read(reader, 1)  # until the other rank has seen what it should
                    os._exit(0)
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                train(wrapped, optimizer, 100000)
            except deft.PeerLost as error:
                os.write(writer, b"x")
                return str(error)
            return "nothing"
        first, second = ranks.run(WORLD, run, may_fail=True)
        self.assertIn("rank 1", str(first))
        self.assertIsInstance(second, ranks.Killed)


if __name__ == "__main__":
    ranks.main()
