"""Previews for the rule lookahead: how far the optimizer would move, without touching its state.

Each preview moves parameters in place by the step that the stock optimizer would take with the
given gradients from its present state. It needs temporary memory for the parameters of one group
at a time: SGD one copy (two with momentum), Adam and AdamW three.
"""
from typing import Callable, Dict, List, Optional, Tuple

import torch

Pairs = Dict[torch.Tensor, torch.Tensor]
Preview = Callable[[torch.optim.Optimizer, Pairs, float], None]


def _of_group(group: dict, pairs: Pairs,
              factor: float) -> Tuple[List[torch.Tensor], List[torch.Tensor]]:
    """The group's parameters that take part, and their scaled gradients as memory of their own."""
    parameters = [p for p in group["params"] if p in pairs]
    sign = -factor if group.get("maximize") else factor
    gradients = torch._foreach_mul([pairs[p] for p in parameters], sign) if parameters else []
    return parameters, list(gradients)


def _sgd(optimizer: torch.optim.Optimizer, pairs: Pairs, factor: float) -> None:
    for group in optimizer.param_groups:
        parameters, steps = _of_group(group, pairs, factor)
        if not parameters:
            continue
        if group["weight_decay"] != 0:
            torch._foreach_add_(steps, parameters, alpha=group["weight_decay"])
        momentum = group["momentum"]
        for parameter, step in zip(parameters, steps):
            velocity = optimizer.state.get(parameter, {}).get("momentum_buffer")
            if momentum == 0 or velocity is None:
                # The first step takes the gradient itself as velocity.
                if momentum != 0 and group["nesterov"]:
                    step.mul_(1 + momentum)
            elif group["nesterov"]:
                # d + momentum * (momentum * v + (1 - dampening) * d); dampening is 0 here
                step.mul_(1 + momentum).add_(velocity, alpha=momentum * momentum)
            else:
                step.mul_(1 - group["dampening"]).add_(velocity, alpha=momentum)
        torch._foreach_add_(parameters, steps, alpha=-float(group["lr"]))


def _adam_group(optimizer: torch.optim.Optimizer, group: dict, parameters: List[torch.Tensor],
                gradients: List[torch.Tensor]) -> None:
    beta1, beta2 = (float(beta) for beta in group["betas"])
    for parameter, gradient in zip(parameters, gradients):
        state = optimizer.state.get(parameter, {})
        count = float(state.get("step", 0)) + 1
        first = gradient * (1 - beta1)
        second = (gradient * gradient).mul_(1 - beta2)
        if "exp_avg" in state:
            first.add_(state["exp_avg"], alpha=beta1)
            second.add_(state["exp_avg_sq"], alpha=beta2)
        if group["amsgrad"] and "max_exp_avg_sq" in state:
            second = torch.maximum(second, state["max_exp_avg_sq"])
        second.sqrt_().div_((1 - beta2 ** count) ** 0.5).add_(group["eps"])
        parameter.addcdiv_(first, second, value=-float(group["lr"]) / (1 - beta1 ** count))


def _adam(optimizer: torch.optim.Optimizer, pairs: Pairs, factor: float) -> None:
    always_decoupled = isinstance(optimizer, torch.optim.AdamW)
    for group in optimizer.param_groups:
        parameters, gradients = _of_group(group, pairs, factor)
        if not parameters:
            continue
        if always_decoupled or group.get("decoupled_weight_decay"):
            torch._foreach_mul_(parameters, 1 - float(group["lr"]) * group["weight_decay"])
        elif group["weight_decay"] != 0:
            torch._foreach_add_(gradients, parameters, alpha=group["weight_decay"])
        _adam_group(optimizer, group, parameters, gradients)


def find(optimizer: torch.optim.Optimizer) -> Optional[Preview]:
    """The preview for exactly this class: a subclass may step otherwise. None: there is none."""
    return {torch.optim.SGD: _sgd, torch.optim.Adam: _adam,
            torch.optim.AdamW: _adam}.get(type(optimizer))


def kind(optimizer: torch.optim.Optimizer) -> str:
    """The class that convergence estimates go by."""
    for name, classes in (("adamw", (torch.optim.AdamW,)), ("adam", (torch.optim.Adam,)),
                          ("sgd", (torch.optim.SGD,))):
        if isinstance(optimizer, classes):
            return name
    return "unknown"
