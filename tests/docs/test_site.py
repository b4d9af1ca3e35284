"""The site builds strictly: no link, anchor or page is missing, and nothing of it asks the network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from doc_pages import ROOT


def test_the_site_builds_strictly_and_asks_nobody_for_anything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    loads = re.compile(r"""<(?:script|link|img)\b[^>]*(?:src|href)=["']?(https?://[^"' >]+)""")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 60
    assert {url for page in pages for url in loads.findall(page.read_text("utf-8"))} == set()
