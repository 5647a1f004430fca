"""Whatever a loop does, ranks stay alike, memory stays whole, and what cannot work is said."""
import unittest

import torch
from torch.utils.checkpoint import checkpoint

import deft
import deft.torch
import ranks
from deft.plan import Plan
from jobs import LOSS, WORLD, batch, equal, linear, momentum, parameters, through


def plan_of(model, rule, merge, delay):
    total = sum(p.numel() for p in model.parameters())
    return Plan.uniform(rule, [total], merge, delay).encode()


def wrapped(rule="exact", merge=1, delay=0, make=momentum, model=None):
    plain = model if model is not None else linear()
    model, optimizer = deft.torch.wrap(plain, make(plain), rules=deft.torch.ALL_RULES,
                                       plan=plan_of(plain, rule, merge, delay))
    return plain, model, optimizer


def step_once(model, optimizer, step, scale=1.0):
    optimizer.zero_grad()
    inputs, labels = batch(ranks.rank_of(), step)
    (LOSS(model(inputs), labels) * scale).backward()
    for parameter in model.parameters():
        if scale != 1.0 and parameter.grad is not None:
            parameter.grad.mul_(1 / scale)
    optimizer.step()


class Memory(unittest.TestCase):
    @staticmethod
    def move():
        plain, model, optimizer = wrapped("averaged", 2, 1)
        for step in range(4):
            step_once(model, optimizer, step)
        plain[0].weight.data = plain[0].weight.data.clone()
        try:
            deft.torch.drain(model)
        except deft.WrongUse as error:
            return str(error)
        return "nothing"

    def test_moved_parameters_are_noticed_by_a_drain(self):
        for said in ranks.run(WORLD, self.move):
            self.assertIn("before wrap()", said)

    @staticmethod
    def ask_when_closed():
        plain, model, optimizer = wrapped()
        step_once(model, optimizer, 0)
        deft.torch.close(model)
        deft.torch.request_stop(model)
        try:
            deft.torch.report_loss(model, 1.0)
        except deft.WrongUse:
            return deft.torch.stats(model)["iterations"], deft.torch.plan_in(
                optimizer.state_dict()) == plan_of(plain, "exact", 1, 0)
        return None

    def test_a_closed_runtime_answers_or_refuses(self):
        self.assertEqual(ranks.run(1, self.ask_when_closed), [(1, True)])

    @staticmethod
    def again():
        plain, model, optimizer = wrapped()
        step_once(model, optimizer, 0)
        deft.torch.close(model)
        LOSS(plain(batch(0, 0)[0]), batch(0, 0)[1]).backward()  # the plain model trains on
        plain, model, optimizer = wrapped(model=plain)
        step_once(model, optimizer, 1)
        return deft.torch.stats(model)["iterations"]

    def test_a_model_can_be_wrapped_again_after_close(self):
        self.assertEqual(ranks.run(1, self.again), [1])


class Alike(unittest.TestCase):
    @staticmethod
    def count_steps():
        plain, model, optimizer = wrapped(
            "averaged", 2, 1, lambda m: torch.optim.AdamW(m.parameters(), lr=0.01))
        for step in range(6):
            optimizer.zero_grad()
            inputs, labels = batch(ranks.rank_of(), step)
            loss = LOSS(model(inputs), labels)
            if step == 3 and ranks.rank_of() == 1:
                loss = loss * float("nan")
            loss.backward()
            optimizer.step()
        deft.torch.drain(model)
        return [float(optimizer.state[p]["step"]) for p in plain.parameters()]

    def test_counts_of_steps_after_a_skip(self):
        results = ranks.run(WORLD, self.count_steps)
        self.assertEqual(results[0], results[1])

    @staticmethod
    def look_ahead_of_the_step():
        plain, model, optimizer = wrapped("lookahead", 1, 1)
        for step in range(6):
            optimizer.zero_grad()
            inputs, labels = batch(ranks.rank_of(), step)
            LOSS(model(inputs), labels).backward()
            model(inputs)  # for a log, say
            optimizer.step()
        deft.torch.drain(model)
        return parameters(plain)

    def test_a_forward_between_backward_and_step(self):
        results = ranks.run(WORLD, self.look_ahead_of_the_step)
        self.assertTrue(equal(results[0], results[1]))

    @staticmethod
    def scaled(scale):
        plain, model, optimizer = wrapped("lookahead", 1, 1)
        step_once(model, optimizer, 0, scale)
        deft.torch.drain(model)
        return parameters(plain)

    def test_the_first_drain_knows_what_was_done_to_gradients(self):
        plain = ranks.run(WORLD, self.scaled, 1.0)
        scaled = ranks.run(WORLD, self.scaled, 1024.0)
        for ours, theirs in zip(plain[0], scaled[0]):
            torch.testing.assert_close(ours, theirs)
        self.assertTrue(equal(scaled[0], scaled[1]))

    @staticmethod
    def two_optimizers(plan):
        plain = linear()
        first = torch.optim.SGD(plain[0].parameters(), lr=0.1, momentum=0.9)
        second = torch.optim.SGD(plain[2].parameters(), lr=0.1, momentum=0.9)
        model, first = deft.torch.wrap(
            plain, first, plan=plan_of(plain, "lookahead", 1, 1) if plan else None)
        for step in range(5):
            first.zero_grad()
            second.zero_grad()
            inputs, labels = batch(ranks.rank_of(), step)
            LOSS(model(inputs), labels).backward()
            first.step()
            second.step()
        return parameters(plain)

    def test_a_second_optimizer_keeps_plans_exact(self):
        results = ranks.run(WORLD, self.two_optimizers, False)
        self.assertTrue(equal(results[0], results[1]))
        for said in ranks.run(WORLD, self.two_optimizers, True, may_fail=True):
            self.assertIn("cannot run rule lookahead", said)


