"""Calls that hang hold up nobody."""

import threading
import time

from anamnesis_pipeline.steps.flights import AT_ONCE, MOST, Flights


def test_a_call_that_hangs_holds_up_no_other_and_its_answer_is_there_for_whoever_asks_next() -> None:
    flights, release = Flights[str](), threading.Event()
    flights.launch({"slow": lambda: "late" if release.wait(60) else "never", "quick": lambda: "now"})
    place, flight = next(flights.landing(time.monotonic() + 60))
    assert (place, flight.answer) == ("quick", "now")
    assert dict(flights.landing(time.monotonic() + 0.2)) == {}
    assert list(flights.under_way()) == ["slow"]
    flights.launch({"slow": lambda: "a second one"})
    release.set()
    assert dict(flights.landing(time.monotonic() + 60))["slow"].answer == "late"
    assert flights.under_way() == {}


def test_whatever_goes_wrong_is_told_and_stops_nobody() -> None:
    flights = Flights[int]()
    flights.launch({"bad": lambda: 1 // 0, "good": lambda: 1})
    landed = dict(flights.landing(time.monotonic() + 60))
    assert isinstance(landed["bad"].error, ZeroDivisionError)
    assert landed["good"].answer == 1


def test_only_so_many_work_at_once_and_are_left_behind() -> None:
    flights, release, most, at_work = Flights[None](), threading.Event(), [0], [0]
    lock = threading.Lock()

    def work() -> None:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        release.wait(60)
        with lock:
            at_work[0] -= 1

    refused = flights.launch({str(n): work for n in range(MOST + 2)})
    assert refused == [str(MOST), str(MOST + 1)]
    assert dict(flights.landing(time.monotonic() + 0.05)) == {}
    release.set()
    assert len(dict(flights.landing(time.monotonic() + 60))) == MOST
    assert most[0] <= AT_ONCE
