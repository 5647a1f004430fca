"""Every update rule through PyTorch, held from the first iteration by a plan."""
import os
import unittest

import torch

import deft.torch
import ranks
from deft.plan import Plan

WORLD = 2


def model_of(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.Tanh(), torch.nn.BatchNorm1d(32),
                               torch.nn.Linear(32, 3))


def plan_of(model, rule, merge, delay, n_buckets=1):
    total = sum(p.numel() for p in model.parameters())
    last = [p.numel() for p in model.parameters()][-1]
    sizes = [total] if n_buckets == 1 else [last, total - last]
    return Plan.uniform(rule, sizes, merge, delay).encode()


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    inputs = torch.randn(32, 12, generator=generator)
    labels = (inputs[:, :3].sum(1) > 0).long() + (inputs[:, 3] > 1).long()
    return inputs, labels


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.03, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


def step_once(wrapped, optimizer, rank, step, clip=1.0):
    optimizer.zero_grad()
    inputs, labels = batch(rank, step)
    loss = torch.nn.functional.cross_entropy(wrapped(inputs), labels)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(wrapped.parameters(), clip)
    optimizer.step()
    deft.torch.report_loss(wrapped, loss)
    return float(loss)


def start(name, rule, merge, delay, n_buckets=1, plan=None, model=None):
    model = model or model_of()
    optimizer = OPTIMIZERS[name](model.parameters())
    return deft.torch.wrap(model, optimizer, rules=deft.torch.ALL_RULES,
                           plan=plan or plan_of(model, rule, merge, delay, n_buckets))


def train(name, rule, merge, delay, n, n_buckets=1, clip=1.0):
    rank = ranks.rank_of()
    wrapped, optimizer = start(name, rule, merge, delay, n_buckets)
    losses = [step_once(wrapped, optimizer, rank, step, clip) for step in range(n)]
    moved = [p.detach().clone() for p in wrapped.parameters()]
    deft.torch.drain(wrapped)
    state = [v.clone() for p in wrapped.parameters()
             for _, v in sorted(optimizer.state[p].items()) if torch.is_tensor(v)]
    return {"losses": losses, "moved": moved, "stats": deft.torch.stats(wrapped),
            "drained": [p.detach().clone() for p in wrapped.parameters()], "state": state,
            "buffers": [b.clone() for b in wrapped.buffers()]}


def equal(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs))


class Rules(unittest.TestCase):
    def check(self, name, rule, merge, delay, n=60, n_buckets=1):
        results = ranks.run(WORLD, train, name, rule, merge, delay, n, n_buckets)
        first = results[0]
        self.assertEqual(first["stats"]["rule"], rule)
        self.assertEqual(first["stats"]["iterations"], n)
        for other in results[1:]:
            self.assertTrue(equal(first["drained"], other["drained"]))
            self.assertTrue(equal(first["state"], other["state"]))
            self.assertTrue(equal(first["buffers"], other["buffers"]))
        for result in results:
            self.assertLess(sum(result["losses"][-10:]), 0.8 * sum(result["losses"][:10]))
        return results

    def test_lookahead(self):
        for name in ("sgd", "momentum", "adam", "adamw"):
            with self.subTest(name):
                results = self.check(name, "lookahead", 1, 1)
                self.assertFalse(equal(results[0]["moved"], results[1]["moved"]))

    def test_lookahead_with_a_bucket_that_is_in_time(self):
        self.check("momentum", "lookahead", 1, 1, n_buckets=2)

    def test_averaged(self):
        for name, merge, delay in (("sgd", 1, 1), ("momentum", 3, 1), ("adamw", 2, 2),
                                   ("rmsprop", 2, 1)):
            with self.subTest(name):
                self.check(name, "averaged", merge, delay)

    def test_delayed(self):
        for name, merge, delay in (("sgd", 1, 1), ("momentum", 2, 0), ("adamw", 2, 1)):
            with self.subTest(name):
                results = self.check(name, "delayed", merge, delay, n=100)
                self.assertTrue(equal(results[0]["moved"], results[1]["moved"]))

    def test_averaged_sgd_of_one_step_is_synchronous_training(self):
        """w - lr * mean(g) either way, but for rounding. Nothing is clipped: one rule clips the own
        gradient and the other the mean."""
        averaged = ranks.run(WORLD, train, "sgd", "averaged", 1, 0, 20, clip=1e9)
        exact = ranks.run(WORLD, train, "sgd", "exact", 1, 0, 20, clip=1e9)
        for ours, theirs in zip(averaged[0]["drained"], exact[0]["drained"]):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def gradients_when_due(merge):
    rank = ranks.rank_of()
    wrapped, optimizer = start("momentum", "delayed", merge, 0)
    seen = []
    for step in range(3 * merge):
        optimizer.zero_grad()
        inputs, labels = batch(rank, step)
        torch.nn.functional.cross_entropy(wrapped(inputs), labels).backward()
        seen.append(all(p.grad is not None for p in wrapped.parameters()))
        if not seen[-1]:
            assert all(p.grad is None for p in wrapped.parameters())
        optimizer.step()
    return seen


