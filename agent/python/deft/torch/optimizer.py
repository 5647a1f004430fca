"""The optimizer's side: the user's own object, whose step() completes the boundary."""
import sys
from typing import Any, Callable, Dict, Optional

import torch

from deft import errors
from deft.torch.session import STATE_STEPS, Session

_KEY = "deft"  # in state_dict(): what a later job needs to go on with the same plan


def _called_by_a_scaler() -> bool:
    """torch's GradScaler tells nobody that it is there, but calls step() itself."""
    frame = sys._getframe(2)
    for _ in range(4):
        if frame is None:
            return False
        if frame.f_globals.get("__name__", "").endswith("grad_scaler"):
            return True
        frame = frame.f_back
    return False


class SynchronisedOptimizer:
    """Mixed into the class of a wrapped optimizer, so that schedulers, scalers and isinstance()
    find what they know."""
    _deft_session: Session
    _deft_counted: Optional[Callable[..., Any]]

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Applies what is due at this boundary; returns the closure's result, if there is one.

        A closure runs once, before the update. Raises DeftError when a peer or a link fails."""
        loss = None
        if self._deft_session.n_steps < STATE_STEPS and _called_by_a_scaler():
            self._deft_session.scaler_seen()
        self._opt_called = True  # schedulers of torch 2 ask; the first step may have nothing due
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._deft_session.optimizer_step(self._deft_inner)
        return loss

    def _deft_inner(self) -> None:
        if self._deft_counted is not None:  # a scheduler counts the steps of its optimizer
            self._deft_counted()
        else:
            super().step()  # type: ignore[misc]

    def state_dict(self) -> Dict[str, Any]:
        """That of the optimizer, and the running plan. Call deft.torch.drain() on all ranks before:
        what is in flight is in no state_dict."""
        state = super().state_dict()  # type: ignore[misc]
        plan = bytearray(self._deft_session.runtime.plan_export())
        state[_KEY] = {"plan": torch.tensor(list(plan), dtype=torch.uint8)}
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """On all ranks alike, between iterations. The plan in it is for wrap(plan=...)."""
        plain = {key: value for key, value in state_dict.items() if key != _KEY}
        super().load_state_dict(plain)  # type: ignore[misc]
        self._deft_session.states.rebind()
        self._deft_session.noise.begin()

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """For parameters that wrap() has seen, such as some that another group gave up."""
        given = param_group["params"]
        known = {id(slot.parameter) for slot in self._deft_session.slots}
        frozen = {id(parameter) for parameter in self._deft_session.frozen}
        for parameter in [given] if torch.is_tensor(given) else list(given):
            if parameter.requires_grad and id(parameter) in frozen:
                raise errors.WrongUse(
                    f"a parameter of shape {tuple(parameter.shape)} was frozen (requires_grad "
                    "False) at wrap(), so its gradients would not be synchronised; unfreeze before "
                    "wrap()")
            if parameter.requires_grad and id(parameter) not in known:
                raise errors.WrongUse(
                    f"a parameter of shape {tuple(parameter.shape)} was not in the model at "
                    "wrap(), so its gradients would not be synchronised")
        super().add_param_group(param_group)  # type: ignore[misc]

    def __reduce__(self) -> Any:
        raise errors.WrongUse("a wrapped optimizer belongs to its process and cannot be pickled or "
                              "copied; save its state_dict()")


def _counted_step(self: SynchronisedOptimizer,
                  closure: Optional[Callable[[], Any]] = None) -> Any:
    return SynchronisedOptimizer.step(self, closure)


# torch wraps step() of a class for its profiler and hooks; ours only calls one that is wrapped.
SynchronisedOptimizer.step.hooked = True  # type: ignore[attr-defined]
_counted_step.hooked = True  # type: ignore[attr-defined]
# How schedulers know that their counter is in a step(): theirs is inside ours. Torch 1, torch 2.
_counted_step._with_counter = True  # type: ignore[attr-defined]
_counted_step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]


def plan_in(state_dict: Dict[str, Any]) -> Optional[bytes]:
    """The plan that an optimizer's state_dict was saved with, for wrap(plan=...)."""
    plan = state_dict.get(_KEY, {}).get("plan")
    return None if plan is None else bytes(plan.tolist())


def attach(optimizer: torch.optim.Optimizer, session: Session) -> None:
    """The object stays the same; its class becomes one with our step() in front."""
    cls = type(optimizer)
    members: Dict[str, Any] = {"__doc__": cls.__doc__}
    if "step" in optimizer.__dict__:
        members["step"] = _counted_step
    optimizer._deft_session = session  # type: ignore[attr-defined]
    optimizer._deft_counted = optimizer.__dict__.pop("step", None)  # type: ignore[attr-defined]
    optimizer.__class__ = type(cls.__name__, (SynchronisedOptimizer, cls), members)
