"""What is asked before every answer is searched once in a while, and never tells what is not so any more."""

import httpx
import pytest

from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import SearchAnswer, SearchQuery
from anamnesis_pipeline.sidecar import chat_standing
from anamnesis_pipeline.sidecar.chat_standing import Standing
from anamnesis_pipeline.steps.chat import standing_of
from anamnesis_tests.sidecar.conftest import Post, TestServices

ASKED = standing_of("")[1]


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that are searched."""
    texts: list[str] = []
    search = Engine.search

    def noting(self: Engine, query: SearchQuery) -> SearchAnswer:
        texts.append(query.text)
        return search(self, query)

    monkeypatch.setattr(Engine, "search", noting)
    return texts


@pytest.fixture
def standing(services: TestServices, client: httpx.Client, post: Post) -> Standing:
    post("Preferences and standing instructions: tabs, never spaces", episode_id="tabs")
    return Standing(services)


def found(standing: Standing) -> list[str]:
    return [hit.episode.summary for hit in standing.hits(ASKED)]


def test_it_is_searched_once_for_several_answers(standing: Standing, searched: list[str]) -> None:
    first = found(standing)
    assert first == ["Preferences and standing instructions: tabs, never spaces"]
    assert [found(standing) for _ in range(3)] == [first] * 3
    assert searched == [ASKED.text]


def test_what_was_edited_or_deleted_since_is_searched_anew(
    standing: Standing, client: httpx.Client, searched: list[str]
) -> None:
    found(standing)
    client.patch("/api/episodes/tabs", json={"summary": "Preferences: spaces, never tabs"})
    assert found(standing) == ["Preferences: spaces, never tabs"]
    client.delete("/api/episodes/tabs")
    assert found(standing) == []
    assert len(searched) == 3


def test_what_became_private_since_is_told_no_more(
    services: TestServices, client: httpx.Client, post: Post, searched: list[str]
) -> None:
    post("Preferences and standing instructions: tabs, never spaces", episode_id="tabs", project="acme")
    standing = Standing(services)
    assert len(found(standing)) == 1
    services.store.settings.set("config.private_projects", ["acme"])
    assert found(standing) == []
    assert len(searched) == 2


def test_what_a_memory_without_its_model_answers_is_not_kept(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as loading:
        loading.setattr(Engine, "search", lambda *_: SearchAnswer([], 1.0, None, ["dense: no model"], 0, None))
        assert found(standing) == []
    assert len(found(standing)) == 1


def test_it_is_asked_again_after_a_while(
    services: TestServices, standing: Standing, searched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_standing, "KEPT_S", 0.0)
    short = Standing(services)
    found(short)
    found(short)
    assert len(searched) == 2
