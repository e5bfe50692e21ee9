"""Summaries from logs to episodes over the real wiring and the real clients, against services of this machine."""

import re
from pathlib import Path

import pytest

from anamnesis_pipeline.model import SUMMARIZER_MARK, Episode
from anamnesis_pipeline.sidecar.jsonl_control import JsonlControl, llm_state
from anamnesis_pipeline.summaries import extractive
from anamnesis_pipeline.summary_model import LlmUse
from anamnesis_pipeline.wiring import effective_settings
from anamnesis_tests.steps.llms import REPLY
from anamnesis_tests.steps.services import (
    FOLDER,
    HERE,
    SERVERS,
    ClaudeService,
    HttpService,
    LlmHome,
    Service,
    ollama_service,
    openai_service,
    uuid_of,
)
from anamnesis_tests.summaries.ollama_server import OllamaServer
from anamnesis_tests.summaries.openai_server import OpenAiServer
from anamnesis_tests.summaries.stand_in import make_stand_in

SUMMARY = "The retry double-charged. It now sends an idempotency key."
DEAD = "http://127.0.0.1:1"


def by_kind(home: LlmHome, kind: str) -> list[Episode]:
    return [episode for episode in home.episodes() if episode.kind == kind]


def problems(home: LlmHome) -> list[str]:
    """Why the summaries of parts are missing, where they are; those that stand in are extractive."""
    parts = home.store.forgetting.parts_after("", 100)
    found = [home.store.summaries.summary(part.part_id) for part in parts]
    flagged = [summary for summary in found if summary is not None and summary.problem]
    assert {summary.model for summary in flagged} <= {extractive.MODEL}
    return [summary.problem for summary in flagged]


def state_problem(home: LlmHome) -> str:
    return str(llm_state(home.store, effective_settings(home.store), home.clock.now)["problem"])


# --- what comes back -------------------------------------------------------------------------------------


def test_a_reply_becomes_a_summary_tags_and_records_that_say_where_they_come_from(
    llm_home: LlmHome, service: Service
) -> None:
    service.respond(service.says(REPLY))
    llm_home.converse(1)
    assert llm_home.run().written == 1
    (part,), (drawn,) = by_kind(llm_home, "exchange"), by_kind(llm_home, "record")
    assert (part.summary, part.tags) == (SUMMARY, ("webhooks", "payments"))
    assert (drawn.summary, drawn.metadata["type"]) == ("Retries charged twice.", "error")
    assert drawn.message_ids == (uuid_of(1),)
    assert llm_home.finds("sent") == {drawn.episode_id}
    (prompt,) = service.prompts
    assert "Why does retry 1 charge twice?" in prompt


@pytest.mark.parametrize("service", HERE, indirect=True)
def test_materializing_again_calls_nobody(llm_home: LlmHome, service: Service) -> None:
    service.respond(service.says(REPLY))
    llm_home.converse(1, 2)
    llm_home.run()
    before = llm_home.episodes()
    assert llm_home.run().counts == {}
    llm_home.store.summaries.want_summaries("nobody")
    report = llm_home.run()
    assert (report.counts["cached"], report.used) == (2, LlmUse())
    assert len(service.prompts) == 2
    assert llm_home.episodes() == before


@pytest.mark.parametrize("service", SERVERS, indirect=True)
def test_answers_are_streamed_where_the_client_can(llm_home: LlmHome, service: HttpService) -> None:
    service.respond(service.says(REPLY))
    llm_home.converse(1)
    llm_home.run()
    assert [bool(received.json.get("stream")) for received in service.server.received] == [service.streams]


@pytest.mark.parametrize("service", HERE, indirect=True)
def test_a_reply_that_is_no_json_is_asked_for_once_more(llm_home: LlmHome, service: Service) -> None:
    service.respond(service.says("Sure, here it comes:"), service.says(REPLY))
    llm_home.converse(1)
    assert llm_home.run().counts["flagged"] == 0
    assert len(service.prompts) == 2
    assert by_kind(llm_home, "exchange")[0].summary == SUMMARY


# --- what goes wrong -------------------------------------------------------------------------------------


def test_a_service_that_is_busy_is_waited_for_as_long_as_it_asks(llm_home: LlmHome, service: Service) -> None:
    service.respond(service.busy, service.says(REPLY))
    llm_home.converse(1)
    assert llm_home.run().counts["flagged"] == 0
    assert len(service.prompts) == 2
    if service.settings["summarizer"] != "ollama":  # which never says for how long
        assert max(llm_home.clock.slept) >= 7
    assert by_kind(llm_home, "exchange")[0].summary == SUMMARY


@pytest.mark.parametrize("service", HERE, indirect=True)
def test_a_service_that_stays_overloaded_is_left_alone_and_asked_again_later(
    llm_home: LlmHome, service: Service
) -> None:
    service.respond(service.overloaded)
    llm_home.converse(1)
    assert llm_home.run().counts["flagged"] == 1
    assert len(service.prompts) == 3
    assert by_kind(llm_home, "exchange")[0].summary.startswith("Why does retry 1 charge twice?")
    service.respond(service.says(REPLY))
    asked = len(service.prompts)
    assert llm_home.run().counts == {}
    assert len(service.prompts) == asked, "not before its time"
    llm_home.later(minutes=2)
    assert llm_home.run().counts["flagged"] == 0
    assert by_kind(llm_home, "exchange")[0].summary == SUMMARY


