"""A page in Chromium, without a window or a network: what a script finds in it, and what the browser complains of."""

import html
import json
import re
import subprocess
from pathlib import Path

#: What a test's script writes its answer into, as JSON.
_ANSWER = "answer-of-the-test"
_COMPLAINT = re.compile(r":(?:ERROR|WARNING|INFO):CONSOLE[^\]]*\] \"(.*)\", source")


def look(page: str, script: str, directory: Path, *, dark: bool, width: int = 1200) -> tuple[object, list[str]]:
    """What ``script``, the body of a function, returns in the page; and what the console says of the page.

    Nothing is found under any name, so a page that loads something complains.
    """
    asking = f"document.body.append(Object.assign(document.createElement('pre'), {{id: '{_ANSWER}'}}));"
    telling = f"document.getElementById('{_ANSWER}').textContent = JSON.stringify(answer);"
    asked = f"<script>const answer = (() => {{ {script} }})(); {asking} {telling}</script>"
    file = directory / "page.html"
    file.write_text(page.replace("</body>", f"{asked}</body>"), encoding="utf-8")
    done = _run(file, directory, "--dump-dom", dark=dark, size=(width, 900))
    found = re.search(f'<pre id="{_ANSWER}">(.*?)</pre>', done.stdout, re.DOTALL)
    complaints = _COMPLAINT.findall(done.stderr)
    assert found, f"the script ended early: {complaints}"
    return json.loads(html.unescape(found[1])), complaints


def take_picture(page: str, picture: Path, directory: Path, *, dark: bool, size: tuple[int, int]) -> None:
    """Write what the top left of the page looks like, ``size`` pixels of it, into a PNG."""
    file = directory / "page.html"
    file.write_text(page, encoding="utf-8")
    _run(file, directory, f"--screenshot={picture}", dark=dark, size=size)


def _run(
    file: Path, directory: Path, *what: str, dark: bool, size: tuple[int, int]
) -> subprocess.CompletedProcess[str]:
    flags = [
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
        f"--user-data-dir={directory / 'browser'}",
        f"--window-size={size[0]},{size[1]}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        *("--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"),
    ]
    return subprocess.run(
        ["chromium", *flags, *what, file.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
