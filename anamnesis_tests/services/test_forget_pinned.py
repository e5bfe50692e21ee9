"""Pinned episodes are spared by filters, with what they need, and the files that hold them are not removed whole."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anamnesis_pipeline.cli.forget import render
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.services.blocklist import blocklist
from anamnesis_pipeline.services.forget_target import ForgetRequest, stays_with
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.archived_logs import SESSION, Home, unmasked
from anamnesis_tests.support.crawled_documents import COLORS, PORTS, SETUP, DocumentHome, page, write


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    home.say("Why is the walrus ledger wrong?", "The quagga rounding happens twice.")
    home.say("And what of the narwhal question?", "The narwhal question is settled.", at=50)
    home.ingest(unmasked)
    yield home
    home.close()


def pin(store: Store, episode: Episode) -> str:
    passages = [stored.passage for stored in store.episodes.passages_of(episode.episode_id)]
    store.episodes.replace(replace(episode, tags=(*episode.tags, "pinned")), passages, episode.content_hash)
    return episode.episode_id


def test_pinned_turn_survives_its_session(logs: Home) -> None:
    pinned = pin(logs.store, next(e for e in logs.episodes() if "narwhal" in e.raw_exchange))
    preview = logs.preview(session_id=SESSION)
    assert (preview.episodes, preview.spared) == (1, 1)
    report = logs.forget(session_id=SESSION)
    assert (report.episodes, report.lines, report.spared) == (1, preview.lines, 1)
    assert logs.left("walrus", "quagga", "narwhal") == ["narwhal"]
    assert [e.episode_id for e in logs.episodes()] == [pinned]
    assert pinned not in {entry.episode_id for entry in blocklist(logs.store, 50)}
    assert "1 pinned episode stays" in render(report)
    logs.ingest(unmasked)
    assert [e.episode_id for e in logs.episodes()] == [pinned], "it is read again, and nothing else is"


@pytest.mark.parametrize("by_id", [True, False])
def test_pinned_turn_goes_if_named_or_included(logs: Home, *, by_id: bool) -> None:
    pinned = pin(logs.store, next(e for e in logs.episodes() if "narwhal" in e.raw_exchange))
    asked = {"ids": (pinned,)} if by_id else {"session_id": SESSION, "include_pinned": True}
    assert logs.forget(**asked).spared == 0
    assert logs.left("narwhal") == []


def test_only_pinned_content_forgets_nothing(logs: Home) -> None:
    for episode in logs.episodes():
        pin(logs.store, episode)
    before, report = logs.episodes(), logs.forget(session_id=SESSION)
    assert (report.episodes, report.lines, report.spared) == (0, 0, 2)
    assert logs.episodes() == before


def test_file_with_a_pinned_section_goes_section_by_section(home: DocumentHome) -> None:
    laptop, desk = home.clones("laptop", "desk")
    for copy in (laptop, desk):
        write(copy, "a.md", page(SETUP, PORTS))
        write(copy, "b.md", page(COLORS))
    home.ingest(laptop, desk)
    pinned = pin(home.store, home.one("3010"))
    request = ForgetRequest(path=laptop.root)
    preview = home.pipeline.forgetter().preview(request)
    report = home.pipeline.forgetter().forget(request)
    assert preview.spared == report.spared == 1
    assert preview.lines == report.lines > 0
    assert "3010" in home.archived()
    assert all(word not in home.kept() for word in ("installer", "orange"))
    home.ingest(laptop, desk)
    assert [e.episode_id for e in home.episodes()] == [pinned]


def test_chunk_stays_with_one_that_has_its_message() -> None:
    keys = {"a": {"1", "2"}, "b": {"2", "3"}, "c": {"4"}}
    assert stays_with(keys, {"a"}) == {"b"}
    assert stays_with(keys, {"a", "b"}) == set()
