"""A network emulator: hosts on one machine, latency and bandwidth that change over time."""

from trimtab_netmon.emulate.emulator import Emulator, Host, available
from trimtab_netmon.emulate.network_file import load_network, write_network
from trimtab_netmon.emulate.relay import Lag, RelayError, RelayReport
from trimtab_netmon.emulate.schedule import Link, Network, Phase, random_network

__all__ = [
    "Emulator",
    "Host",
    "Lag",
    "Link",
    "Network",
    "Phase",
    "RelayError",
    "RelayReport",
    "available",
    "load_network",
    "random_network",
    "write_network",
]
