"""Network files: what can be written, and the one line that each mistake gets."""

from pathlib import Path

import pytest
from trimtab_api.errors import UserError
from trimtab_api.units import format_bandwidth, format_duration
from trimtab_netmon.emulate import Link, Network, Phase, load_network, network_file
from trimtab_netmon.emulate.emulator import MAX_HOSTS

EXAMPLES = Path(__file__).parents[2] / "examples" / "networks"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "network-file.md"
HEADER = "apiVersion: trimtab.dev/v1alpha1\nkind: Network\n"
FIELDS = "duration: 1s, latency: 1ms, bandwidth: 1Gbps"


def phases(*texts: str) -> str:
    return HEADER + "phases:\n" + "".join(f"  - {{{text}}}\n" for text in texts)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def load(text: str) -> Network:
        monkeypatch.chdir(tmp_path)
        Path("net.yaml").write_text(text)
        return load_network("net.yaml")

    return load


def test_the_reference_shows_a_network_that_can_be_read_and_names_the_limits(load):
    page = REFERENCE.read_text()
    network = load(page.partition("```yaml\n")[2].partition("```")[0])
    assert network.repeat
    assert [phase.duration for phase in network.phases] == [12.0, 90.0]
    assert network.phases[1].hosts == {2: 12.5e6}
    assert network.phases[1].links == (Link(0, 1, 0.03), Link(1, 0, 0.03, 1.25e6))
    assert f"{format_bandwidth(network_file.MIN_BANDWIDTH)} to {format_bandwidth(network_file.MAX_BANDWIDTH)}" in page
    assert f"{format_duration(network_file.MIN_DURATION)} to {network_file.MAX_DURATION / 3600:g}h" in page
    assert f"0ms to {format_duration(network_file.MAX_LATENCY)}" in page
    assert f"at most {MAX_HOSTS}." in page


def test_everything_that_can_be_written(load):
    text = phases(
        "duration: 12s, latency: 500us, bandwidth: 1Gbps",
        'duration: 1min, latency: 0ms, bandwidth: 100Mbps, hosts: {"2": {bandwidth: 10Mbps}, 0: {bandwidth: 1Mbps}}, '
        "links: [{from: 0, to: 1, latency: 30ms}, {from: 1, to: 0, bandwidth: 5Mbps}]",
    )
    assert load(text + "repeat: true\n") == Network(
        (
            Phase(12.0, 0.0005, 125e6),
            Phase(60.0, 0.0, 12.5e6, {2: 1.25e6, 0: 1.25e5}, (Link(0, 1, 0.03), Link(1, 0, None, 6.25e5))),
        ),
        repeat=True,
    )


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_the_examples_load_and_fill_about_a_minute(file: Path):
    network = load_network(file)
    network.check_hosts(4)
    assert network.duration <= 75
    assert network.repeat or network.duration >= 40
    assert max(phase.bandwidth for phase in network.phases) == 125e6


DURATION_UNITS = "write a duration such as 5ms or 2s (units: us, ms, s, min, h)"
BANDWIDTH_UNITS = "write a bandwidth such as 200Mbps or 1Gbps (units: bps, kbps, Mbps, Gbps)"