class Joins(unittest.TestCase):
    @staticmethod
    def join(counts):
        plain, model, optimizer = wrapped()
        for count in counts[ranks.rank_of()]:
            with model.join():
                for step in range(count):
                    step_once(model, optimizer, step)
        return parameters(plain), [optimizer.state[p]["momentum_buffer"] for p in
                                   plain.parameters()]

    def check(self, counts):
        results = ranks.run(len(counts), self.join, counts)
        for other in results[1:]:
            self.assertTrue(equal(results[0][0], other[0]))
            self.assertTrue(equal(results[0][1], other[1]))

    def test_a_rank_without_any_batch(self):
        self.check([(0,), (5,)])

    def test_one_join_after_another(self):
        self.check([(4, 1, 3), (5, 6, 3), (1, 2, 9)])


class AsDDP(unittest.TestCase):
    def compare(self, body):
        ours, theirs = ranks.run(WORLD, body, "deft"), ranks.run(WORLD, body, "ddp")
        for rank in range(WORLD):
            self.assertTrue(equal(ours[rank], theirs[rank]))

    @staticmethod
    def checkpointed(how):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(4)
                self.first, self.last = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

            def forward(self, inputs):
                return checkpoint(self.last, torch.tanh(self.first(inputs)))

        plain = Net()
        model, optimizer = through(how, plain, momentum(plain))
        for step in range(4):
            step_once(model, optimizer, step)
        return parameters(plain)

    def test_a_reentrant_checkpoint_at_the_end(self):
        self.compare(self.checkpointed)

    @staticmethod
    def branches(how):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(5)
                self.parts = torch.nn.ModuleList(torch.nn.Linear(6, 3) for _ in range(3))

            def forward(self, inputs, which):
                return self.parts[0](inputs) + self.parts[which](inputs)

        plain = Net()
        model, optimizer = through(how, plain, momentum(plain), find_unused_parameters=True)
        for step in range(4):
            optimizer.zero_grad()
            for part in range(2):  # accumulation without no_sync()
                inputs, labels = batch(ranks.rank_of(), 2 * step + part)
                LOSS(model(inputs, 1 + (part + ranks.rank_of()) % 2), labels).backward()
            optimizer.step()
        return parameters(plain)

    def test_accumulation_over_branches(self):
        self.compare(self.branches)

    @staticmethod
    def penalty(how):
        """Gradients of the output are asked for before backward."""
        plain = linear()
        model, optimizer = through(how, plain, momentum(plain))
        for step in range(4):
            optimizer.zero_grad()
            inputs, labels = batch(ranks.rank_of(), step)
            inputs.requires_grad_(True)
            outputs = model(inputs)
            slope, = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
            (LOSS(outputs, labels) + slope.square().mean()).backward()
            optimizer.step()
        return parameters(plain)

    def test_a_gradient_penalty(self):
        self.compare(self.penalty)


if __name__ == "__main__":
    ranks.main()
