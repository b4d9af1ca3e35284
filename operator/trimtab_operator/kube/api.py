"""Requests to the API server in plain data: a typed pod costs twenty times what a dict does.

The official client brings the address, trust and credentials; its way of sending would take as long as the rest of a
request does here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from urllib3.response import BaseHTTPResponse

from trimtab_operator.kube.pages import decode_page
from trimtab_operator.kube.rate_limit import RateLimit
from trimtab_operator.kube.resources import Object, Resource
from trimtab_operator.observability import metrics

#: Owner of the fields that the operator applies.
FIELD_MANAGER = "trimtab-operator"
#: Seconds that any request but a watch may take to connect, and then to answer; it is sent once. Whoever sends it tries
#: again, after a pause.
TIMEOUT = (3.0, 10.0)
#: Seconds after which the credentials are asked for anew: a token may have expired.
CREDENTIAL_SECONDS = 10.0

#: Answers to writes hold only the object's metadata: nobody reads the rest, which would be encoded, sent and decoded.
_HEAD = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"

#: Exceptions of a request that is nobody's fault, and that may be tried again.
Unreachable = (urllib3.exceptions.HTTPError, OSError)


class RefusedError(Exception):
    """The API server's refusal of a request."""

    def __init__(self, status: int, reason: str, message: str, fields: tuple[str, ...] = ()) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        """One word, such as AlreadyExists."""
        self.message = message
        self.fields = fields
        """The field of each cause that it names; empty for the object as a whole, as where a policy refuses it."""


def connect(num_connections: int) -> ApiClient:
    """Return a client from KUBECONFIG, else from the pod this runs in, else from ~/.kube/config."""
    if "KUBECONFIG" in os.environ or not os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"):
        config.load_kube_config()
    else:
        config.load_incluster_config()
    settings = Configuration.get_default_copy()
    settings.connection_pool_maxsize = num_connections
    settings.retries = False  # by default a request that timed out is sent three times more
    Configuration.set_default(settings)
    return ApiClient(settings)


