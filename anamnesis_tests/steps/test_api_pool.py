"""Embeddings from services: what is sent, to whom, at which cost, and when nothing is."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from anamnesis_pipeline import wiring
from anamnesis_pipeline.api_wiring import api_refusal
from anamnesis_pipeline.commands import reembed as reembed_command
from anamnesis_pipeline.commands.embedding_health import model_problems
from anamnesis_pipeline.embeddings.api_models import API_MODELS, api_model
from anamnesis_pipeline.embeddings.base import ROLES, EmbeddingPool, query_vectors
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.embeddings.passages import TOTAL_PIECES
from anamnesis_pipeline.errors import (
    BadSetting,
    DimensionMismatch,
    InvalidVectors,
    LlmBusy,
    LlmRefused,
    LlmUnavailable,
    RetryLater,
)
from anamnesis_pipeline.model import Source, Space
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import SearchQuery
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.embedding_control import EmbeddingControl
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec
from anamnesis_pipeline.steps import api_pool, embedding_api
from anamnesis_pipeline.steps.embeddings import embed_passages, embed_sources
from anamnesis_pipeline.steps.reembed_state import ANSWERS
from anamnesis_pipeline.steps.source_specs import put_specs
from anamnesis_pipeline.steps.spaces import index_space, known_space
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.steps.embedding_server import EmbeddingServer
from anamnesis_tests.store.samples import put
from anamnesis_tests.summaries.loopback import Answer, json_answer

KEY = "key-of-a-service"
SMALL = "text-embedding-3-small"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer().running() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name, value in {
        "HOME": str(tmp_path), "EMBEDDING_API_KEY": KEY, "EMBEDDING_API_URL": server.url, "LLM_DAILY_DOLLARS": "1",
        "LOCAL_ONLY": "0",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"ANAMNESIS_{name}", value)
    with closing(open_sqlite(tmp_path / "anamnesis.db", tmp_path / "index")) as store:
        yield store


def space_of(store: Store, model: str) -> Space:
    files = wiring.model_files(wiring.effective_settings(store), model)
    store.spaces.put(files.space())
    return files.space()


def pool_space(store: Store) -> Space:
    return known_space(store, wiring.model_files(wiring.effective_settings(store), SMALL).space().key)


@pytest.fixture
def opened(store: Store) -> Iterator[Callable[[str], EmbeddingPool]]:
    """Opens the pool of a model and loads it."""
    pools: list[EmbeddingPool] = []

    def opened(model: str) -> EmbeddingPool:
        pool = wiring.open_pool_of(store, space_of(store, model), priority=Priority.QUERY)
        pools.append(pool)
        pool.load()
        return pool

    yield opened
    for pool in pools:
        pool.close()


def used(store: Store) -> Any:
    return store.llm.used(f"{datetime.now(UTC):%Y-%m-%d}")


@pytest.mark.parametrize(
    ("name", "service", "dim"),
    [
        ("voyage-3.5", "voyage", 1024), ("voyage-3.5-lite", "voyage", 1024), ("voyage-code-3", "voyage", 1024),
        (SMALL, "openai", 1536), ("text-embedding-3-large", "openai", 3072), ("gemini-embedding-001", "gemini", 768),
    ],
)  # fmt: skip
def test_a_name_tells_service_and_width(name: str, service: str, dim: int) -> None:
    known = api_model(name)
    assert known is not None
    assert (known.service, known.dim, known.files().dim, known.files().token_dims) == (service, dim, dim, 0)
    assert len({model.files().space().key for model in API_MODELS}) == len(API_MODELS)
    assert api_model("all-MiniLM-L6-v2") is None


@pytest.mark.parametrize(
    ("name", "header", "role_field", "roles"),
    [
        ("voyage-code-3", "authorization", "input_type", ["document", "query"]),
        (SMALL, "authorization", None, [None, None]),
        ("gemini-embedding-001", "x-goog-api-key", "taskType", ["RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"]),
    ],
)
def test_each_service_is_asked_in_its_own_words(
    opened: Callable[[str], EmbeddingPool], server: EmbeddingServer, name: str, header: str, role_field: str | None,
    roles: list[str | None],
) -> None:  # fmt: skip
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


def test_many_texts_go_in_several_calls_and_a_long_one_in_pieces(
    opened: Callable[[str], EmbeddingPool], server: EmbeddingServer
) -> None:
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


def test_what_it_costs_is_booked_and_nothing_is_sent_beyond_the_budget(
    opened: Callable[[str], EmbeddingPool], store: Store, server: EmbeddingServer
) -> None:
    pool = opened(SMALL)
    before = used(store)
    pool.embed(["four words of text"], "passage")
    now = used(store)
    assert (now.calls - before.calls, now.input_tokens - before.input_tokens) == (1, 4)
    assert now.dollars - before.dollars == pytest.approx(4 * 0.02 / 1e6)
    store.settings.set("config.llm_daily_tokens", now.input_tokens + 10)
    server.received.clear()
    with pytest.raises(RetryLater, match="budget"):
        pool.embed(["more bytes than are left"], "query")
    assert server.received == []


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("local_only", True, "local_only forbids"),
        ("private_projects", ("secret",), "private_projects"),
        ("llm_daily_dollars", None, "set llm_daily_dollars"),
        ("embedding_api_key", None, "wants a key"),
        ("embedding_api_key", SecretStr("schlüssel-SECRET"), "embedding_api_key holds"),
        ("embedding_api_key", SecretStr("SECRET\nline"), "embedding_api_key holds"),
        ("embedding_api_url", "http://[bad", "embedding_api_url must hold URLs"),
        ("embedding_api_url", "http://ann:SECRET@127.0.0.1", "without a user, a password"),
    ],
)
def test_nobody_is_asked_without_leave_budget_and_key(
    store: Store, server: EmbeddingServer, setting: str, value: object, told: str
) -> None:
    known = api_model(SMALL)
    assert known is not None
    refusal = api_refusal(wiring.effective_settings(store).model_copy(update={setting: value}), known)
    assert refusal is not None
    assert told in str(refusal)
    assert "SECRET" not in str(refusal)
    assert server.received == []


def test_a_project_that_becomes_private_ends_it_at_once(
    opened: Callable[[str], EmbeddingPool], store: Store, server: EmbeddingServer
) -> None:
    pool = opened(SMALL)
    server.received.clear()
    store.settings.set("config.private_projects", ["secret"])
    for role in ("passage", "query"):
        with pytest.raises(BadSetting, match="private_projects"):
            pool.embed(["of whichever project"], role)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="private_projects"):
        space_of(store, SMALL)
    assert server.received == []


def test_nobody_is_asked_while_the_text_of_a_source_stays_here(
    opened: Callable[[str], EmbeddingPool], store: Store, server: EmbeddingServer
) -> None:
    pool = opened(SMALL)
    store.spaces.activate(pool_space(store).key)
    assert model_problems(store) == []
    server.received.clear()
    put_specs(store.settings, [SourceSpec("mine", DOCUMENTS, "/srv/mine", machine="box", private=True)], [], "box")
    assert pool.embed(["nothing was read of it yet"], "query").shape == (1, 1536)
    store.ingest.put_sources([Source("box--mine", "box", "/srv/mine", kind="documents", spec="mine")])
    server.received.clear()
    for role in ROLES:
        with pytest.raises(BadSetting, match=r"stays here \(box--mine\)"):
            pool.embed(["of whichever source"], role)
    with pytest.raises(BadSetting, match="box--mine"):
        EmbeddingControl(store).use_model("voyage-3.5")
    (problem,) = model_problems(store)
    assert "cannot be used: " in problem.text
    assert "box--mine" in problem.text
    assert server.received == []


def test_no_secret_in_a_question_is_sent(opened: Callable[[str], EmbeddingPool], server: EmbeddingServer) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    opened(SMALL).embed([f"where did {secret} leak, and what is \ud800"], "query")
    assert any(text.startswith("where did ") for text in server.sent)
    assert not any(secret in text for text in server.sent)


def test_another_model_behind_the_same_name_is_noticed(
    opened: Callable[[str], EmbeddingPool], server: EmbeddingServer
) -> None:
    opened(SMALL)
    opened(SMALL)
    server.turned = True
    with pytest.raises(DimensionMismatch, match="another model is behind the name"):
        opened(SMALL)


def half_built(store: Store) -> tuple[Space, Space]:
    """What answers, and the space of a service that is being built and has one of two passages."""
    put(store, "crane", "the harbour crane was moved", minute=1)
    put(store, "clock", "the thermostat reboots at midnight", minute=2)
    first = wiring.wanted_space(wiring.effective_settings(store), store)
    space = known_space(store, EmbeddingControl(store).use_model(SMALL)["space"])
    with closing(wiring.open_pool_of(store, space, priority=Priority.BACKGROUND)) as pool:
        pool.load()
        (newest,) = store.vectors.pending(space.key, ["direct"], 1)
        embed_passages(store, space, newest.passages, pool)
    return first, space


def test_a_space_that_was_given_up_takes_no_vectors_of_another_model_later(
    store: Store, server: EmbeddingServer
) -> None:
    first, space = half_built(store)
    assert EmbeddingControl(store).use_space(first.key)["stopped"] == space.key
    server.turned = True
    EmbeddingControl(store).use_model(SMALL)
    with (
        closing(wiring.open_pool_of(store, space, priority=Priority.BACKGROUND)) as pool,
        pytest.raises(DimensionMismatch, match="another model is behind the name"),
    ):
        pool.load()
    EmbeddingControl(store).use_space(first.key)
    EmbeddingControl(store).drop(space.key)
    started = EmbeddingControl(store).use_model(SMALL)
    assert (started["space"], started["missing"]) == (space.key, 2), "all is gone, so the same key begins anew"
    with closing(wiring.open_pool_of(store, space, priority=Priority.BACKGROUND)) as pool:
        pool.load()
        assert pool.ready


def test_vectors_without_the_answer_that_they_began_with_are_not_added_to(
    store: Store, server: EmbeddingServer
) -> None:
    _, space = half_built(store)
    store.settings.set(f"{ANSWERS}{space.key}", None)
    with (
        closing(wiring.open_pool_of(store, space, priority=Priority.BACKGROUND)) as pool,
        pytest.raises(DimensionMismatch),
    ):
        pool.load()


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
)  # fmt: skip
def test_what_is_no_answer_is_told_without_the_key_and_never_stored(
    opened: Callable[[str], EmbeddingPool], server: EmbeddingServer, answer: Answer, kind: type[Exception], told: str
) -> None:
    pool = opened(SMALL)
    server.script = [answer]
    with pytest.raises(kind, match=told) as raised:
        pool.embed(["a question"], "query")
    assert KEY not in str(raised.value)


def test_a_busy_service_is_asked_again_for_passages_and_not_for_questions(
    opened: Callable[[str], EmbeddingPool], store: Store, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(api_pool, "wait_random_exponential", lambda max: lambda state: 2.5)
    monkeypatch.setattr(api_pool.ApiPool, "_wait", lambda self, seconds: waited.append(seconds))
    store.settings.set("config.llm_requests_per_minute", 10_000)
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


def test_passages_take_turns_over_all_processes_and_questions_wait_for_none(
    opened: Callable[[str], EmbeddingPool], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_text_that_the_service_does_not_take_keeps_no_other_from_its_vectors(
    store: Store, server: EmbeddingServer
) -> None:
    _, space = half_built(store)
    put(store, "ice", "a glacier calved", minute=3)
    server.refused = "glacier"
    with closing(wiring.open_pool_of(store, space, priority=Priority.BACKGROUND)) as pool:
        pool.load()
        with pytest.raises(InvalidVectors, match=r"1, first ice: .* does not take this prompt"):
            embed_sources(store, space.key, ["direct"], pool, 25)
    assert store.vectors.pending_sources(space.key) == {"direct": 1}
    assert store.vectors.count(space.key) == 2


def test_an_answer_without_end_is_given_up(
    opened: Callable[[str], EmbeddingPool], server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
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
    assert time.monotonic() - began < 5


def test_a_service_that_is_away_is_left_alone_after_three_calls(
    opened: Callable[[str], EmbeddingPool], server: EmbeddingServer
) -> None:
    pool = opened(SMALL)
    server.script = [json_answer({}, 503)] * 3
    for _ in range(3):
        with pytest.raises(LlmUnavailable):
            pool.embed(["a question"], "query")
    server.received.clear()
    with pytest.raises(RetryLater, match="left alone"):
        pool.embed(["a question"], "query")
    assert server.received == []


def test_a_memory_is_embedded_by_a_service_searched_and_moved_back(
    store: Store, server: EmbeddingServer, tmp_path: Path
) -> None:
    control = EmbeddingControl(store)
    put(store, "crane", "the harbour crane was moved")
    put(store, "clock", "the thermostat reboots at midnight")
    first = wiring.wanted_space(wiring.effective_settings(store), store)
    started = control.use_model(SMALL)
    space = next(each for each in store.spaces.all() if each.key == started["space"])
    with closing(wiring.open_pool_of(store, space, priority=Priority.BACKGROUND)) as pool:
        pool.load()
        lacking = store.vectors.pending(space.key, ["direct"], 9)
        embed_passages(store, space, [passage for episode in lacking for passage in episode.passages], pool)
        assert index_space(store, space.key).active
        engine = Engine(store, lambda text, _: query_vectors(pool.embed_with_tokens([text], "query")))
        hits = engine.search(SearchQuery("when does the thermostat reboot", top_k=1, min_score=0)).hits
    assert [hit.episode.episode_id for hit in hits] == ["clock"]
    assert any("harbour crane" in text for text in server.sent)
    assert store.spaces.active() == next(each for each in store.spaces.all() if each.key == space.key)
    assert control.use_space(first.key)["space"] == first.key


def test_a_dry_run_tells_what_a_service_would_get_and_charge(store: Store, tmp_path: Path) -> None:
    put(store, "crane", "the harbour crane was moved")
    wiring.wanted_space(wiring.effective_settings(store), store)
    told = reembed_command.count(Settings(home=tmp_path), SMALL)
    assert f"sent to openai, at most {2 * TOTAL_PIECES} tokens, some $0.00" in told
    assert "sent" not in reembed_command.count(Settings(home=tmp_path), "all-MiniLM-L6-v2")
