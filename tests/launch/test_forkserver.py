"""A rank that a fork server starts is what a fresh interpreter of its command would be."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from kit.run_processes import is_gone, wait_until
from trimtab.launch.preloading import forkserver
from trimtab.launch.preloading.commands import PythonCommand, python_command
from trimtab.launch.preloading.forkserver import ForkServer
from trimtab.launch.processes.children import Children
from trimtab.launch.processes.trainer_command import Process

pytestmark = pytest.mark.slow
#: Seconds: generous, because every other test may be running beside this one.
PATIENCE = 120.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("forkserver")


@pytest.fixture(scope="module")
def server(folder):
    """A fork server that all tests here share."""
    with ForkServer(folder / "server.log") as started:
        started.start(Process([sys.executable, "x.py"], {**os.environ, "RANK": "9"}, folder), {"RANK": ""})
        yield started
    for child in psutil.Process().children():  # orphans of ranks and of launchers that were killed
        with suppress(psutil.Error, ChildProcessError):
            if child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)


class Ranks:
    """Runs commands in the server's ranks, and by interpreters of their own."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder

    def __call__(self, script, *arguments, environment=None, namespace=None):
        """Run a script to its end; return its exit code and what it printed."""
        file = self.folder / "script.py"
        file.write_text(script)
        return self.run(["script.py", *arguments], environment, namespace)

    def run(self, words, environment=None, namespace=None):
        output = self.folder / "output"
        environment = {**os.environ, "RANK": "3", **(environment or {})}
        process = Process([sys.executable, *words], environment, self.folder)
        with Children() as children, output.open("wb") as log:
            fork = None if self.server is None else partial(self._fork, process, namespace)
            children.start("rank-3", process.argv, environment, log.fileno(), self.folder, fork=fork)
            ended = []
            wait_until(lambda: ended.extend(children.collect()) or ended, PATIENCE)
        return ended[0].code, output.read_text()

    def _fork(self, process, namespace, output, wait):
        """Fork, and fail instead of falling back."""
        forked = self.server.fork(process, namespace, output, wait)
        assert forked is not None
        return forked


@pytest.fixture
def forked(server, tmp_path):
    return Ranks(server, tmp_path)


@pytest.fixture
def plain(tmp_path):
    return Ranks(None, tmp_path)


IDENTITY = """
import json, os, sys
main = sys.modules["__main__"]
names = ["__file__", "__name__", "__package__", "__cached__", "__doc__", "__annotations__"]
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "environ": dict(os.environ), "cwd": os.getcwd(),
    "main": {name: getattr(main, name) for name in names}, "spec": getattr(__spec__, "origin", None),
    "loader": type(__loader__).__name__,
    "is_main": main.__dict__ is globals(), "names": sorted(globals()), "builtins": type(__builtins__).__name__,
    "shown": open("/proc/self/cmdline").read(),
    "shown_environment": sorted(open("/proc/self/environ").read().split(chr(0))),
    "stdin": os.readlink("/proc/self/fd/0"), "descriptors": sorted(os.listdir("/proc/self/fd"))[:3],
    "is_leader": os.getsid(0) == os.getpid() == os.getpgid(0), "parent": os.getppid(),
    "handlers": [str(__import__("signal").getsignal(number)) for number in (1, 2, 13, 15)],
    "executable": sys.executable, "flags": str(sys.flags), "parents": __import__("multiprocessing").parent_process(),
    "threads": __import__("threading").current_thread().name,
}))
"""


@pytest.mark.parametrize("words", [["script.py", "a", "-b"], ["-m", "script", "a"], ["-u", "script.py"]])
def test_script_sees_what_a_fresh_interpreter_shows_it(forked, plain, tmp_path, words):
    (tmp_path / "script.py").write_text(IDENTITY)
    seen = [json.loads(ranks.run(words, {"ONLY_HERE": "1"})[1]) for ranks in (forked, plain)]
    assert seen[0] == seen[1]
    assert seen[0]["shown"].split("\0")[:-1] == [sys.executable, *words]
    assert seen[0]["environ"]["ONLY_HERE"] == "1"


def test_descriptors_of_the_server_are_closed(forked):
    script = "import os\nfor fd in os.listdir('/proc/self/fd')[3:-1]: print(os.readlink(f'/proc/self/fd/{fd}'))"
    code, printed = forked(script)
    assert (code, "socket" in printed, "pipe" in printed, "net:" in printed) == (0, False, False, False), printed


