"""Whether the traffic that arrives at a worker proves its links' bandwidths wrong. Pure: times go in."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab_netmon.coordination.link_estimates import BandwidthRecords
from trimtab_netmon.coordination.probe_schedule import Pair
from trimtab_netmon.links.measurements import LinkState

#: A worker that receives more than this times the fastest link to it proves its links' bandwidths wrong.
MORE_ARRIVES = 1.25
#: Seconds for which a report of received traffic reaches back; a test begun within them may be part of that traffic.
EVIDENCE_SPAN = 5.0


class ArrivalEvidence:
    """Compares received traffic with what links are believed to carry, and casts doubt on their records."""

    def __init__(self, records: BandwidthRecords) -> None:
        self._records = records
        self._counted: dict[int, tuple[float, float]] = {}
        """By worker: the traffic [bytes/s] that last cast doubt on its links, and the records' `changed_at` then."""

    def flag_stale(self, worker: int, rate: float, links: Mapping[Pair, LinkState], now: float) -> bool:
        """Doubt the links to a worker that receives ``rate`` [bytes/s], more than they carry; whether any is doubted.

        The same traffic counts once: until the network changes, only more traffic than that is new evidence.
        """
        incoming = {pair: link.bandwidth for pair, link in links.items() if pair[1] == worker}
        most = max((bandwidth.value for bandwidth in incoming.values() if bandwidth.is_fresh), default=0.0)
        counted, changed_at = self._counted.get(worker, (0.0, 0.0))
        if changed_at == self._records.changed_at:
            most = max(most, counted)
        if not 0 < MORE_ARRIVES * most < rate:
            return False
        if not self._records.doubt(incoming, now - EVIDENCE_SPAN):
            return False
        self._counted[worker] = (rate, self._records.changed_at)
        return True
