"""libdeft through ctypes: the only place that knows its structs and calls (deft/deft.h).

Pointers are plain integers (addresses). The caller keeps memory alive; see the header.
"""
import ctypes
import os
from pathlib import Path
from typing import List, Optional

from deft import errors

SONAME = "libdeft.so.0"
#: The library's interface that this file describes: major and minor of deft_version().
INTERFACE = (0, 1)

F32, F64, F16, BF16 = 0, 1, 2, 3
DTYPE_BYTES = {F32: 4, F64: 8, F16: 2, BF16: 2}

CAN_PREVIEW, CAN_SKIP, CAN_AVERAGE = 1, 2, 4
OPTIMIZERS = {"unknown": 0, "sgd": 1, "adam": 2, "adamw": 3}

DONE, APPLY, PREVIEW = 0, 1, 2

STATUS_NAMES = ("OK", "INVALID", "NO_MEMORY", "LIMIT", "STATE", "IO", "TIMEOUT", "PEER_LOST",
                "MISMATCH", "NOT_FOUND", "UNSUPPORTED", "CANCELLED", "STORE", "CLOSED")


class Error(ctypes.Structure):
    """struct deft_error"""
    _fields_ = [("status", ctypes.c_int), ("backend_code", ctypes.c_int32),
                ("text", ctypes.c_char * 384)]


class Options(ctypes.Structure):
    """struct deft_options"""
    _fields_ = [("size_bytes", ctypes.c_size_t), ("rank", ctypes.c_int32),
                ("n_ranks", ctypes.c_int32), ("job_id", ctypes.c_char_p),
                ("job_name", ctypes.c_char_p), ("restart_count", ctypes.c_uint32),
                ("allgather", ctypes.c_void_p), ("allgather_context", ctypes.c_void_p),
                ("master_host", ctypes.c_char_p), ("master_port", ctypes.c_uint16),
                ("master_fd", ctypes.c_int32), ("links", ctypes.c_char_p),
                ("device", ctypes.c_char_p), ("agent_socket", ctypes.c_char_p),
                ("capabilities", ctypes.c_uint32), ("write_back", ctypes.c_uint32),
                ("max_pending_bytes", ctypes.c_uint64),
                ("connect_timeout_ns", ctypes.c_int64), ("op_timeout_ns", ctypes.c_int64),
                ("first_plan", ctypes.c_void_p), ("first_plan_bytes", ctypes.c_size_t),
                ("optimizer", ctypes.c_int), ("momentum", ctypes.c_double),
                ("learning_rate", ctypes.c_double),
                ("batch_per_rank", ctypes.c_uint64)]


class Tensor(ctypes.Structure):
    """struct deft_tensor"""
    _fields_ = [("name", ctypes.c_char_p), ("elements", ctypes.c_uint64), ("dtype", ctypes.c_int),
                ("parameters", ctypes.c_void_p)]


class Update(ctypes.Structure):
    """struct deft_update"""
    _fields_ = [("action", ctypes.c_int), ("gradients", ctypes.POINTER(ctypes.c_void_p)),
                ("merge", ctypes.c_uint32), ("delay", ctypes.c_uint32),
                ("landed", ctypes.c_uint32), ("skipped", ctypes.c_uint32),
                ("stop_agreed", ctypes.c_uint32), ("drain_agreed", ctypes.c_uint32),
                ("finish_agreed", ctypes.c_uint32), ("iteration", ctypes.c_uint64)]


class Stats(ctypes.Structure):
    """struct deft_stats"""
    _fields_ = [("iterations", ctypes.c_uint64), ("updates", ctypes.c_uint64),
                ("skipped", ctypes.c_uint64), ("switches", ctypes.c_uint64),
                ("refused", ctypes.c_uint64), ("exposed_ns", ctypes.c_int64),
                ("control_ns", ctypes.c_int64), ("plan_seq", ctypes.c_uint64),
                ("plan_hash", ctypes.c_uint64), ("pending_bytes", ctypes.c_uint64),
                ("telemetry_dropped", ctypes.c_uint64), ("mean_loss", ctypes.c_double),
                ("mean_grad_sq_local", ctypes.c_double), ("grad_sq_mean", ctypes.c_double),
                ("agent_connected", ctypes.c_uint32), ("rule", ctypes.c_char * 16)]


_RUNTIME = ctypes.c_void_p
_ERROR = ctypes.POINTER(Error)
_UPDATE = ctypes.POINTER(Update)
_STATUS = ctypes.c_int