ENDS = {
    "return": "print('done')",
    "exit": "import sys; sys.exit(7)",
    "exit with words": "import sys; sys.exit('no data')",
    "os._exit": "import os; os._exit(5)",
    "exception": "def f():\n    raise ValueError('x')\n"
    "try:\n    f()\nexcept ValueError as e:\n    raise KeyError('y') from e",
    "syntax error": "print(",
    "no such module": "import no_such_module",
    "Ctrl-C": "raise KeyboardInterrupt",
    "SIGINT": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time; time.sleep(9)",
    "SIGKILL": "import os; os.kill(os.getpid(), 9)",
    "SIGTERM": "import os, time; os.kill(os.getpid(), 15); time.sleep(9)",
    "hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[2].tb_frame.f_code.co_name, a[2].tb_next)\n1 / 0",
    "exit handlers": "import atexit, threading, time\natexit.register(print, 'handler')\n"
    "threading.Thread(target=lambda: (time.sleep(0.5), print('thread'))).start()\n1 / 0",
}


@pytest.mark.parametrize("end", ENDS)
def test_script_ends_as_in_a_fresh_interpreter(forked, plain, end):
    assert forked(ENDS[end]) == plain(ENDS[end])


def test_traceback_of_a_module_is_that_of_a_fresh_interpreter(forked, plain, tmp_path):
    (tmp_path / "script.py").write_text("def f():\n    1 / 0\nf()")
    assert forked.run(["-m", "script"]) == plain.run(["-m", "script"])
    assert forked.run(["-m", "no_such"]) == plain.run(["-m", "no_such"])


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_data_loader_has_workers_by_every_start_method(forked, method):
    script = f"""
import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.tensor(index)
if __name__ == "__main__":
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="{method}")
    print(sum(batch.sum().item() for batch in loader))
"""
    assert forked(script) == (0, "28\n")


def test_backward_passes_run_in_threads_after_the_fork(forked):
    script = "import torch\nx = torch.ones(300, 300, requires_grad=True)\n(x @ x).sum().backward()\n"
    script += "print(x.grad[0, 0].item())"
    assert forked(script) == (0, "600.0\n")


def test_ranks_draw_different_numbers_without_a_seed(forked):
    script = "import numpy, random, multiprocessing\n"
    script += "print(numpy.random.rand(), random.random(), multiprocessing.current_process().authkey.hex())"
    first, second = (forked(script)[1].split() for _ in range(2))
    assert not set(first) & set(second)


def test_modules_are_imported_already(forked):
    assert forked("import sys; print('torch._dynamo' in sys.modules)") == (0, "True\n")


def test_module_in_the_scripts_folder_is_found(forked, tmp_path):
    (tmp_path / "helper.py").write_text("WORD = 'here'")
    assert forked("import helper; print(helper.WORD)") == (0, "here\n")


LAUNCHER = """
import os, sys, time
from functools import partial
from pathlib import Path
from trimtab.launch.preloading.forkserver import ForkServer
from trimtab.launch.processes.children import Children
from trimtab.launch.processes.trainer_command import Process
folder = Path(sys.argv[1])
process = Process([sys.executable, "rank.py"], os.environ, folder)
with ForkServer(folder / "server.log") as server, Children() as children, (folder / "log").open("wb") as log:
    server.start(process, {})
    children.start("rank-0", process.argv, os.environ, log.fileno(), folder, fork=partial(server.fork, process, None))
    while True:
        time.sleep(1)
"""
#: A rank, a child of its, and a grandchild that its parent leaves.
LEAVES = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
orphan = subprocess.run(["sh", "-c", "sleep 600 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True).stdout
open("pids.part", "w").write(f"{os.getpid()} {child.pid} {orphan}")
os.rename("pids.part", "pids")
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_launcher_is_killed(tmp_path, number):
    (tmp_path / "rank.py").write_text(LEAVES)
    launcher = psutil.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path)])
    wait_until((tmp_path / "pids").exists, PATIENCE)
    rank, *_ = pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert rank in [child.pid for child in launcher.children()]
    processes = {psutil.Process(pid) for pid in pids} | set(launcher.children(recursive=True))
    assert len(processes) == 6  # the rank and its two, the server, and the reapers of both
    launcher.send_signal(number)
    launcher.wait()
    wait_until(lambda: all(map(is_gone, processes)))


