"""Who is this rank, and where do the ranks meet?

In this order:

1. ``DEFT_RANK`` is set (``deft run``, the Slurm plug-in, the injected pod): the variables of
   libdeft say everything, unless what they describe is a torchrun (one task per node).
2. ``torch.distributed`` is initialised: its rank and world; rank 0 listens on a free port and the
   others learn of it through the default store.
3. torchrun started the program: the same, through the store that torchrun keeps.
4. ``RANK`` and ``WORLD_SIZE`` with ``MASTER_ADDR`` and ``MASTER_PORT``, or Slurm's variables: rank
   0 listens there.
5. Nothing of this: a world of one rank.
"""
import ctypes
import itertools
import logging
import os
import socket
from typing import List, Optional, Tuple

import torch.distributed as dist

from deft import errors, native

LOG = logging.getLogger("deft")
STORE_TIMEOUT_S = 300
_meetings = itertools.count()  # the n-th wrap of every rank meets under the n-th key


def default_options(library: ctypes.CDLL) -> native.Options:
    """From the environment, as libdeft reads it."""
    options, error = native.Options(), native.Error()
    status = library.deft_options_init(ctypes.byref(options), ctypes.byref(error))
    if status != 0:
        raise errors.of_status(native.STATUS_NAMES[status], error.text.decode(errors="replace"))
    return options


def _listen() -> Tuple[socket.socket, int]:
    """On all addresses, IPv6 too where the kernel has it."""
    try:
        listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True,
                                        backlog=512)
    except (OSError, ValueError):
        listener = socket.create_server(("", 0), backlog=512)
    return listener, listener.getsockname()[1]


def _own_host() -> str:
    """Under which name the other hosts reach this one, as far as it can tell by itself."""
    return os.environ.get("MASTER_ADDR") or socket.gethostname()


def _meet(store: "dist.Store", rank: int, options: native.Options) -> None:
    key = f"deft/meeting/{next(_meetings)}"
    if rank == 0:
        listener, port = _listen()
        options.master_fd = listener.detach()  # libdeft closes it
        store.set(key, f"{_own_host()}\n{port}")
    host, port = store.get(key).decode().split("\n")
    options.master_host = host.encode()
    options.master_port = int(port)


def _torchrun_store() -> Optional[Tuple["dist.Store", int, int]]:
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return next(dist.rendezvous("env://"))


def find(options: native.Options) -> List[object]:
    """Fills rank, world and meeting point. Returns what must stay alive until the ranks have met.
    """
    if "DEFT_RANK" in os.environ and "TORCHELASTIC_RUN_ID" not in os.environ:
        return []
    if dist.is_available() and dist.is_initialized():
        options.rank, options.n_ranks = dist.get_rank(), dist.get_world_size()
        store = dist.distributed_c10d._get_default_store()
        if options.n_ranks > 1:
            _meet(store, options.rank, options)
        return [store]
    found = _torchrun_store() if dist.is_available() else None
    if found is not None:
        store, options.rank, options.n_ranks = found
        if os.environ.get("DEFT_JOB_ID") is None:
            options.job_id = os.environ["TORCHELASTIC_RUN_ID"].encode()
        if options.n_ranks > 1:
            _meet(store, options.rank, options)
        return [store]
    return []
