"""One line for PyTorch: ``model, optimizer = deft.torch.wrap(model, optimizer)``.

What moves the parameters is decided by the plan that runs (docs/update-rules.md). Until a first
plan arrives, and for ever without an agent, it is ``exact``: synchronous data parallel training,
as under DistributedDataParallel. Memory per parameter beside gradient and optimizer state:

| rule      | what the optimizer sees                      | copies of the parameters    |
|-----------|----------------------------------------------|-----------------------------|
| exact     | the mean gradient of this iteration          | 1                           |
| delayed   | mean gradients when they are due, else       | 1 per generation alive      |
|           | ``.grad is None``                            |                             |
| lookahead | the mean gradient of the iteration before;   | 1 per generation alive, 1   |
|           | the own one moves the parameters             | anchor; for the preview 1   |
|           | provisionally (a preview)                    | to 3 of one group           |
| averaged  | this rank's own gradient; the parameters'    | 2 per generation in flight, |
|           | changes are averaged                         | 1 anchor                    |

Lookahead needs a preview of the optimizer: there is one for exactly SGD (momentum, Nesterov), Adam
and AdamW. Every other optimizer falls back to averaged, with one line of notice.
"""
import atexit
import ctypes
import inspect
import logging
import os
from typing import Any, Iterable, List, Optional, Tuple, Union

import torch

from deft import errors, native
from deft.torch import (bootstrap, devices, lr_rule, noise, optimizer as _optimizer, preview,
                        session as _session)
from deft.torch.callback import DeftCallback
from deft.torch.optimizer import plan_in
from deft.torch.session import Session
from deft.torch.settings import Settings
from deft.torch.wrapper import SynchronisedModule

__all__ = ["DeftCallback", "SynchronisedModule", "average_buffers", "close", "drain", "plan_in",
           "report_loss", "request_stop", "should_stop", "stats", "wrap"]

LOG = logging.getLogger("deft")
ALL_RULES = ("exact", "lookahead", "averaged", "delayed")
DEFAULT_RULES = ("exact", "lookahead", "averaged")


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """step() cannot be called without arguments, as it is at a boundary."""
    try:
        inspect.signature(type(optimizer).step).bind(optimizer)
    except TypeError:
        return True
    except ValueError:
        pass  # it has no signature
    return False


