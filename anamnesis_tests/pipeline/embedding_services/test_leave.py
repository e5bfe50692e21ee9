"""What may be sent to a service that embeds, what it costs, and when nobody is asked."""

import socket
from contextlib import closing

import pytest
from pydantic import SecretStr

from anamnesis_pipeline.cli import reembed as reembed_command
from anamnesis_pipeline.embeddings.api_models import api_model
from anamnesis_pipeline.embeddings.base import ROLES
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.embeddings.passages import TOTAL_PIECES
from anamnesis_pipeline.errors import BadSetting, LlmUnavailable, RetryLater
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.pipeline import api_pool
from anamnesis_pipeline.pipeline.source_specs import put_specs
from anamnesis_pipeline.runtime.api_wiring import api_refusal
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.embedding_control import EmbeddingControl
from anamnesis_pipeline.services.model_health import model_problems
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.pipeline.embedding_services.conftest import KEY, SMALL, Opened, pool_space, space_of, used
from anamnesis_tests.support.embedding_server import EmbeddingServer
from anamnesis_tests.support.live_system import free_ports
from anamnesis_tests.support.samples import put


def test_costs_are_booked_and_kept_within_the_budget(opened: Opened, store: Store, server: EmbeddingServer) -> None:
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
        ("openai_api_key", None, "wants a key; set ANAMNESIS_OPENAI_API_KEY"),
        ("openai_url", "http://127.0.0.1:1/v1", "wants a key"),
        ("openai_api_key", SecretStr("schlüssel-SECRET"), "openai_api_key holds"),
        ("openai_api_key", SecretStr("SECRET\nline"), "openai_api_key holds"),
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


def test_a_service_gets_its_own_key_and_no_other(
    opened: Opened, store: Store, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANAMNESIS_OPENAI_API_KEY", "ANAMNESIS_GEMINI_API_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("GEMINI_API_KEY", "of-gemini")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    opened("voyage-3.5")
    opened("gemini-embedding-001")
    voyage, gemini = server.received
    assert voyage.headers["authorization"] == f"Bearer {KEY}"
    assert gemini.headers["x-goog-api-key"] == "of-gemini"
    with pytest.raises(BadSetting, match="set ANAMNESIS_OPENAI_API_KEY"):
        space_of(store, SMALL)


def test_a_project_that_becomes_private_ends_it_at_once(opened: Opened, store: Store, server: EmbeddingServer) -> None:
    pool = opened(SMALL)
    server.received.clear()
    store.settings.set("config.private_projects", ["secret"])
    for role in ("passage", "query"):
        with pytest.raises(BadSetting, match="private_projects"):
            pool.embed(["of whichever project"], role)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="private_projects"):
        space_of(store, SMALL)
    assert server.received == []


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)  # the other one opens connections of its own
def test_with_local_only_no_connection_is_opened(
    opened: Opened, store: Store, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialed: list[object] = []

    def connect(_: socket.socket, address: object) -> None:
        dialed.append(address)
        raise ConnectionRefusedError

    pool, space = opened(SMALL), pool_space(store)
    server.received.clear()
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(api_pool, "ATTEMPTS", {"passage": 1, "query": 1})
    store.settings.set("config.local_only", True)
    for attempt in (
        lambda: EmbeddingControl(store).use_model("voyage-3.5"),
        lambda: wiring.open_pool_of(store, space, priority=Priority.LIVE),
        lambda: pool.embed(["a question"], "query"),
    ):
        with pytest.raises(BadSetting, match="local_only forbids"):
            attempt()
    assert (dialed, server.received) == ([], [])
    store.settings.set("config.local_only", False)
    with (
        closing(wiring.open_pool_of(store, space, priority=Priority.LIVE)) as fresh,
        pytest.raises(LlmUnavailable, match="does not answer"),
    ):
        fresh.load()
    assert len(dialed) == 1, "without it somebody is"


def test_nobody_is_asked_while_a_source_stays_here(opened: Opened, store: Store, server: EmbeddingServer) -> None:
    pool = opened(SMALL)
    put_specs(store.settings, [SourceSpec("mine", DOCUMENTS, "/srv/mine", machine="box", private=True)], [], "box")
    assert pool.embed(["nothing was read of it yet"], "query").shape == (1, 1536)
    store.files.put_sources([Source("box--mine", "box", "/srv/mine", kind="documents", spec="mine")])
    server.received.clear()
    store.spaces.activate(pool_space(store).key)
    (problem,) = model_problems(store)
    assert "cannot be used: " in problem.text
    for role in ROLES:
        with pytest.raises(BadSetting, match=r"stays here \(box--mine\)"):
            pool.embed(["of whichever source"], role)
    with pytest.raises(BadSetting, match="box--mine"):
        EmbeddingControl(store).use_model("voyage-3.5")
    assert server.received == []


def test_no_secret_in_a_question_is_sent(opened: Opened, server: EmbeddingServer) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    opened(SMALL).embed([f"where did {secret} leak, and what is \ud800"], "query")
    assert any(text.startswith("where did ") for text in server.sent)
    assert not any(secret in text for text in server.sent)


def test_a_dry_run_tells_what_a_service_would_get_and_charge(store: Store) -> None:
    put(store, "crane", "the harbour crane was moved")
    wiring.wanted_space(wiring.effective_settings(store), store)
    alone = Settings(port=free_ports(1)[0])  # whatever answers on this machine
    told = reembed_command.count(alone, SMALL)
    assert f"sent to openai, at most {2 * TOTAL_PIECES} tokens, some $0.00" in told
    assert "sent" not in reembed_command.count(alone, "all-MiniLM-L6-v2")
