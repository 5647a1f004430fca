"""The same small jobs through DistributedDataParallel and through ours, compared bit by bit."""
import unittest
import warnings

import torch
import torch.distributed as dist

import deft.torch
import ranks
from deft.plan import Plan
from jobs import LOSS, WORLD, batch, equal, linear, momentum, parameters, through


class AsDDP(unittest.TestCase):
    def compare(self, body, *args):
        ours = ranks.run(WORLD, body, "deft", *args)
        theirs = ranks.run(WORLD, body, "ddp", *args)
        for rank in range(WORLD):
            self.assertTrue(equal(ours[rank], theirs[rank]))
        self.assertTrue(equal(ours[0], ours[1]))

    def test_accumulation_inside_no_sync(self):
        self.compare(self.accumulate_inside)

    def test_accumulation_without_no_sync(self):
        self.compare(self.accumulate_outside)

    @staticmethod
    def accumulation(how, inside):
        plain = linear()
        model, optimizer = through(how, plain, momentum(plain))
        for step in range(6):
            optimizer.zero_grad()
            for part in range(3):
                inputs, labels = batch(ranks.rank_of(), 3 * step + part)
                if inside and part < 2:
                    with model.no_sync():
                        LOSS(model(inputs), labels).backward()
                else:
                    LOSS(model(inputs), labels).backward()
            optimizer.step()
        return parameters(model)

    @staticmethod
    def accumulate_inside(how):
        return AsDDP.accumulation(how, True)

    @staticmethod
    def accumulate_outside(how):
        return AsDDP.accumulation(how, False)

    @staticmethod
    def branches(how):
        """Rank and step decide which branch is used; one is never used by anybody."""
        class Branches(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(1)
                self.parts = torch.nn.ModuleList(torch.nn.Linear(6, 3) for _ in range(4))

            def forward(self, inputs, which):
                return self.parts[0](inputs) + self.parts[which](inputs)

        plain = Branches()
        model, optimizer = through(how, plain, torch.optim.AdamW(plain.parameters(), lr=0.01),
                                   find_unused_parameters=True)
        for step in range(8):
            optimizer.zero_grad()
            inputs, labels = batch(ranks.rank_of(), step)
            LOSS(model(inputs, 1 + (step + ranks.rank_of()) % 2), labels).backward()
            optimizer.step()
        assert plain.parts[3].weight.grad is None
        return parameters(model)

    def test_unused_parameters(self):
        self.compare(self.branches)

    @staticmethod
    def shared_and_frozen(how):
        class Tied(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(2)
                self.embed = torch.nn.Embedding(10, 6)
                self.middle = torch.nn.Linear(6, 6)
                self.frozen = torch.nn.Linear(6, 6)
                self.frozen.requires_grad_(False)
                self.out = torch.nn.Linear(6, 10, bias=False)
                self.out.weight = self.embed.weight

            def forward(self, tokens):
                return self.out(self.frozen(torch.tanh(self.middle(self.embed(tokens)))))

        plain = Tied()
        model, optimizer = through(how, plain, torch.optim.SGD([
            {"params": plain.embed.parameters(), "lr": 0.1},
            {"params": plain.middle.parameters(), "lr": 0.01, "momentum": 0.9}], lr=1.0))
        for step in range(8):
            generator = torch.Generator().manual_seed(10 * step + ranks.rank_of())
            tokens = torch.randint(10, (12,), generator=generator)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(tokens), tokens.roll(1)).backward()
            optimizer.step()
        return parameters(model)

    def test_shared_and_frozen_parameters_and_groups(self):
        self.compare(self.shared_and_frozen)

    @staticmethod
    def convolution(how):
        torch.manual_seed(3)
        plain = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(),
                                    torch.nn.Conv2d(8, 4, 3)).to(memory_format=torch.channels_last)
        model, optimizer = through(how, plain, momentum(plain))
        for step in range(5):
            generator = torch.Generator().manual_seed(10 * step + ranks.rank_of())
            images = torch.randn(2, 3, 8, 8, generator=generator)
            optimizer.zero_grad()
            model(images.contiguous(memory_format=torch.channels_last)).square().mean().backward()
            optimizer.step()
        return parameters(model)

    def test_channels_last(self):
        self.compare(self.convolution)

    @staticmethod
    def scheduled(how):
        """The scheduler is made before the model is wrapped."""
        plain = linear()
        optimizer = momentum(plain)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=12)
        model, optimizer = through(how, plain, optimizer)
        for step in range(10):
            optimizer.zero_grad()
            inputs, labels = batch(ranks.rank_of(), step)
            LOSS(model(inputs), labels).backward()
            optimizer.step()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                scheduler.step()
        assert optimizer._step_count == 10
        return parameters(model)

    def test_a_scheduler_from_before(self):
        self.compare(self.scheduled)

    @staticmethod
    def with_closure(how):
        plain = linear()
        model, optimizer = through(how, plain, momentum(plain))
        for step in range(5):
            inputs, labels = batch(ranks.rank_of(), step)

            def closure():
                optimizer.zero_grad()
                loss = LOSS(model(inputs), labels)
                loss.backward()
                return loss
            assert float(optimizer.step(closure)) > 0
        return parameters(model)

    def test_closures(self):
        self.compare(self.with_closure)

    @staticmethod
    def bucket_view(how):
        plain = linear()
        model, optimizer = through(how, plain, momentum(plain), gradient_as_bucket_view=True)
        for step in range(5):
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            inputs, labels = batch(ranks.rank_of(), step)
            LOSS(model(inputs), labels).backward()
            optimizer.step()
        return parameters(model)

    def test_gradients_as_bucket_view(self):
        self.compare(self.bucket_view)

    @staticmethod
    def half(how):
        plain = linear().to(torch.bfloat16)
        model, optimizer = through(how, plain, torch.optim.SGD(plain.parameters(), lr=0.1))
        for step in range(5):
            optimizer.zero_grad()
            inputs, labels = batch(ranks.rank_of(), step)
            (model(inputs.bfloat16()) - labels.bfloat16()).square().mean().backward()
            optimizer.step()
        return [p.float() for p in parameters(model)]

    def test_ranks_agree_in_bfloat16(self):
        ours = ranks.run(WORLD, self.half, "deft")
        self.assertTrue(equal(ours[0], ours[1]))


