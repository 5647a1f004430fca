"""A wrapped model on a CUDA device against the same model without a wrapper: one rank, so that the
mean is the gradient itself. Prints one JSON line."""
import json
import sys

import torch

import deft.torch
from deft.plan import Plan


def averaged_plan(model: torch.nn.Module) -> bytes:
    return Plan.uniform("averaged", [sum(p.numel() for p in model.parameters())], 2, 1).encode()


def train(wrapped: bool, dtype: torch.dtype, scaler: bool,
          averaged: bool = False) -> "list[torch.Tensor]":
    """The parameters after a few steps on a side stream."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 257), torch.nn.ReLU(),
                                torch.nn.Linear(257, 8)).to("cuda", dtype)
    kept = list(model.parameters())
    optimizer = (torch.optim.AdamW(model.parameters(), lr=0.01) if averaged else
                 torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    if wrapped:
        model, optimizer = deft.torch.wrap(model, optimizer, links="nccl",
                                           plan=averaged_plan(model) if averaged else None)
    scale = torch.cuda.amp.GradScaler(enabled=scaler, init_scale=64.0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(10):
            inputs = torch.randn(32, 64, device="cuda", dtype=dtype)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", enabled=scaler):
                loss = model(inputs).float().square().mean()
            scale.scale(loss).backward()
            scale.step(optimizer)
            scale.update()
        if wrapped:
            deft.torch.drain(optimizer)
    torch.cuda.synchronize()
    if wrapped:
        deft.torch.close(model)
    return kept


def difference(own: "list[torch.Tensor]", reference: "list[torch.Tensor]") -> float:
    return max(float((a.float() - b.float()).abs().max()) for a, b in zip(own, reference))


def main() -> int:
    """1 when some case differs. Under averaged one rank's changes are their own mean, but they are
    added to the anchor and taken from it: roundings remain."""
    worst = 0.0
    for dtype, scaler in ((torch.float32, False), (torch.bfloat16, False), (torch.float32, True)):
        worst = max(worst, difference(train(True, dtype, scaler), train(False, dtype, scaler)))
    rounding = difference(train(True, torch.float32, False, True),
                          train(False, torch.float32, False, True))
    passed = worst == 0.0 and rounding < 1e-5
    print(json.dumps({"check": "torch", "passed": passed, "largest_difference": worst,
                      "largest_difference_averaged": rounding, "torch": torch.__version__}))
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