def _check(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rules: Iterable[str],
           delayed_lr_rule: str, averaged_lr_rule: str) -> List[Tuple[str, torch.nn.Parameter]]:
    """Everything that can be refused before the ranks meet. Returns the trained parameters."""
    if isinstance(model, SynchronisedModule) or isinstance(optimizer,
                                                           _optimizer.SynchronisedOptimizer):
        raise errors.WrongUse("this model or optimizer is wrapped already")
    if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        raise errors.WrongUse(f"wrap() takes the place of {type(model).__name__}; give it the "
                              "model itself (model.module)")
    devices.refuse_sharded(model)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise errors.WrongUse("LBFGS evaluates its closure several times per step, which cannot be "
                              "scheduled; use another optimizer")
    if _needs_closure(optimizer):
        raise errors.WrongUse(f"{type(optimizer).__name__}.step() needs its closure, which it may "
                              "evaluate several times per step; this cannot be scheduled; use "
                              "another optimizer")
    foreign = set(rules) - set(ALL_RULES)
    if foreign:
        raise errors.WrongUse(f"rules contain {sorted(foreign)[0]!r}, expected some of "
                              + ", ".join(ALL_RULES))
    for name, value, known in (("delayed_lr_rule", delayed_lr_rule, lr_rule.RULES),
                               ("averaged_lr_rule", averaged_lr_rule, noise.RULES)):
        if value not in known:
            raise errors.WrongUse(f"{name} is {value!r}, expected one of " + ", ".join(known))
    for name, module in model.named_modules():
        if getattr(module, "sparse", False) and isinstance(
                module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            raise errors.WrongUse(f"module {name} gives sparse gradients; make it with "
                                  "sparse=False")
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not named:
        raise errors.WrongUse("the model has no parameter that requires a gradient")
    known = {id(p) for p in model.parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise errors.WrongUse("the optimizer steps a parameter (shape "
                                      f"{tuple(parameter.shape)}) that is not in the model")
    for name, parameter in named:
        if _session.of_parameter(parameter) is not None:
            raise errors.WrongUse(f"parameter {name} belongs to a model that is wrapped already")
    return named


def _only_exact(model: torch.nn.Module, optimizer: torch.optim.Optimizer,
                find_unused: bool) -> Optional[str]:
    """Why nothing but exact plans is possible, or None."""
    stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if any(p.requires_grad and id(p) not in stepped for p in model.parameters()):
        return "the optimizer does not step all trained parameters"
    if find_unused:
        return "find_unused_parameters is on, and ranks may step different parameters"
    return None


def _capabilities(optimizer: torch.optim.Optimizer, rules: Iterable[str],
                  only_exact: Optional[str]) -> int:
    wished = set(rules)
    found = 0
    if only_exact is not None:
        LOG.warning("deft: %s: training stays exact", only_exact)
        return 0
    if "lookahead" in wished and preview.find(optimizer) is not None:
        found |= native.CAN_PREVIEW
    elif "lookahead" in wished:
        LOG.warning("deft: there is no preview for %s, so plans use averaged instead of lookahead",
                    type(optimizer).__name__)
    if "averaged" in wished:
        found |= native.CAN_AVERAGE
    if "delayed" in wished:
        found |= native.CAN_SKIP
    return found


def _options(library: ctypes.CDLL, optimizer: torch.optim.Optimizer, capabilities: int,
             batch_size: Optional[int]) -> native.Options:
    options = bootstrap.default_options(library)
    options.capabilities = capabilities
    options.optimizer = native.OPTIMIZERS[preview.kind(optimizer)]
    group = optimizer.param_groups[0]
    options.learning_rate = float(group.get("lr", 0.0))
    betas = group.get("betas", (group.get("momentum", 0.0),))
    options.momentum = float(betas[0])
    options.batch_per_rank = batch_size or 0
    return options


def wrap(model: torch.nn.Module, optimizer: torch.optim.Optimizer, *,
         batch_size: Optional[int] = None, rules: Iterable[str] = DEFAULT_RULES,
         find_unused_parameters: bool = False, gradient_as_bucket_view: bool = False,
         broadcast_buffers: bool = True, delayed_lr_rule: str = "mean",
         averaged_lr_rule: str = "noise", max_pending_bytes: Optional[int] = None,
         links: Optional[str] = None,
         plan: Optional[bytes] = None) -> Tuple[SynchronisedModule, torch.optim.Optimizer]:
    """Makes `model` and `optimizer` train data-parallel over all ranks. Collective.

    Rank 0's parameters and buffers are copied to all ranks. The optimizer that is returned is the
    same object; the model is called through what is returned. The loop stays as it is: forward,
    ``loss.backward()``, clipping, ``optimizer.step()``.

    Args:
        model: parameters in host memory, or on one CUDA device (docs/gpu.md), float32, float64,
            float16 or bfloat16.
        optimizer: any stock or own optimizer over parameters of the model, except LBFGS.
        batch_size: samples per rank and iteration. The controller is told before the first
            forward, so it cannot be found out; without it noise is known per batch, which is all
            that decisions need, but not per sample.
        rules: update rules that plans may use; ``"delayed"`` is possible but not in the default,
            because it costs accuracy (docs/benchmarks.md).
        find_unused_parameters: some parameters may get no gradient in an iteration; those that no
            rank used keep ``.grad is None``. Plans are exact then.
        gradient_as_bucket_view: between backward and step ``.grad`` is memory of the runtime, which
            saves one copy; after the step it is this rank's own gradient.
        broadcast_buffers: buffers start as rank 0's; a drain replaces floating-point ones that
            forward changes by their mean over the ranks.
        delayed_lr_rule: "mean", "sum" or "sqrt": learning rate of merged updates (lr_rule.py).
        averaged_lr_rule: "noise": under averaged the steps of Adam and AdamW, whose second moments
            see the noise of one rank's gradients, are lengthened by what this shortens them, a
            factor from 1 to sqrt(ranks) that is measured while the job runs (noise.py); one
            all-reduce of 32 kB per 64 iterations. "none": the learning rate as it is. Other
            optimizers always step with the rate as it is.
        max_pending_bytes: plans that need more memory are refused; None: DEFT_MAX_PENDING_BYTES.
        links: as DEFT_LINKS, for example ``"gloo:eth0,gloo:eth1"``; on a CUDA device ``"nccl"``
            when neither is set.
        plan: bytes of a plan to start with: ``plan_in(checkpoint)`` to go on as the saved job
            would have, or ``Plan.encode()`` to hold one.

    Returns:
        The model to call, and the optimizer.

    Raises:
        WrongUse: the model or an argument cannot work; nothing was changed.
        Mismatch: the ranks have different models or options.
        LibraryNotFound: there is no libdeft.
        DeftError: the ranks cannot meet (who is missing is in the sentence).
    """
    rules = tuple(rules)
    named = _check(model, optimizer, rules, delayed_lr_rule, averaged_lr_rule)
    device = devices.device_of(named)
    library = native.load()
    only_exact = _only_exact(model, optimizer, find_unused_parameters)
    options = _options(library, optimizer, _capabilities(optimizer, rules, only_exact), batch_size)
    options.device = devices.option_of(device)
    options.write_back = 0 if gradient_as_bucket_view else 1
    if max_pending_bytes is not None:
        options.max_pending_bytes = max_pending_bytes
    if links is not None:
        options.links = links.encode()
    elif device.type != "cpu" and not os.environ.get("DEFT_LINKS"):
        options.links = b"nccl"
    if plan is not None:
        options.first_plan = ctypes.cast(ctypes.c_char_p(plan), ctypes.c_void_p)
        options.first_plan_bytes = len(plan)
    kept = bootstrap.find(options)
    settings = Settings(find_unused_parameters, gradient_as_bucket_view, delayed_lr_rule,
                        averaged_lr_rule, broadcast_buffers)
    runtime = native.Runtime(library, options)
    made = Session(runtime, optimizer, options.rank, options.n_ranks, settings, device)
    try:
        made.add_parameters(named)
        if runtime.notice() and options.rank == 0:
            LOG.warning("deft: %s", runtime.notice())
        if broadcast_buffers:
            made.buffers.list = lambda: list(model.buffers())
        made.share(made.buffers.list(), 0)
        made.buffers.remember()
    except BaseException:
        made.close()
        raise
    del kept
    wrapped = SynchronisedModule(model, made)
    wrapped.train(model.training)
    _optimizer.attach(optimizer, made)
    if not options.agent_socket and options.rank == 0:
        LOG.warning("deft: no agent (DEFT_AGENT_SOCKET is not set): training stays exact")
    return wrapped, optimizer


def _of(thing: Any) -> Session:
    found = getattr(thing, "_session", None) or getattr(thing, "_deft_session", None)
    if not isinstance(found, Session):
        raise errors.WrongUse(f"{type(thing).__name__} is not wrapped; call wrap() first")
    return found


def report_loss(wrapped: Any, loss: Union[float, torch.Tensor]) -> None:
    """The training loss of this iteration, anywhere between forward and the next forward. Without
    it the controller judges plans by gradients alone.

    Args:
        wrapped: the model or the optimizer that wrap() returned.
    """
    _of(wrapped).runtime.loss(float(loss))


def drain(wrapped: Any) -> None:
    """Collective, between iterations: applies everything in flight. Afterwards parameters and
    optimizer state are the same on all ranks, bit for bit; do it before a checkpoint, before an
    evaluation, before parameters are changed by other means than the optimizer, before a
    state_dict is loaded, and before the end."""
    _of(wrapped).drain()


def average_buffers(wrapped: Any) -> None:
    """Collective: floating-point buffers that forward has changed become their mean over the ranks
    (a drain does it too)."""
    _of(wrapped).buffers.average()


def request_stop(wrapped: Any) -> None:
    """This rank wishes to stop, for example after SIGTERM; safe in a signal handler."""
    _of(wrapped).runtime.stop_request()


def should_stop(wrapped: Any) -> bool:
    """True on all ranks after the same iteration, once any rank has wished to stop."""
    return _of(wrapped).should_stop


def stats(wrapped: Any) -> "dict[str, Any]":
    """Counters since wrap(): iterations, updates, skipped, switches, exposed_ns, rule, ..."""
    found = _of(wrapped).runtime.stats()
    values = {name: getattr(found, name) for name, *_ in found._fields_}
    values["rule"] = values["rule"].decode()
    return values


def close(wrapped: Any) -> None:
    """Says goodbye to the other ranks; also done at exit. Drains nothing, since other ranks may be
    elsewhere: without a drain before, what is in flight is lost, which one line of warning says."""
    _of(wrapped).close()


atexit.register(_session.close_all)
