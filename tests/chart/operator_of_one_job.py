"""The operator on an API server that knows one job: it is elected, lists the job and looks after it.

`python operator_of_one_job.py PORT DIRECTORY`. The API server takes whatever the operator writes, and forgets it.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import dashboards
from trimtab_operator.main import main

CONTAINER = {"name": "trainer", "image": "trainer", "command": ["python", "train.py"]}
STATUS = {
    "state": "Running", "step": 7, "loss": 0.5, "startTime": "2026-03-01T12:00:00Z",
    "conditions": [{"type": "Started", "status": "True", "reason": "WorkersReady", "message": "",
                    "observedGeneration": 1, "lastTransitionTime": "2026-03-01T12:00:30Z"}],
}  # fmt: skip
JOB = {
    "metadata": {
        "namespace": dashboards.NAMESPACE, "name": dashboards.JOB, "uid": "u", "generation": 1, "resourceVersion": "1",
    },
    "spec": {"workers": 2, "template": {"spec": {"containers": [CONTAINER]}}},
    "status": STATUS,
}  # fmt: skip


class Answer(BaseHTTPRequestHandler):
    lease = None

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if "watch=true" in query:
            self.send_response(200)
            self.end_headers()
            self.rfile.read()  # until whoever watches goes; nothing ever changes
        elif path.endswith(("/trainingjobs", "/jobs", "/pods")):
            items = [JOB] if path.endswith("/trainingjobs") else []
            self.answer(200, {"metadata": {"resourceVersion": "1"}, "items": items})
        elif "/leases/" in path and Answer.lease is not None:
            self.answer(200, Answer.lease)
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
        if "/leases" in self.path:
            Answer.lease = written
        written.setdefault("metadata", {})["resourceVersion"] = "2"
        self.answer(status, written)

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """Nobody reads of requests."""


if __name__ == "__main__":
    port, directory = sys.argv[1], Path(sys.argv[2])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster]}
    (directory / "kubeconfig").write_text(
        json.dumps({**kubeconfig, "contexts": [context], "users": [{"name": "u", "user": {}}]})
    )
    sys.exit(main(["--netmon-image=netmon:1", f"--port={port}"]))
