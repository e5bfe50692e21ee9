"""Spaces of services: one model each, from the first text to the way back."""

from contextlib import closing
from pathlib import Path

import pytest

from anamnesis_pipeline.cli import model as model_command
from anamnesis_pipeline.cli.ingest import run_ingest
from anamnesis_pipeline.cli.search import search, search_body
from anamnesis_pipeline.embeddings.api_models import API_MODELS, api_model
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.errors import DimensionMismatch, InvalidVectors
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.pipeline.api_pool import SAMPLE
from anamnesis_pipeline.pipeline.embed import embed_passages, embed_sources
from anamnesis_pipeline.pipeline.index import known_space
from anamnesis_pipeline.pipeline.reembed_state import ANSWERS
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.embedding_control import EmbeddingControl
from anamnesis_pipeline.settings import load
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.pipeline.embedding_services.conftest import SMALL, Opened
from anamnesis_tests.support.embedding_server import EmbeddingServer
from anamnesis_tests.support.live_system import free_ports
from anamnesis_tests.support.samples import put

EXAMPLES = Path(__file__).parents[3] / "examples" / "claude_logs"


@pytest.mark.parametrize(
    ("name", "service", "dim"),
    [
        ("voyage-3.5", "voyage", 1024),
        ("voyage-3.5-lite", "voyage", 1024),
        ("voyage-code-3", "voyage", 1024),
        (SMALL, "openai", 1536),
        ("text-embedding-3-large", "openai", 3072),
        ("gemini-embedding-001", "gemini", 768),
    ],
)
def test_a_name_tells_service_and_width(name: str, service: str, dim: int) -> None:
    known = api_model(name)
    assert (known.service, known.dim, known.files().dim, known.files().token_dims) == (service, dim, dim, 0)
    assert len({model.files().space().key for model in API_MODELS}) == len(API_MODELS)
    assert api_model("all-MiniLM-L6-v2") is None


def test_another_model_behind_the_same_name_is_noticed(opened: Opened, server: EmbeddingServer) -> None:
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


def load_pool(store: Store, space: Space) -> None:
    with closing(wiring.open_pool_of(store, space, priority=Priority.BACKGROUND)) as pool:
        pool.load()
        assert pool.ready


def test_a_space_given_up_takes_no_vectors_of_another_model(store: Store, server: EmbeddingServer) -> None:
    first, space = half_built(store)
    assert EmbeddingControl(store).use_space(first.key)["stopped"] == space.key
    server.turned = True
    EmbeddingControl(store).use_model(SMALL)
    with pytest.raises(DimensionMismatch, match="another model is behind the name"):
        load_pool(store, space)
    EmbeddingControl(store).use_space(first.key)
    EmbeddingControl(store).drop(space.key)
    started = EmbeddingControl(store).use_model(SMALL)
    assert (started["space"], started["missing"]) == (space.key, 2), "all is gone, so the same key begins anew"
    load_pool(store, space)


def test_vectors_without_their_first_answer_are_not_added_to(store: Store, server: EmbeddingServer) -> None:
    _, space = half_built(store)
    store.settings.set(f"{ANSWERS}{space.key}", None)
    with pytest.raises(DimensionMismatch):
        load_pool(store, space)


def test_a_text_that_is_not_taken_keeps_no_other_away(store: Store, server: EmbeddingServer) -> None:
    _, space = half_built(store)
    put(store, "ice", "a glacier calved", minute=3)
    server.refused = "glacier"
    with closing(wiring.open_pool_of(store, space, priority=Priority.BACKGROUND)) as pool:
        pool.load()
        with pytest.raises(InvalidVectors, match=r"1, first ice: .* does not take this prompt"):
            embed_sources(store, space.key, ["direct"], pool, 25)
    assert store.vectors.pending_sources(space.key) == {"direct": 1}
    assert store.vectors.count(space.key) == 2


def test_a_memory_is_embedded_and_moved_back(
    store: Store, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(EXAMPLES))
    monkeypatch.setenv("ANAMNESIS_PORT", str(free_ports(1)[0]))
    monkeypatch.setenv("ANAMNESIS_MODEL", "voyage-3.5-lite")  # a model that runs here takes seconds to load
    run_ingest(load(), lambda line: None)
    before = store.spaces.active()
    assert (before.model_id, before.dim) == ("voyage-3.5-lite", 1024)
    passages = store.overview.counts().passages
    server.received.clear()
    started, _ = model_command.use(load(), SMALL)
    assert (started["model_id"], started["missing"], started["active"]) == (SMALL, passages, False)
    run_ingest(load(), lambda line: None)
    active = known_space(store, started["space"])
    assert (active.status, active.dim, active.token_dims) == ("active", 1536, 0)
    assert store.vectors.count(active.key) == passages > 20
    assert {each.json["model"] for each in server.received} == {SMALL}
    assert answered_by_meaning(server, SMALL) == [None, None]
    back, _ = model_command.use(load(), before.model_id)
    assert (back["space"], back["active"]) == (before.key, True)
    assert answered_by_meaning(server, before.model_id) == ["document", "query"]


def answered_by_meaning(server: EmbeddingServer, model: str) -> list[str | None]:
    """What the command line asks of the service where no sidecar runs, and that it finds an answer."""
    question = "why were customers charged twice"
    body = search_body(
        question, top_k=3, mode=Mode.SEMANTIC, project=None, instance=None, since=None, until=None, kinds=(), tags=()
    )
    server.received.clear()
    answer, _ = search(load(), body)
    assert (answer["model_id"], answer["degraded"]) == (model, [])
    assert any("charged twice" in hit["excerpt"] for hit in answer["results"])
    assert server.sent == [SAMPLE, question]
    return [each.json.get("input_type") for each in server.received]
