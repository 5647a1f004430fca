"""The learning rate of the Adam family under the rule averaged. Ours.

Adam divides by the root of its second moment v. Under exact v sees the mean gradient of n ranks,
whose expected square is s + N / n, element by element: s is the square of the true gradient, N the
variance of one rank's. Under averaged each rank's v sees its own gradients, s + N. The first
moments do not differ so: their mean over the ranks is exact's. The mean step is thus too short by
the root of v_own / v_exact, which is 1 without noise and sqrt(n) where there is nothing else.

So the rate of each own step is multiplied by

    f = sqrt(1 + (rho - 1) * y)        1 <= f <= sqrt(n)

    rho = clamp(<|u_r|^2> / |<u_r>|^2, 1, n)    u_r = g_r / sqrt(v_r), <> the mean over the ranks
    y = (1 - beta2^s) / (1 - beta2^t)           the share of own gradients in v

after s own steps of t in all: v comes from exact and turns into the rank's own over 1 / (1 - beta2)
steps. u and not g, since then each element counts as it does in the step: the ratio of |g|^2 alone
is that of the few largest gradients, which have the least noise (measured: docs/update-rules.md).
Decoupled weight decay is divided by f, so that decay per sample stays.

A drain, or a switch to another rule, leaves v divided by f^2: as exact would have it, so that the
rate outside this rule is the user's, and nothing has to be remembered with a checkpoint.

For rho every 8th own step leaves a sample of at most 1024 elements of u, other ones each time, the
same ones on all ranks. Every 64 steps one small deft_average (32 kB) makes a ratio of sums of them,
which is averaged with what was known. At first both happen after the steps 1, 2, 4, .. 32. All
ranks thus have the same f, bit for bit.
"""
import contextlib
import math
from typing import Iterator, List, Optional, Tuple

import torch

from deft import native
from deft.torch import lr_rule

RULES = ("noise", "none")
HOST = torch.device("cpu")

# Sampling costs no pass over the gradients, an average waits for a link that may be busy. One
# sample tells as much of rho as one batch does, about 10 %; eight of them, twice, 3 %.
SAMPLE_ELEMENTS = 1024
SAMPLE_EVERY = 8
AVERAGE_EVERY = 64
NEWEST = 0.5  # the least weight of the newest ratio


def _is_early(n_own: int) -> bool:
    return n_own < AVERAGE_EVERY and n_own & (n_own - 1) == 0


def is_sampled(n_own: int) -> bool:
    return n_own % SAMPLE_EVERY == 0 or _is_early(n_own)


def is_averaged(n_own: int) -> bool:
    return n_own % AVERAGE_EVERY == 0 or _is_early(n_own)


def _zeros(n: int, device: torch.device = HOST) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.float32, device=device)  # whatever the program's defaults are


