"""`trimtab top` on a terminal: it follows a job, fits the window, and leaves the terminal as it was."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

WIDTH, HEIGHT = 80, 12
PLAN = {"name": "0.01/all-gather", "adoptedAtStep": 7, "reason": "it should take 90ms a step instead of 400ms"}
ALTERNATE_SCREEN, AND_BACK = b"\x1b[?1049h", b"\x1b[?1049l"


def job(step):
    metadata = {"namespace": "team", "name": "digits", "resourceVersion": str(step)}
    message = "rank 1 comes 0.3 s after the others in 97% of the steps"
    status = {"state": "Running", "step": step, "plan": PLAN, "message": message}
    return {"metadata": metadata, "status": status}


class Api(BaseHTTPRequestHandler):
    """Lists one job at step 41; who watches is told that it is at step 42, and nothing more."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if "watch=" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            line = json.dumps({"type": "MODIFIED", "object": job(42)}).encode() + b"\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            self.rfile.read()  # until whoever watches goes
            return
        text = json.dumps({"metadata": {"resourceVersion": "41"}, "items": [job(41)]}).encode()
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """Nobody reads of requests."""


@pytest.fixture
def kubeconfig(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
    named = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster]}
    (tmp_path / "config").write_text(json.dumps({**named, "contexts": [context], "users": [{"name": "u", "user": {}}]}))
    yield tmp_path / "config"
    server.shutdown()
    server.server_close()


def test_it_follows_a_job_fits_the_window_and_leaves_the_terminal_as_it_was(kubeconfig):
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    unsaid = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    top = subprocess.Popen(
        [sys.executable, "-m", "trimtab", "top", f"--kubeconfig={kubeconfig}"],
        stdin=its, stdout=its, stderr=subprocess.PIPE, env=unsaid | {"TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(its)
    shown = b""

    def read_until(text):
        nonlocal shown
        while text not in shown:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # nobody has the terminal any more
                pytest.fail(f"{text} is not shown: {shown[-2000:]} {top.stderr.read()}")

    read_until(b" 42 ")
    assert ALTERNATE_SCREEN in shown
    row = next(line for line in shown.decode().replace("\r", "\n").splitlines() if "digits" in line and " 42 " in line)
    assert "0.01/all-gather" in row, "the plan is shown in 80 columns"
    assert "…" in row, "what does not fit says so"
    top.send_signal(signal.SIGINT)
    read_until(AND_BACK)
    assert top.wait(30) == 130, "a thread that is woken while the interpreter ends aborts the process"
    assert top.stderr.read() == b"trimtab: interrupted\n"
    os.close(ours)
