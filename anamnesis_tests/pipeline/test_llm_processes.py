"""What a process that is killed while a service works on its call leaves behind: the budget, and batches under way."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anamnesis_pipeline.llm.prices import find_model, most_use
from anamnesis_pipeline.llm.prompts import build_prompt, request_for
from anamnesis_pipeline.model import LlmUse, Part
from anamnesis_pipeline.pipeline.llm_guard import breakers
from anamnesis_tests.support.anthropic_server import AnthropicServer, errored, left_out, succeeded
from anamnesis_tests.support.llm_services import HttpService, LlmHome
from anamnesis_tests.support.llms import REPLY

INGEST = """
from pathlib import Path
import pytest, sys
from anamnesis_tests.support.llm_services import LlmHome

home = LlmHome(Path(sys.argv[1]), pytest.MonkeyPatch())
home.run()
"""
PARTS = 3

pytestmark = pytest.mark.parametrize("service", ["anthropic"], indirect=True)


@contextmanager
def ingesting(home: LlmHome) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process ingests the home's logs; it is gone when the block ends."""
    command = [sys.executable, "-c", INGEST, str(home.base)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], env=dict(os.environ), stderr=subprocess.PIPE)
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition: Callable[[], object], process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 120
    while not condition():
        ended = process.poll() is not None
        assert not ended, process.stderr.read().decode() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.01)


def booked(home: LlmHome) -> LlmUse:
    return home.store.llm.used(home.day)


# --- single calls ----------------------------------------------------------------------------------------


def test_a_call_cut_off_by_kill_9_stays_booked(llm_home: LlmHome, service: HttpService) -> None:
    service.respond(service.stalls)
    llm_home.converse(1)
    with ingesting(llm_home) as process:
        wait_for(lambda: service.prompts, process)
    (part,) = llm_home.store.forgetting.parts_after("", 10)
    reserved = booked(llm_home)
    assert reserved == expected_of(part)
    assert llm_home.store.summaries.summary(part.part_id) is None

    llm_home.set(llm_daily_dollars=1.5 * reserved.dollars)
    service.respond(service.says(REPLY))
    report = llm_home.run()
    assert (len(service.prompts), report.counts["flagged"]) == (1, 1)
    assert "budget of this day" in report.problem
    assert booked(llm_home) == reserved
    llm_home.later(days=1)
    report = llm_home.run()
    assert (len(service.prompts), report.counts["flagged"]) == (2, 0)
    assert booked(llm_home) == report.used
    assert 0 < report.used.dollars < reserved.dollars


def expected_of(part: Part) -> LlmUse:
    model = find_model("anthropic", "claude-haiku-5-5", is_paid=True)
    return most_use(model, request_for(build_prompt(part), "anthropic", model.name))


# --- batches ---------------------------------------------------------------------------------------------


@pytest.fixture
def server(service: HttpService, llm_home: LlmHome) -> AnthropicServer:
    """Three parts wait, and three make a batch."""
    assert isinstance(service.server, AnthropicServer)
    llm_home.set(llm_batch_min=PARTS)
    llm_home.converse(*range(PARTS))
    service.respond(service.says(REPLY))
    return service.server


def calls(server: AnthropicServer) -> list[tuple[str, str]]:
    """Method and last piece of the path of every request."""
    return [(request.method, request.path.partition("?")[0].rsplit("/", 1)[-1]) for request in server.received]


def test_another_process_collects_a_batch(llm_home: LlmHome, service: HttpService, server: AnthropicServer) -> None:
    with ingesting(llm_home) as process:
        assert process.wait(120) == 0
    ((batch_id, entries),) = server.batches.items()
    assert llm_home.store.summaries.summary_counts() == {"problem": PARTS}
    assert llm_home.run().counts.get("written", 0) == 0, "it is being worked on"

    keys = [entry["custom_id"] for entry in entries]
    server.finish(batch_id, errored(keys[2]), succeeded(keys[0], REPLY), left_out(keys[1]))
    llm_home.later(minutes=11)
    report = llm_home.run()
    assert (report.counts["cached"], report.counts["flagged"], report.used.calls) == (1, 2, 0)
    llm_home.later(minutes=11)
    report = llm_home.run()
    assert (report.counts["flagged"], report.used.calls) == (0, 2)
    assert llm_home.store.summaries.summary_counts() == {"claude-haiku-5-5": PARTS}
    assert [call for call in calls(server) if call[0] == "POST"] == [("POST", "batches"), *[("POST", "messages")] * 2]
    one = report.used.dollars / 2
    assert booked(llm_home).dollars == pytest.approx(2 * one + one / 2), "a batch costs half"
    asked = len(server.received)
    llm_home.store.summaries.want_summaries("nobody")
    assert llm_home.run().counts["cached"] == PARTS
    assert len(server.received) == asked


def test_a_refused_key_stops_calls_about_batches(
    llm_home: LlmHome, service: HttpService, server: AnthropicServer
) -> None:
    llm_home.run()
    ((batch_id, entries),) = server.batches.items()
    server.finish(batch_id, *(succeeded(entry["custom_id"], REPLY) for entry in entries))
    server.refusal = service.refused
    llm_home.later(minutes=11)
    report = llm_home.run()
    assert report.counts["in a batch"] == PARTS
    assert "key" in report.problem
    (breaker,) = breakers(llm_home.store.settings)
    assert breaker.is_open(llm_home.clock.now)
    server.refusal, asked = None, len(server.received)
    llm_home.later(minutes=11)
    llm_home.run()
    assert len(server.received) == asked
    llm_home.later(hours=1)
    assert llm_home.run().counts["cached"] == PARTS
    assert breakers(llm_home.store.settings) == []
    assert [call for call in calls(server) if call[0] == "POST"] == [("POST", "batches")]


def test_a_kill_before_the_id_is_noted_costs_nothing(
    llm_home: LlmHome, service: HttpService, server: AnthropicServer
) -> None:
    server.holds_back = True
    with ingesting(llm_home) as process:
        wait_for(lambda: server.batches, process)
    ((batch_id, entries),) = server.batches.items()
    server.finish(batch_id, *(succeeded(entry["custom_id"], REPLY) for entry in entries))
    assert llm_home.run().counts["in a batch"] == PARTS, "it may still be on its way"
    llm_home.later(minutes=11)
    assert llm_home.run().counts["cached"] == PARTS
    assert [call for call in calls(server) if call[0] == "POST"] == [("POST", "batches")]
    assert llm_home.store.llm.open_batches("anthropic") == {}
    assert llm_home.store.summaries.summary_counts() == {"claude-haiku-5-5": PARTS}
