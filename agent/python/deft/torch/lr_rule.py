"""What a merged update of the rule delayed does to learning rate and weight decay.

The runtime hands out the mean gradient of k iterations, once per k iterations. ``mean`` steps with
it as it is; ``sum`` keeps the step per sample (learning rate times k, the linear rule of SGD);
``sqrt`` multiplies by sqrt(k), as advised for the Adam family. Decoupled weight decay (AdamW)
decays by lr * weight_decay per step, so it is rescaled to keep the decay per sample.
"""
import contextlib
import math
from typing import Iterator, List

import torch

RULES = ("mean", "sum", "sqrt")


@contextlib.contextmanager
def scaled(optimizer: torch.optim.Optimizer, rates: List[float],
           decays: List[float]) -> Iterator[None]:
    """Inside, the learning rate of each group is multiplied by its entry of `rates`, and weight
    decay by that of `decays` where it is decoupled. Afterwards they are what they were."""
    groups = list(optimizer.param_groups)
    before = [(group["lr"], group.get("weight_decay")) for group in groups]
    for group, rate, decay in zip(groups, rates, decays):
        group["lr"] = group["lr"] * rate
        if isinstance(optimizer, torch.optim.AdamW) or group.get("decoupled_weight_decay"):
            group["weight_decay"] = group["weight_decay"] * decay
    try:
        yield
    finally:
        for group, (rate, decay) in zip(groups, before):
            group["lr"] = rate
            if decay is not None:
                group["weight_decay"] = decay


@contextlib.contextmanager
def merged(optimizer: torch.optim.Optimizer, rule: str, merge: int) -> Iterator[None]:
    """Inside, the groups have the values for one update of `merge` iterations."""
    if merge <= 1:
        yield
        return
    factor = {"mean": 1.0, "sum": float(merge), "sqrt": math.sqrt(merge)}[rule]
    n_groups = len(optimizer.param_groups)
    with scaled(optimizer, [factor] * n_groups, [merge / factor] * n_groups):
        yield
