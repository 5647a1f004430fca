"""What the program itself writes to parameters, beside the steps of the wrapped optimizer.

When an average lands, lookahead takes parameters back to the anchor, and with them what was written
since the last boundary, such as clipped weights. The other rules keep it. So a loop that writes is
found out while it trains exactly, and gets plans without lookahead. What is loaded is announced.
"""
import functools
import itertools
import sys
from typing import Any, Callable, List, Optional

import torch

from deft import native
from deft.torch.memory import fingerprint
from deft.torch.slot import Slot

CONTENT_ITERATIONS = 8  # whose contents are compared: what is written through .data has no version
STEPLESS_ITERATIONS = 4  # that change parameters: then another optimizer steps them
MATTER = native.CAN_PREVIEW | native.CAN_AVERAGE


class Writes:
    """Looks at the parameters of one session at the ends of its iterations and before the next
    ones: some 0.1 us for each, and a pass over all of them in the first few iterations."""

    def __init__(self, runtime: native.Runtime, slots: List[Slot],
                 warn: Callable[[str, str], None], tells_of_flight: bool) -> None:
        self._runtime = runtime
        self._slots = slots
        self._warn = warn
        self._tells_of_flight = tells_of_flight
        self._versions: Optional[List[int]] = None  # when the last iteration was done
        self._contents: Optional[torch.Tensor] = None  # [slots] then, int64, on their device
        self._n_marks = 0
        self._n_stepless = 0
        self.n_in_flight = 0  # iterations since the last drain, under a rule other than exact

    def iteration_done(self, rule: str, next_rule: str) -> None:
        """`rule` ran; a switch to another one has drained."""
        self.n_in_flight = self.n_in_flight + 1 if rule == next_rule != "exact" else 0
        if self._runtime.capabilities & MATTER:
            self._versions = self._now()
            self._n_marks += 1
            self._contents = self._read() if self._n_marks <= CONTENT_ITERATIONS else None

    def are_welcome(self) -> None:
        """Nothing is in flight, or it was the runtime that wrote: what was written up to the next
        look stays under every rule."""
        self._versions = self._contents = None

    def drained(self) -> None:
        """Nothing is in flight any more."""
        self.n_in_flight = 0
        self.are_welcome()

    def look(self, rule: str) -> None:
        """Before an iteration, or before a drain. `rule` runs."""
        if not self._runtime.capabilities & MATTER:
            return
        now, name = self._now(), None
        if self._versions is not None and self._runtime.capabilities & native.CAN_PREVIEW:
            name = self._first_written(now)
        self._versions, self._contents = now, None
        if name is not None:
            self._tell(name, rule)

    def look_before_skip(self, rule: str, n_steps: int) -> None:
        """The step is left out, after `n_steps` of the wrapped optimizer. The runtime may have
        written since the last look, but no version tells of that."""
        if self._versions is None or not self._runtime.capabilities & MATTER:
            return
        name = self._first_newer(self._now())
        if name is not None and n_steps > 0:
            self._tell(name, rule)
        elif name is not None:
            self._n_stepless += 1
        if self._n_stepless == STEPLESS_ITERATIONS:
            self._runtime.capabilities_drop(MATTER)
            self._warn("stepless", "parameters change, but step() of the wrapped optimizer is "
                       "never called (does another optimizer step them?): lookahead and averaged "
                       "are not used")

    def tell_of_flight(self, rule: str) -> None:
        """The session is closed. After an exception there are worse things to read about."""
        failed = (self._runtime.is_broken or sys.exc_info()[0] is not None
                  or getattr(sys, "last_type", None) is not None)
        if self._tells_of_flight and self.n_in_flight > 0 and not failed:
            self._warn("flight", f"closed {self.n_in_flight} iterations of the rule {rule} after "
                       "the last drain: their updates are not complete and the ranks may have "
                       "different parameters; call deft.torch.drain(model) on all ranks before")

    def _now(self) -> List[int]:
        return [slot.parameter._version for slot in self._slots]

    def _tell(self, name: str, rule: str) -> None:
        if not self._runtime.capabilities & native.CAN_PREVIEW:
            return
        self._runtime.capabilities_drop(native.CAN_PREVIEW)
        if rule == "lookahead":
            self._warn("written", f"parameter {name} was written to between step and forward while "
                       "lookahead runs, so what was written may be lost; call "
                       "deft.torch.drain(model) on all ranks before")
        else:
            self._warn("written", "parameters are written to between step and forward (the first "
                       f"is {name}): lookahead is not used")

    def _read(self) -> torch.Tensor:
        # Memory as it was given to the runtime: a parameter that was moved is another matter.
        return torch.stack([fingerprint(slot.memory) for slot in self._slots])

    def _first_written(self, versions: List[int]) -> Optional[str]:
        """One that was put back as it was does not count where contents tell."""
        if self._contents is None:
            return self._first_newer(versions)
        changed = (self._read() != self._contents).tolist()
        return next((slot.name for slot, is_new in zip(self._slots, changed) if is_new), None)

    def _first_newer(self, versions: List[int]) -> Optional[str]:
        if versions == self._versions:
            return None
        return next((slot.name for slot, new, old in zip(self._slots, versions,
                                                         self._versions or versions)
                     if new != old), None)


class LoadHook:
    """Runs `call` before a module's state is loaded. Copies of the module, also through pickle,
    which may go where this package is not, get in its place a call that does nothing."""
    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __call__(self, *_: Any) -> None:
        self._call()

    def __reduce__(self) -> Any:
        return functools.partial, (itertools.chain,)  # lazy: it does not even look at what it gets


def before_load(module: torch.nn.Module, call: Callable[[], None]) -> Any:
    """`call` runs when load_state_dict comes to `module`. Returns the hook's handle."""
    register = getattr(module, "register_load_state_dict_pre_hook",  # torch 2.5
                       module._register_load_state_dict_pre_hook)
    return register(LoadHook(call))
