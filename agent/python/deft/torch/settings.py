"""What wrap() was asked for."""


class Settings:
    """How wrap() was asked to behave."""

    def __init__(self, find_unused: bool, bucket_view: bool, delayed_lr_rule: str,
                 averaged_lr_rule: str, average_buffers: bool) -> None:
        self.find_unused = find_unused
        self.bucket_view = bucket_view
        self.delayed_lr_rule = delayed_lr_rule
        self.averaged_lr_rule = averaged_lr_rule
        self.average_buffers = average_buffers