def test_a_refused_key_stops_all_calls_until_it_is_mended(llm_home: LlmHome, service: Service) -> None:
    service.respond(service.refused)
    llm_home.converse(*range(6))
    report = llm_home.run()
    assert report.counts["flagged"] == 6
    assert len(service.prompts) <= 4, "no more than were under way"
    assert len(problems(llm_home)) == 6
    assert llm_home.store.llm.used(llm_home.day) == LlmUse()
    assert "is left alone until" in state_problem(llm_home)
    assert "SECRET" not in report.problem + state_problem(llm_home)
    service.respond(service.says(REPLY))
    asked = len(service.prompts)
    assert llm_home.run().counts.get("flagged", 0) == 0
    assert len(service.prompts) == asked, "the breaker is open"
    llm_home.later(hours=1, seconds=1)
    llm_home.run()
    assert len(service.prompts) > asked, "one tries whether it is mended, and those that waited for it are next"
    llm_home.later(minutes=5, seconds=1)
    llm_home.run()
    assert problems(llm_home) == []
    assert {episode.summary for episode in by_kind(llm_home, "exchange")} == {SUMMARY}
    assert "None" in state_problem(llm_home)


@pytest.mark.parametrize("service", HERE, indirect=True)
def test_a_stall_meets_the_time_out_and_is_tried_again_later(llm_home: LlmHome, service: Service) -> None:
    llm_home.timeout_s = 0.3
    service.respond(service.stalls)
    llm_home.converse(1)
    assert llm_home.run().counts["flagged"] == 1
    (problem,) = problems(llm_home)
    assert re.search("silent for too long|took too long|did not end in time", problem)
    llm_home.timeout_s = None
    service.respond(service.says(REPLY))
    llm_home.later(minutes=11)
    llm_home.run()
    assert by_kind(llm_home, "exchange")[0].summary == SUMMARY


# --- itself ----------------------------------------------------------------------------------------------


def test_transcripts_of_its_own_calls_yield_nothing_and_are_counted(llm_home: LlmHome, tmp_path: Path) -> None:
    service = ClaudeService(make_stand_in(tmp_path / "claude"))
    service.respond(service.says(REPLY) | {"log_root": str(llm_home.logs)})
    llm_home.set(**service.settings)
    llm_home.converse(1, 2)
    llm_home.ingest_all()
    known = llm_home.episodes()
    transcripts = [log for log in llm_home.logs.rglob("*.jsonl") if log.parent.name != FOLDER]
    assert len(transcripts) == len(service.prompts) == 3, "two exchanges, and the record of their session"
    assert all(SUMMARIZER_MARK in log.read_text() for log in transcripts)

    reports = llm_home.ingest_all()
    own = [report for report in reports if report.source.folder != FOLDER]
    assert [report.parse.skipped["own:summarizer"] for report in own] == [2, 2, 2]
    assert [report.parse.parts for report in own] == [0, 0, 0]
    assert llm_home.episodes() == known
    assert len(service.prompts) == 3, "a summary of a summarizer's call would be made for ever"


# --- which service ---------------------------------------------------------------------------------------


def test_another_summarizer_is_called_by_the_next_run_and_the_former_is_not(llm_home: LlmHome) -> None:
    with OllamaServer().running() as first, OpenAiServer().running() as second:
        former, latter = ollama_service(first), openai_service(second)
        former.respond(former.says(REPLY))
        latter.respond(latter.says(REPLY.replace("double-charged", "charged twice")))
        llm_home.set(**former.settings)
        llm_home.converse(1)
        llm_home.run()
        llm_home.set(openai_url=latter.settings["openai_url"])
        JsonlControl(llm_home.store).change_settings({"summarizer": "openai", "summary_model": "qwen3"})
        llm_home.converse(2)
        llm_home.run()
        assert (len(former.prompts), len(latter.prompts)) == (1, 1)
        llm_home.store.summaries.want_summaries("qwen3")
        llm_home.run()
        assert (len(former.prompts), len(latter.prompts)) == (1, 2)
    assert llm_home.store.summaries.summary_counts() == {"qwen3": 2}


def test_the_first_ollama_server_that_answers_is_taken(llm_home: LlmHome) -> None:
    with OllamaServer().running() as third, OllamaServer().running() as fourth:
        answering, spare = ollama_service(third), ollama_service(fourth)
        answering.respond(answering.says(REPLY))
        spare.respond(spare.says(REPLY))
        llm_home.set(summarizer="ollama", ollama_urls=[DEAD, "http://127.0.0.1:2", third.url, fourth.url])
        llm_home.converse(1, 2, 3)
        assert llm_home.run().counts["flagged"] == 0
        assert (len(answering.prompts), len(spare.prompts)) == (3, 0)


@pytest.mark.parametrize("service", ["anthropic"], indirect=True)
def test_a_paid_service_is_not_asked_by_a_schedule_without_a_budget(llm_home: LlmHome, service: Service) -> None:
    service.respond(service.says(REPLY))
    llm_home.set(llm_daily_dollars=None)
    llm_home.converse(1)
    llm_home.run()
    assert service.prompts == []
    assert "runs on a schedule only with a budget" in problems(llm_home)[0]
    llm_home.run(by_hand=True)
    assert len(service.prompts) == 1
