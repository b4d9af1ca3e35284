"""The flags of ``trimtab plan``: a model, workers and a network."""

from __future__ import annotations

import argparse
import re

from trimtab_api.catalogue import BYTES_PER_ELEMENT
from trimtab_api.catalogue.sources import MOST_LOCAL_STEPS
from trimtab_api.cli import invalid_value, number, quantity, whole_number
from trimtab_api.errors import UserError
from trimtab_api.trainingjob.communication import LocalSteps
from trimtab_api.units import format_bandwidth, format_duration, parse_bandwidth, parse_duration, parse_size

#: A value beyond these bounds is refused: its unit is most likely wrong.
MAX_PARAMETERS = 10**13
MAX_WORKERS = 65536
MAX_PROCESSES = 64
MAX_LATENCY = 10.0
MIN_BANDWIDTH = parse_bandwidth("1kbps")
MAX_BANDWIDTH = parse_bandwidth("10000Gbps")
MAX_COMPUTE = 3600.0
MIN_RATIO = 1e-6

_COUNT_UNITS = {"": 1, "k": 10**3, "M": 10**6, "B": 10**9, "G": 10**9}
OPTIMIZERS = {"adam": "Adam", "sgd": "SGD"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's flags."""
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument(
        "--parameters", type=_count, metavar="COUNT", help="parameters of the model, such as 25.6M", dest="elements"
    )
    size.add_argument(
        "--model-size",
        type=_elements_of_size,
        metavar="SIZE",
        help="bytes of its float32 gradient, such as 100MB",
        dest="elements",
    )
    parser.add_argument(
        "--workers",
        type=whole_number("--workers", 2, MAX_WORKERS),
        required=True,
        metavar="N",
        help="workers that the network joins, each of one training process",
    )
    parser.add_argument(
        "--processes-per-worker",
        type=whole_number("--processes-per-worker", 1, MAX_PROCESSES),
        default=1,
        metavar="P",
        help="training processes of each worker, where it has several",
    )
    parser.add_argument(
        "--latency",
        type=quantity("--latency", parse_duration, 0.0, MAX_LATENCY, format_duration),
        required=True,
        metavar="TIME",
        help="one-way latency of a link, such as 5ms",
    )
    parser.add_argument(
        "--bandwidth",
        type=quantity("--bandwidth", parse_bandwidth, MIN_BANDWIDTH, MAX_BANDWIDTH, format_bandwidth),
        required=True,
        metavar="RATE",
        help="bandwidth of a link, such as 1Gbps",
    )
    _add_training(parser)
    parser.add_argument(
        "--ratio",
        type=_ratio,
        nargs="+",
        default=[0.1, 0.01, 0.001],
        metavar="C",
        help="compression ratios of the table (default: 0.1 0.01 0.001)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_training(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how the model is trained."""
    parser.add_argument(
        "--compute",
        type=quantity("--compute", parse_duration, 0.0, MAX_COMPUTE, format_duration),
        metavar="TIME",
        help="forward and backward of one step (default: a guess from the model's size)",
    )
    parser.add_argument(
        "--optimizer",
        choices=tuple(OPTIMIZERS),
        default="adam",
        help="its family decides how many more steps compression costs: adam (default) stands for all that divide by "
        "a running size of the gradient, and for what is neither",
    )
    parser.add_argument(
        "--local-steps",
        type=whole_number("--local-steps", 0, MOST_LOCAL_STEPS),
        default=LocalSteps().max,
        metavar="H",
        help="most steps between two exchanges that the job permits (default: %(default)s, as where it loops over "
        "session.batches and its file says nothing of localSteps); 0: gradients are exchanged in each step",
    )


def _count(text: str) -> int:
    found = re.fullmatch(r"(\d+)(\.\d*)?(?:e(\d))?([kMBG]?)", text, re.ASCII)
    remedy = "write a whole number, or a count such as 25.6M or 7B"
    if not found or (found[2] and not found[3] and not found[4]):
        raise invalid_value(remedy, "--parameters", text)
    return _checked(round(float(text.rstrip("kMBG")) * _COUNT_UNITS[found[4]]), "--parameters", text)


def _elements_of_size(text: str) -> int:
    try:
        size = parse_size(text)
    except UserError as error:
        raise invalid_value(error.remedy, "--model-size", text) from None
    return _checked(size // BYTES_PER_ELEMENT, "--model-size", text)


def _checked(num_elements: int, field: str, text: str) -> int:
    if not 1 <= num_elements <= MAX_PARAMETERS:
        remedy = f"a model has 1 to {MAX_PARAMETERS:,} parameters, of 4 bytes each"
        raise UserError(remedy, field=field, value=text)
    return num_elements


def _ratio(text: str) -> float:
    ratio = number("--ratio", such_as="0.01")(text)
    if not MIN_RATIO <= ratio <= 1:
        raise UserError(f"a compression ratio is {MIN_RATIO:f} to 1", field="--ratio", value=text)
    return ratio
