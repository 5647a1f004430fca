"""The learning rate of Adam under averaged: the formula of noise.py, on real ranks."""
import math
import os
import unittest

import torch

import agent
import deft
import deft.torch
import ranks
from deft.plan import Plan
from deft.torch import noise
from jobs import LOSS, batch, equal, linear, parameters

RATE, DECAY = 0.01, 0.1


def plan_of(model, rule, merge=1, delay=0):
    total = sum(p.numel() for p in model.parameters())
    return Plan.uniform(rule, [total], merge, delay).encode()


class Seen:
    """Mixed into an optimizer: what its groups are inside each step, and its state behind it."""

    def step(self, closure=None):
        self.__dict__.setdefault("seen", []).append(
            [(group["lr"], group.get("weight_decay")) for group in self.param_groups])
        super().step(closure)
        self.__dict__.setdefault("moments", []).append(
            [self.state[p]["exp_avg_sq"].clone() for g in self.param_groups for p in g["params"]
             if "exp_avg_sq" in self.state[p]])


class SeenAdamW(Seen, torch.optim.AdamW):
    pass


class SeenAdam(Seen, torch.optim.Adam):
    pass


class SeenSgd(Seen, torch.optim.SGD):
    pass


class SeenRmsprop(Seen, torch.optim.RMSprop):
    pass


def groups_of(model):
    """Two groups, with other second moments; in the order of the model."""
    own = list(model.parameters())
    return [{"params": own[:2], "betas": (0.9, 0.9)}, {"params": own[2:], "betas": (0.8, 0.99)}]


def iterate(wrapped, optimizer, step, bad=False):
    """Returns this rank's gradients as the optimizer is given them: clipping counts."""
    optimizer.zero_grad()
    inputs, labels = batch(ranks.rank_of(), step)
    loss = LOSS(wrapped(inputs), labels)
    (loss * float("nan") if bad else loss).backward()
    torch.nn.utils.clip_grad_norm_(wrapped.parameters(), 0.5)
    gradients = [p.grad.clone() for p in wrapped.parameters() if p.grad is not None]
    optimizer.step()
    return gradients


def train(n, bad_step=None, sample_elements=noise.SAMPLE_ELEMENTS, **options):
    noise.SAMPLE_ELEMENTS = sample_elements
    model = linear()
    wrapped, optimizer = deft.torch.wrap(
        model, SeenAdamW(groups_of(model), lr=RATE, weight_decay=DECAY),
        plan=plan_of(model, "averaged", 2, 1), **options)
    gradients = [iterate(wrapped, optimizer, step, step == bad_step and ranks.rank_of() == 1)
                 for step in range(n)]
    before = [m.clone() for m in optimizer.moments[-1]]
    deft.torch.drain(wrapped)
    after = [optimizer.state[p]["exp_avg_sq"].clone() for p in model.parameters()]
    return {"seen": optimizer.seen, "gradients": gradients, "moments": optimizer.moments,
            "before": before, "after": after, "parameters": parameters(model)}


def squares_at(results, step):
    """The mean over ranks of |u|^2 and the square of the mean u, of one iteration."""
    own = [torch.cat([(g / v.sqrt()).flatten().double() for g, v in
                      zip(result["gradients"][step], result["moments"][step])])
           for result in results]
    return (sum(float(u.square().sum()) for u in own) / len(own),
            float((sum(own) / len(own)).square().sum()))


def expected_factors(results, n, n_before=0, first=0):
    """[n + 1][groups]: f of every own step; the last row is that of the drain."""
    inverse, n_averaged, rows, sums = 1.0, 0, [], [0.0, 0.0]
    for s in range(1, n + 2):
        shares = [(1 - beta ** min(s, n)) / (1 - beta ** (min(s, n) + n_before))
                  for beta in (0.9, 0.99)]
        rows.append([(1 + (1 / inverse - 1) * share) ** 0.5 for share in shares])
        if s <= n and (s % 8 == 0 or s in (1, 2, 4)):
            sums = [a + b for a, b in zip(sums, squares_at(results, first + s - 1))]
        if s <= n and (s % 64 == 0 or s in (1, 2, 4, 8, 16, 32)):
            n_averaged += 1
            inverse += max(1 / n_averaged, 0.5) * (
                min(max(sums[1] / sums[0], 1 / len(results)), 1.0) - inverse)
            sums = [0.0, 0.0]
    return rows