def test_rank_is_killed_as_a_group_and_its_orphans_are_reaped(server, tmp_path):
    (tmp_path / "rank.py").write_text(LEAVES)
    process = Process([sys.executable, "rank.py"], os.environ, tmp_path)
    with ExitStack() as stack:
        children = stack.enter_context(Children())
        log = stack.enter_context((tmp_path / "log").open("wb"))
        fork = partial(server.fork, process, None)
        children.start("rank-0", process.argv, os.environ, log.fileno(), tmp_path, fork=fork)
        wait_until((tmp_path / "pids").exists)
        rank, *others = [psutil.Process(int(pid)) for pid in (tmp_path / "pids").read_text().split()]
        rank.kill()
        ended = []
        wait_until(lambda: ended.extend(children.collect()) or ended)
        assert ended[0].code == -signal.SIGKILL
        wait_until(lambda: not children.collect() and not any(each.is_running() for each in [rank, *others]))


def servers_in(folder):
    """The fork servers of this process whose working directory is the folder."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            found += [child] if child.cwd() == str(folder) and child.status() != psutil.STATUS_ZOMBIE else []
    return found


@pytest.mark.parametrize("trouble", ["dead", "slow", "refuses"])
def test_rank_starts_by_itself_without_a_server(tmp_path, monkeypatch, capsys, trouble):
    (tmp_path / "script.py").write_text("print('trained')")
    process = Process([sys.executable, "script.py"], os.environ, tmp_path)
    namespace = tmp_path / "script.py" if trouble == "refuses" else None  # no namespace's file
    monkeypatch.setattr(forkserver, "FORK_SECONDS", 0.3 if trouble == "slow" else PATIENCE)
    with ForkServer(tmp_path / "server.log") as server, Children() as children, (tmp_path / "log").open("wb") as log:
        server.start(process, {})
        (started,) = servers_in(tmp_path)
        if trouble == "dead":
            started.kill()
        if trouble == "slow":
            started.suspend()
        for rank in range(2):
            fork = partial(server.fork, process, namespace)
            children.start(f"rank-{rank}", process.argv, os.environ, log.fileno(), tmp_path, fork=fork)
        ended = []
        wait_until(lambda: ended.extend(children.collect()) or len(ended) == 2, PATIENCE)
        assert [each.code for each in ended] == [0, 0]
        assert not started.is_running()
    assert (tmp_path / "log").read_text() == "trained\n" * 2
    assert capsys.readouterr().err.count("without the preloaded process") == 1


@pytest.mark.namespaces
def test_rank_runs_in_its_emulated_host(forked):
    from trimtab_netmon.emulate import Emulator, load_network

    network = Path(__file__).parents[2] / "examples/networks"
    with Emulator(load_network(sorted(network.glob("*.yaml"))[0]), hosts=2) as emulator:
        script = "import os, socket; print(os.readlink('/proc/self/ns/net'), socket.if_nameindex())"
        code, printed = forked(script, namespace=emulator.namespace(1))
        expected = subprocess.check_output(emulator.command(1, [sys.executable, "-c", script]), text=True)
    assert (code, printed) == (0, expected)


def test_switch_and_accelerators_turn_the_server_off(tmp_path, monkeypatch):
    process = Process([sys.executable, "script.py"], os.environ, tmp_path)
    for turn_off in (
        lambda patch: patch.setenv("TRIMTAB_PRELOAD", "0"),
        lambda patch: patch.setattr(forkserver, "has_accelerator", lambda: True),
    ):
        with monkeypatch.context() as patch, ForkServer(tmp_path / "log") as server:
            turn_off(patch)
            server.start(process, {})
            assert not servers_in(tmp_path)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["train.py", "-m"], PythonCommand("train.py", False, ("-m",))),
        (["-u", "train.py"], PythonCommand("train.py", False, ())),
        (["-m", "package.module", "x"], PythonCommand("package.module", True, ("x",))),
        (["-O", "train.py"], None),
        (["-c", "pass"], None),
        (["train"], None),
        (["-m"], None),
        ([], None),
    ],
)
def test_commands_that_can_fork(words, command):
    assert python_command([sys.executable, *words]) == command
    assert python_command(["/other/python", *words]) is None
