"""A monitor that ends again and again is started more and more rarely."""

from trimtab.launch.processes.children import Exit
from trimtab.launch.processes.monitor_restarts import FIRST_PAUSE, LONGEST_PAUSE, STEADY_SECONDS, MonitorRestarts


def pause_after(restarts: MonitorRestarts, now: float) -> float:
    """Seconds until the monitor that ends now is started again."""
    restarts.ended(Exit("monitor-0", 1), now)
    pause = FIRST_PAUSE
    while not (due := restarts.take_due(now + pause)):
        pause *= 2
        assert pause <= LONGEST_PAUSE * 2
    assert due == ["monitor-0"]
    assert restarts.take_due(now + pause) == []
    restarts.started("monitor-0", now + pause)
    return pause


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_steady_run():
    restarts = MonitorRestarts()
    restarts.started("monitor-0", 0.0)
    now, pauses = 1.0, []
    for _ in range(8):
        pauses.append(pause_after(restarts, now))
        now += pauses[-1] + 1.0
    assert pauses[:6] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    assert all(pause >= LONGEST_PAUSE for pause in pauses[6:])
    assert pause_after(restarts, now + STEADY_SECONDS) == FIRST_PAUSE


def test_what_is_said_names_the_end_and_the_pause():
    restarts = MonitorRestarts()
    restarts.started("monitor-0", 0.0)
    told = restarts.ended(Exit("monitor-0", -9), 1.0)
    assert told == "trimtab: the monitor ended with signal SIGKILL; it is started again in 0.5 s"
