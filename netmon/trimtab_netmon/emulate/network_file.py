"""The file of an emulated network: read, checked, written.

::

    apiVersion: trimtab.dev/v1alpha1
    kind: Network
    phases:
      - {duration: 12s, latency: 1ms, bandwidth: 1Gbps}
      - duration: 12s
        latency: 1ms
        bandwidth: 1Gbps
        hosts: {"2": {bandwidth: 100Mbps}}
        links: [{from: 0, to: 1, latency: 30ms}]
    repeat: false

A phase's ``latency`` is one way, of every directed link; its ``bandwidth`` is every host's limit, in each direction,
shared by all flows of that host. ``hosts`` and ``links`` change single ones. The last phase holds after its end, or
with ``repeat`` the first follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from trimtab_api.errors import UserError
from trimtab_api.input_files import read_text
from trimtab_api.units import format_bandwidth, format_duration, parse_bandwidth, parse_duration
from trimtab_api.yaml import parse_yaml

from trimtab_netmon.emulate.schedule import Link, Network, Phase

API_VERSION = "trimtab.dev/v1alpha1"
KIND = "Network"

_HEAD = f"`apiVersion: {API_VERSION}` and `kind: {KIND}`"

#: Seconds of a phase: below, it is over before one packet has crossed it; above, it is taken for a slip of the unit.
MIN_DURATION = parse_duration("10ms")
MAX_DURATION = parse_duration("24h")
#: Seconds one way; anything longer is taken for a slip of the unit.
MAX_LATENCY = 10.0
#: Bytes per second: below, one packet takes seconds; above, this emulator cannot keep up.
MIN_BANDWIDTH = parse_bandwidth("100kbps")
MAX_BANDWIDTH = parse_bandwidth("10Gbps")


def load_network(path: str | Path) -> Network:
    """Read a network file.

    Raises:
        UserError: If the file is wrong; one line names file, field, value and remedy.
    """
    return parse_network(read_text(path, "a network"), str(path))


def parse_network(text: str, file: str = "") -> Network:
    """Read a network from the text of a file."""
    try:
        return _network(parse_yaml(text), file)
    except UserError as error:
        raise error.in_file(file) from None


def write_network(network: Network) -> str:
    """Return the text of a network's file; quantities keep three significant digits."""
    phases = []
    for phase in network.phases:
        entry: dict[str, Any] = {
            "duration": format_duration(phase.duration),
            **_quantities(phase.latency, phase.bandwidth),
        }
        if phase.hosts:
            entry["hosts"] = {str(host): _quantities(None, limit) for host, limit in phase.hosts.items()}
        if phase.links:
            entry["links"] = [
                {"from": link.source, "to": link.destination, **_quantities(link.latency, link.bandwidth)}
                for link in phase.links
            ]
        phases.append(entry)
    content = {"apiVersion": API_VERSION, "kind": KIND, "phases": phases, "repeat": network.repeat}
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)


# Each function below reads one level of the file; `path` is the field's name as the user would write it. -----------


def _network(content: object, file: str) -> Network:
    if content is None:
        raise UserError(f"is empty; write a network, which begins with {_HEAD}")
    if isinstance(content, dict) and content.get("kind") == "TrainingJob":
        raise UserError("is a job; name a network file here", field="kind", value="TrainingJob")
    fields = _mapping(content, "", {"apiVersion", "kind", "phases", "repeat"}, {"apiVersion", "kind", "phases"})
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if fields[name] != expected:
            raise UserError(f"write {expected}", field=name, value=str(fields[name]))
    phases = _list(fields["phases"], "phases")
    if not phases:
        raise UserError("write at least one phase", field="phases", value="[]")
    repeat = fields.get("repeat", False)
    if not isinstance(repeat, bool):
        raise UserError("write true or false", field="repeat", value=str(repeat))
    return Network(tuple(_phase(phase, f"phases[{i}]") for i, phase in enumerate(phases)), repeat, file)


