"""The model's side: forward and backward tell the session what happens."""
import contextlib
import ctypes
import pickle
from typing import Any, Callable, Iterator

import torch

from deft import errors, native
from deft.torch.session import Phase, Session
from deft.torch.slot import Slot
from deft.torch.writes import before_load


def _first_tensor(output: Any, depth: int = 4) -> Any:
    """A tensor of the model's output that backward will pass, or None."""
    if torch.is_tensor(output):
        return output if output.requires_grad else None
    if depth == 0:
        return None
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        for part in output:
            found = _first_tensor(part, depth - 1)
            if found is not None:
                return found
    return None


def _after_accumulation(parameter: torch.Tensor, call: Callable[[], None]) -> Any:
    """Runs `call` when autograd has added a backward's gradient to .grad. Returns the hook's handle
    and what must stay alive for it."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):  # torch 2.1
        return parameter.register_post_accumulate_grad_hook(lambda _: call()), None
    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    return node.register_hook(lambda *_: call()), node


class SynchronisedModule(torch.nn.Module):
    """What wrap() returns: calls the model and synchronises its gradients.

    Attributes:
        module: the model itself. Unknown attributes are looked up there.
    """

    def __init__(self, module: torch.nn.Module, session: Session) -> None:
        super().__init__()
        self.module = module
        self._session = session
        session.frozen = [p for p in module.parameters() if not p.requires_grad]
        self._hooks = [self._watch(slot) for slot in session.slots]
        self._hooks.append((before_load(module, session.before_load), None))
        session.on_close = self._unhook

    def _watch(self, slot: Slot) -> Any:
        session = self._session
        return _after_accumulation(slot.parameter, lambda: session.gradient_ready(slot))

    def _unhook(self) -> None:
        for handle, _ in self._hooks:
            handle.remove()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """That of the model."""
        session = self._session
        if not torch.is_grad_enabled() or not session.syncing or session.phase is Phase.CLOSED:
            return self.module(*args, **kwargs)
        for parameter in session.frozen:
            if parameter.requires_grad:
                raise errors.WrongUse("a parameter that was frozen at wrap() now requires a "
                                      "gradient; unfreeze before wrap()")
        session.forward_begin()
        output = self.module(*args, **kwargs)
        watched = _first_tensor(output)
        if watched is not None:
            watched.register_hook(lambda _: session.backward_begin())
        return output

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, backward only accumulates; the next backward outside communicates the sum."""
        before, self._session.syncing = self._session.syncing, False
        try:
            yield
        finally:
            self._session.syncing = before

    @contextlib.contextmanager
    def join(self) -> Iterator[None]:
        """For ranks with different numbers of batches, around the loop over them: a rank that has
        no more goes on with zeros until nobody has, then all ranks take the parameters, buffers
        and optimizer state of a rank that had the most. Collective at its end."""
        yield
        _finish(self._session)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __reduce__(self) -> Any:
        raise errors.WrongUse("a wrapped model belongs to its process and cannot be pickled or "
                              "copied; take model.module or its state_dict()")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce__()


def _finish(session: Session) -> None:
    own = session.iterations()
    session.joined_at = own
    session.finished = False
    session.runtime.finish_request()
    while not session.finished:
        session.shadow_iteration()
    session.drain()
    session.joined_at = None
    root = _longest(session, own)
    session.share([slot.parameter for slot in session.slots] + session.buffers.list(), root)
    _share_state(session, root)
    session.noise.begin()


def _share_object(session: Session, thing: Any, root: int) -> Any:
    """Collective: `root`'s object, which pickle can carry, on all ranks."""
    data = pickle.dumps(thing)
    size = torch.tensor([len(data)], dtype=torch.int64, device="cpu")
    session.share([size], root)
    buffer = ctypes.create_string_buffer(data, int(size)) if session.rank == root \
        else ctypes.create_string_buffer(int(size))
    session.runtime.broadcast(root, ctypes.addressof(buffer), int(size))
    return pickle.loads(buffer.raw)


def _share_state(session: Session, root: int) -> None:
    """The optimizer's state becomes root's, also where this rank has none: it may not have stepped
    at all."""
    own = []
    for i, slot in enumerate(session.slots):
        for key, value in sorted(session.optimizer.state.get(slot.parameter, {}).items()):
            if torch.is_tensor(value):
                own.append((i, key, tuple(value.shape), value.dtype, None))
            else:
                own.append((i, key, None, None, value))
    tensors = []
    for i, key, shape, dtype, value in _share_object(session, own, root):
        state = session.optimizer.state[session.slots[i].parameter]
        if shape is None:
            state[key] = value
            continue
        if key not in state or state[key] is None:
            # Counts of steps are numbers on the host, also beside parameters on a device.
            where = session.device if shape else torch.device("cpu")
            state[key] = torch.zeros(shape, dtype=dtype, device=where)
        tensors.append(state[key])
    session.share(tensors, root)
    session.states.register()


def _longest(session: Session, own: int) -> int:
    """The first of the ranks with the most iterations of their own; the same answer on all."""
    counts = torch.zeros(session.world, dtype=torch.float64)
    counts[session.rank] = float(own * session.world)
    session.runtime.average(counts.data_ptr(), session.world, native.F64)
    return int(counts.argmax())
