"""The TrainingJobs of a cluster, listed once and then watched."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trimtab_api.errors import UserError
from trimtab_api.trainingjob.types import API_VERSION

from trimtab.k8s.job_row import JobRow

try:
    import urllib3
    from kubernetes import client, config, watch
    from kubernetes.client.exceptions import ApiException
except ImportError:
    raise UserError("needs the Kubernetes client: pip install 'trimtab[cluster]'", field="trimtab top") from None

_GROUP, _VERSION = API_VERSION.split("/")
#: Seconds that the API server may take to connect, and then to answer.
_TIMEOUT = (3.0, 10.0)
#: Seconds after which the server ends a watch, which then goes on where it ended.
_WATCH_SECONDS = 300
#: Seconds until a list is tried again after one that failed.
_RETRY_SECONDS = 2.0
#: Seconds that a watch may take to end.
_END_SECONDS = 1.0
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Jobs:
    """The TrainingJobs of one namespace, or of all; or those of one name."""

    def __init__(
        self, kubeconfig: Path | None, namespace: str | None, *, everywhere: bool, name: str | None = None
    ) -> None:
        """Connect by the kubeconfig; else by KUBECONFIG, the pod of this process, or ``~/.kube/config``.

        Args:
            kubeconfig: File that says where the API server is.
            namespace: Whose jobs; None: that of the context, or of the pod.
            everywhere: Whether the jobs of all namespaces count.
            name: Of a single job.

        Raises:
            UserError: No cluster is configured.
        """
        settings = client.Configuration()
        own = _configure(settings, kubeconfig)
        settings.retries = False  # else whoever waits for an answer waits for several
        self._api = client.CustomObjectsApi(client.ApiClient(settings))
        self._server = settings.host
        self.namespace = None if everywhere else namespace or own
        """None: all."""
        self.name = name
        """None: of any."""
        self._rows: dict[tuple[str, str], JobRow] = {}
        self._lock = threading.Lock()
        self._version = ""
        self.trouble = ""
        """The reason why what is shown may be old, in a line; empty while the API server answers."""
        self._stream: watch.Watch | None = None
        self._is_closed = threading.Event()

    def rows(self) -> list[JobRow]:
        """Return all jobs as they are known now, by namespace and name."""
        with self._lock:
            return [row for _, row in sorted(self._rows.items())]

    def refresh(self) -> None:
        """Ask for all of them. Raises `UserError` that says in a line what is wrong, and the remedy."""
        try:
            answer: Any = self._call(_request_timeout=_TIMEOUT)
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._explained(error) from None
        with self._lock:
            self._rows = {(row.namespace, row.name): row for row in map(JobRow.of, answer["items"])}
            self._version = answer["metadata"]["resourceVersion"]

    @contextmanager
    def watched(self, changed: Callable[[], None]) -> Iterator[None]:
        """Let rows follow what happens within; ``changed`` is called, on another thread, after each change."""
        thread = threading.Thread(target=self._follow, args=(changed,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_closed.set()
            if self._stream is not None:
                self._stream.stop()
            # A thread that is woken while the interpreter ends aborts the process. One that waits for a server that is
            # away is not: it need not be waited for.
            thread.join(_END_SECONDS)

    def _follow(self, changed: Callable[[], None]) -> None:
        while not self._is_closed.is_set():
            try:
                self._watch(changed)
                self.trouble = ""
            except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
                if self._is_closed.is_set():
                    return
                if not (isinstance(error, ApiException) and error.status == 410):  # the version is too old: list anew
                    self.trouble = str(self._explained(error))
                    changed()
                    self._is_closed.wait(_RETRY_SECONDS)
                self._refresh(changed)

    def _refresh(self, changed: Callable[[], None]) -> None:
        try:
            self.refresh()
            self.trouble = ""
        except UserError as error:
            self.trouble = str(error)
        changed()

    def _watch(self, changed: Callable[[], None]) -> None:
        self._stream = watch.Watch()
        options = {"resource_version": self._version, "timeout_seconds": _WATCH_SECONDS, "allow_watch_bookmarks": True}
        patience = (_TIMEOUT[0], _WATCH_SECONDS + _TIMEOUT[1])  # a connection that is lost in silence ends too
        for event in self._stream.stream(self._call, **options, _request_timeout=patience):
            told = event["raw_object"]
            self._version = told["metadata"]["resourceVersion"]
            if event["type"] == "BOOKMARK":
                continue
            row = JobRow.of(told)
            with self._lock:
                if event["type"] == "DELETED":
                    self._rows.pop((row.namespace, row.name), None)
                else:
                    self._rows[row.namespace, row.name] = row
            changed()

    def _call(self, **options: Any) -> Any:
        """Return a list of jobs, or a stream of what happens to them.

        :return: object
        """
        if self.name is not None:
            options["field_selector"] = f"metadata.name={self.name}"
        if self.namespace is None:
            return self._api.list_cluster_custom_object(_GROUP, _VERSION, "trainingjobs", **options)
        return self._api.list_namespaced_custom_object(_GROUP, _VERSION, self.namespace, "trainingjobs", **options)

    def _explained(self, error: Exception) -> UserError:
        """Return what is wrong, and the remedy."""
        if not isinstance(error, ApiException):
            return UserError(
                "does not answer; see that the cluster runs and can be reached from here, or choose another context",
                field="API server",
                value=self._server,
            )
        remedies = {
            401: "does not know who asks; renew the credentials of the kubeconfig",
            403: "does not let you list and watch trainingjobs"
            + (" in all namespaces; name one by -n" if self.namespace is None else f" in namespace {self.namespace}")
            + ", or ask for the role view there",
            404: "knows no TrainingJob; install Trimtab there: helm install trimtab charts/trimtab",
        }
        reason = f"answers {error.status} {error.reason}; try again, or see its log"
        return UserError(remedies.get(error.status or 0, reason), field="API server", value=self._server)


def _configure(settings: client.Configuration, kubeconfig: Path | None) -> str:
    """Set where the API server is and how to log in; return the namespace of the caller."""
    try:
        if kubeconfig is None and "KUBECONFIG" not in os.environ and _POD_NAMESPACE.exists():
            config.load_incluster_config(client_configuration=settings)
            return _POD_NAMESPACE.read_text().strip()
        file = None if kubeconfig is None else str(kubeconfig)
        config.load_kube_config(file, client_configuration=settings)
        _, context = config.list_kube_config_contexts(file)
    except (config.ConfigException, OSError) as error:
        remedy = f"names no cluster ({' '.join(str(error).split())}); give --kubeconfig FILE, or set KUBECONFIG"
        where = str(kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config"))
        raise UserError(remedy, field="kubeconfig", value=where) from None
    return str(context["context"].get("namespace") or "default")
