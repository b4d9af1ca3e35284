#!/usr/bin/python3 -IS
"""runc, but a container whose image asks for files of this machine gets them (`e2e/machine_images.py` makes such).

containerd calls it in place of runc. It changes nothing for any other container.
"""

import json
import os
import shutil
import sys

#: In an image's environment: JSON, from a folder of this machine to where the container sees it.
VARIABLE = "TRIMTAB_TEST_MACHINE_FILES"


def add_mounts(path: str) -> None:
    """Add what an image asks for to the container's configuration."""
    with open(path) as file:
        configuration = json.load(file)
    asked = [each for each in configuration["process"].get("env", ()) if each.startswith(f"{VARIABLE}=")]
    if not asked:
        return
    for source, destination in sorted(json.loads(asked[0].partition("=")[2]).items()):
        mount = {"type": "bind", "source": source, "destination": destination, "options": ["rbind", "ro"]}
        configuration["mounts"].append(mount)
    with open(path, "w") as file:
        json.dump(configuration, file)


def main(arguments: list[str]) -> None:
    """Do as runc does."""
    if "create" in arguments:
        bundle = arguments[arguments.index("--bundle") + 1]
        add_mounts(os.path.join(bundle, "config.json"))
    runc = shutil.which("runc", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin:/sbin:/bin")
    os.execv(runc or "/usr/sbin/runc", ["runc", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
