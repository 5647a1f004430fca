"""Parameters that the program itself writes to, beside the wrapped optimizer; and what is lost at
the end when nobody drains."""
import copy
import itertools
import logging
import os
import pickle
import subprocess
import sys
import unittest

import torch

import agent
import deft
import deft.torch
import ranks
from deft.plan import Plan
from deft.torch.memory import fingerprint
from jobs import LOSS, WORLD, batch, equal, linear, momentum, parameters

SHAPES = {"exact": (1, 0), "delayed": (2, 1), "lookahead": (1, 1), "averaged": (2, 1)}


def plan_of(model, rule):
    total = sum(p.numel() for p in model.parameters())
    return Plan.uniform(rule, [total], *SHAPES[rule]).encode()


def lines():
    """What the package warns of from here on."""
    seen = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    logging.getLogger("deft").addHandler(handler)
    return seen


def start(rule=None, optimizer_of=momentum):
    """The inner model, what wrap() returns, and the lines that follow. None: exact, with an agent
    to come."""
    plain = linear()
    wrapped, optimizer = deft.torch.wrap(plain, optimizer_of(plain), rules=deft.torch.ALL_RULES,
                                         plan=plan_of(plain, rule) if rule else None)
    return plain, wrapped, optimizer, lines()


def iterate(wrapped, optimizer, step):
    optimizer.zero_grad()
    inputs, labels = batch(ranks.rank_of(), step)
    LOSS(wrapped(inputs), labels).backward()
    optimizer.step()


def clamp(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-0.1, 0.1)


def clamp_data(model):
    for parameter in model.parameters():
        parameter.data.clamp_(-0.1, 0.1)


