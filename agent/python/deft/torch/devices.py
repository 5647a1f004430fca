"""Where a model's parameters are, and on which stream its work goes on."""
import ctypes
from typing import Any, Dict, List, Tuple

import torch

from deft import errors, native

_SHARDED = ("FullyShardedDataParallel", "FSDPModule")  # of torch 1.11 to 2: by name, if at all
_TYPES: Dict[torch.dtype, str] = {torch.float32: "<f4", torch.float64: "<f8", torch.float16: "<f2",
                                  torch.bfloat16: "<i2"}  # there is no name for bfloat16


def refuse_sharded(model: torch.nn.Module) -> None:
    """Raises WrongUse for a model whose parameters are spread over the ranks."""
    for name, module in model.named_modules():
        if any(base.__name__ in _SHARDED for base in type(module).__mro__):
            raise errors.WrongUse(f"module {name or type(module).__name__} is sharded (FSDP): its "
                                  "ranks hold different parameters, and wrap() needs the same on "
                                  "all")
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "to_local"):  # the memory of a part, the size of the whole
            raise errors.WrongUse(f"parameter {name} is sharded (DTensor), and wrap() needs the "
                                  "same parameters on all ranks")


def device_of(named: List[Tuple[str, torch.nn.Parameter]]) -> torch.device:
    """The one device of all parameters. Raises WrongUse when there are several, or when it is
    neither the host nor a CUDA device."""
    first_name, first = named[0]
    for name, parameter in named:
        if parameter.device != first.device:
            raise errors.WrongUse(f"parameter {name} is on {parameter.device} and {first_name} on "
                                  f"{first.device}; wrap() needs all on one device")
    if first.device.type not in ("cpu", "cuda"):
        raise errors.WrongUse(f"parameter {first_name} is on {first.device}; expected the host or "
                              "a CUDA device")
    return first.device


def refuse_other(name: str, now: torch.Tensor, then: torch.Tensor) -> None:
    """Raises WrongUse when a parameter is no longer what the runtime was told: it would read the
    gradient's memory as of another type or size."""
    if (now.dtype, now.size(), now.device) != (then.dtype, then.size(), then.device):
        raise errors.WrongUse(
            f"parameter {name} was {then.dtype} {tuple(then.size())} on {then.device} at wrap() "
            f"and is {now.dtype} {tuple(now.size())} on {now.device} (model.to(...), "
            ".data = ...); do that before wrap()")


def option_of(device: torch.device) -> bytes:
    """As deft_options.device has it."""
    if device.type == "cpu":
        return b"cpu"
    number = device.index if device.index is not None else torch.cuda.current_device()
    return f"cuda:{number}".encode()


def follow(runtime: native.Runtime, device: torch.device) -> None:
    """The runtime goes on where this thread does. Raises WrongUse inside a CUDA graph."""
    if device.type == "cpu":
        return
    if torch.cuda.is_current_stream_capturing():
        raise errors.WrongUse("this iteration is being captured into a CUDA graph, which would "
                              "replay it without the other ranks; run it without a graph")
    runtime.stream(torch.cuda.current_stream(device).cuda_stream)


def view(address: int, like: torch.Tensor) -> torch.Tensor:
    """A flat tensor of like's type and size over the memory at `address` of its device."""
    n = like.numel()
    if like.device.type == "cpu":
        memory = (ctypes.c_ubyte * (n * like.element_size())).from_address(address)
        return torch.frombuffer(memory, dtype=like.dtype)
    flat = torch.as_tensor(_Memory(address, n, _TYPES[like.dtype]), device=like.device)
    return flat.view(like.dtype) if like.dtype is torch.bfloat16 else flat


class _Memory:
    """Device memory of the runtime, for torch.as_tensor."""

    def __init__(self, address: int, n: int, kind: str) -> None:
        self.__cuda_array_interface__: Dict[str, Any] = {
            "shape": (n,), "typestr": kind, "data": (address, False), "version": 2}
