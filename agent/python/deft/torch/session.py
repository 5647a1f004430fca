"""One wrapped model: its runtime, and where its present iteration stands.

The model's side (wrapper.py) says when forward begins and backward has given a gradient; the
optimizer's side (optimizer.py) says when the user steps. Between them lies the boundary of
libdeft: its first call is made when backward ends, so that ``.grad`` holds what the optimizer may
use (clipping and unscaling work as they do under DDP), the others inside ``optimizer.step()``.

    IDLE -> FORWARD -> BACKWARD -> HANDED -> IDLE
                                \\-> IDLE               nothing is due at this boundary
"""
import enum
import logging
import math
import os
import weakref
from typing import Any, Callable, Dict, List, Optional

import torch

from deft import errors, native
from deft.torch import devices, lr_rule, preview
from deft.torch.buffers import Buffers
from deft.torch.memory import DTYPES, Aliases, is_dense, laid_out_like
from deft.torch.noise import Noise
from deft.torch.settings import Settings
from deft.torch.slot import Slot
from deft.torch.states import States
from deft.torch.writes import Writes

LOG = logging.getLogger("deft")

ALL_CAN = native.CAN_PREVIEW | native.CAN_SKIP | native.CAN_AVERAGE
STATE_STEPS = 3  # optimizers create their state in the first step, some a part in the second

USED = "deft.used"  # the tensor that tells which parameters some rank used


class Phase(enum.Enum):
    IDLE = 0
    FORWARD = 1
    BACKWARD = 2
    HANDED = 3
    CLOSED = 4