def swap(model):
    """As for an evaluation with averaged weights."""
    kept = parameters(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
        model(batch(0, 0)[0])
        for parameter, before in zip(model.parameters(), kept):
            parameter.copy_(before)


def nothing(model):
    del model


def load(model):
    model.load_state_dict(copy.deepcopy(model.state_dict()))


def first_rule(loop, offers, n_before):
    """The first rule beside exact that runs when `offers` arrive behind `n_before` iterations of
    `loop(plain, wrapped, optimizer, step)`; how many were refused; and what was warned of."""
    own_agent = agent.Agent()
    plain, wrapped, optimizer, seen = start()
    for step in range(20000):
        if deft.torch.stats(wrapped)["rule"] != "exact":
            break
        if step == n_before:
            for rule in offers:
                own_agent.offer(plan_of(plain, rule))
        loop(plain, wrapped, optimizer, step)
    stats = deft.torch.stats(wrapped)
    return stats["rule"], stats["refused"], seen


class Learned(unittest.TestCase):
    """While training is exact, the loop shows whether it writes."""

    @staticmethod
    def writing(write):
        def loop(plain, wrapped, optimizer, step):
            iterate(wrapped, optimizer, step)
            write(plain)
        return first_rule(loop, ["lookahead", "averaged"], 12)

    def test_a_loop_that_writes_gets_no_lookahead(self):
        for write in (clamp, clamp_data):
            with self.subTest(write.__name__):
                for rule, n_refused, seen in ranks.run(WORLD, self.writing, write):
                    self.assertEqual((rule, n_refused), ("averaged", 1))
                    self.assertEqual(len(seen), 1)
                    self.assertIn("written to between step and forward", seen[0])
                    self.assertIn("lookahead is not used", seen[0])

    @staticmethod
    def perturbing():
        def loop(plain, wrapped, optimizer, step):
            inputs, labels = batch(ranks.rank_of(), step)
            LOSS(wrapped(inputs), labels).backward()
            with torch.no_grad():
                for parameter in plain.parameters():
                    parameter.add_(parameter.grad, alpha=0.01)
            optimizer.zero_grad(set_to_none=True)
            iterate(wrapped, optimizer, step)
        return first_rule(loop, ["lookahead", "averaged"], 12)

    def test_writes_before_a_step_that_is_left_out(self):
        """As SAM does, at the place where it looks at gradients."""
        for rule, n_refused, seen in ranks.run(WORLD, self.perturbing):
            self.assertEqual((rule, n_refused, len(seen)), ("averaged", 1, 1))

    @staticmethod
    def innocent(what):
        def loop(plain, wrapped, optimizer, step):
            iterate(wrapped, optimizer, step)
            if what == "drained":
                deft.torch.drain(wrapped)
                clamp(plain)
            if what == "joined" and step == 3:
                with wrapped.join():
                    iterate(wrapped, optimizer, step + 1)
            if what == "loaded":
                load(plain)
                optimizer.load_state_dict(optimizer.state_dict())
            if what == "swapped" and step < 7:
                swap(plain)
            if what == "evaluated":
                with torch.no_grad():
                    wrapped(batch(0, 0)[0])
        return first_rule(loop, ["lookahead"], 12)

    def test_what_is_no_write(self):
        """Nothing; behind a drain; the end of a join; a load; a swap that is put back."""
        for what in ("nothing", "drained", "joined", "loaded", "swapped", "evaluated"):
            with self.subTest(what):
                for said in ranks.run(WORLD, self.innocent, what):
                    self.assertEqual(said, ("lookahead", 0, []))


class UnderLookahead(unittest.TestCase):
    @staticmethod
    def run_with(write, first, drains):
        plain, wrapped, optimizer, seen = start("lookahead")
        for step in range(15):
            iterate(wrapped, optimizer, step)
            if step >= first:
                if drains:
                    deft.torch.drain(wrapped)
                write(plain)
        if not drains:
            deft.torch.drain(wrapped)
        largest = max(float(p.abs().max()) for p in parameters(plain))
        deft.torch.close(wrapped)
        return parameters(plain), largest, seen

    def check(self, write, first, drains=False):
        results = ranks.run(WORLD, self.run_with, write, first, drains)
        self.assertTrue(equal(results[0][0], results[1][0]))
        return results

    def test_writes_are_told_once(self):
        for write, first in ((clamp, 0), (clamp, 11), (clamp_data, 2)):
            with self.subTest(f"{write.__name__} {first}"):
                for _, _, seen in self.check(write, first):
                    self.assertEqual(len(seen), 1)
                    for text in ("parameter 0.weight", "may be lost", "deft.torch.drain(model)"):
                        self.assertIn(text, seen[0])

    def test_behind_a_drain_they_stay(self):
        for write in (clamp, clamp_data):
            for _, largest, seen in self.check(write, 0, drains=True):
                self.assertLessEqual(largest, 0.1 + 1e-6)
                self.assertEqual(seen, [])

    def test_what_is_put_back_goes_on(self):
        """Told of where only versions are looked at; without harm either way."""
        expected = self.check(nothing, 0)
        for first, n_lines in ((0, 0), (11, 1)):
            results = self.check(swap, first)
            self.assertTrue(equal(results[0][0], expected[0][0]))
            if first:
                self.assertEqual([len(r[2]) for r in results], [n_lines] * WORLD)


class Loading(unittest.TestCase):
    @staticmethod
    def loaded(rule, through_wrapper):
        saved = linear(7).state_dict()
        plain, wrapped, optimizer, seen = start(rule)
        for step in range(5):
            iterate(wrapped, optimizer, step)
        if through_wrapper:
            wrapped.load_state_dict({"module." + key: value for key, value in saved.items()})
        else:
            plain.load_state_dict(saved)
        if ranks.rank_of() == 0:
            plain.load_state_dict(saved)  # it is not collective
        loaded = equal(parameters(plain), list(saved.values()))
        deft.torch.drain(wrapped)
        # What was in flight has landed on it, a step or two; the way back is far longer.
        moved = max(float((p - q).abs().max())
                    for p, q in zip(parameters(plain), saved.values()))
        kept = loaded and moved < 0.05
        for step in range(5, 9):
            iterate(wrapped, optimizer, step)
        deft.torch.drain(wrapped)
        return kept, parameters(plain), seen

    def test_what_is_loaded_stays_under_every_rule(self):
        for rule, through_wrapper in itertools.product(SHAPES, (False, True)):
            with self.subTest(f"{rule} {through_wrapper}"):
                results = ranks.run(WORLD, self.loaded, rule, through_wrapper)
                self.assertTrue(equal(results[0][1], results[1][1]))
                self.assertEqual([(r[0], r[2]) for r in results], [(True, [])] * WORLD)

    @staticmethod
    def loaded_by_one(rule):
        """Behind the last iteration rank 0 evaluates something else, and the other one ends."""
        saved = linear(7).state_dict()
        plain, wrapped, optimizer, _ = start(rule)
        for step in range(5):
            iterate(wrapped, optimizer, step)
        if ranks.rank_of() == 0:
            plain.load_state_dict(saved)
            with torch.no_grad():
                wrapped(batch(0, 0)[0])
            return equal(parameters(plain), list(saved.values()))
        return True

    def test_one_rank_alone_may_load_behind_the_end(self):
        for rule in SHAPES:
            with self.subTest(rule):
                self.assertEqual(ranks.run(WORLD, self.loaded_by_one, rule), [True, True])

    @staticmethod
    def loaded_inside():
        plain, wrapped, optimizer, seen = start("lookahead")
        for step in range(6):
            optimizer.zero_grad()
            inputs, labels = batch(ranks.rank_of(), step)
            LOSS(wrapped(inputs), labels).backward()
            if step == 4:
                plain.load_state_dict(linear(7).state_dict())  # all ranks have what they had
            optimizer.step()
        deft.torch.drain(wrapped)
        return parameters(plain), seen

    def test_inside_an_iteration_ranks_stay_alike(self):
        results = ranks.run(WORLD, self.loaded_inside)
        self.assertTrue(equal(results[0][0], results[1][0]))

    @staticmethod
    def copies():
        plain, wrapped, optimizer, _ = start("lookahead")
        for step in range(3):
            iterate(wrapped, optimizer, step)
        before = parameters(plain)
        if ranks.rank_of() == 0:
            pickled = pickle.dumps(plain)
            if b"deft" in pickled:
                raise AssertionError("the copy needs this package")
            for twin in (copy.deepcopy(plain), pickle.loads(pickled)):
                twin.load_state_dict(linear(7).state_dict())
        same = equal(before, parameters(plain))
        deft.torch.drain(wrapped)
        deft.torch.close(wrapped)
        plain.load_state_dict(linear(7).state_dict())
        return same

    def test_copies_of_the_model_are_on_their_own(self):
        self.assertEqual(ranks.run(WORLD, self.copies), [True, True])


PROGRAM = """
import logging
import deft.torch
from torch_writes import iterate, start
_, wrapped, optimizer, _ = start("averaged")
logging.getLogger("deft").handlers.clear()
for step in range(5):
    iterate(wrapped, optimizer, step)
{}
"""


class End(unittest.TestCase):
    @staticmethod
    def closed(rule, how):
        _, wrapped, optimizer, seen = start(rule)
        for step in range(5):
            iterate(wrapped, optimizer, step)
        if how == "drained":
            deft.torch.drain(wrapped)
        if how == "raised":
            try:
                raise ValueError("of the program")
            except ValueError:
                deft.torch.close(wrapped)
        if how == "lost" and ranks.rank_of() == 1:
            os._exit(0)
        if how == "lost":
            try:
                for step in range(100):
                    iterate(wrapped, optimizer, step)
            except deft.PeerLost:
                pass
        deft.torch.close(wrapped)
        return seen

    def test_closing_without_a_drain_is_told(self):
        for rule in ("delayed", "lookahead", "averaged"):
            with self.subTest(rule):
                first, second = ranks.run(WORLD, self.closed, rule, "at once")
                self.assertEqual((len(first), second), (1, []))
                self.assertIn(f"closed 5 iterations of the rule {rule}", first[0])
                self.assertIn("deft.torch.drain(model)", first[0])

    def test_closing_in_order_is_not(self):
        for rule, how in (("exact", "at once"), ("averaged", "drained"), ("averaged", "raised"),
                          ("lookahead", "lost")):
            with self.subTest(f"{rule} {how}"):
                self.assertEqual(ranks.run(WORLD, self.closed, rule, how, may_fail=True)[0], [])

    @staticmethod
    def said_by(end):
        port = ranks.free_port()
        programs = [subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(end)], stderr=subprocess.PIPE, text=True,
            env={**os.environ, **ranks.environment(rank, WORLD, port)}) for rank in range(WORLD)]
        return [program.communicate()[1] for program in programs]

    def test_at_exit(self):
        said = self.said_by("")
        self.assertEqual([text.count("after the last drain") for text in said], [1, 0])
        for end in ("deft.torch.drain(wrapped)", "raise ValueError()"):
            for text in self.said_by(end):
                self.assertNotIn("after the last drain", text)


