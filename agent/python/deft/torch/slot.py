"""What a session knows of one parameter."""
from typing import Optional

import torch


class Slot:
    """One parameter of the runtime's table."""
    __slots__ = ("number", "name", "parameter", "address", "memory", "landed", "given",
                 "was_given", "handed", "exposed", "aliased")

    def __init__(self, number: int, name: str, parameter: torch.nn.Parameter) -> None:
        self.number = number
        self.name = name
        self.parameter = parameter
        self.address = parameter.data_ptr()  # where the runtime moves it under some rules
        self.memory = parameter.detach()  # keeps that memory alive, whatever the user does
        self.landed: Optional[torch.Tensor] = None  # own memory for averages, once it was needed
        self.given: Optional[torch.Tensor] = None  # this rank's gradient, kept alive
        self.was_given = False
        self.handed = False  # takes part in the update that is handed out
        self.exposed = False  # .grad is this rank's own gradient: the user may clip it
        self.aliased = False  # .grad is memory of the runtime
