"""DeFT Tuner inside a Python training process.

``deft.torch.wrap(model, optimizer)`` is all that most programs need. The work is done by the C
library libdeft, which this package carries or finds beside it; its header ``deft/deft.h`` is the
manual of the runtime.
"""
from deft.errors import (DeftError, LibraryNotFound, Mismatch, PeerLost, WrongUse)

__version__ = "0.1.0"
__all__ = ["DeftError", "LibraryNotFound", "Mismatch", "PeerLost", "WrongUse", "__version__"]
