"""Tests of links, each run by the monitor at the link's source, and their results: record, budget and metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import grpc
from trimtab_api.netmon.v1 import netmon_pb2
from trimtab_api.rpc.channels import format_grpc_error

from trimtab_netmon.coordination.link_estimates import BandwidthRecords
from trimtab_netmon.coordination.probe_schedule import Budget, Pair
from trimtab_netmon.links import converters
from trimtab_netmon.metrics import Metrics
from trimtab_netmon.peers.channels import Peers
from trimtab_netmon.probing.bandwidth_prober import CALL_LIMIT

log = logging.getLogger("trimtab_netmon")

#: Most seconds that a failed test costs its hosts' budgets.
FAILURE_COST = 1.0
#: Tests of any links that have to fail in a row before the monitor says that it measures nothing.
FAILURES_TO_SAY = 3


class LinkTests:
    """The running tests.

    ``on_end`` is called at the end of each test, with whether it showed that the network has changed.
    """

    def __init__(
        self,
        peers: Peers,
        records: BandwidthRecords,
        budget: Budget,
        metrics: Metrics,
        on_end: Callable[[bool], None],
    ) -> None:
        self._peers = peers
        self._records = records
        self._budget = budget
        self._metrics = metrics
        self._on_end = on_end
        self._failures_in_a_row = 0
        self._last_failure = ""

    @property
    def problem(self) -> str:
        """The reason why all recent tests failed, in one sentence; empty if one succeeded."""
        if self._failures_in_a_row < FAILURES_TO_SAY:
            return ""
        return f"the last {self._failures_in_a_row} bandwidth tests failed: {self._last_failure}"

    async def run(self, batch: Sequence[Pair]) -> None:
        """Test links at the same time, with one starting time, so that no result supersedes another."""
        begun = time.monotonic()
        await asyncio.gather(*(self._run_one(pair, begun) for pair in batch))

    async def _run_one(self, pair: Pair, begun: float) -> None:
        source, target = pair
        request = netmon_pb2.TestBandwidthRequest(target=target, expected_bytes_per_second=self._records.expected(pair))
        has_changed = False
        try:
            answer = await self._peers.peer(source).TestBandwidth(request, timeout=2 * CALL_LIMIT)
            measurement, seconds, num_bytes = converters.test_result_from_proto(answer)
        except (grpc.aio.AioRpcError, converters.MalformedReplyError) as error:
            self._record_failure(pair, begun, error)
        else:
            self._budget.spend(pair, seconds, num_bytes, time.monotonic())
            self._failures_in_a_row = 0
            self._metrics.tests.inc()
            self._metrics.test_seconds.inc(seconds)
            self._metrics.test_bytes.inc(num_bytes)
            has_changed = self._records.succeed(pair, begun, measurement)
            if has_changed:
                log.info(
                    "the bandwidth of the link from worker %d to worker %d is now %.3g bytes/s",
                    source,
                    target,
                    measurement.value,
                )
        self._on_end(has_changed)

    def _record_failure(
        self, pair: Pair, begun: float, error: grpc.aio.AioRpcError | converters.MalformedReplyError
    ) -> None:
        """Note a failed test, which costs its hosts' budgets as well."""
        now = time.monotonic()
        reason = error.code().name.lower() if isinstance(error, grpc.aio.AioRpcError) else "nonsense"
        seconds = min(now - begun, FAILURE_COST)
        self._budget.spend(pair, seconds, self._records.expected(pair) * seconds, now)
        self._records.fail(pair, begun, now)
        self._metrics.failed_tests.labels(reason=reason).inc()
        why = format_grpc_error(error)
        if reason != "resource_exhausted":  # that host is in another test
            self._failures_in_a_row += 1
            self._last_failure = why
            if self._failures_in_a_row == FAILURES_TO_SAY:
                log.error("%s", self.problem)
        log.info("the test from worker %d to worker %d failed: %s", *pair, why)