class Stepless(unittest.TestCase):
    @staticmethod
    def rule_of(what, offers):
        hidden = []

        def loop(plain, wrapped, optimizer, step):
            if not hidden:
                hidden.append(torch.optim.SGD(plain.parameters(), lr=0.05))
            inputs, labels = batch(ranks.rank_of(), step)
            LOSS(wrapped(inputs), labels).backward()
            if what == "hidden":
                hidden[0].step()
            elif step >= 8:
                optimizer.step()
            if what != "accumulated" or step >= 8:
                optimizer.zero_grad(set_to_none=True)
        return first_rule(loop, offers, 12)

    def test_a_hidden_optimizer_leaves_only_rules_by_gradients(self):
        for rule, n_refused, seen in ranks.run(WORLD, self.rule_of, "hidden",
                                               ["lookahead", "averaged", "delayed"]):
            self.assertEqual((rule, n_refused), ("delayed", 2))
            self.assertEqual(len(seen), 1)
            self.assertIn("is never called", seen[0])

    def test_steps_that_are_left_out_are_none(self):
        for what in ("left out", "accumulated"):
            with self.subTest(what):
                for rule, n_refused, seen in ranks.run(WORLD, self.rule_of, what, ["averaged"]):
                    self.assertEqual((rule, n_refused), ("averaged", 0))
                    self.assertNotIn("is never called", "".join(seen))


