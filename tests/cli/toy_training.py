"""A training script without torch, for the launcher's tests: every rank meets rank 0, which writes what a session does.

``--die-rank R --die-code C`` lets one rank fail; ``--die-signal`` kills it; ``--die-once FILE`` does so unless the file
is there, and makes it; ``--full-disk`` records no step; ``--forever`` never ends; ``--child`` starts a process of its
own and writes its id, so that a test can see whether it outlives the run.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from trimtab.launch.environment.launch_environment import LaunchEnvironment
from trimtab.run_files.layout import RunDirectory


def meet(launch: LaunchEnvironment) -> None:
    """Return once every rank has reached rank 0 through the network they share."""
    address = (launch.master_address, launch.master_port)
    if launch.rank == 0:
        with socket.create_server(address) as server:
            server.settimeout(30)
            others = [server.accept()[0] for _ in range(launch.num_ranks - 1)]
        for other in others:
            other.sendall(b"go")
            other.close()
        return
    deadline = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection(address, timeout=30) as connection:
                assert connection.recv(2) == b"go"
                return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--die-rank", type=int)
    parser.add_argument("--die-code", type=int, default=3)
    parser.add_argument("--die-signal", action="store_true")
    parser.add_argument("--die-once", type=Path)
    parser.add_argument("--die-after-steps", action="store_true")
    parser.add_argument("--full-disk", action="store_true")
    parser.add_argument("--forever", action="store_true")
    parser.add_argument("--child", action="store_true")
    args = parser.parse_args()
    launch = LaunchEnvironment.read(os.environ)
    assert launch is not None
    print(f"rank {launch.rank} of {launch.num_ranks} says {os.environ.get('GREETING', 'nothing')}")
    directory = Path(launch.run_directory)
    if args.child:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (directory / f"child-{launch.rank}").write_text(str(child.pid))
    if args.die_once and args.die_once.exists():
        args.die_rank = None
    meet(launch)
    if args.die_rank is None or args.die_after_steps:  # else one that dies would have kept the others from a step
        RunDirectory(directory).before_first_step(f"rank-{launch.rank}").unlink(missing_ok=True)
    if launch.rank == args.die_rank:
        if args.die_once:
            args.die_once.touch()
        if args.die_after_steps:
            write_files(directory, launch, args.steps, is_full=args.full_disk)
        print("the dog ate my gradient", file=sys.stderr, flush=True)
        if args.die_signal:
            os.kill(os.getpid(), signal.SIGKILL)
        sys.exit(args.die_code)
    if launch.rank == 0:
        write_files(directory, launch, args.steps)
    while args.forever or args.die_rank is not None:
        time.sleep(0.1)


def write_files(directory: Path, launch: LaunchEnvironment, num_steps: int, *, is_full: bool = False) -> None:
    communication = json.loads(launch.job.read_text())["spec"]["communication"]
    plan = communication.get("plan", "0.01/all-gather")
    (directory / "started").touch()
    begun = time.monotonic()
    seconds = 0.02 if plan == "dense" else 0.01
    with (directory / "metrics.jsonl").open("w", buffering=1) as metrics:
        for step in range(0 if is_full else num_steps):
            time.sleep(seconds)
            line = {
                "step": step,
                "time": time.monotonic() - begun,
                "loss": 1.0 / (step + 1),
                "step_seconds": seconds,
                "compute_seconds": 0.004,
                "compress_seconds": 0.001,
                "collective_seconds": 0.002,
                "bytes": 1000,
                "plan": plan,
                "plan_version": 0,
                "gain": 0.9,
                "latency": 0.001,
                "bandwidth": 125e6,
                "trial": False,
            }
            metrics.write(json.dumps(line) + "\n")
        evaluation = {"event": "evaluation", "step": num_steps, "time": time.monotonic() - begun, "accuracy": 0.98}
        metrics.write(json.dumps(evaluation) + "\n")


if __name__ == "__main__":
    main()
