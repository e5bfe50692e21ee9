"""The supervisor with small real children: order, restarts, giving up, and leaving nothing behind."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.runtime.process_group import members
from anamnesis_pipeline.runtime.supervision import ChildSpec, RestartPolicy, StopRequest, Supervisor, restart_delay
from anamnesis_tests.runtime.conftest import PARENT, SLEEPER, STUBBORN, is_running, wait_for

MakeChild = Callable[..., ChildSpec]
QUICK = RestartPolicy(limit=3, first_delay_s=0.01)


def run_until(supervisor: Supervisor, done: Callable[[], object], timeout_s: float = 60) -> int:
    """Run the supervisor until `done()` holds."""
    stop = StopRequest()
    timer = threading.Timer(timeout_s, stop)
    timer.start()

    def look() -> None:
        if done():
            stop()

    try:
        return supervisor.run(stop, look)
    finally:
        assert timer.is_alive(), "waited in vain"
        timer.cancel()


@dataclass
class Touched:
    """A child is ready once this file exists."""

    file: Path

    def is_ready(self) -> bool:
        return self.file.exists()


POLICY = RestartPolicy(limit=5, window_s=600, first_delay_s=1, longest_delay_s=30)


def test_delays_double_up_to_a_limit_and_deaths_are_forgiven() -> None:
    delays = [restart_delay([100.0] * deaths, 100.0, POLICY) for deaths in range(1, 7)]
    assert delays == [1, 2, 4, 8, 16, None]
    assert restart_delay([0.0] * 50 + [10_000.0], 10_000.0, POLICY) == 1
    assert restart_delay([0.0] * 12, 0.0, RestartPolicy(limit=20)) == 30


@given(st.lists(st.floats(0, 1e6)), st.floats(0, 1e6))
def test_child_is_restarted_unless_it_died_too_often_of_late(deaths: list[float], now: float) -> None:
    recent = [death for death in deaths if now - death <= POLICY.window_s]
    delay = restart_delay(deaths, now, POLICY)
    assert (delay is None) == (len(recent) > POLICY.limit)
    assert delay is None or POLICY.first_delay_s <= delay <= POLICY.longest_delay_s


def test_stopping_ends_children_and_grandchildren(life: str, child: MakeChild) -> None:
    supervisor = Supervisor([child("parent", PARENT)], life, print)
    assert run_until(supervisor, lambda: len(members(life)) == 2) == 0
    assert members(life) == []


def test_a_child_that_dies_is_started_again(life: str, child: MakeChild, tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'starts')!r}, 'a').write('x'); print('why', flush=True); raise SystemExit(7)"
    said: list[str] = []
    supervisor = Supervisor([child("flaky", code)], life, said.append, policy=QUICK)
    starts = tmp_path / "starts"
    assert run_until(supervisor, lambda: starts.exists() and len(starts.read_text()) >= 3) == 0
    assert "flaky ended with status 7 (why); starting it again" in said[0]


def test_child_that_dies_too_often_ends_everything(life: str, child: MakeChild) -> None:
    said: list[str] = []
    specs = [child("sound", SLEEPER), child("broken", "import sys; sys.exit('no such model')")]
    assert Supervisor(specs, life, said.append, policy=QUICK).run(StopRequest()) == 1
    assert any("broken ended with status 1" in line and "giving up" in line for line in said)
    assert any("no such model" in line for line in said)
    assert members(life) == []


def test_a_child_waits_until_the_one_before_it_answers(life: str, child: MakeChild, tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    first = child("first", SLEEPER, ready=Touched(answer))
    supervisor = Supervisor([child("second", SLEEPER, after="first"), first], life, print)
    ticks = 0

    def look() -> bool:
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            assert len(members(life)) == 1
            answer.touch()
        return supervisor.is_ready("first", "second")

    assert run_until(supervisor, look) == 0


def test_a_child_that_never_becomes_ready_counts_as_dead(life: str, child: MakeChild, tmp_path: Path) -> None:
    said: list[str] = []
    mute = child("mute", SLEEPER, ready=Touched(tmp_path / "never"), ready_timeout_s=0.05)
    assert Supervisor([mute], life, said.append, policy=RestartPolicy(limit=0)).run(StopRequest()) == 1
    assert "mute was ended by SIGKILL" in said[0]


def test_work_done_once_is_not_started_again_and_others_begin(life: str, child: MakeChild) -> None:
    said: list[str] = []
    specs = [child("once", "print('done')", once=True), child("later", SLEEPER, after="once")]
    supervisor = Supervisor(specs, life, said.append)
    assert run_until(supervisor, lambda: supervisor.is_ready("once", "later")) == 0
    assert specs[0].log.read_text() == "done\n"
    assert said == []


def test_a_watcher_that_dies_is_replaced(life: str, child: MakeChild) -> None:
    supervisor = Supervisor([child("sound", SLEEPER)], life, print)
    killed: list[int] = []

    def watchers() -> list[int]:
        return [p.pid for p in psutil.Process().children() if is_running(p.pid) and life in p.cmdline()]

    def look() -> bool:
        if not killed and (found := watchers()):
            os.kill(found[0], signal.SIGKILL)
            killed.extend(found)
        return bool(killed and [pid for pid in watchers() if pid not in killed])

    assert run_until(supervisor, look) == 0
    assert watchers() == []


SUPERVISOR = """
import os, signal, sys
from pathlib import Path
from anamnesis_pipeline.runtime.supervision import ChildSpec
from anamnesis_pipeline.runtime.supervision import Supervisor, stop_on_signals

specs = [
    ChildSpec(f"child{n}", (sys.executable, "-c", code), dict(os.environ), Path(sys.argv[2]) / f"{n}.log")
    for n, code in enumerate(sys.argv[3:])
]
with stop_on_signals() as stop:
    sys.exit(Supervisor(specs, sys.argv[1], print).run(stop))
"""


def start_supervisor(life: str, folder: Path, *codes: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", SUPERVISOR, life, str(folder), *codes])


def watcher_of(life: str) -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if f"watcher {life}" in " ".join(p.info["cmdline"] or [])]


def test_after_kill_9_of_the_supervisor_no_process_is_left(life: str, tmp_path: Path) -> None:
    with start_supervisor(life, tmp_path, PARENT, SLEEPER) as supervisor:
        wait_for(lambda: len(members(life)) == 3 and watcher_of(life))
        supervisor.kill()
    wait_for(lambda: not members(life) and not watcher_of(life))


def test_after_kill_9_a_child_that_ignores_sigterm_goes_too(life: str, tmp_path: Path) -> None:
    with start_supervisor(life, tmp_path, STUBBORN) as supervisor:
        wait_for(lambda: members(life) and watcher_of(life))
        supervisor.kill()
    wait_for(lambda: not members(life), timeout_s=60)


def test_sigterm_sigint_and_sighup_end_it_in_order(life: str, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup the tests would pass on that it is ignored
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with start_supervisor(life, tmp_path, SLEEPER) as supervisor:
                wait_for(lambda: members(life))
                supervisor.send_signal(number)
                assert supervisor.wait(timeout=60) == 0
            assert members(life) == []
            assert watcher_of(life) == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_children_take_sigint_where_the_supervisor_ignores_it(life: str, tmp_path: Path) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGINT).__name__, flush=True); import time; time.sleep(600)"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        supervisor = start_supervisor(life, tmp_path, code)
    finally:
        signal.signal(signal.SIGINT, before)
    with supervisor:
        log = tmp_path / "0.log"
        wait_for(lambda: log.exists() and log.read_text())
        supervisor.terminate()
    assert log.read_text() == "default_int_handler\n"