class Factor(unittest.TestCase):
    def check(self, world, n):
        results = ranks.run(world, train, n)
        expected = expected_factors(results, n)
        for result in results:
            self.assertEqual(result["seen"], results[0]["seen"])  # bit for bit
        for step, row in enumerate(results[0]["seen"]):
            for group, (rate, decay) in enumerate(row):
                self.assertAlmostEqual(rate / RATE, expected[step][group], places=5)
                self.assertAlmostEqual(rate * decay, RATE * DECAY, places=9)
        self.assertEqual(results[0]["seen"][0][0][0], RATE)
        largest = max(rate for row in results[0]["seen"] for rate, _ in row) / RATE
        self.assertTrue(1.1 < largest <= world ** 0.5 + 1e-9, largest)
        return results, expected

    def test_two_ranks_follow_the_formula(self):
        self.check(2, 70)  # past the last of the powers of two

    def test_the_program_may_compute_in_doubles(self):
        torch.set_default_dtype(torch.float64)
        try:
            self.check(2, 10)
        finally:
            torch.set_default_dtype(torch.float32)

    def test_three_ranks_follow_the_formula(self):
        self.check(3, 20)

    def test_ranks_agree_on_what_a_sample_says(self):
        results = ranks.run(2, train, 40, sample_elements=20)
        self.assertEqual(results[0]["seen"], results[1]["seen"])
        self.assertGreater(results[0]["seen"][-1][1][0], RATE)

    def test_a_drain_leaves_the_moments_of_exact(self):
        results, expected = self.check(2, 13)
        for result in results:
            self.assertTrue(equal(result["after"], results[0]["after"]))
        for i, after in enumerate(results[0]["after"]):
            mean = (results[0]["before"][i] + results[1]["before"][i]) / 2
            torch.testing.assert_close(after, mean / expected[-1][i // 2] ** 2, rtol=1e-4,
                                       atol=1e-12)

    def test_a_step_that_one_rank_leaves_out_measures_nothing(self):
        results = ranks.run(2, train, 12, bad_step=3)  # the 4th, which would be measured
        seen = [result["seen"] for result in results]
        self.assertEqual((len(seen[0]), len(seen[1])), (12, 11))
        self.assertEqual(seen[0][:3] + seen[0][4:], seen[1])
        self.assertEqual([row[0][0] != seen[0][3][0][0] for row in seen[0][4:6]], [False, False])
        self.assertTrue(equal(results[0]["parameters"], results[1]["parameters"]))
        self.assertTrue(equal(results[0]["after"], results[1]["after"]))


class Sample(unittest.TestCase):
    def test_every_element_has_its_turn(self):
        generator = torch.Generator().manual_seed(int(os.environ.get("DEFT_TEST_SEED", "1")))
        for _ in range(20):
            sizes = torch.randint(1, 9000, (5,), generator=generator).tolist()
            own = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
            source = noise.Noise(None, torch.optim.Adam(own), 2, "noise")
            stride = -(-sum(sizes) // noise.SAMPLE_ELEMENTS)
            seen = [torch.zeros(size) for size in sizes]
            for source._n_sampled in range(stride):
                taken = list(source._sampled())
                self.assertLessEqual(sum(len(part) for _, part in taken), noise.SAMPLE_ELEMENTS)
                for place, (_, part) in zip(seen, taken):
                    place[list(part)] += 1
            self.assertTrue(all(bool((place == 1).all()) for place in seen), sizes)


def rates_of(cls, rule, merge, delay, n=9, **options):
    model = linear()
    optimizer = cls(model.parameters(), lr=RATE)
    wrapped, optimizer = deft.torch.wrap(model, optimizer, plan=plan_of(model, rule, merge, delay),
                                         rules=deft.torch.ALL_RULES, **options)
    for step in range(n):
        iterate(wrapped, optimizer, step)
    return {rate for row in optimizer.seen for rate, _ in row}


def schedule(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.01 * step))


def told(n):
    model = linear()
    wrapped, optimizer = deft.torch.wrap(model, SeenAdam(model.parameters(), lr=RATE),
                                         plan=plan_of(model, "averaged", 2, 1))
    scheduler = schedule(optimizer)
    runtime, rates = deft.torch._of(wrapped).runtime, []
    tell = runtime.learning_rate
    runtime.learning_rate = lambda rate: (rates.append(rate), tell(rate))
    for step in range(n):
        iterate(wrapped, optimizer, step)
        scheduler.step()
    return rates, [row[0][0] for row in optimizer.seen]


class Untouched(unittest.TestCase):
    def test_the_runtime_is_told_the_rate_of_the_schedule(self):
        rates, inside = ranks.run(2, told, 12)[0]
        self.assertEqual(rates, [RATE * (1 / (1 + 0.01 * step)) for step in range(12)])
        self.assertNotEqual(rates, inside)

    def check(self, cls, rule, merge, delay, **options):
        self.assertEqual(ranks.run(2, rates_of, cls, rule, merge, delay, **options),
                         [{RATE}, {RATE}])

    def test_other_optimizers_keep_their_rate(self):
        for cls in (SeenSgd, SeenRmsprop):
            with self.subTest(cls.__name__):
                self.check(cls, "averaged", 2, 1)

    def test_other_rules_keep_the_rate(self):
        for rule, delay in (("exact", 0), ("delayed", 1)):
            with self.subTest(rule):
                self.check(SeenAdam, rule, 1, delay)

    def test_it_can_be_switched_off(self):
        self.check(SeenAdam, "averaged", 2, 1, averaged_lr_rule="none")
        self.assertGreater(max(ranks.run(2, rates_of, SeenAdam, "averaged", 2, 1)[0]), RATE)

    def test_one_rank_has_no_noise_to_lose(self):
        self.assertEqual(ranks.run(1, rates_of, SeenAdam, "averaged", 2, 1), [{RATE}])

    def test_a_foreign_name_is_refused(self):
        model = linear()
        with self.assertRaisesRegex(deft.WrongUse, "averaged_lr_rule is 'sqrt', expected one of "
                                                   "noise, none"):
            deft.torch.wrap(model, SeenAdam(model.parameters()), averaged_lr_rule="sqrt")


def there_and_back(n_exact, n_averaged, n, max_loss=math.nan):
    """Exact, then averaged, then exact, by plans that arrive or by the fuse of the first; a
    scheduler all the while."""
    model = linear()
    own_agent = agent.Agent()
    wrapped, optimizer = deft.torch.wrap(
        model, SeenAdamW(groups_of(model), lr=RATE, weight_decay=DECAY))
    scheduler = schedule(optimizer)
    rules, gradients, scheduled, left = [], [], [], None
    began = ended = None
    step = 0
    while ended is None or step < n + ended:
        rule = deft.torch.stats(wrapped)["rule"]
        rules.append(rule)
        if step == n_exact:
            own_agent.offer(plan_of(model, "averaged", 2, 1), max_loss)
        if rule == "averaged" and began is None:
            began = step
        if began is not None and step == began + n_averaged:
            own_agent.offer(plan_of(model, "exact"))
        if rule == "exact" and began is not None and ended is None:
            ended = step
            left = [optimizer.state[p]["exp_avg_sq"].clone() for p in model.parameters()]
        gradients.append(iterate(wrapped, optimizer, step))
        deft.torch.report_loss(wrapped, 1.0)
        scheduler.step()
        scheduled.append(scheduler.get_last_lr()[0])
        step += 1
    return {"rules": rules, "gradients": gradients, "scheduled": scheduled, "left": left,
            "began": began, "ended": ended, "seen": optimizer.seen, "moments": optimizer.moments,
            "parameters": parameters(model)}


class Switches(unittest.TestCase):
    def test_there_and_back(self):
        self.check(10, 20, 5)

    def test_back_by_the_fuse(self):
        self.check(10, 10 ** 6, 5, max_loss=0.1)

    def check(self, *args, **options):
        results = ranks.run(2, there_and_back, *args, **options)
        first = results[0]
        began, ended = first["began"], first["ended"]
        n = ended - began
        self.assertEqual(first["rules"], results[1]["rules"])
        self.assertEqual(first["seen"], results[1]["seen"])
        plain = torch.optim.AdamW(linear().parameters(), lr=RATE)
        scheduler = schedule(plain)
        expected = expected_factors(results, n, began, began)
        for step, row in enumerate(first["seen"]):
            rate = plain.param_groups[0]["lr"]
            for group in range(2):
                if began <= step < ended:
                    self.assertAlmostEqual(row[group][0] / rate, expected[step - began][group],
                                           places=5)
                else:  # to the last bit
                    self.assertEqual(row[group], (rate, DECAY))
            scheduler.step()
            self.assertEqual(first["scheduled"][step], plain.param_groups[0]["lr"])
        self.assertGreater(max(row[0] for row in expected), 1.01)
        for i, left in enumerate(first["left"]):
            self.assertTrue(torch.equal(left, results[1]["left"][i]))
            mean = sum(result["moments"][ended - 1][i] for result in results) / 2
            torch.testing.assert_close(left, mean / expected[-1][i // 2] ** 2, rtol=1e-4,
                                       atol=1e-12)
        self.assertTrue(equal(first["parameters"], results[1]["parameters"]))


class Uneven(unittest.TestCase):
    @staticmethod
    def join():
        model = linear()
        wrapped, optimizer = deft.torch.wrap(model, SeenAdam(model.parameters(), lr=RATE),
                                             plan=plan_of(model, "averaged", 3, 1))
        with wrapped.join():
            for step in range(5 + 6 * ranks.rank_of()):
                iterate(wrapped, optimizer, step)
        for step in range(4):
            iterate(wrapped, optimizer, step)
        deft.torch.drain(wrapped)
        return parameters(model)

    def test_ranks_without_input_take_part(self):
        results = ranks.run(3, self.join)
        self.assertTrue(equal(results[0], results[1]) and equal(results[0], results[2]))


if __name__ == "__main__":
    ranks.main()
