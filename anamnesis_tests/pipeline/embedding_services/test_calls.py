"""Calls of services that embed: their words, their pace, and what is no answer."""

import time

import numpy as np
import pytest

from anamnesis_pipeline.errors import InvalidVectors, LlmBusy, LlmRefused, LlmUnavailable, RetryLater
from anamnesis_pipeline.pipeline import api_pool, embedding_api
from anamnesis_pipeline.pipeline.llm_guard import Breaker, breakers
from anamnesis_pipeline.services.embedding_control import EmbeddingControl
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.pipeline.embedding_services.conftest import KEY, SMALL, Opened
from anamnesis_tests.support.embedding_server import EmbeddingServer
from anamnesis_tests.support.loopback import Answer, json_answer


@pytest.mark.parametrize(
    ("name", "header", "role_field", "roles"),
    [
        ("voyage-code-3", "authorization", "input_type", ["document", "query"]),
        (SMALL, "authorization", None, [None, None]),
        ("gemini-embedding-001", "x-goog-api-key", "taskType", ["RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"]),
    ],
)
def test_each_service_is_asked_in_its_own_words(
    opened: Opened, server: EmbeddingServer, name: str, header: str, role_field: str | None, roles: list[str | None]
) -> None:
    pool = opened(name)
    passages, query = pool.embed(["a harbour crane", "a thermostat"], "passage"), pool.embed(["a thermostat"], "query")
    assert passages.shape == (2, pool.dim)
    assert np.linalg.norm(passages, axis=1) == pytest.approx(1, abs=1e-5)
    assert (passages @ query[0]).argmax() == 1, "in the order of the texts, whatever that of the answer"
    assert pool.embed_with_tokens(["a"], "query").tokens is None
    assert all(KEY in each.headers[header] for each in server.received)
    if role_field is not None:
        told = [(each.json.get("requests") or [each.json])[0][role_field] for each in server.received[1:3]]
        assert told == roles


def test_many_texts_go_in_several_calls_and_a_long_one_in_pieces(opened: Opened, server: EmbeddingServer) -> None:
    pool = opened(SMALL)
    server.received.clear()
    texts = [f"text number {number}" for number in range(150)]
    whole = pool.embed(texts, "passage")
    assert sorted(len(each.json["input"]) for each in server.received) == [22, 64, 64]
    for number in (0, 63, 64, 149):
        assert whole[number] == pytest.approx(pool.embed([texts[number]], "passage")[0], abs=1e-6)
    server.received.clear()
    (long,) = pool.embed(["word " * 3_000], "query")
    assert max(map(len, server.sent)) == 4_000
    assert "".join(server.sent) == "word " * 3_000
    assert np.linalg.norm(long) == pytest.approx(1, abs=1e-5)
    assert pool.embed([], "passage").shape == (0, pool.dim)


def answered(*rows: list[float]) -> Answer:
    data = [{"index": number, "embedding": row} for number, row in enumerate(rows)]
    return json_answer({"data": data, "usage": {"total_tokens": 1}})


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (json_answer({"error": {"message": KEY, "code": "invalid_api_key"}}, 401), LlmRefused, "check its API key"),
        (json_answer({"error": {"code": "insufficient_quota"}}, 429), LlmRefused, "quota"),
        (json_answer({"nothing": 1}), InvalidVectors, "something else than embeddings"),
        (answered([1.0] * 768), InvalidVectors, "other vectors than 1 of 1536"),
        (answered([0.0] * 1536), InvalidVectors, "no numbers"),
        (answered(), InvalidVectors, "other vectors"),
    ],
)
def test_what_is_no_answer_is_told_without_the_key(
    opened: Opened, server: EmbeddingServer, answer: Answer, kind: type[Exception], told: str
) -> None:
    pool = opened(SMALL)
    server.script = [answer]
    with pytest.raises(kind, match=told) as raised:
        pool.embed(["a question"], "query")
    assert KEY not in str(raised.value)


