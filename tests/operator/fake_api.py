"""An API server on loopback whose answers the test makes up."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class MadeUpApi(ThreadingHTTPServer):
    """Answers every GET and DELETE with ``status`` and ``body``.

    Keeps the path and the headers of each in ``asked``, and the bodies of DELETEs in ``sent``.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked, self.sent, self.body, self.status = [], [], {}, 200

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers))
        text = json.dumps(self.server.body).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_DELETE(self):
        self.server.sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.do_GET()

    def log_message(self, *_):
        pass


@contextmanager
def fake_api():
    with MadeUpApi() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
