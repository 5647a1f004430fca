"""Previews move parameters as the stock optimizer's next step would, and leave its state alone."""
import copy
import itertools
import unittest

import torch

import ranks
from deft.torch import lr_rule, preview

SGD = [dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=decay, nesterov=nesterov,
            maximize=maximize)
       for lr, momentum, dampening, decay, nesterov, maximize in itertools.product(
           (0.1,), (0.0, 0.9), (0.0, 0.3), (0.0, 0.01), (False, True), (False, True))
       if not (nesterov and (momentum == 0 or dampening != 0))]
ADAM = [dict(lr=0.01, betas=betas, eps=eps, weight_decay=decay, amsgrad=amsgrad, maximize=maximize)
        for betas, eps, decay, amsgrad, maximize in itertools.product(
            ((0.9, 0.999), (0.5, 0.9)), (1e-8, 1e-3), (0.0, 0.1), (False, True), (False, True))]


def parameters(dtype):
    generator = torch.Generator().manual_seed(7)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype))
            for shape in ((3, 4), (5,), (2, 3, 2))]


class Previews(unittest.TestCase):
    def check(self, cls, options, n_before, factor=1.0):
        ours = parameters(torch.float64)
        groups = [{"params": ours[:1]}, {"params": ours[1:], "lr": options["lr"] * 0.3}]
        optimizer = cls(groups, **options)
        generator = torch.Generator().manual_seed(n_before)

        def gradients():
            return [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in ours]

        for _ in range(n_before):
            for parameter, gradient in zip(ours, gradients()):
                parameter.grad = gradient
            optimizer.step()
        twins, twin = copy.deepcopy((ours, optimizer))
        before = copy.deepcopy(optimizer.state_dict())
        own = gradients()
        own_before = [gradient.clone() for gradient in own]
        with torch.no_grad():
            preview.find(optimizer)(optimizer, dict(zip(ours, own)), factor)
        for parameter, gradient in zip(twins, own):
            parameter.grad = gradient * factor
        twin.step()
        for mine, expected, gradient, kept in zip(ours, twins, own, own_before):
            torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-12)
            self.assertTrue(torch.equal(gradient, kept))
        after = optimizer.state_dict()
        self.assertEqual(before["param_groups"], after["param_groups"])
        for key, state in before["state"].items():
            for name, value in state.items():
                self.assertTrue(value is None and after["state"][key][name] is None
                                or bool((torch.as_tensor(value)
                                         == torch.as_tensor(after["state"][key][name])).all()))

    def test_sgd(self):
        for options, n in itertools.product(SGD, (0, 1, 3)):
            with self.subTest(options=options, n=n):
                self.check(torch.optim.SGD, options, n)

    def test_adam(self):
        for options, n in itertools.product(ADAM, (0, 1, 4)):
            with self.subTest(options=options, n=n):
                self.check(torch.optim.Adam, options, n)

    def test_adamw(self):
        for options, n in itertools.product(ADAM, (0, 1, 4)):
            with self.subTest(options=options, n=n):
                self.check(torch.optim.AdamW, options, n)

    def test_follows_clipping(self):
        for cls, options in ((torch.optim.SGD, SGD[-1]), (torch.optim.Adam, ADAM[0])):
            self.check(cls, options, 2, factor=0.25)

    def test_parameters_that_do_not_take_part_stay(self):
        ours = parameters(torch.float32)
        optimizer = torch.optim.AdamW(ours, lr=0.1)
        before = [p.detach().clone() for p in ours]
        with torch.no_grad():
            preview.find(optimizer)(optimizer, {ours[1]: torch.ones(5)}, 1.0)
        self.assertTrue(torch.equal(ours[0], before[0]) and torch.equal(ours[2], before[2]))
        self.assertFalse(torch.equal(ours[1], before[1]))

    def test_only_exact_classes_have_one(self):
        class Own(torch.optim.SGD):
            pass
        self.assertIsNone(preview.find(Own(parameters(torch.float32), lr=0.1)))
        self.assertIsNone(preview.find(torch.optim.RMSprop(parameters(torch.float32))))


class LearningRate(unittest.TestCase):
    def test_decay_per_sample_stays(self):
        for rule, factor in (("mean", 1), ("sum", 9), ("sqrt", 3)):
            optimizer = torch.optim.AdamW(parameters(torch.float32), lr=0.01, weight_decay=0.1)
            with lr_rule.merged(optimizer, rule, 9):
                group = optimizer.param_groups[0]
                self.assertAlmostEqual(group["lr"], 0.01 * factor)
                self.assertAlmostEqual(group["lr"] * group["weight_decay"], 9 * 0.01 * 0.1)
            self.assertEqual(optimizer.param_groups[0]["lr"], 0.01)
            self.assertEqual(optimizer.param_groups[0]["weight_decay"], 0.1)

    def test_one_iteration_changes_nothing(self):
        optimizer = torch.optim.SGD(parameters(torch.float32), lr=0.01, weight_decay=0.1)
        with lr_rule.merged(optimizer, "sum", 1):
            self.assertEqual(optimizer.param_groups[0]["lr"], 0.01)


if __name__ == "__main__":
    ranks.main()
