"""What a merged update of the rule delayed does to learning rate and weight decay.

The runtime hands out the mean gradient of k iterations, once per k iterations. ``mean`` steps with
it as it is; ``sum`` keeps the step per sample (learning rate times k, the linear rule of SGD);
``sqrt`` multiplies by sqrt(k), as advised for the Adam family. Decoupled weight decay (AdamW)
decays by lr * weight_decay per step, so it is rescaled to keep the decay per sample.
"""
import contextlib
import math
from typing import Iterator

import torch

RULES = ("mean", "sum", "sqrt")


@contextlib.contextmanager
def merged(optimizer: torch.optim.Optimizer, rule: str, merge: int) -> Iterator[None]:
    """Inside, the groups have the values for one update of `merge` iterations."""
    if merge <= 1:
        yield
        return
    factor = {"mean": 1.0, "sum": float(merge), "sqrt": math.sqrt(merge)}[rule]
    decoupled = isinstance(optimizer, torch.optim.AdamW)
    before = [(group["lr"], group.get("weight_decay")) for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor
        if decoupled:
            group["weight_decay"] = group["weight_decay"] * merge / factor
    try:
        yield
    finally:
        for group, (rate, decay) in zip(optimizer.param_groups, before):
            group["lr"] = rate
            if decoupled:
                group["weight_decay"] = decay
