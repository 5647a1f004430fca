"""A model's buffers: running statistics are averaged, masks and tables are left alone."""
from typing import Callable, Dict, List

import torch

from deft import native
from deft.torch.memory import DTYPES, checksum


class Buffers:
    """Of the model as it is now: ``list`` is called each time, since modules may replace them."""

    def __init__(self, runtime: native.Runtime) -> None:
        self._runtime = runtime
        self.list: Callable[[], List[torch.Tensor]] = list
        self._seen: Dict[torch.Tensor, int] = {}  # checksums, when they were last alike

    def average(self) -> None:
        """Collective. Floating-point buffers that forward has changed on some rank (running
        statistics) become their mean; masks, tables and what is not finite stay as they are."""
        buffers = [b for b in self.list() if b.dtype in DTYPES and b.numel() > 0]
        if not buffers:
            return
        told = torch.tensor([float(self._seen.get(b) != checksum(b)) for b in buffers]
                            + [float(not bool(torch.isfinite(b).all())) for b in buffers])
        self._runtime.average(told.data_ptr(), told.numel(), native.F32)
        changed, broken = told.view(2, -1).tolist()
        chosen = [b for b, c, n in zip(buffers, changed, broken) if c > 0 and n == 0]
        for dtype in DTYPES:
            same = [buffer for buffer in chosen if buffer.dtype is dtype]
            if same:
                flat = torch.cat([buffer.detach().reshape(-1) for buffer in same]).cpu()
                self._runtime.average(flat.data_ptr(), flat.numel(), DTYPES[dtype])
                self._spread(flat, same)
        self.remember()

    def remember(self) -> None:
        """From here on a change of a buffer counts."""
        self._seen = {b: checksum(b) for b in self.list() if b.dtype in DTYPES}

    @staticmethod
    def _spread(flat: torch.Tensor, into: List[torch.Tensor]) -> None:
        at = 0
        with torch.no_grad():
            for buffer in into:
                buffer.copy_(flat[at:at + buffer.numel()].view_as(buffer))
                at += buffer.numel()
