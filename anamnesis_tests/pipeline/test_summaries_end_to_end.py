"""Summaries from logs to episodes over the real wiring and the real clients, against services of this machine."""

from pathlib import Path

import pytest

from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.model import SUMMARIZER_MARK, Episode, LlmUse
from anamnesis_pipeline.services.log_ingest import llm_state
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_tests.support.llm_services import FOLDER, HERE, ClaudeService, LlmHome, Service, uuid_of
from anamnesis_tests.support.llms import REPLY
from anamnesis_tests.support.stand_in import make_stand_in

SUMMARY = "The retry double-charged. It now sends an idempotency key."


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


def test_a_reply_becomes_a_summary_tags_and_records(llm_home: LlmHome, service: Service) -> None:
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


# --- what goes wrong -------------------------------------------------------------------------------------


def test_a_busy_service_is_waited_for_as_long_as_it_asks(llm_home: LlmHome, service: Service) -> None:
    service.respond(service.busy, service.says(REPLY))
    llm_home.converse(1)
    assert llm_home.run().counts["flagged"] == 0
    assert len(service.prompts) == 2
    if service.settings["summarizer"] != "ollama":  # which never says for how long
        assert max(llm_home.clock.slept) >= 7
    assert by_kind(llm_home, "exchange")[0].summary == SUMMARY


@pytest.mark.parametrize("service", HERE, indirect=True)
def test_an_overloaded_service_is_asked_again_later(llm_home: LlmHome, service: Service) -> None:
    service.respond(service.overloaded)
    llm_home.converse(1)
    assert llm_home.run().counts["flagged"] == 1
    assert len(service.prompts) == 3
    assert by_kind(llm_home, "exchange")[0].summary.startswith("Why does retry 1 charge twice?")
    service.respond(service.says(REPLY))
    assert llm_home.run().counts == {}, "not before its time"
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


# --- itself ----------------------------------------------------------------------------------------------


def test_transcripts_of_its_own_calls_yield_nothing(llm_home: LlmHome, tmp_path: Path) -> None:
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
