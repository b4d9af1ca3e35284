"""The `trimtab` command. Heavy modules are imported by the subcommand that needs them, so that help answers at once."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from trimtab_api.cli import Parser
from trimtab_api.errors import UserError

from trimtab.launch.processes.interrupts import EXIT_CODE, Interrupted
from trimtab.process.messages import LOGGER

#: Exit code of a mistake that is the user's to mend.
USER_ERROR = 2


@dataclass(frozen=True)
class Subcommand:
    """A subcommand, and the module that holds its `add_arguments(parser)` and `run(args) -> int`."""

    name: str
    module: str
    help: str


COMMANDS = (
    Subcommand("run", "run_command", "train a TrainingJob on this machine"),
    Subcommand("compare", "compare_command", "train it under several plans in turn, and report"),
    Subcommand("judge", "judge_command", "set adaptive beside the best static plan in hindsight, on many networks"),
    Subcommand("plan", "plan_command", "show the plan for a model and a network, and the cost of each scheme"),
    Subcommand("network", "network_command", "print a random network file, to compare plans on one nobody tuned for"),
    Subcommand("report", "report_command", "rebuild summary and report of a comparison from its files"),
    Subcommand("trace", "trace_command", "write the profiled steps of a run for a trace viewer"),
    Subcommand("status", "status_command", "follow a job that trains, here or from inside one of its pods"),
    Subcommand("top", "top_command", "show the jobs of a cluster, and how far each is"),
    Subcommand("metrics", "metrics_command", "serve the metrics of a run to Prometheus"),
    Subcommand("worker", "worker_command", "train as one worker of a job on a cluster: the entry of its pod"),
    Subcommand("keeper", "keeper_command", "keep checkpoints of a job in memory: `trimtab run` and clusters start it"),
    Subcommand("bench", "", "measure kernels, collectives or whole steps on this machine"),
)
BENCHES = (
    Subcommand("kernels", "bench.kernels", "time a selection against a copy of its bytes"),
    Subcommand("collectives", "bench.collectives", "time each scheme, and compare with the cost model"),
    Subcommand("step", "bench.step", "time whole steps of ResNet-18 against DDP's own methods"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. A user's mistake is one line on stderr and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return _dispatch(arguments)
    except UserError as error:
        LOGGER.error(error)
        return USER_ERROR
    except Interrupted:
        LOGGER.error("interrupted")
        return EXIT_CODE
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="trimtab", description="Training that adapts its gradient communication to the network it finds."
    )
    parser.add_argument("--version", action="version", version=f"trimtab {version('trimtab')}")
    _add_subcommands(parser, COMMANDS, arguments)
    args = parser.parse_args(arguments)
    code: int = args.handler(args)
    return code


def _add_subcommands(parser: Parser, commands: Sequence[Subcommand], words: Sequence[str]) -> None:
    """Add every subcommand with its help. Only the one that ``words`` begin with is imported and gets its arguments."""
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in commands:
        subparser = subparsers.add_parser(
            command.name, help=command.help, description=f"{command.help[0].upper()}{command.help[1:]}."
        )
        if command.name not in words[:1]:
            continue
        if command.module:
            module = importlib.import_module(f"trimtab.cli.{command.module}")
            module.add_arguments(subparser)
            subparser.set_defaults(handler=module.run)
        else:
            _add_subcommands(subparser, BENCHES, words[1:])
