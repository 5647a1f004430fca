"""What can go wrong, as exceptions. Each carries one sentence: what, where, what was expected."""


class DeftError(RuntimeError):
    """A failure of the runtime, its links or its peers.

    Attributes:
        status: name of the C status, such as ``"PEER_LOST"``; ``""`` when the failure was found
            in Python.
        backend_code: errno or the code of a library; 0 when there is none.
    """

    def __init__(self, text: str, status: str = "", backend_code: int = 0) -> None:
        super().__init__(text)
        self.status = status
        self.backend_code = backend_code


class LibraryNotFound(DeftError):
    """libdeft cannot be loaded, or is of another version than this package."""


class Mismatch(DeftError):
    """The ranks of the job disagree: other tensors, other options, another loop."""


class PeerLost(DeftError):
    """A rank or its host has gone; the sentence names it."""


class WrongUse(DeftError):
    """The training loop did something that cannot work; nothing was changed."""


BY_STATUS = {
    "MISMATCH": Mismatch,
    "PEER_LOST": PeerLost,
    "STATE": WrongUse,
    "INVALID": WrongUse,
    "UNSUPPORTED": WrongUse,
}


def of_status(status: str, text: str, backend_code: int = 0) -> DeftError:
    """The exception for a failed C call."""
    return BY_STATUS.get(status, DeftError)(text, status, backend_code)
