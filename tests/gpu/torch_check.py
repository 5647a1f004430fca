"""A wrapped model on a CUDA device against the same model without a wrapper: one rank, so that the
mean is the gradient itself. Prints one JSON line."""
import json
import sys

import torch

import deft.torch


def train(wrapped: bool, dtype: torch.dtype, scaler: bool) -> "list[torch.Tensor]":
    """The parameters after a few steps on a side stream."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 257), torch.nn.ReLU(),
                                torch.nn.Linear(257, 8)).to("cuda", dtype)
    kept = list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if wrapped:
        model, optimizer = deft.torch.wrap(model, optimizer, links="nccl")
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
    torch.cuda.synchronize()
    if wrapped:
        deft.torch.close(model)
    return kept


def main() -> int:
    """1 when some case differs."""
    worst = 0.0
    for dtype, scaler in ((torch.float32, False), (torch.bfloat16, False), (torch.float32, True)):
        for own, reference in zip(train(True, dtype, scaler), train(False, dtype, scaler)):
            worst = max(worst, float((own.float() - reference.float()).abs().max()))
    print(json.dumps({"check": "torch", "passed": worst == 0.0, "largest_difference": worst,
                      "torch": torch.__version__}))
    return int(worst != 0.0)


if __name__ == "__main__":
    sys.exit(main())