class Api:
    """The requests that the operator makes.

    Every method may raise `RefusedError`, or one of `Unreachable`.
    """

    def __init__(self, client: ApiClient, limit: RateLimit | None = None) -> None:
        """Connect through ``client``; ``limit`` is for all requests but watches (None: there is none)."""
        self.client = client
        self._limit = limit
        server = urllib3.util.parse_url(client.configuration.host)
        self._prefix = (server.path or "").rstrip("/")
        self._connections = client.rest_client.pool_manager.connection_from_url(server.url)
        self._authorized: dict[str, str] = {}
        self._authorized_at = float("-inf")

    def get(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        """Return an object as it is now; None if there is none. A node has no namespace."""
        text = self.get_text(resource, namespace, name)
        return None if text is None else json.loads(text)

    def get_text(self, resource: Resource, namespace: str | None, name: str) -> bytes | None:
        """Return an object as it is now, as JSON text; None if there is none."""
        try:
            return self.send("GET", resource.path(namespace, name))
        except RefusedError as refusal:
            if refusal.status == 404:
                return None
            raise

    def list(
        self,
        resource: Resource,
        namespace: str | None,
        trim: Callable[[Object], None] = lambda _: None,
        **query: str | int,
    ) -> Object:
        """Return a page of a collection, each of its items cut down in place by ``trim``."""
        return decode_page(self.send("GET", resource.path(namespace), query=query).decode(), trim)

    def watch(
        self, resource: Resource, namespace: str | None, read_timeout: float, **query: str | int
    ) -> BaseHTTPResponse:
        """Open a stream of events, one JSON line each."""
        timeout = (TIMEOUT[0], read_timeout)
        return self._open("GET", resource.path(namespace), query={"watch": "true", **query}, timeout=timeout)

    def create(self, resource: Resource, manifest: Object) -> None:
        """Create an object.

        Raises:
            RefusedError: With reason AlreadyExists if there is one of that name, with BadRequest if it holds a field
                that the API server does not know, or one of another type.
        """
        path = resource.path(manifest["metadata"]["namespace"])
        # Strict: else a field that the user misspelt in the template would be left out without a word.
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        self.send("POST", path, query=query, body=manifest, accept=_HEAD)

    def apply(self, resource: Resource, manifest: Object, subresource: str = "") -> Object:
        """Apply a manifest on the server's side: its fields become the operator's. Return the object's metadata.

        Fields that an earlier apply set and this one does not are removed. Fields that `create` set are not: the API
        server takes a manager that creates and one that applies for two, though they have one name.
        """
        metadata = manifest["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"], subresource)
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        answer = self.send("PATCH", path, query=query, body=manifest, content_type=_APPLY, accept=_HEAD)
        applied: Object = json.loads(answer)
        return applied

    def merge(self, resource: Resource, namespace: str, name: str, change: Object) -> None:
        """Change only the fields that are named."""
        query = {"fieldManager": FIELD_MANAGER}
        path = resource.path(namespace, name)
        self.send("PATCH", path, query=query, body=change, content_type=_MERGE, accept=_HEAD)

    def delete(self, resource: Resource, namespace: str, name: str, uid: str, version: str = "") -> None:
        """Delete that very object, and before it whatever it owns; no error if it is gone.

        With a ``version``, its resource version, the object is deleted only if it is still as it was then.
        """
        preconditions = {"uid": uid, **({"resourceVersion": version} if version else {})}
        body = {"propagationPolicy": "Foreground", "preconditions": preconditions}
        try:
            self.send("DELETE", resource.path(namespace, name), body=body)
        except RefusedError as refusal:
            if refusal.status not in (404, 409):  # 409: another object has the name by now, or it has changed
                raise

    def send(self, method: str, path: str, **options: Any) -> bytes:
        """Send any request, with `query`, `body`, `content_type` and `accept`; return the answer."""
        if self._limit is not None:
            self._limit.wait()
        response = self._open(method, path, **options)
        data: bytes = response.data  # read to its end even if nobody wants it: else the connection is lost
        return data

    def _credentials(self) -> dict[str, str]:
        """Return the headers that say who asks.

        The official client takes a fifth of a request's time to compute them, so they are kept for a while.
        """
        now = time.monotonic()
        if now - self._authorized_at >= CREDENTIAL_SECONDS:
            headers = dict(self.client.default_headers)
            self.client.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
            self._authorized, self._authorized_at = headers, now
        return self._authorized

    def _open(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: tuple[float, float] | None = None,
    ) -> BaseHTTPResponse:
        connecting, answering = timeout or TIMEOUT
        headers = {**self._credentials(), "Accept": accept, "Content-Type": content_type}
        try:
            response: BaseHTTPResponse = self._connections.urlopen(
                method,
                f"{self._prefix}{path}?{urlencode(query)}" if query else self._prefix + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=connecting, read=answering),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except Unreachable:
            metrics.API_REQUESTS.labels(method=method, code="no answer").inc()
            raise
        metrics.API_REQUESTS.labels(method=method, code=str(response.status)).inc()
        if response.status >= 300:
            raise _refusal(response.status, response.data)
        return response


def _refusal(status: int, text: bytes) -> RefusedError:
    try:
        said = json.loads(text)
        causes = (said.get("details") or {}).get("causes") or ()
        fields = tuple(str(cause.get("field") or "") for cause in causes)
        return RefusedError(status, said.get("reason", ""), said.get("message", ""), fields)
    except (ValueError, AttributeError, TypeError):
        return RefusedError(status, "", text.decode(errors="replace")[:500])


def as_api_exception(refusal: RefusedError) -> ApiException:
    """Convert a refusal to the exception that the official client's informer knows (it lists anew after 410)."""
    return ApiException(status=refusal.status, reason=f"{refusal.reason}: {refusal.message}")
