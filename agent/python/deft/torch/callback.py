"""The same few calls for loops that already have a place for callbacks."""
from typing import Union

import torch

from deft.torch.session import Session
from deft.torch.wrapper import SynchronisedModule


class DeftCallback:
    """Call its methods where your loop calls callbacks.

    Args:
        model: what wrap() returned.
    """

    def __init__(self, model: SynchronisedModule) -> None:
        self._session: Session = model._session

    def on_batch_end(self, loss: Union[float, torch.Tensor]) -> bool:
        """After optimizer.step(), with the batch's training loss. True: end the loop, all ranks
        agreed to stop at this iteration."""
        self._session.runtime.loss(float(loss))
        return self._session.should_stop

    def on_checkpoint(self) -> None:
        """Before state is saved. Collective."""
        self._session.drain()

    def on_train_end(self) -> None:
        """Collective: drains and says goodbye."""
        self._session.drain()
        self._session.close()
