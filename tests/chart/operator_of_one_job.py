"""The operator on an API server that knows one job: it is elected, lists the job and looks after it.

`python operator_of_one_job.py PORT DIRECTORY`. The API server takes whatever the operator writes, and forgets it.
"""

import sys
from pathlib import Path

import dashboards
from fake_api_server import ApiServer
from trimtab_operator.main import main

if __name__ == "__main__":
    port, directory = sys.argv[1], Path(sys.argv[2])
    (directory / "kubeconfig").write_text(ApiServer([dashboards.JOB]).kubeconfig())
    sys.exit(main(["--netmon-image=netmon:1", f"--port={port}"]))
