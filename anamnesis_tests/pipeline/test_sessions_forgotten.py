"""Nothing of what is forgotten, excluded, masked or private stays in a record of a session, on every store."""

import io
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.errors import LlmRefused
from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.pipeline.llm_choice import Llm, LlmRules
from anamnesis_pipeline.pipeline.session_summaries import summarize_sessions
from anamnesis_pipeline.pipeline.sessions import SUMMARY_DUE, sources_to_summarize
from anamnesis_pipeline.services import blocklist, wiring
from anamnesis_pipeline.services.blocklist import exclude_episode
from anamnesis_pipeline.services.exporting import export
from anamnesis_pipeline.services.importing import Importer
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.session_model import SESSION_KIND, of_episode
from anamnesis_tests.support.archived_logs import DAY, SESSION, Home, unmasked
from anamnesis_tests.support.llms import LlmHere

SECRET = "ghp" + "_" + "q7Zk" * 9
REDACTOR = Redactor(b"salt")
QUAGGA = "The walrus rounding happens twice, as the quagga said in the long review of the ledger."
HOUR = timedelta(hours=1)
NARWHAL = "The narwhal question is settled: it is asked once a day, and by nobody else than the scheduler."


def record_time(minute: int) -> datetime:
    return DAY + timedelta(minutes=minute)


class Recorded(Home):
    """A home of which records of sessions are looked at."""

    def holding(self, word: str) -> str:
        (found,) = [e.episode_id for e in self.episodes() if word in e.raw_exchange and e.kind == "exchange"]
        return found

    def records(self) -> list[Episode]:
        """Every revision."""
        return self.store.episodes.page(EpisodeFilter(kinds=(SESSION_KIND,), include_superseded=True), 100).items

    def publish_again(self) -> None:
        """Publish one part as if it had changed."""
        self.store.forgetting.replace_parts(self.store.forgetting.parts([self.holding("walrus")]))
        wiring.open_pipeline(self.settings, self.store).publish(self.source())

    def text(self) -> str:
        passages = [p.passage for e in self.records() for p in self.store.episodes.passages_of(e.episode_id)]
        return "\n".join([*map(str, self.records()), *map(str, passages)])


@pytest.fixture
def home(store: Store, tmp_path: Path) -> Recorded:
    home = Recorded(tmp_path, store)
    home.say("Why is the ledger of the walrus module wrong by one cent?", QUAGGA)
    home.say(f"And what of the final narwhal question, with {SECRET}?", NARWHAL, at=90)
    home.ingest(unmasked)
    return home


def test_session_record_is_made_by_ingest(home: Recorded) -> None:
    (episode,) = home.records()
    told = of_episode(episode)
    assert (told.outcome, told.session_id, told.started) == (NARWHAL, SESSION, record_time(1))


@pytest.mark.parametrize("asked", [{"since": record_time(60)}, {"query": "narwhal"}, {"ids": ()}])
def test_forgotten_exchange_leaves_no_word_in_a_record(home: Recorded, asked: dict[str, Any]) -> None:
    wanted = {"ids": (home.holding("narwhal"),)} if asked == {"ids": ()} else asked
    home.forget(**wanted)
    assert home.records() == []
    home.ingest(unmasked)
    (episode,) = home.records()
    assert "narwhal" not in home.text()
    told = of_episode(episode)
    assert told.outcome == QUAGGA


@pytest.mark.parametrize("asked", [{"session_id": SESSION}, {"machine": "box"}])
def test_forgotten_session_or_source_has_no_record(home: Recorded, asked: dict[str, str]) -> None:
    home.store.sessions.note_branches(home.source().key, {SESSION: "secret-launch"})
    home.store.settings.set(SUMMARY_DUE + SESSION, [home.source().key, "", 1])
    home.forget(**asked)
    if "session_id" in asked:
        assert home.store.sessions.states([SESSION]) == []
        assert home.store.settings.all(SUMMARY_DUE) == {}
    home.ingest(unmasked)
    assert home.records() == []
    assert "machine" in asked or home.store.sessions.states([SESSION]) == []


def test_blocked_exchange_leaves_the_record_until_it_is_lifted(home: Recorded) -> None:
    exchange = home.holding("narwhal")
    exclude_episode(home.store, exchange, "no")
    assert home.records() == []
    home.ingest(unmasked)
    assert "narwhal" not in home.text()
    blocklist.lift(home.store, exchange)
    home.ingest(unmasked)
    assert "narwhal" in home.text()