_CALLS = {
    "deft_version": (ctypes.c_char_p, []),
    "deft_options_init": (_STATUS, [ctypes.POINTER(Options), _ERROR]),
    "deft_open": (_STATUS, [ctypes.POINTER(Options), ctypes.POINTER(_RUNTIME), _ERROR]),
    "deft_tensor_add": (_STATUS, [_RUNTIME, ctypes.POINTER(Tensor),
                                  ctypes.POINTER(ctypes.c_uint32), _ERROR]),
    "deft_state_add": (_STATUS, [_RUNTIME, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, _ERROR]),
    "deft_commit": (_STATUS, [_RUNTIME, _ERROR]),
    "deft_forward_begin": (None, [_RUNTIME]),
    "deft_loss": (None, [_RUNTIME, ctypes.c_double]),
    "deft_learning_rate": (None, [_RUNTIME, ctypes.c_double]),
    "deft_stream": (None, [_RUNTIME, ctypes.c_void_p]),
    "deft_notice": (ctypes.c_char_p, [_RUNTIME]),
    "deft_forked": (None, [_RUNTIME]),
    "deft_parameters_loaded": (None, [_RUNTIME]),
    "deft_backward_begin": (None, [_RUNTIME]),
    "deft_grad_ready": (_STATUS, [_RUNTIME, ctypes.c_uint32, ctypes.c_void_p]),
    "deft_step": (_STATUS, [_RUNTIME, _UPDATE, _ERROR]),
    "deft_drain": (_STATUS, [_RUNTIME, _UPDATE, _ERROR]),
    "deft_stop_request": (None, [_RUNTIME]),
    "deft_drain_request": (None, [_RUNTIME]),
    "deft_finish_request": (None, [_RUNTIME]),
    "deft_average": (_STATUS, [_RUNTIME, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, _ERROR]),
    "deft_broadcast": (_STATUS, [_RUNTIME, ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t,
                                 _ERROR]),
    "deft_capabilities_drop": (None, [_RUNTIME, ctypes.c_uint32]),
    "deft_plan_export": (ctypes.c_size_t, [_RUNTIME, ctypes.c_void_p, ctypes.c_size_t]),
    "deft_stats": (None, [_RUNTIME, ctypes.POINTER(Stats)]),
    "deft_anchor_hash": (ctypes.c_uint64, [_RUNTIME]),
    "deft_close": (None, [_RUNTIME]),
}


def candidates() -> List[str]:
    """Where the library may be, the first that loads wins: the variable DEFT_LIBRARY alone when it
    is set, else the copy inside this package, else what the loader finds."""
    wished = os.environ.get("DEFT_LIBRARY", "")
    if wished:
        return [wished]
    carried = Path(__file__).resolve().parent / "lib" / SONAME
    return ([str(carried)] if carried.exists() else []) + [SONAME]


def load() -> ctypes.CDLL:
    """Raises LibraryNotFound when there is no libdeft or its interface is another one."""
    reasons = []
    for path in candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
            continue
        for name, (result, arguments) in _CALLS.items():
            try:
                call = getattr(library, name)
            except AttributeError:
                raise errors.LibraryNotFound(
                    f"{path} has no {name}: it is no libdeft, or an older one than this "
                    "package") from None
            call.restype, call.argtypes = result, arguments
        version = library.deft_version().decode()
        if tuple(int(part) for part in version.split(".")[:2]) != INTERFACE:
            raise errors.LibraryNotFound(
                f"{path} is version {version}, this package needs {INTERFACE[0]}.{INTERFACE[1]}")
        return library
    raise errors.LibraryNotFound(
        "libdeft cannot be loaded (set DEFT_LIBRARY to its path, or install the package that "
        "carries it): " + "; ".join(reasons))