class Noise:
    """Follows the boundaries of one session; all ranks call the same methods at the same ones."""

    def __init__(self, runtime: native.Runtime, optimizer: torch.optim.Optimizer, world: int,
                 rule: str) -> None:
        self._runtime = runtime
        self._optimizer = optimizer
        self._world = world
        self.is_on = (rule == "noise" and world > 1
                      and isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)))
        self._n_own = 0  # s, by boundaries, since a rank may leave a step out
        self._n_before = 0  # t - s
        self._n_averaged = self._n_sampled = 0
        self._ratio = 1.0  # rho
        self._fresh: Optional[torch.Tensor] = None  # the sample of the step that was made
        self._samples: List[torch.Tensor] = []  # since the last average
        self._is_whole = True  # none of them is missing

    def factors(self, n_own: int) -> List[float]:
        """f of each group after `n_own` own steps."""
        shares = [(1 - beta2 ** n_own) / (1 - beta2 ** (n_own + self._n_before))
                  if n_own > 0 and 0 < beta2 < 1 else float(n_own > 0)
                  for beta2 in (float(group["betas"][1])
                                for group in self._optimizer.param_groups)]
        return [math.sqrt(1 + (self._ratio - 1) * share) for share in shares]

    def begin(self) -> None:
        """What v holds now is exact's: at the start, after a drain, at a switch to averaged."""
        self._n_own = self._n_averaged = self._n_sampled = 0
        self._n_before = max((int(state.get("step", 0))
                              for state in self._optimizer.state.values()), default=0)
        self._ratio, self._fresh, self._samples, self._is_whole = 1.0, None, [], True

    @contextlib.contextmanager
    def own_step(self) -> Iterator[None]:
        """Around a step of the optimizer with this rank's own gradients."""
        if not self.is_on:
            yield
            return
        factors = self.factors(self._n_own + 1)
        with lr_rule.scaled(self._optimizer, factors, [1 / factor for factor in factors]):
            yield
        if is_sampled(self._n_own + 1):
            self._fresh = self._take_sample()

    def boundary(self, stays: bool) -> None:
        """Collective. Behind an iteration under averaged; `stays`: the next one is too. Nothing is
        measured when a rank has made no step: its gradient was not finite, or it has no more
        input."""
        self._n_own += 1
        if not self.is_on or not stays:
            return
        if is_sampled(self._n_own):
            sample, self._fresh = self._fresh, None
            self._is_whole = self._is_whole and sample is not None
            self._samples.append(sample if sample is not None else
                                 _zeros(sum(len(part) for _, part in self._sampled())))
            self._n_sampled += 1
        if is_averaged(self._n_own):
            # From a device only here, where an average waits anyway.
            self._average(torch.cat([sample.to(HOST) for sample in self._samples]),
                          self._is_whole)
            self._samples, self._is_whole = [], True

    def _average(self, own: torch.Tensor, is_whole: bool) -> None:
        """Collective. `own`: [elements] of this rank's u."""
        shared = torch.cat([own, own.square().sum().view(1), _zeros(1).fill_(float(is_whole))])
        self._runtime.average(shared.data_ptr(), shared.numel(), native.F32)
        mean, own_mean = float(shared[:-2].square().sum()), float(shared[-2])
        if float(shared[-1]) < 1 - 0.5 / self._world or own_mean <= 0:
            return
        self._n_averaged += 1
        inverse, newest = 1 / self._ratio, max(1 / self._n_averaged, NEWEST)
        inverse += newest * (min(max(mean / own_mean, 1 / self._world), 1.0) - inverse)
        self._ratio = 1 / inverse

    def leave(self) -> None:
        """The states of all ranks have become their mean: v becomes what exact would have."""
        if not self.is_on:
            return
        for group, factor in zip(self._optimizer.param_groups, self.factors(self._n_own)):
            for parameter in group["params"]:
                state = self._optimizer.state.get(parameter, {})
                for key in ("exp_avg_sq", "max_exp_avg_sq"):
                    if key in state:
                        state[key].mul_(factor ** -2)
        self.begin()

    def _sampled(self) -> Iterator[Tuple[torch.Tensor, range]]:
        """The parameters, and which elements of them take part this time: every stride-th of all,
        the same ones on all ranks."""
        parameters = [p for group in self._optimizer.param_groups for p in group["params"]
                      if p.requires_grad]
        stride = -(-sum(p.numel() for p in parameters) // SAMPLE_ELEMENTS)
        at = 7919 * self._n_sampled % stride  # a prime: another phase each time
        for parameter in parameters:
            yield parameter, range(at, parameter.numel(), stride)
            at = (at - parameter.numel()) % stride

    def _take_sample(self) -> torch.Tensor:
        """u of the elements that take part this time, f32, where the parameters are."""
        parts = []
        for parameter, part in self._sampled():
            state = self._optimizer.state.get(parameter, {})
            if parameter.grad is None or "exp_avg_sq" not in state:
                parts.append(_zeros(len(part), parameter.device))
                continue
            at = slice(part.start, part.stop, part.step)
            root = state["exp_avg_sq"].reshape(-1)[at].float().sqrt()
            gradient = parameter.grad.detach().reshape(-1)[at].float()
            parts.append(torch.where(root > 0, gradient / root, torch.zeros_like(root)))
        return torch.cat(parts)
