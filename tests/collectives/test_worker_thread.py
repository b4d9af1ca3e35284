"""Lanes: jobs in order on one thread, and on a GPU (here a model of its streams) ordered with what is around them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from fake_cuda import DEVICE, FakeCuda, FakeStream
from torch import Tensor
from trimtab.kernels import ChunkedTensor
from trimtab.transport.cuda_streams import StreamChain, tensors_in
from trimtab.transport.timer import LapTimer
from trimtab.transport.worker_thread import StreamWorker

CPU = torch.device("cpu")
Work = tuple[FakeStream, int]


@pytest.fixture
def lanes() -> Iterator[Callable[[torch.device], StreamWorker]]:
    opened: list[StreamWorker] = []

    def lane(device: torch.device) -> StreamWorker:
        opened.append(StreamWorker(f"lane {len(opened)}", device, finishes_at_exit=False))
        return opened[-1]

    yield lane
    for each in opened:
        each.close()


def test_jobs_run_in_the_order_submitted_on_a_thread_of_their_own(lanes) -> None:
    lane = lanes(CPU)
    order: list[int] = []
    for future in [lane.submit(lambda i=i: (order.append(i), threading.current_thread().name)) for i in range(20)]:
        assert future.result(30)[1] == "lane 0"
    assert order == list(range(20))


def test_a_job_that_fails_fails_alone(lanes) -> None:
    lane = lanes(CPU)
    failed, after = lane.submit(lambda: 1 / 0), lane.submit(lambda: "went on")
    with pytest.raises(ZeroDivisionError):
        failed.result(30)
    assert after.result(30) == "went on"


def test_an_idle_lane_holds_nothing_of_its_last_job(lanes) -> None:
    import weakref

    class Held:
        pass

    lane, held = lanes(CPU), Held()
    known = weakref.ref(held)
    lane.submit(lambda held=held: held).result(30)
    del held
    lane.submit(lambda: None).result(30)
    assert known() is None


@pytest.mark.parametrize(("finishes", "printed"), [(True, "done\n"), (False, "")])
def test_only_a_lane_that_waits_for_nobody_finishes_when_the_script_ends(finishes: bool, printed: str) -> None:
    script = (
        "import sys, threading, torch\n"
        "from trimtab.transport.worker_thread import StreamWorker\n"
        f"lane = StreamWorker('lane', torch.device('cpu'), finishes_at_exit={finishes})\n"
        "began, never = threading.Event(), threading.Event()\n"
        f"lane.submit(lambda: (began.set(), {'None' if finishes else 'never.wait()'}))\n"
        "lane.submit(lambda: print('done', flush=True))\n"
        "began.wait()\n"
    )
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout == printed


def test_on_a_gpu_a_job_waits_for_the_submitters_stream_and_who_takes_its_result_for_the_job(
    cuda: FakeCuda,
    lanes,
) -> None:
    lane, backward = lanes(DEVICE), FakeStream()
    with cuda.stream(backward):
        gradient = backward.launch()
        future = lane.submit(lambda: (cuda.current_stream().comes_after(gradient), cuda.current_stream().launch()))
        later = backward.launch()
        assert not lane.submit(lambda: cuda.default.comes_after(later)).result(30)

    waited, work = future.result(30)
    assert waited
    assert work[0] not in (cuda.default, backward)  # a stream of its own
    assert cuda.default.comes_after(work)  # for the result was taken there


def test_what_two_lanes_hand_on_is_ordered_over_both(cuda: FakeCuda, lanes) -> None:
    compression, communication = lanes(DEVICE), lanes(DEVICE)
    gradient = cuda.default.launch()
    compressed = compression.submit(lambda: cuda.current_stream().launch())

    def communicate() -> tuple[bool, Work]:
        work = compressed.result(30)
        stream = cuda.current_stream()
        return stream.comes_after(work) and stream.comes_after(gradient), stream.launch()

    ordered, sent = communication.submit(communicate).result(30)
    assert ordered
    assert cuda.default.comes_after(sent)
    assert cuda.default.comes_after(compressed.result(30))


def test_threads_of_a_gpu_lane_name_their_device(cuda: FakeCuda, lanes) -> None:
    lanes(DEVICE).submit(lambda: None).result(30)
    assert cuda.devices_by_thread == {"lane 0": DEVICE}


@dataclass
class Selection:
    indices: Tensor
    count: int


@dataclass
class Message:
    selection: Selection
    parts: list[Tensor]
    aliased: ChunkedTensor


def test_tensors_that_cross_streams_are_recorded_on_them(cuda: FakeCuda, lanes) -> None:
    lane = lanes(DEVICE)
    one, two, three, four, five = torch.zeros(5, 1).unbind()
    given = Message(Selection(one, 1), [two, three], ChunkedTensor([four]))
    stream, _ = lane.submit(lambda: (cuda.current_stream(), None), uses=given).result(30)
    for tensor in (one, two, three, four):
        assert cuda.is_recorded(tensor, stream)
        assert not cuda.is_recorded(tensor, cuda.default)

    vote = torch.zeros(1)
    cuda.of_the_cpu.append(vote)
    lane.submit(lambda: {"result": (five, vote)}).result(30)
    assert cuda.is_recorded(five, cuda.default)
    assert not cuda.is_recorded(vote, cuda.default)


def test_tensors_are_found_wherever_they_are_held() -> None:
    one, two = torch.zeros(2, 1).unbind()
    assert [id(each) for each in tensors_in(({"a": [one]}, "text", None, Selection(two, 3), Selection))] == [
        id(one),
        id(two),
    ]


def test_on_a_cpu_nothing_asks_for_streams(lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", None)
    monkeypatch.setattr(torch.cuda, "Stream", None)
    assert lanes(CPU).submit(lambda: torch.zeros(1), uses=torch.zeros(1)).result(30).item() == 0
    StreamChain(CPU).join()
    timer = LapTimer(CPU)
    timer.compressed()
    assert timer.compress_seconds >= 0.0


def test_a_chain_covers_work_on_many_streams(cuda: FakeCuda) -> None:
    chain, streams = StreamChain(DEVICE), [FakeStream() for _ in range(3)]
    done: list[Work] = []
    for stream in (*streams, streams[0]):
        with cuda.stream(stream):
            done.append(stream.launch())
            chain.join()
            assert all(stream.comes_after(work) for work in done)


def test_laps_on_a_gpu_are_timed_by_its_events(cuda: FakeCuda) -> None:
    def work(amount: int) -> None:
        for _ in range(amount):
            cuda.default.launch()

    timer = LapTimer(DEVICE)
    work(3)
    timer.compressed()
    work(5)
    timer.resume()
    work(7)
    timer.communicated()
    work(2)
    timer.compressed()
    assert (timer.compress_seconds, timer.collective_seconds) == (5.0, 7.0)


def test_no_stream_is_waited_for_when_a_lap_ends(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object) -> None:
        raise AssertionError("the host waits")

    monkeypatch.setattr(torch.cuda.Event, "synchronize", refuse)
    timer = LapTimer(DEVICE)
    timer.compressed()
    timer.communicated()
    with pytest.raises(AssertionError, match="the host waits"):
        _ = timer.compress_seconds