class Runtime:
    """struct deft_runtime: one rank of a job. Methods are the C calls without their prefix and
    raise DeftError where those fail. One thread at a time."""

    def __init__(self, library: ctypes.CDLL, options: Options) -> None:
        self._library = library
        self._error = Error()
        self._handle = _RUNTIME()
        self._last_stats, self._last_plan = Stats(), b""  # what a closed runtime says
        self.capabilities = int(options.capabilities)  # CAN_*, less what was dropped
        self.is_broken = False  # a peer or a link has failed: there is nothing to complete
        self.update = Update()
        self._check(library.deft_open(ctypes.byref(options), ctypes.byref(self._handle),
                                      ctypes.byref(self._error)))
        # Bound once: these run for every tensor of every iteration.
        self._grad_ready = library.deft_grad_ready

    @property
    def _open(self) -> _RUNTIME:
        """The handle; a closed runtime has none, and C would not ask."""
        if not self._handle:
            raise errors.WrongUse("this runtime is closed (after close(), or in a forked child)")
        return self._handle

    def _check(self, status: int) -> None:
        if status != 0:
            name = STATUS_NAMES[status] if 0 <= status < len(STATUS_NAMES) else str(status)
            error = errors.of_status(name, self._error.text.decode(errors="replace"),
                                     self._error.backend_code)
            self.is_broken = self.is_broken or not isinstance(error, errors.WrongUse)
            raise error

    def tensor_add(self, name: str, elements: int, dtype: int, address: Optional[int]) -> int:
        """Forward order, before commit. Returns the tensor's number."""
        number = ctypes.c_uint32()
        tensor = Tensor(name.encode(), elements, dtype, address)
        self._check(self._library.deft_tensor_add(
            self._open, ctypes.byref(tensor), ctypes.byref(number), ctypes.byref(self._error)))
        return number.value

    def state_add(self, address: int, elements: int, dtype: int) -> None:
        self._check(self._library.deft_state_add(self._open, address, elements, dtype,
                                                 ctypes.byref(self._error)))

    def commit(self) -> None:
        """Collective."""
        self._check(self._library.deft_commit(self._open, ctypes.byref(self._error)))

    def forward_begin(self) -> None:
        self._library.deft_forward_begin(self._open)

    def backward_begin(self) -> None:
        self._library.deft_backward_begin(self._open)

    def stream(self, handle: int) -> None:
        """The caller's work goes on on this stream of CUDA; 0: the default one."""
        self._library.deft_stream(self._open, handle)

    def notice(self) -> str:
        """What was asked for and is not used, in one sentence; "": nothing. Behind commit()."""
        return self._library.deft_notice(self._open).decode(errors="replace")

    def loss(self, value: float) -> None:
        self._library.deft_loss(self._open, value)

    def learning_rate(self, rate: float) -> None:
        """Of this iteration and the next ones, until another is given."""
        self._library.deft_learning_rate(self._open, rate)

    def grad_ready(self, number: int, address: Optional[int]) -> bool:
        """False when the gradient came twice or at the wrong time. Link failures are told by
        step()."""
        return bool(self._handle) and self._grad_ready(self._handle, number, address) == 0

    def step(self) -> Update:
        """Collective. The same object each time; its gradients are valid until the next call."""
        self._check(self._library.deft_step(self._open, ctypes.byref(self.update),
                                            ctypes.byref(self._error)))
        return self.update

    def drain(self) -> Update:
        """Collective, like step()."""
        self._check(self._library.deft_drain(self._open, ctypes.byref(self.update),
                                             ctypes.byref(self._error)))
        return self.update

    def average(self, address: int, elements: int, dtype: int) -> None:
        """Collective."""
        self._check(self._library.deft_average(self._open, address, elements, dtype,
                                               ctypes.byref(self._error)))

    def broadcast(self, root: int, address: int, n_bytes: int) -> None:
        """Collective."""
        self._check(self._library.deft_broadcast(self._open, root, address, n_bytes,
                                                 ctypes.byref(self._error)))

    def stop_request(self) -> None:
        """Also from a signal handler, also when it is too late."""
        if self._handle:
            self._library.deft_stop_request(self._handle)

    def drain_request(self) -> None:
        self._library.deft_drain_request(self._open)

    def finish_request(self) -> None:
        self._library.deft_finish_request(self._open)

    def capabilities_drop(self, capabilities: int) -> None:
        self._library.deft_capabilities_drop(self._open, capabilities)
        self.capabilities &= ~capabilities

    def plan_export(self) -> bytes:
        if not self._handle:
            return self._last_plan
        n_bytes = self._library.deft_plan_export(self._open, None, 0)
        buffer = ctypes.create_string_buffer(n_bytes)
        self._library.deft_plan_export(self._open, buffer, n_bytes)
        return buffer.raw

    def stats(self) -> Stats:
        if not self._handle:
            return self._last_stats
        stats = Stats()
        self._library.deft_stats(self._open, ctypes.byref(stats))
        return stats

    def anchor_hash(self) -> int:
        return self._library.deft_anchor_hash(self._open)

    def close(self) -> None:
        """Any number of times."""
        if self._handle:
            self._last_stats, self._last_plan = self.stats(), self.plan_export()
        handle, self._handle = self._handle, _RUNTIME()
        if handle:
            self._library.deft_close(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def parameters_loaded(self) -> None:
        self._library.deft_parameters_loaded(self._open)

    def forget(self) -> None:
        """In a forked child: threads and memory are the parent's; what the child would keep open
        behind the parent's end is closed."""
        handle, self._handle = self._handle, _RUNTIME()
        self._library.deft_forked(handle)
