"""Prints the bandwidth of every link that a monitor knows, one JSON line a revision: ``print_links.py ADDRESS``.

An object by ``source-target``, in bytes per second; a link that was not tested since the network changed is left out.
"""

import json
import sys

import grpc
from trimtab_api.netmon.v1 import netmon_pb2, netmon_pb2_grpc

with grpc.insecure_channel(sys.argv[1]) as channel:
    monitor = netmon_pb2_grpc.NetworkMonitorStub(channel)
    for state in monitor.WatchNetworkState(netmon_pb2.WatchNetworkStateRequest(), wait_for_ready=True, timeout=3600):
        known = {
            f"{link.source}-{link.target}": link.bandwidth.value
            for link in state.links
            if link.bandwidth.value > 0 and not link.bandwidth.stale
        }
        print(json.dumps(known), flush=True)
