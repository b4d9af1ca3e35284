"""`helm test`: apply a TrainingJob with one worker and wait until it has succeeded. Runs in the operator's image."""

import json
import os
import sys
import time

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

NAMESPACE, NAME, IMAGE = (os.environ[name] for name in ("NAMESPACE", "NAME", "IMAGE"))
DEADLINE = time.monotonic() + float(os.environ["TIMEOUT_SECONDS"])
PLACE = ("trimtab.dev", "v1alpha1", NAMESPACE, "trainingjobs")

TRAINER = {
    "name": "trainer",
    "image": IMAGE,
    "imagePullPolicy": "IfNotPresent",
    "command": ["python", "-m", "trimtab.workloads.digits", "--epochs", "1"],
    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}
JOB = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": NAME},
    "spec": {
        "workers": 1,
        "maxRestarts": 0,
        "template": {
            "spec": {
                "containers": [TRAINER],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
                "imagePullSecrets": json.loads(os.environ["IMAGE_PULL_SECRETS"]),
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            }
        },
    },
}


def remove(jobs):
    """Delete the job, and wait until it has gone."""
    try:
        jobs.delete_namespaced_custom_object(*PLACE, NAME, propagation_policy="Foreground")
        while time.monotonic() < DEADLINE:
            jobs.get_namespaced_custom_object(*PLACE, NAME)
            time.sleep(1)
    except ApiException as error:
        if error.status != 404:
            raise


def wait(jobs):
    """Return the job's last status: final, or as it was when time ran out."""
    shown, status = None, {}
    while time.monotonic() < DEADLINE:
        status = jobs.get_namespaced_custom_object(*PLACE, NAME).get("status", {})
        if (line := f"{status.get('state', 'not seen by the operator')}: {status.get('message', '')}") != shown:
            print(line, flush=True)
            shown = line
        if status.get("state") in ("Succeeded", "Failed"):
            break
        time.sleep(1)
    return status


def main():
    """Train; end with an error that names the job, which is kept, unless it succeeded."""
    config.load_incluster_config()
    jobs = client.CustomObjectsApi()
    remove(jobs)
    jobs.create_namespaced_custom_object(*PLACE, JOB)
    if wait(jobs).get("state") != "Succeeded":
        sys.exit(f"the job {NAME} did not succeed; it is kept: kubectl describe tj {NAME} -n {NAMESPACE}")
    remove(jobs)


if __name__ == "__main__":
    main()