MISTAKES = {
    "empty": (
        "",
        "is empty; write a network, which begins with `apiVersion: trimtab.dev/v1alpha1` and `kind: Network`",
    ),
    "not YAML": (
        "phases: [\n",
        "is not valid YAML at line 2, column 1: expected the node content, but found '<stream end>'; mend it there",
    ),
    "a key twice": (
        phases(FIELDS + ", latency: 2ms"),
        "is not valid YAML at line 4, column 52: the key latency is written twice; mend it there",
    ),
    "too deep": (
        "[" * 3000,
        "is not valid YAML at line 1, column 65: more than 64 lists or mappings are in one another; mend it there",
    ),
    "a job": (
        "apiVersion: trimtab.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: digits}\nspec: {workers: 2}",
        "kind: 'TrainingJob': is a job; name a network file here",
    ),
    "a list": ("- 1", "'[1]': write a mapping of fields"),
    "another version": ("apiVersion: v1\nkind: Network\nphases: []", "apiVersion: 'v1': write trimtab.dev/v1alpha1"),
    "another kind": (
        "apiVersion: trimtab.dev/v1alpha1\nkind: Net\nphases: []",
        "kind: 'Net': write Network",
    ),
    "no phases": (HEADER, "phases: is missing; write it"),
    "empty phases": (HEADER + "phases: []", "phases: '[]': write at least one phase"),
    "phases not a list": (HEADER + "phases: 5", "phases: '5': write a list"),
    "phase not a mapping": (HEADER + "phases: [5]", "phases[0]: '5': write a mapping of fields"),
    "unknown field": (
        phases(FIELDS) + "repeats: true",
        "repeats: is not a field here; choose from apiVersion, kind, phases, repeat",
    ),
    "repeat not a boolean": (phases(FIELDS) + "repeat: maybe", "repeat: 'maybe': write true or false"),
    "missing field": (phases(FIELDS, "duration: 1s, latency: 1ms"), "phases[1].bandwidth: is missing; write it"),
    "no unit": (
        phases("duration: 12, latency: 1ms, bandwidth: 1Gbps"),
        f"phases[0].duration: '12': {DURATION_UNITS}",
    ),
    "no time": (
        phases("duration: 0s, latency: 1ms, bandwidth: 1Gbps"),
        "phases[0].duration: '0s': a phase lasts 10ms to 24h; write such as 12s",
    ),
    "no end": (
        phases("duration: 99999h, latency: 1ms, bandwidth: 1Gbps"),
        "phases[0].duration: '99999h': a phase lasts 10ms to 24h; write such as 12s",
    ),
    "more than a number holds": (
        phases(f"duration: {'9' * 400}h, latency: 1ms, bandwidth: 1Gbps"),
        f"phases[0].duration: '{'9' * 37}...': is more than can be computed with; write a duration such as 5ms or 2s",
    ),
    "negative": (
        phases("duration: 1s, latency: -1ms, bandwidth: 1Gbps"),
        f"phases[0].latency: '-1ms': {DURATION_UNITS}",
    ),
    "too far": (
        phases("duration: 1s, latency: 1min, bandwidth: 1Gbps"),
        "phases[0].latency: '1min': write at most 10s",
    ),
    "a size for a bandwidth": (
        phases("duration: 1s, latency: 1ms, bandwidth: 1GB"),
        f"phases[0].bandwidth: '1GB': {BANDWIDTH_UNITS}",
    ),
    "nothing for a bandwidth": (
        phases("duration: 1s, latency: 1ms, bandwidth:"),
        f"phases[0].bandwidth: 'nothing': {BANDWIDTH_UNITS}",
    ),
    "too narrow": (
        phases("duration: 1s, latency: 1ms, bandwidth: 0Gbps"),
        "phases[0].bandwidth: '0Gbps': write 100kbps to 10Gbps",
    ),
    "too wide": (
        phases("duration: 1s, latency: 1ms, bandwidth: 40Gbps"),
        "phases[0].bandwidth: '40Gbps': write 100kbps to 10Gbps",
    ),
    "host by name": (
        phases(FIELDS + ", hosts: {worker: {bandwidth: 1Gbps}}"),
        "phases[0].hosts: 'worker': write a host's number: 0, 1, 2, ...",
    ),
    "host of many digits": (
        phases(FIELDS + f", hosts: {{'{'9' * 900}': {{bandwidth: 1Gbps}}}}"),
        f"phases[0].hosts: '{'9' * 37}...': write a host's number: 0, 1, 2, ...",
    ),
    "a host twice": (
        phases(FIELDS + ", hosts: {2: {bandwidth: 1Gbps}, '2': {bandwidth: 1Mbps}}"),
        "is not valid YAML at line 4, column 83: the key 2 is written twice; mend it there",
    ),
    "latency of a host": (
        phases(FIELDS + ", hosts: {2: {latency: 1ms}}"),
        "phases[0].hosts.2.latency: is not a field here; choose from bandwidth",
    ),
    "host without field": (
        phases(FIELDS + ", hosts: {2: 100Mbps}"),
        "phases[0].hosts.2: '100Mbps': write a mapping of fields",
    ),
    "half a link": (
        phases(FIELDS + ", links: [{from: 0, latency: 1ms}]"),
        "phases[0].links[0].to: is missing; write it",
    ),
    "link to itself": (
        phases(FIELDS + ", links: [{from: 1, to: 1, latency: 1ms}]"),
        "phases[0].links[0].to: '1': a link joins two different hosts",
    ),
    "link that says nothing": (
        phases(FIELDS + ", links: [{from: 0, to: 1}]"),
        "phases[0].links[0]: give the link a latency, a bandwidth or both",
    ),
    "link named twice": (
        phases(FIELDS + ", links: [{from: 0, to: 1, latency: 1ms}, {from: 0, to: 1, latency: 2ms}]"),
        "phases[0].links[1]: '0 to 1': this link is named twice; keep one",
    ),
    "a long value": (
        HEADER + "phases: " + "x" * 100,
        f"phases: '{'x' * 37}...': write a list",
    ),
}


@pytest.mark.parametrize(("text", "line"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_gets_one_line(load, text: str, line: str):
    with pytest.raises(UserError) as raised:
        load(text)
    assert str(raised.value) == f"net.yaml: {line}"


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(UserError) as raised:
        load_network(tmp_path / "none.yaml")
    assert str(raised.value) == f"{tmp_path}/none.yaml: cannot be read (No such file or directory); check the path"


def test_a_file_that_is_no_text(tmp_path: Path):
    (tmp_path / "net.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError) as raised:
        load_network(tmp_path / "net.yaml")
    assert str(raised.value) == f"{tmp_path}/net.yaml: is not a text file; write a network in YAML"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (", hosts: {4: {bandwidth: 1Mbps}}", "net.yaml: phases[0].hosts: '4': there are 4 hosts, 0 to 3"),
        (
            ", links: [{from: 0, to: 7, latency: 1ms}]",
            "net.yaml: phases[0].links[0].to: '7': there are 4 hosts, 0 to 3",
        ),
    ],
)
def test_a_host_that_does_not_exist(load, fields: str, line: str):
    network = load(phases(FIELDS + fields))
    with pytest.raises(UserError) as raised:
        network.check_hosts(4)
    assert str(raised.value) == line