class Session:
    """Everything that the two sides share. Not thread-safe, like the training loop itself."""

    def __init__(self, runtime: native.Runtime, optimizer: torch.optim.Optimizer,
                 rank: int, world: int, settings: Settings,
                 device: torch.device = torch.device("cpu")) -> None:
        self.runtime = runtime
        self.optimizer = optimizer
        self.rank = rank
        self.world = world
        self.settings = settings
        self.device = device
        self.slots: List[Slot] = []
        self.phase = Phase.IDLE
        self.syncing = True
        self.should_stop = False
        self.finished = False
        self.joined_at: Optional[int] = None  # iterations of its own before this rank joined
        self.preview = preview.find(optimizer)
        self.on_close: Callable[[], None] = lambda: None
        self.buffers = Buffers(runtime)
        self.states = States(runtime, optimizer, self.slots)
        self.noise = Noise(runtime, optimizer, world, settings.averaged_lr_rule)
        self.writes = Writes(runtime, self.slots, self._warn, rank == 0 and world > 1)
        self.frozen: List[torch.nn.Parameter] = []  # at wrap()
        self._ran = "exact"  # the rule of the present iteration
        self._aliases = Aliases()
        self._used: Optional[torch.Tensor] = None  # [n parameters] 1: this rank used it
        self._used_weights: Optional[torch.Tensor] = None  # the parameter that this gradient has
        self._stamped = False
        self._queued = False  # the end of this backward will be told
        self._drain_agreed = False
        self._due = False  # a boundary was passed that optimizer.step() has not seen
        self._inner: Optional[Callable[[], None]] = None
        self._n_steps = 0
        self._factor = 1.0  # what clipping and unscaling did to the last landed gradient
        self._probe: Optional[tuple] = None  # (slot, element, value)
        self._warned: set = set()
        _alive.add(self)

    # --- setting up ------------------------------------------------------------------------------

    def add_parameters(self, named: List[tuple]) -> None:
        """`named`: (name, parameter) in registration order. Collective at its end (commit)."""
        devices.follow(self.runtime, self.device)
        if self.settings.find_unused:
            self._used = torch.zeros(len(named), dtype=torch.float32, device=self.device)
            self._used_weights = torch.zeros_like(self._used)
            self.runtime.tensor_add(USED, len(named), native.F32, self._used_weights.data_ptr())
        for i, (name, parameter) in enumerate(named):
            if parameter.numel() == 0:
                continue
            if parameter.dtype not in DTYPES:
                raise errors.WrongUse(
                    f"parameter {name} has type {parameter.dtype}, expected float32, float64, "
                    "float16 or bfloat16")
            if not is_dense(parameter):
                raise errors.WrongUse(f"parameter {name} has gaps in its memory (strides "
                                      f"{tuple(parameter.stride())}); make it contiguous first")
            unique = f"{name.encode('ascii', 'replace').decode()[-100:]}#{i}"
            number = self.runtime.tensor_add(unique, parameter.numel(),
                                             DTYPES[parameter.dtype], parameter.data_ptr())
            self.slots.append(Slot(number, name, parameter))
        self.states.register()
        self.runtime.commit()
        self._ran = self.rule
        self.noise.begin()

    def _states_are_replaced(self) -> None:
        self._warn("states", f"{type(self.optimizer).__name__} replaces its state in every step, "
                   "so the rule averaged is not used")
        self.runtime.capabilities_drop(native.CAN_AVERAGE)

    def scaler_seen(self) -> None:
        """A scaler judges by what its rank is shown; only under exact all ranks see the same."""
        self.runtime.capabilities_drop(ALL_CAN)
        if self.rule != "exact":
            raise errors.WrongUse("a GradScaler scales these gradients, which works with exact "
                                  "plans only")
        self._warn("scaler", "a GradScaler was seen: training stays exact")

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            LOG.warning("deft: %s", text)

    # --- forward and backward --------------------------------------------------------------------

    def forward_begin(self) -> None:
        self._check_alive()
        if self.phase is Phase.BACKWARD:
            raise errors.WrongUse(
                "forward begins, but the last backward did not reach its end: after an exception "
                "in backward the ranks are no longer at the same iteration")
        if self.phase is Phase.HANDED:
            if self._step_may_come():
                return  # this forward is no iteration of its own
            self._settle()  # gradients were cleared: the step was left out
        self._begin_iteration()
        devices.follow(self.runtime, self.device)
        self.runtime.forward_begin()
        self.phase = Phase.FORWARD
        self._stamped = self._queued = False

    def _begin_iteration(self) -> None:
        self._drain_if_agreed()
        self._check_moved()  # here: torch 1.13 drops the hooks of a parameter of another type
        self.writes.look(self._ran)

    def _step_may_come(self) -> bool:
        """Something that was handed out is in .grad still."""
        return any((slot.handed or slot.exposed) and slot.parameter.grad is not None
                   for slot in self.slots)

    def backward_begin(self) -> None:
        """The gradient of the model's output is there."""
        if self.phase is Phase.FORWARD and self.syncing and not self._stamped:
            self.runtime.backward_begin()
            self._stamped = True
            self._queue_end()

    def gradient_ready(self, slot: Slot) -> None:
        """Autograd has accumulated `slot.parameter.grad` for this backward."""
        if not self.syncing or self.phase is Phase.CLOSED:
            return
        if self.phase is not Phase.BACKWARD:
            self._begin_backward()
        gradient = slot.parameter.grad
        if gradient is None:
            return
        if gradient.layout is not torch.strided:
            raise errors.WrongUse(f"parameter {slot.name} has a sparse gradient; use dense ones, "
                                  "for example Embedding(sparse=False)")
        self._give(slot, gradient)

    def _begin_backward(self) -> None:
        self._check_alive()
        if self.phase is Phase.HANDED:
            self._step_was_left_out()
        if self.phase is Phase.IDLE:
            self._begin_iteration()
            self.runtime.forward_begin()  # the model was not called through its wrapper
        if not self._stamped:
            self.runtime.backward_begin()
        for slot in self.slots:
            slot.was_given = False
        self.phase = Phase.BACKWARD
        self._queue_end()

    def _queue_end(self) -> None:
        """From the hook of the output, if there is one: a re-entrant checkpoint runs backwards of
        its own inside, which end earlier."""
        if not self._queued:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)

    def _check_moved(self) -> None:
        for slot in self.slots:
            if slot.parameter.data_ptr() != slot.address:
                self._has_moved(slot)

    def _has_moved(self, slot: Slot) -> None:
        """Exact and delayed plans only need gradients; the others write to the parameters."""
        devices.refuse_other(slot.name, slot.parameter, slot.memory)
        self.runtime.capabilities_drop(native.CAN_PREVIEW | native.CAN_AVERAGE)
        if self.rule in ("lookahead", "averaged"):
            raise errors.WrongUse(f"parameter {slot.name} was put into other memory after wrap() "
                                  "(model.to(...), .data = ...); do that before wrap()")
        self._warn("moved", f"parameter {slot.name} was put into other memory after wrap(), so "
                   "only exact plans are possible")

    def _step_was_left_out(self) -> None:
        """Two backwards without a step between them: accumulation without no_sync(). With exact
        steps it means what it means under DDP; previews would fight with what accumulates."""
        if self.rule in ("lookahead", "delayed"):
            raise errors.WrongUse("backward ran twice without optimizer.step(); accumulate inside "
                                  "no_sync(), since the plan that runs delays updates")
        self.runtime.capabilities_drop(native.CAN_PREVIEW | native.CAN_SKIP)
        self._warn("accumulation", "backward ran twice without optimizer.step(); accumulate inside "
                   "no_sync() to communicate once")
        self._settle()

    def _give(self, slot: Slot, gradient: torch.Tensor) -> None:
        slot.given = laid_out_like(gradient, slot.parameter)
        devices.follow(self.runtime, self.device)
        if not self.runtime.grad_ready(slot.number, slot.given.data_ptr()):
            raise errors.WrongUse(
                f"parameter {slot.name} got its gradient twice in one backward (re-entrant "
                "checkpointing, or a graph that is used twice?)")
        slot.was_given = True

    def _end_backward(self) -> None:
        self._queued = False
        if self.phase is not Phase.BACKWARD:
            return  # gradients of the output alone were asked for
        missing = [slot for slot in self.slots if not slot.was_given]
        for slot in missing:
            gradient = slot.parameter.grad
            if gradient is not None:  # accumulated inside no_sync(), or zeros
                self._give(slot, gradient)
        unused = [slot for slot in missing if not slot.was_given]
        if unused and not self.settings.find_unused:
            names = ", ".join(slot.name for slot in unused[:5])
            raise errors.WrongUse(
                f"{len(unused)} parameters got no gradient in this backward ({names}); freeze "
                "them, or pass find_unused_parameters=True to wrap()")
        for slot in unused:
            slot.given = None
            self.runtime.grad_ready(slot.number, None)
        if self._used is not None:
            self._used.copy_(torch.tensor([float(slot.was_given) for slot in self.slots]))
            self.runtime.grad_ready(0, self._used.data_ptr())
        self._due = True
        devices.follow(self.runtime, self.device)
        self.runtime.learning_rate(float(self.optimizer.param_groups[0].get("lr", math.nan)))
        self._take(self.runtime.step())

    # --- the boundary ----------------------------------------------------------------------------

    def _take(self, update: native.Update) -> None:
        """What the first call of a boundary says goes into .grad."""
        for slot in self.slots:
            slot.handed = slot.exposed = slot.aliased = False
        if update.action == native.APPLY:
            self.phase = Phase.HANDED
            self._place(update)
            self._remember_scale()
            return
        if update.action == native.PREVIEW:
            self.phase = Phase.HANDED
        else:
            self._iteration_done(update)
        if update.skipped:
            self._show_skip()
        elif self.rule == "delayed":
            self._clear_gradients()
        else:  # nothing landed: the loop goes on with this rank's own gradient, unapplied
            for slot in self.slots:
                slot.exposed = slot.parameter.grad is not None
            self._remember_scale()

    def _clear_gradients(self) -> None:
        for slot in self.slots:
            slot.parameter.grad = None

    def _show_skip(self) -> None:
        """A gradient that is not finite on any rank is dropped by all; a GradScaler on this rank
        must see it too."""
        self._clear_gradients()
        slot = min(self.slots, key=lambda s: s.parameter.numel())
        slot.parameter.grad = torch.full_like(slot.parameter, math.nan)

    def _place(self, update: native.Update) -> None:
        """Gradients of an update become .grad; parameters that do not take part get None."""
        used = None
        if self._used is not None and update.landed and update.gradients[0]:
            used = (self._aliases.of(0, update.gradients[0], self._used) > 0).tolist()
        for i, slot in enumerate(self.slots):
            address = update.gradients[slot.number]
            own = slot.given
            slot.handed = bool(address) and (used is None or used[i])
            slot.exposed = slot.aliased = False
            if not slot.handed:
                slot.parameter.grad = None
            elif own is not None and own.data_ptr() == address:
                slot.parameter.grad = own  # this rank's own, or the average written into it
                slot.exposed = not update.landed
            else:
                self._show(slot, self._aliases.of(slot.number, address, slot.parameter))

    def _show(self, slot: Slot, average: torch.Tensor) -> None:
        """Memory of the runtime is reused in the next iteration and freed with its plan, so users
        see a copy of it unless they asked for less."""
        slot.aliased = self.settings.bucket_view
        if not slot.aliased:
            if slot.landed is None:
                slot.landed = torch.empty_like(average)
            average = slot.landed.copy_(average)
        slot.parameter.grad = average

    def _remember_scale(self) -> None:
        """Clipping and unscaling change landed gradients in place; a preview must follow them. One
        element tells by how much. Reading it waits for a device: only where there are previews."""
        self._probe = None
        if self.device.type != "cpu" and self._ran != "lookahead":
            return
        shown = [slot for slot in self.slots
                 if slot.parameter.grad is not None and (slot.handed or slot.exposed)]
        if not shown:
            return
        slot = min(shown, key=lambda s: s.parameter.numel())
        flat = slot.parameter.grad.flatten()
        at = int(flat.abs().argmax())
        value = float(flat[at])
        if value != 0.0 and math.isfinite(value):
            self._probe = (slot, at, value)

    def _find_factor(self) -> None:
        if self._probe is None or self._probe[0].parameter.grad is None:
            return
        slot, at, before = self._probe
        factor = float(slot.parameter.grad.flatten()[at]) / before
        if math.isfinite(factor) and factor > 0:
            self._factor = factor

    def optimizer_step(self, inner: Callable[[], None]) -> None:
        """The user steps: applies what is handed out and completes the boundary."""
        self._check_alive()
        self._check_moved()
        self._inner = inner
        self._find_factor()
        if self.phase is Phase.HANDED:
            self._due = False
            self._finish_boundary(skip_first=False)
        elif self._due:
            self._due = False  # nothing to apply at this boundary
        else:
            self._warn("local", "optimizer.step() without a synchronised backward before it moves "
                       "this rank alone")
            inner()
            self.writes.are_welcome()
        self._n_steps += 1
        if self._n_steps <= STATE_STEPS or self.rule == "averaged":
            self.states.register()
            if not self.states.are_in_place():
                self._states_are_replaced()
        self._drain_if_agreed()

    def _settle(self) -> None:
        """The user left the step out: the update that was handed out is not applied."""
        self._due = False
        self.writes.look_before_skip(self._ran, self._n_steps)
        self._finish_boundary(skip_first=True)

    def _finish_boundary(self, skip_first: bool) -> None:
        update = self.runtime.update
        is_first = True
        devices.follow(self.runtime, self.device)
        while update.action != native.DONE:
            if update.action == native.PREVIEW:
                self._run_preview(update)
            elif is_first and skip_first:
                pass
            else:
                self._apply(update)
            update = self.runtime.step()
            is_first = False
            if update.action == native.APPLY:
                self._place(update)
                self._scale_handed()
        self._iteration_done(update)

    def _apply(self, update: native.Update) -> None:
        if self._inner is None:
            return
        if self.joined_at is not None and not self._is_before_join(update):
            return
        if self._ran == "averaged":
            with self.noise.own_step():
                self._inner()
            return
        with lr_rule.merged(self.optimizer, self.settings.delayed_lr_rule,
                            update.merge if self._ran == "delayed" else 1):
            self._inner()

    def _is_before_join(self, update: native.Update) -> bool:
        return bool(update.landed) and update.iteration - update.delay < self.joined_at

    def _run_preview(self, update: native.Update) -> None:
        pairs, touched = {}, {}  # own gradients as they came, and those that the user has scaled
        for slot in self.slots:
            if update.gradients[slot.number] and slot.given is not None:
                (touched if slot.exposed else pairs)[slot.parameter] = slot.given
        if self.preview is not None:
            with torch.no_grad():
                self.preview(self.optimizer, pairs, self._factor)
                self.preview(self.optimizer, touched, 1.0)

    def _iteration_done(self, update: native.Update) -> None:
        self.phase = Phase.IDLE
        self._stamped = False
        self._give_gradients_back()
        self.should_stop = self.should_stop or bool(update.stop_agreed)
        self.finished = bool(update.finish_agreed)
        self._drain_agreed = self._drain_agreed or bool(update.drain_agreed)
        ran, self._ran = self._ran, self.rule
        if ran == "averaged":
            self.noise.boundary(self._ran == ran)
            if self._ran != ran:
                self._leave_averaged()
        elif self._ran != ran:
            self.noise.begin()
        self.writes.iteration_done(ran, self._ran)

    def _leave_averaged(self) -> None:
        """The ranks are alike, after a drain or a switch to another rule."""
        self.states.align_steps()
        self.noise.leave()

    def _drain_if_agreed(self) -> None:
        """Somebody's wish for a drain, agreed on at the last boundary; before anything else that
        all ranks do together."""
        if self._drain_agreed and self.phase in (Phase.IDLE, Phase.FORWARD):
            self._drain_agreed = False
            self.drain()

    def _give_gradients_back(self) -> None:
        """No .grad may stay in memory of the runtime, which is about to write there; nor where the
        next average is shown, beside which the next own gradient must live."""
        for slot in self.slots:
            if slot.aliased or (slot.given is not None and slot.parameter.grad is slot.landed
                                and slot.landed is not None):
                slot.parameter.grad = slot.given
            slot.aliased = False

    # --- between iterations ----------------------------------------------------------------------

    def _is_between_iterations(self) -> bool:
        if self.phase is Phase.HANDED and not self._step_may_come():
            self._settle()  # gradients were cleared: the step was left out
        return self.phase in (Phase.IDLE, Phase.FORWARD)

    def drain(self) -> None:
        """Collective: applies everything in flight; parameters, registered state and (if wished)
        floating-point buffers are alike on all ranks afterwards."""
        self._check_alive()
        if not self._is_between_iterations():
            raise errors.WrongUse("drain() was called between backward and optimizer.step(), "
                                  "expected after the step (or after "
                                  "zero_grad(set_to_none=True), which leaves it out)")
        self._check_moved()
        self.writes.look(self._ran)
        shown = [slot.parameter.grad for slot in self.slots]
        was_averaged = self.rule == "averaged"
        devices.follow(self.runtime, self.device)
        update = self.runtime.drain()
        while update.action != native.DONE:
            if update.action == native.APPLY:
                self._place(update)
                self._scale_handed()
                self._apply(update)
            update = self.runtime.drain()
        for slot, gradient in zip(self.slots, shown):
            slot.parameter.grad = gradient
        self.phase = Phase.IDLE
        if was_averaged:
            self._leave_averaged()
        if self.settings.average_buffers:
            self.buffers.average()
        self.writes.drained()

    def before_load(self) -> None:
        """Not collective, since rank 0 alone may load what it evaluates behind the last iteration.
        What is in flight lands on what is loaded. Inside an iteration nothing is done."""
        if self.phase in (Phase.IDLE, Phase.FORWARD):
            self.writes.look(self._ran)
            self.runtime.parameters_loaded()
            self.writes.are_welcome()

    def _scale_handed(self) -> None:
        if self._factor != 1.0:
            for slot in self.slots:
                if slot.handed and slot.parameter.grad is not None and not slot.exposed:
                    slot.parameter.grad.mul_(self._factor)

    def share(self, tensors: List[torch.Tensor], root: int) -> None:
        """Collective: `root`'s values to all ranks, bit for bit, any type."""
        for tensor in tensors:
            if tensor.numel() == 0:
                continue
            copy = tensor.detach().cpu().contiguous().clone()
            self.runtime.broadcast(root, copy.data_ptr(), copy.numel() * copy.element_size())
            with torch.no_grad():
                tensor.copy_(copy)
        self.writes.are_welcome()

    def shadow_iteration(self) -> None:
        """An iteration of a rank without input: it takes part in everything with zeros."""
        if self.phase is Phase.HANDED:
            self._settle()
        self._drain_if_agreed()
        self._check_moved()
        self.runtime.forward_begin()
        self.runtime.backward_begin()
        for slot in self.slots:
            slot.given = None
            self.runtime.grad_ready(slot.number, None)
        if self._used is not None:
            self._used.zero_()
            self.runtime.grad_ready(0, self._used.data_ptr())
        self.phase = Phase.HANDED
        update = self.runtime.step()
        if update.action == native.APPLY:
            self._place(update)
        self._finish_boundary(skip_first=False)

    @property
    def n_steps(self) -> int:
        """Steps of the optimizer that this session has seen."""
        return self._n_steps

    # --- the rest --------------------------------------------------------------------------------

    @property
    def rule(self) -> str:
        """Of the plan that runs now."""
        return self.runtime.stats().rule.decode()

    def iterations(self) -> int:
        return int(self.runtime.stats().iterations)

    def _check_alive(self) -> None:
        if self.phase is Phase.CLOSED:
            raise errors.WrongUse("this model's session is closed (after close(), or in a forked "
                                  "child process)")

    def close(self) -> None:
        """In order: the other ranks are told. Any number of times."""
        if self.phase is not Phase.CLOSED:
            self.writes.tell_of_flight(self._ran)
            self.phase = Phase.CLOSED
            self._give_gradients_back()
            self.on_close()
            self.runtime.close()

    def abandon(self) -> None:
        self.phase = Phase.CLOSED
        self.runtime.forget()


_alive: "weakref.WeakSet[Session]" = weakref.WeakSet()


def of_parameter(parameter: torch.Tensor) -> Optional[Session]:
    """The open session that synchronises `parameter`, if any."""
    for session in _alive:
        if session.phase is not Phase.CLOSED and any(slot.parameter is parameter
                                                     for slot in session.slots):
            return session
    return None


def _after_fork() -> None:
    for session in list(_alive):
        session.abandon()


def close_all() -> None:
    for session in list(_alive):
        session.close()


os.register_at_fork(after_in_child=_after_fork)