class Uneven(unittest.TestCase):
    @staticmethod
    def join(how, rule, merge, delay):
        plain = linear()
        model, optimizer = plain, momentum(plain)
        if how == "deft":
            total = sum(p.numel() for p in plain.parameters())
            plan = Plan.uniform(rule, [total], merge, delay).encode()
            model, optimizer = deft.torch.wrap(plain, optimizer, plan=plan)
            around = model.join()
        else:
            model, optimizer = through(how, plain, optimizer)
            around = dist.algorithms.join.Join([model])
        with around:
            for step in range(5 + 4 * ranks.rank_of()):
                optimizer.zero_grad()
                inputs, labels = batch(ranks.rank_of(), step)
                LOSS(model(inputs), labels).backward()
                optimizer.step()
        return parameters(model)

    def test_exact_is_as_ddp(self):
        ours = ranks.run(WORLD, self.join, "deft", "exact", 1, 0)
        theirs = ranks.run(WORLD, self.join, "ddp", "exact", 1, 0)
        self.assertTrue(equal(ours[0], ours[1]))
        self.assertTrue(equal(ours[1], theirs[1]))

    def test_ranks_are_alike_under_other_rules(self):
        for rule, merge, delay in (("averaged", 3, 1), ("lookahead", 1, 1)):
            with self.subTest(rule):
                ours = ranks.run(3, self.join, "deft", rule, merge, delay)
                self.assertTrue(equal(ours[0], ours[1]) and equal(ours[0], ours[2]))


if __name__ == "__main__":
    ranks.main()
