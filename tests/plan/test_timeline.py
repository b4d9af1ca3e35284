"""The model of a step: what waits for what, over one link and over two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab.plan.timeline import (
    BufferTimes,
    Readiness,
    Transfer,
    iteration_seconds,
    mean_iteration_seconds,
    simulate,
    transfers_of,
)
from trimtab.plan.timetable import Iteration, Send

COMPUTE = 3.0
#: Two buffers, complete after 2 and after 3 seconds.
TWO = BufferTimes((2.0, 3.0), (0.5, 0.5), (4.0, 1.0))
WAIT_FREE = (Transfer(0), Transfer(1))


def spans(timeline, what):
    return [(s.buffer, s.begin, s.end) for s in timeline.spans if s.what == what]


def test_a_buffer_is_compressed_when_it_is_full_and_sent_when_the_link_is_free():
    timeline = simulate(COMPUTE, TWO, [WAIT_FREE])
    assert spans(timeline, "compress") == [(0, 2.0, 2.5), (1, 3.0, 3.5)]
    assert spans(timeline, "send") == [(0, 2.5, 6.5), (1, 6.5, 7.5)]
    assert timeline.ends == (7.5,)


def test_after_backward_nothing_begins_before_it_has_ended():
    timeline = simulate(COMPUTE, TWO, [(Transfer(0, "backward"), Transfer(1, "backward"))])
    assert spans(timeline, "compress") == [(0, 3.0, 3.5), (1, 3.5, 4.0)]


def test_what_waits_since_an_earlier_iteration_is_sent_at_once():
    timeline = simulate(COMPUTE, TWO, [(Transfer(1, "at once"), Transfer(0))])
    assert spans(timeline, "send") == [(1, 0.5, 1.5), (0, 2.5, 6.5)]


def test_sends_cross_in_the_order_that_is_given_however_long_the_first_takes_to_fill():
    timeline = simulate(COMPUTE, TWO, [(Transfer(1), Transfer(0))])
    assert spans(timeline, "send") == [(1, 3.5, 4.5), (0, 4.5, 8.5)]


def test_a_second_link_takes_its_own_sends_and_its_own_time_while_compression_is_shared():
    two = TWO._replace(link_slowness=(1.0, 1.5))
    timeline = simulate(COMPUTE, two, [(Transfer(0, link=1), Transfer(1))])
    assert spans(timeline, "send") == [(0, 2.5, 8.5), (1, 3.5, 4.5)]
    assert spans(timeline, "compress") == [(0, 2.0, 2.5), (1, 3.0, 3.5)]


def test_links_that_share_an_interface_wait_for_each_others_bytes_but_not_for_their_startups():
    shared = BufferTimes((1.0, 1.5, 2.0), (0.0,) * 3, (3.0, 3.0, 3.0), startup=(2.0,) * 3)
    timeline = simulate(COMPUTE, shared, [(Transfer(0), Transfer(1, link=1), Transfer(2, link=1))])
    arrived = [end for _, _, end in spans(timeline, "send")]
    assert arrived == [4.0, 5.0, 8.0], "bytes behind bytes, and the third behind the second, whose link it takes"
    assert timeline.ends == (8.0,)


def test_what_is_late_is_waited_for_where_the_next_forward_pass_needs_it():
    needed = TWO._replace(needed=(1.0, 0.0))
    timeline = simulate(COMPUTE, needed, [(Transfer(1), Transfer(0, is_deferred=True))] * 2)
    first_ends = 4.5  # buffer 1 has arrived; buffer 0 does at 8.5
    assert timeline.ends[0] == first_ends
    stalled = 8.5 - (first_ends + 1.0)
    assert timeline.ends[1] == first_ends + stalled + COMPUTE + 0.5 + 1.0


def test_a_step_in_which_nothing_is_sent_takes_what_it_computes():
    timeline = simulate(COMPUTE, TWO, [WAIT_FREE, ()])
    assert timeline.ends == pytest.approx((7.5, 7.5 + COMPUTE))


def test_one_iteration_shows_also_what_others_left_on_its_way():
    late = TWO._replace(needed=(1.0, 0.0))
    timeline = simulate(COMPUTE, late, [(Transfer(1), Transfer(0, is_deferred=True))] * 2).of_iteration(1)
    assert next((s.buffer, s.begin, s.end) for s in timeline.spans if s.what == "send") == (0, 0.0, 4.0)
    assert min(span.begin for span in timeline.spans) == 0.0
    assert max(span.end for span in timeline.spans) == timeline.ends[0]


def test_what_carries_the_vote_waits_for_the_end_of_backward_where_others_follow_it():
    late = Iteration((Send(1, -1), Send(2, 0), Send(0, 0, arrives="forward")), update=0)
    assert transfers_of(late) == (Transfer(1, "at once"), Transfer(2, "backward"), Transfer(0, is_deferred=True))
    assert transfers_of(Iteration((Send(0, 6),), update=6), 7) == (Transfer(0, "backward begins"),)
    none_due = Iteration(tuple(Send(bucket, 0, arrives="forward") for bucket in (1, 0)), update=0)
    assert transfers_of(none_due) == (Transfer(1, "backward"), Transfer(0, is_deferred=True))


times = st.floats(0, 5)
buffers = st.lists(st.tuples(times, times, times), min_size=1, max_size=6)


@given(buffers, st.data())
def test_one_iteration_is_the_first_of_many_in_any_order_and_over_two_links(made, data):
    ready, compress, wire = zip(*made, strict=True)
    made = BufferTimes([min(each, COMPUTE) for each in ready], compress, wire, link_slowness=(1.0, 1.0))
    order = data.draw(st.permutations(range(len(wire))))
    starts = st.sampled_from(["at once", "backward begins", "gradient", "backward"])
    transfers = [Transfer(b, data.draw(starts), data.draw(st.integers(0, 1))) for b in order]
    seconds = iteration_seconds(COMPUTE, made, transfers)
    timeline = simulate(COMPUTE, made, [transfers] * 3)
    assert timeline.ends[0] == pytest.approx(seconds)
    assert timeline.ends[-1] == pytest.approx(3 * seconds)
    assert seconds >= max(COMPUTE, sum(compress)) - 1e-9
    assert seconds >= max(sum(wire[t.buffer] for t in transfers if t.link == link) for link in (0, 1)) - 1e-9
    assert seconds <= COMPUTE + sum(compress) + sum(wire) + 1e-9


@given(buffers, st.data())
def test_over_more_links_of_one_interface_nothing_arrives_later_nor_sooner_than_its_bytes(made, data):
    ready, compress, wire = zip(*made, strict=True)
    startup = [data.draw(st.floats(0, 1)) * each for each in wire]
    made = BufferTimes([min(each, COMPUTE) for each in ready], compress, wire, startup=startup)
    seconds = [
        iteration_seconds(COMPUTE, made, [Transfer(b, link=b % num_links) for b in range(len(wire))])
        for num_links in (1, 2, 4)
    ]
    assert seconds[0] == pytest.approx(iteration_seconds(COMPUTE, made._replace(startup=None), in_order(len(wire))))
    assert seconds[2] <= seconds[1] + 1e-9 <= seconds[0] + 2e-9
    assert seconds[2] >= sum(each - least for each, least in zip(wire, startup, strict=True)) - 1e-9


def in_order(count):
    return [Transfer(buffer) for buffer in range(count)]


@given(buffers, st.lists(st.booleans(), min_size=6, max_size=6), st.permutations(range(6)))
def test_forward_passes_that_wait_buffer_by_buffer_take_as_long(made, is_deferred, order):
    """The model against a clock that goes from buffer to buffer; the forward pass of each takes a tenth of a second."""
    _, compress, wire = zip(*made, strict=True)
    n, each, backward_each = len(made), 0.1, 0.2
    order = [buffer for buffer in order if buffer < n]
    transfers = [Transfer(buffer, is_deferred=late) for buffer, late in zip(order, is_deferred, strict=False)]
    now, compressed, link, arrived, ends = 0.0, 0.0, 0.0, [0.0] * n, []
    for _ in range(4):
        for buffer in reversed(range(n)):
            now = max(now, arrived[buffer]) + each
        backward = now
        now += n * backward_each
        for buffer, _, _, late in transfers:
            compressed = max(compressed, backward + (buffer + 1) * backward_each) + compress[buffer]
            link = arrived[buffer] = max(link, compressed) + wire[buffer]
            now = now if late else max(now, link)
        ends.append(now)
    ready = [n * each + (buffer + 1) * backward_each for buffer in range(n)]
    needed = [(n - 1 - buffer) * each for buffer in range(n)]
    times = BufferTimes(ready, compress, wire, needed)
    compute = n * (each + backward_each)
    assert simulate(compute, times, [transfers] * 4).ends == pytest.approx(tuple(ends))
    settled = (simulate(compute, times, [transfers] * 8).ends[-1] - ends[-1]) / 4
    assert mean_iteration_seconds(compute, times, [(transfers, 1)]) == pytest.approx(settled)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_a_buffer_is_needed_by_the_module_that_it_ends_in_and_later_ones_were_read_before(sizes):
    readiness, begin = Readiness.by_size(sizes), 0
    for number, size in enumerate(sizes):
        read_before = sum(sizes[number + 1 :]) / sum(sizes) * readiness.backward_begin
        for stop in {begin + 1, begin + size}:
            assert readiness.needed(stop) == pytest.approx(read_before)
        begin += size