def test_rescan_leaves_no_secret_in_a_record(home: Recorded) -> None:
    home.say(f"Do it again with {SECRET}, please.", SECRET, at=200)
    home.ingest(unmasked)
    assert SECRET in home.text()
    home.rescan(REDACTOR)
    assert SECRET not in home.text()
    home.ingest()
    assert home.records()
    assert SECRET not in home.text()


def test_private_session_is_sent_to_no_llm_elsewhere(home: Recorded) -> None:
    source = home.source()
    backend = LlmHere(is_local=False)
    rules = LlmRules(min_value=0, private_projects=("/code/shop",))
    for llm in (Llm(lambda: backend, rules), Llm(lambda: backend, private_sources=lambda: frozenset({source.key}))):
        home.store.episodes.delete(home.records()[0].episode_id, tombstone=False)
        home.store.parts.renew_session(SESSION)
        wiring.open_pipeline(home.settings, home.store).publish(source)
        home.publish_again()
        summarize_sessions(home.store, source, llm, minilm_pieces())
        assert home.records()
    assert backend.asked == []


def test_llm_summary_of_a_session_goes_with_its_text(home: Recorded) -> None:
    backend = LlmHere(is_local=False)
    llm = Llm(lambda: backend, LlmRules(min_value=0))
    source = home.source()
    home.publish_again()
    summarize_sessions(home.store, source, llm, minilm_pieces())
    (episode,) = home.records()
    assert episode.summary == "The retry double-charged. It now sends an idempotency key."
    assert len(backend.asked) == 1
    assert len(home.store.llm.replies_after("", 10)) == 1
    home.forget(query="narwhal")
    assert home.store.llm.replies_after("", 10) == []
    assert home.records() == []


def test_refused_llm_summary_is_asked_for_again(home: Recorded) -> None:
    backend, now = LlmHere(script=[LlmRefused("no"), LlmRefused("no")]), [record_time(600)]
    llm = Llm(lambda: backend, LlmRules(min_value=0), lambda: now[0])
    source = home.source()
    home.publish_again()
    waits = []
    for minutes in (0, 1, 60, 61, 24 * 60, 48 * 60):
        now[0] = record_time(600 + minutes)
        report = summarize_sessions(home.store, source, llm, minilm_pieces())
        waits.append((len(backend.asked), report.changed, bool(sources_to_summarize(home.store, now[0] + HOUR))))
        if minutes == 0:
            assert report.problem
            assert NARWHAL in home.records()[0].summary
    assert waits == [(1, 0, True), (1, 0, True), (2, 0, True), (2, 0, True), (3, 1, False), (3, 0, False)]
    (episode,) = home.records()
    assert episode.summary == "The retry double-charged. It now sends an idempotency key."


def test_nobody_waits_for_summaries_without_an_llm(home: Recorded) -> None:
    home.store.settings.set(SUMMARY_DUE + SESSION, [home.source().key, "", 1])
    assert sources_to_summarize(home.store, record_time(600)) == {home.source().key}
    summarize_sessions(home.store, home.source(), Llm(), minilm_pieces())
    assert sources_to_summarize(home.store, record_time(600)) == set()


def test_imported_record_goes_with_an_exchange_of_its_session(home: Recorded) -> None:
    told = home.store.episodes.get([home.holding("narwhal")]).popitem()[1]
    imported = [replace(e, source="direct", episode_id=f"imported-{e.kind}") for e in (told, *home.records())]
    home.store.episodes.put([(episode, []) for episode in imported])
    assert home.store.episodes.delete("imported-exchange")
    assert home.store.episodes.get(["imported-session"]) == {}


def test_imported_record_becomes_that_of_the_log(home: Recorded) -> None:
    exported = io.BytesIO()
    export(home.store, EpisodeFilter(include_superseded=True), exported)
    before = home.records()
    home.forget(session_id=SESSION)
    home.store.exclusion.lift([each.episode_id for each in home.store.exclusion.tombstones(99)])
    pieces = minilm_pieces()
    exported.seek(0)
    report = Importer(home.store, EpisodeWriter(home.store, unmasked, pieces, None), pieces).take(
        exported, lambda _: None
    )
    assert report.problems == []
    (imported,) = home.records()
    assert (imported.source, of_episode(imported)) == ("direct", of_episode(before[0]))
    for file in home.logs.rglob("*.jsonl"):
        file.write_text(file.read_text() + "\n")
    home.ingest(unmasked)
    (present,) = home.records()
    assert present.episode_id == imported.episode_id
    home.forget(session_id=SESSION)
    assert home.records() == []
