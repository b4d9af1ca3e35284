"""Which controller a job gets."""

from trimtab.control.adaptive_controller import AdaptiveController
from trimtab.control.controller import Controller
from trimtab.control.static_controller import StaticController
from trimtab.control.types import ControllerSettings, ModelFacts


def make_controller(settings: ControllerSettings, facts: ModelFacts, seed: int = 0) -> Controller:
    """Make the controller of a job's policy; one rank alone has nothing to choose.

    Args:
        settings: What the job asks for.
        facts: Of the model and the ranks.
        seed: Of searches.
    """
    is_adaptive = settings.policy == "adaptive" and facts.num_ranks > 1
    return (AdaptiveController if is_adaptive else StaticController)(settings, facts, seed)
