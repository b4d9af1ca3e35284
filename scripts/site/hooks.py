"""Hooks of the documentation site (`mkdocs.yml`): the order of sections, their index pages, links to sources.

The navigation is the folders. A folder without ``index.md`` gets one that lists its pages: title and first sentence.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from mkdocs.structure.nav import Section

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/trimtab/trimtab/blob/main/"
#: Folders in the order of the navigation, with their titles and what a reader finds there.
SECTIONS = {
    "tutorials": ("Tutorials", "Learn Trimtab step by step. Each tutorial takes about 15 minutes."),
    "how-to": ("How-to guides", "Solve one task. Each guide assumes that you have finished the first tutorial."),
    "how-to/alerts": ("Alerts", "What each Prometheus alert means, and what to do."),
    "reference": ("Reference", "Look up a field, a command, a metric or a term."),
    "explanation": ("Explanation", "Understand how Trimtab works and why."),
    "adr": ("Decision records", "Why Trimtab is built as it is: one decision a page."),
    "benchmarks": ("Benchmarks", "What was measured, and how to repeat it."),
}
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
_LOG = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Any, config: Any) -> Any:
    """Add an index page to each folder that has none."""
    folders = {posixpath.dirname(file.src_uri) for file in files.documentation_pages()}
    for folder in sorted(folders & SECTIONS.keys()):
        if files.get_file_from_path(f"{folder}/index.md") is None:
            files.append(File.generated(config, f"{folder}/index.md", content=_index(folder, files)))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Put the sections in order, and give them their titles."""
    order = {title: number for number, (title, _) in enumerate(SECTIONS.values())}
    _name_sections(nav.items)
    nav.items.sort(key=lambda item: order.get(item.title, -1))
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links that leave the documentation into links to the repository; warn if their file is missing."""
    folder = posixpath.dirname(page.file.src_uri)

    def target(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, found[1]))
        if "://" in found[1] or path.startswith("docs/") or found[1].startswith("mailto:"):
            return found[0]
        if not (ROOT / path).exists():
            _LOG.warning("%s links to %s, which does not exist", page.file.src_uri, path)
        return f"{REPOSITORY}{path}{found[2] or ''}"

    blocks = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(block if block.startswith("```") else _LINK.sub(target, block) for block in blocks)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Load the worker that searches pages opened from disk from the site itself, and not from a CDN."""
    depth = page.file.dest_uri.count("/")
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{'../' * depth}iframe-worker.js")


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Do the same for the page of a missing address."""
    return output_content.replace("https://unpkg.com/iframe-worker/shim", "iframe-worker.js")


def _name_sections(items: list[Any]) -> None:
    for item in items:
        if isinstance(item, Section):
            _name_sections(item.children)
            page = next((child for child in item.children if child.is_page), None)
            if page is not None and (known := SECTIONS.get(posixpath.dirname(page.file.src_uri))):
                item.title = known[0]


def _index(folder: str, files: Any) -> str:
    title, summary = SECTIONS[folder]
    lines = [f"# {title}", "", summary, ""]
    for file in sorted(files.documentation_pages(), key=lambda file: file.src_uri):
        if posixpath.dirname(file.src_uri) == folder and file.name != "index":
            name, sentence = _head(file.content_string)
            lines.append(f"- [{name or file.name}]({posixpath.basename(file.src_uri)}){sentence and f': {sentence}'}")
    if f"{folder}/alerts" in SECTIONS:
        lines.append("- [Alerts](alerts/index.md): what each Prometheus alert means, and what to do.")
    return "\n".join(lines) + "\n"


def _head(text: str) -> tuple[str, str]:
    """Return a page's title, and the first sentence after it without links."""
    _, _, rest = text.partition("# ")
    title, _, rest = rest.partition("\n")
    blocks = (block.strip() for block in re.sub(r"<!--.*?-->", "", rest, flags=re.DOTALL).split("\n\n"))
    paragraph = next((block for block in blocks if block and block[0] not in "#|-*!`<>:"), "")
    sentence = re.split(r"(?<=[.:])\s", " ".join(paragraph.split()), maxsplit=1)[0]
    return title.strip(), re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence).rstrip(":")
