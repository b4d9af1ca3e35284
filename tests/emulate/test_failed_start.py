"""An emulator that cannot start leaves no hosts behind."""

from pathlib import Path

import pytest
from trimtab_api.errors import UserError
from trimtab_netmon.emulate import emulator
from trimtab_netmon.emulate.emulator import Emulator
from trimtab_netmon.emulate.relay import RelayError
from trimtab_netmon.emulate.schedule import Network, Phase


@pytest.mark.parametrize("error", [RelayError("no TUN device"), KeyboardInterrupt()])
def test_the_hosts_that_were_made_are_removed_again(monkeypatch, error):
    added, removed = [], []

    def fail(*_):
        raise error

    monkeypatch.setattr(emulator, "available", lambda: None)
    monkeypatch.setattr(emulator.build, "build_relay", lambda: Path("relay"))
    monkeypatch.setattr(emulator.namespaces, "sweep", lambda: None)
    monkeypatch.setattr(emulator.namespaces, "add", added.append)
    monkeypatch.setattr(emulator.namespaces, "remove", removed.append)
    monkeypatch.setattr(emulator, "Relay", fail)
    with pytest.raises(UserError if isinstance(error, RelayError) else KeyboardInterrupt):
        Emulator(Network((Phase(1.0, 1e-3, 1e8),)), hosts=3).start()
    assert len(added) == 3
    assert removed == added
