"""An API server that knows a few running TrainingJobs, takes whatever an operator writes, and has faults on demand."""

import itertools
import json
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dashboards

CONTAINER = {"name": "trainer", "image": "trainer", "command": ["python", "train.py"]}
STATUS = {
    "state": "Running", "step": 7, "loss": 0.5, "startTime": "2026-03-01T12:00:00Z",
    "conditions": [{"type": "Started", "status": "True", "reason": "WorkersReady", "message": "",
                    "observedGeneration": 1, "lastTransitionTime": "2026-03-01T12:00:30Z"}],
}  # fmt: skip
#: Seconds between two changes of every job that watchers are told of, and between two bytes of an answer that trickles.
SECONDS = 0.5


def job(name):
    return {
        "metadata": {
            "namespace": dashboards.NAMESPACE, "name": name, "uid": name, "generation": 1, "resourceVersion": "1",
        },
        "spec": {"workers": 2, "template": {"spec": {"containers": [CONTAINER]}}},
        "status": STATUS,
    }  # fmt: skip


class ApiServer(ThreadingHTTPServer):
    """Serves from a thread. ``changes``: somebody touches every job all the time."""

    daemon_threads = True

    def __init__(self, names, *, changes=False):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.jobs, self.changes, self.lease = [job(name) for name in names], changes, None
        self.refuses = False
        """No write but of leases is allowed."""
        self.trickles = False
        """Answers to anything but leases, lists and watches come a byte at a time, and never to their end."""
        self.has_other_leader = False
        """Somebody else took the lease, and renews it."""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def kubeconfig(self):
        """The text of one that leads here."""
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server_port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        users = [{"name": "u", "user": {}}]
        said = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster], "users": users}
        return json.dumps({**said, "contexts": [context]})


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if "watch=true" in query:
            self.watch(path)
        elif path.endswith(("/trainingjobs", "/jobs", "/pods")):
            items = self.server.jobs if path.endswith("/trainingjobs") else []
            self.answer(200, {"metadata": {"resourceVersion": "1"}, "items": items})
        elif "/leases/" in path and self.server.lease is not None:
            if self.server.has_other_leader:
                renewed = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
                self.server.lease["spec"] |= {"holderIdentity": "another", "renewTime": renewed}
            self.answer(200, self.server.lease)
        else:
            self.answer(404, {"reason": "NotFound", "code": 404})

    def do_POST(self):
        self.take(201)

    def do_PUT(self):
        self.take(200)

    def do_PATCH(self):
        self.take(200)

    def take(self, status):
        written = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_lease = "/leases" in self.path
        if is_lease and self.server.has_other_leader:
            status, written = 409, {"reason": "Conflict", "code": 409}
        elif is_lease:
            self.server.lease = written
        elif self.server.refuses:
            status, written = 403, {"reason": "Forbidden", "code": 403, "message": "no right to do so"}
        if status < 300:
            written.setdefault("metadata", {})["resourceVersion"] = "2"
        self.answer(status, written)

    def watch(self, path):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if not self.server.changes or not path.endswith("/trainingjobs"):
            self.rfile.read()  # until whoever watches goes; nothing ever changes
            return
        for number in itertools.count(2):
            for each in self.server.jobs:
                touched = {**each, "metadata": {**each["metadata"], "resourceVersion": str(number)}}
                event = json.dumps({"type": "MODIFIED", "object": touched}).encode() + b"\n"
                try:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                except OSError:  # whoever watched has gone
                    return
            time.sleep(SECONDS)

    def answer(self, status, body):
        text = json.dumps(body).encode()
        trickles = self.server.trickles and "/leases" not in self.path and "items" not in body
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(1_000_000 if trickles else len(text)))
        self.end_headers()
        if not trickles:
            self.wfile.write(text)
            return
        self.close_connection = True
        while self.server.trickles:
            self.wfile.write(b" ")
            time.sleep(SECONDS)

    def log_message(self, *_):
        """Nobody reads of requests."""