def test_a_busy_service_is_asked_again_for_passages_alone(
    opened: Opened, store: Store, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(api_pool, "wait_random_exponential", lambda max: lambda state: 2.5)
    monkeypatch.setattr(api_pool.ApiPool, "_wait", lambda self, seconds: waited.append(seconds))
    pool = opened(SMALL)
    waited.clear()
    server.script = [busy("7"), json_answer({}, 503), busy("1")]
    assert pool.embed(["a passage"], "passage").shape == (1, 1536)
    assert [each for each in waited if each > 2] == [7.0, 2.5, 2.5], "as long as it asks for, or as what grows"
    server.script = [busy("7")]
    with pytest.raises(LlmBusy):
        pool.embed(["a question"], "query")
    server.script = [busy("300")]
    with pytest.raises(LlmBusy):
        pool.embed(["a passage"], "passage")
    server.received.clear()
    with pytest.raises(RetryLater, match="left alone"):
        pool.embed(["another one"], "passage")
    assert server.received == []


def busy(seconds: str) -> Answer:
    return json_answer({"error": {"code": "rate_limit_exceeded"}}, 429, retry_after=seconds)


def test_passages_take_turns_and_questions_none(opened: Opened, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(api_pool.ApiPool, "_wait", lambda self, seconds: waited.append(seconds))
    store.settings.set("config.llm_requests_per_minute", 6)
    pool = opened(SMALL)
    waited.clear()
    pool.embed(["a question"], "query")
    assert waited == []
    pool.embed(["a passage"], "passage")
    pool.embed(["another one"], "passage")
    assert waited == [pytest.approx(10, abs=2), pytest.approx(20, abs=2)], "the first turn was that of the fixed text"


def test_an_endless_answer_is_given_up(
    opened: Opened, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = opened(SMALL)
    server.script = [Answer(pieces=(b" " * 65_536,) * 100)]
    with pytest.raises(InvalidVectors, match="sent more than 161,440 bytes"):
        pool.embed(["a question"], "query")
    monkeypatch.setattr(embedding_api, "TIMEOUT_S", {"query": 0.5})
    server.script = [Answer(pieces=(b" ",), after="stall")]
    began = time.monotonic()
    with pytest.raises(LlmUnavailable, match="try again later"):
        pool.embed(["a question"], "query")
    assert time.monotonic() - began < 15, "by itself the stall lasts longer"


def test_work_by_hand_asks_a_mended_service_at_once(opened: Opened, store: Store, server: EmbeddingServer) -> None:
    pool = opened(SMALL)
    (space,) = store.spaces.all()
    store.spaces.activate(space.key)
    Breaker(store.settings, "anthropic").was_refused("another matter")
    for act in (
        EmbeddingControl(store).resume,
        lambda: EmbeddingControl(store).use_model(SMALL),
        lambda: EmbeddingControl(store).use_space(space.key),
        lambda: EmbeddingControl(store).start_reembed(None),
    ):
        server.script = [json_answer({"error": {"code": "invalid_api_key"}}, 401)]
        with pytest.raises(LlmRefused):
            pool.embed(["a question"], "query")
        with pytest.raises(RetryLater, match="left alone"):
            pool.embed(["a question"], "query")
        act()
        assert pool.embed(["a question"], "query").shape == (1, 1536)
    assert [state.backend for state in breakers(store.settings)] == ["anthropic"]


def test_a_service_that_is_away_is_left_alone_after_three_calls(opened: Opened, server: EmbeddingServer) -> None:
    pool = opened(SMALL)
    server.script = [json_answer({}, 503)] * 3
    for _ in range(3):
        with pytest.raises(LlmUnavailable):
            pool.embed(["a question"], "query")
    server.received.clear()
    with pytest.raises(RetryLater, match="left alone"):
        pool.embed(["a question"], "query")
    assert server.received == []
