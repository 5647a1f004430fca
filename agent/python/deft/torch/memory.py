"""Tensors as flat memory, and flat memory as tensors."""
import ctypes
import zlib
from typing import Dict, Tuple

import torch

from deft import native
from deft.torch import devices

DTYPES = {torch.float32: native.F32, torch.float64: native.F64, torch.float16: native.F16,
          torch.bfloat16: native.BF16}


def is_dense(tensor: torch.Tensor) -> bool:
    """True when the elements fill their memory without gap or overlap, in whatever order: then
    tensors of equal strides may be added element by element as flat memory."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size())):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def laid_out_like(gradient: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """The gradient itself when its memory is in the order of the parameter's, else a copy."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter, memory_format=torch.preserve_format).copy_(gradient)


def checksum(tensor: torch.Tensor) -> int:
    """Of the values, in host memory: kernels that write running statistics do not count as
    operations in place, so a tensor's version would not tell."""
    flat = tensor.detach().cpu().contiguous()
    n_bytes = flat.numel() * flat.element_size()
    return zlib.crc32((ctypes.c_ubyte * n_bytes).from_address(flat.data_ptr())) if n_bytes else 0


_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    """[] int64, where the tensor is: the sum of its memory in words of 8 bytes. One pass
    that waits for no device. Unlike a sum of values it is exact, so the order does not matter.

    Args:
        tensor: is_dense().
    """
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    words = _WORDS[flat.element_size()]
    width = 8 // flat.element_size()
    if flat.storage_offset() % width != 0:
        return flat.view(words).sum()  # torch has no wider view of it
    n_whole = flat.numel() // width * width
    return flat[:n_whole].view(torch.int64).sum() + flat[n_whole:].view(words).sum()


class Aliases:
    """Tensors over memory of the runtime, made once per tensor and address."""

    def __init__(self) -> None:
        self._known: Dict[Tuple[int, int], torch.Tensor] = {}

    def of(self, number: int, address: int, like: torch.Tensor) -> torch.Tensor:
        """[like.shape], with like's strides, over the memory at `address`."""
        key = (number, address)
        alias = self._known.get(key)
        if alias is None:
            alias = devices.view(address, like).as_strided(like.size(), like.stride())
            self._known[key] = alias
        return alias