class Frozen(unittest.TestCase):
    def test_a_group_of_what_was_frozen(self):
        def run():
            plain = linear()
            plain[0].weight.requires_grad_(False)
            _, optimizer = deft.torch.wrap(plain, torch.optim.SGD(
                [p for p in plain.parameters() if p.requires_grad], lr=0.05))
            plain[0].weight.requires_grad_(True)
            try:
                optimizer.add_param_group({"params": plain[0].weight})
            except deft.WrongUse as error:
                return str(error)
            return "nothing"
        self.assertIn("was frozen (requires_grad False) at wrap()", ranks.run(1, run)[0])


class Fingerprints(unittest.TestCase):
    def test_each_element_counts(self):
        for dtype, n, offset in itertools.product(
                (torch.float16, torch.bfloat16, torch.float32, torch.float64), (1, 2, 3, 8, 13),
                (0, 1, 4)):
            memory = torch.randn(20, generator=torch.Generator().manual_seed(n)).to(dtype)
            tensor = memory[offset:offset + n]
            before = fingerprint(tensor)
            outside = memory.clone()
            for i in range(20):
                memory[i] += 1
                inside = offset <= i < offset + n
                self.assertEqual(bool(fingerprint(tensor) != before), inside, (dtype, n, offset, i))
                memory.copy_(outside)

    def test_any_order_of_memory(self):
        tensor = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        before = fingerprint(tensor)
        tensor[1, 2, 3, 4] = float("nan")
        self.assertNotEqual(int(fingerprint(tensor)), int(before))
        self.assertEqual(int(fingerprint(tensor)), int(fingerprint(tensor)))


if __name__ == "__main__":
    ranks.main()