class Delayed(unittest.TestCase):
    def test_gradients_appear_when_an_update_is_due(self):
        for seen in ranks.run(WORLD, gradients_when_due, 3):
            self.assertEqual(seen, [False, False, True] * 3)


# --- checkpoints --------------------------------------------------------------------------------

def go_on(n_before, n, where):
    """Trains to n, with a checkpoint after n_before, in the middle of a merged cycle."""
    rank = ranks.rank_of()
    wrapped, optimizer = start("adamw", "averaged", 3, 1)
    for step in range(n_before):
        step_once(wrapped, optimizer, rank, step)
    deft.torch.drain(wrapped)
    if rank == 0:
        torch.save({"model": wrapped.module.state_dict(), "optimizer": optimizer.state_dict()},
                   where)
    for step in range(n_before, n):
        step_once(wrapped, optimizer, rank, step)
    deft.torch.drain(wrapped)
    return [p.detach().clone() for p in wrapped.module.state_dict().values()]


def resume(n_before, n, where):
    rank = ranks.rank_of()
    saved = torch.load(where)
    model = model_of(5)
    model.load_state_dict(saved["model"])
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    optimizer.load_state_dict({k: v for k, v in saved["optimizer"].items() if k != "deft"})
    wrapped, optimizer = deft.torch.wrap(model, optimizer, rules=deft.torch.ALL_RULES,
                                         plan=deft.torch.plan_in(saved["optimizer"]))
    for step in range(n_before, n):
        step_once(wrapped, optimizer, rank, step)
    deft.torch.drain(wrapped)
    return [p.detach().clone() for p in wrapped.module.state_dict().values()]


def resume_in_place(n_before, n, where):
    """The same, but state is loaded into an optimizer that is wrapped already and has stepped."""
    rank = ranks.rank_of()
    saved = torch.load(where)
    wrapped, optimizer = start("adamw", "averaged", 3, 1,
                               plan=deft.torch.plan_in(saved["optimizer"]), model=model_of(5))
    for step in range(2):
        step_once(wrapped, optimizer, rank, step)
    deft.torch.drain(wrapped)
    wrapped.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    for step in range(n_before, n):
        step_once(wrapped, optimizer, rank, step)
    deft.torch.drain(wrapped)
    return [p.detach().clone() for p in wrapped.module.state_dict().values()]


class Checkpoint(unittest.TestCase):
    def setUp(self):
        self.where = f"checkpoint-{os.getpid()}.pt"

    def tearDown(self):
        if os.path.exists(self.where):
            os.remove(self.where)

    def test_a_resumed_job_goes_on_bit_equal(self):
        expected = ranks.run(WORLD, go_on, 7, 15, self.where)
        resumed = ranks.run(WORLD, resume, 7, 15, self.where)
        for rank in range(WORLD):
            self.assertTrue(equal(expected[rank], resumed[rank]))

    def test_state_may_be_loaded_into_a_wrapped_optimizer(self):
        expected = ranks.run(WORLD, go_on, 7, 15, self.where)
        resumed = ranks.run(WORLD, resume_in_place, 7, 15, self.where)
        for rank in range(WORLD):
            self.assertTrue(equal(expected[rank], resumed[rank]))

    def test_plain_torch_reads_the_checkpoint(self):
        ranks.run(WORLD, go_on, 4, 5, self.where)
        saved = torch.load(self.where)
        optimizer = OPTIMIZERS["adamw"](model_of().parameters())
        optimizer.load_state_dict(saved["optimizer"])
        self.assertEqual(len(optimizer.state), 6)


class Encoding(unittest.TestCase):
    def test_plans_survive_their_encoding(self):
        plan = Plan("averaged", [(0, 5), (5, 9)], [2, 1], [[0, 1], [1, 0]], [[1, 2], [0, 1]])
        self.assertEqual(Plan.decode(plan.encode()), plan)

    def test_the_runtime_gives_the_same_bytes(self):
        def export():
            wrapped, _ = start("sgd", "averaged", 2, 1)
            return deft.torch.plan_in(_.state_dict())
        expected = plan_of(model_of(), "averaged", 2, 1)
        self.assertEqual(ranks.run(1, export), [expected])

    def test_foreign_bytes_are_refused(self):
        for data in (b"", b"x" * 100, plan_of(model_of(), "exact", 1, 0)[:30]):
            with self.assertRaises(ValueError):
                Plan.decode(data)
        with self.assertRaises(ValueError):
            Plan.uniform("guess", [1]).encode()


if __name__ == "__main__":
    ranks.main()
