"""When ranks exchange gradients."""

from enum import Enum


class ExchangeMode(Enum):
    """When gradients are exchanged."""

    IN_BACKWARD = "during each backward pass outside of no_sync"
    AT_OPTIMIZER = "when one of several alternating optimizers steps"
    PER_ROUND = "at the end of a round of local steps"
