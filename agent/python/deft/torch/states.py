"""The optimizer's state, beside the parameters: registered with the runtime, alike after drains."""
from typing import Dict, List, Tuple

import torch

from deft import native
from deft.torch.memory import DTYPES, is_dense
from deft.torch.slot import Slot


class States:
    """What averaging must keep alike on all ranks. Registered tensors stay alive here, since the
    runtime writes to them."""

    def __init__(self, runtime: native.Runtime, optimizer: torch.optim.Optimizer,
                 slots: List[Slot]) -> None:
        self._runtime = runtime
        self._optimizer = optimizer
        self._slots = slots
        self._registered: Dict[Tuple[torch.Tensor, str], torch.Tensor] = {}

    def register(self) -> None:
        """The optimizer's state joins the averages of a drain, once it exists: in the order of the
        parameters and names, which is the same on all ranks."""
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                for key, value in sorted(self._optimizer.state.get(parameter, {}).items(),
                                         key=lambda item: str(item[0])):
                    place = (parameter, key)
                    if (key == "step" or place in self._registered or not torch.is_tensor(value)
                            or value.dtype not in DTYPES or value.numel() == 0
                            or value.device != parameter.device or not is_dense(value)):
                        continue
                    self._runtime.state_add(value.data_ptr(), value.numel(), DTYPES[value.dtype])
                    self._registered[place] = value

    def rebind(self) -> None:
        """After load_state_dict: registered memory stays, only its content is new."""
        for (parameter, key), registered in self._registered.items():
            loaded = self._optimizer.state.get(parameter, {}).get(key)
            if loaded is None:  # not there yet when it was saved
                registered.zero_()
            elif loaded is not registered:
                registered.copy_(loaded)
            self._optimizer.state[parameter][key] = registered
        self.register()

    def are_in_place(self) -> bool:
        """An optimizer that puts new tensors in place of its state cannot be averaged."""
        return all(self._optimizer.state.get(parameter, {}).get(key) is registered
                   for (parameter, key), registered in self._registered.items())

    def align_steps(self) -> None:
        """Collective. Counts of steps differ where a rank left one out; they become their rounded
        mean, since bias corrections follow them."""
        counts = torch.zeros(2 * len(self._slots), dtype=torch.float64, device="cpu")
        for i, slot in enumerate(self._slots):
            step = self._optimizer.state.get(slot.parameter, {}).get("step")
            if step is not None:
                counts[2 * i], counts[2 * i + 1] = float(step), 1.0
        self._runtime.average(counts.data_ptr(), counts.numel(), native.F64)
        for i, slot in enumerate(self._slots):
            state = self._optimizer.state.get(slot.parameter, {})
            if "step" in state and float(counts[2 * i + 1]) > 0:
                agreed = round(float(counts[2 * i] / counts[2 * i + 1]))
                if torch.is_tensor(state["step"]):
                    state["step"].fill_(agreed)
                else:
                    state["step"] = agreed