def _phase(content: object, path: str) -> Phase:
    required = {"duration", "latency", "bandwidth"}
    fields = _mapping(content, path, required | {"hosts", "links"}, required)
    hosts = _mapping(fields.get("hosts", {}), f"{path}.hosts", None, set())
    links = _list(fields.get("links", []), f"{path}.links")
    parsed = tuple(_link(link, f"{path}.links[{i}]") for i, link in enumerate(links))
    seen = set()
    for i, link in enumerate(parsed):
        if (link.source, link.destination) in seen:
            raise UserError(
                "this link is named twice; keep one",
                field=f"{path}.links[{i}]",
                value=f"{link.source} to {link.destination}",
            )
        seen.add((link.source, link.destination))
    return Phase(
        duration=_duration(fields["duration"], f"{path}.duration"),
        latency=_latency(fields["latency"], f"{path}.latency"),
        bandwidth=_bandwidth(fields["bandwidth"], f"{path}.bandwidth"),
        hosts={_host(key, f"{path}.hosts"): _host_limit(value, f"{path}.hosts.{key}") for key, value in hosts.items()},
        links=parsed,
    )


def _host_limit(content: object, path: str) -> float:
    fields = _mapping(content, path, {"bandwidth"}, {"bandwidth"})
    return _bandwidth(fields["bandwidth"], f"{path}.bandwidth")


def _link(content: object, path: str) -> Link:
    fields = _mapping(content, path, {"from", "to", "latency", "bandwidth"}, {"from", "to"})
    link = Link(
        source=_host(fields["from"], f"{path}.from"),
        destination=_host(fields["to"], f"{path}.to"),
        latency=_latency(fields["latency"], f"{path}.latency") if "latency" in fields else None,
        bandwidth=_bandwidth(fields["bandwidth"], f"{path}.bandwidth") if "bandwidth" in fields else None,
    )
    if link.source == link.destination:
        raise UserError("a link joins two different hosts", field=f"{path}.to", value=str(link.destination))
    if link.latency is None and link.bandwidth is None:
        raise UserError("give the link a latency, a bandwidth or both", field=path)
    return link


def _mapping(content: object, path: str, known: set[str] | None, required: set[str]) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise UserError("write a mapping of fields", field=path, value=_short(content))
    fields = {str(key): value for key, value in content.items()}
    if len(fields) < len(content):  # 2 and "2" are two keys to YAML, and one host
        raise UserError("holds a name twice; keep one", field=path, value=_short(list(content)))
    for name in fields:
        if known is not None and name not in known:
            raise UserError(f"is not a field here; choose from {', '.join(sorted(known))}", field=_join(path, name))
    for name in sorted(required - fields.keys()):
        raise UserError("is missing; write it", field=_join(path, name))
    return fields


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _list(content: object, path: str) -> list[Any]:
    if not isinstance(content, list):
        raise UserError("write a list", field=path, value=_short(content))
    return content


def _host(content: object, path: str) -> int:
    text = str(content)
    if isinstance(content, bool) or not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise UserError("write a host's number: 0, 1, 2, ...", field=path, value=_short(content))
    return int(text)


def _duration(content: object, path: str) -> float:
    seconds = _quantity(content, path, parse_duration)
    if not MIN_DURATION <= seconds <= MAX_DURATION:
        raise UserError("a phase lasts 10ms to 24h; write such as 12s", field=path, value=_short(content))
    return seconds


def _latency(content: object, path: str) -> float:
    seconds = _quantity(content, path, parse_duration)
    if seconds > MAX_LATENCY:
        raise UserError(f"write at most {format_duration(MAX_LATENCY)}", field=path, value=_short(content))
    return seconds


def _bandwidth(content: object, path: str) -> float:
    bytes_per_second = _quantity(content, path, parse_bandwidth)
    if not MIN_BANDWIDTH <= bytes_per_second <= MAX_BANDWIDTH:
        limits = f"{format_bandwidth(MIN_BANDWIDTH)} to {format_bandwidth(MAX_BANDWIDTH)}"
        raise UserError(f"write {limits}", field=path, value=_short(content))
    return bytes_per_second


def _quantity(content: object, path: str, parse: Callable[[str], float]) -> float:
    try:
        return parse(str(content))
    except UserError as error:
        raise UserError(error.remedy, field=path, value=_short(content)) from None


def _short(content: object) -> str:
    text = "nothing" if content is None else str(content)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _quantities(latency: float | None, bandwidth: float | None) -> dict[str, str]:
    written = {}
    if latency is not None:
        written["latency"] = format_duration(latency)
    if bandwidth is not None:
        written["bandwidth"] = format_bandwidth(bandwidth)
    return written
