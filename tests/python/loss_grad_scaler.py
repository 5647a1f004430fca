"""A scaler of losses; its module is named as torch's is, which is how wrap() knows one."""
import torch


class Scaler:
    """GradScaler's protocol on the CPU, where torch 1.13 has none."""

    def __init__(self, scale):
        self.scale = scale

    def step(self, optimizer):
        bad = False
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(1 / self.scale)
                    bad = bad or not bool(torch.isfinite(parameter.grad).all())
        assert any(p.grad is not None for g in optimizer.param_groups for p in g["params"])
        if not bad:
            optimizer.step()
        self.scale *= 0.5 if bad else 1.0
        return bad
