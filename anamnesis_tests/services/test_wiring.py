from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.models import MINILM
from anamnesis_pipeline.errors import DimensionMismatch
from anamnesis_pipeline.runtime import home_wiring, llm_wiring
from anamnesis_pipeline.search.query import SearchQuery
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.posting import EpisodeDraft
from anamnesis_pipeline.settings import Settings, load
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.fake_models import wait_for
from anamnesis_tests.support.live_system import EXAMPLES
from anamnesis_tests.support.tiny_models import random_cross_encoder


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(EXAMPLES))
    return load()


@pytest.fixture
def opened(settings: Settings) -> Iterator[Store]:
    with closing(wiring.open_store(settings)) as store:
        yield store


def test_what_is_stored_becomes_effective(settings: Settings, opened: Store) -> None:
    opened.settings.set("config.ingest_hour", 9)
    opened.settings.set("something.else", 1)
    assert wiring.stored_settings(opened) == {"ingest_hour": 9}
    assert wiring.effective_settings(opened).ingest_hour == 9


def test_ollama_gets_as_many_threads_as_embedding_has_cores(settings: Settings) -> None:
    core = available_cores()[0]
    limited = settings.model_copy(update={"summarizer": "ollama", "embed_cores": (core,)})
    assert llm_wiring.backend_options(limited).ollama_threads == 1
    assert llm_wiring.backend_options(settings.model_copy(update={"summarizer": "ollama"})).ollama_threads is None
    elsewhere = settings.model_copy(update={"summarizer": "anthropic", "embed_cores": (65_535,)})
    assert llm_wiring.backend_options(elsewhere).ollama_threads is None, "nobody asks for a core"


def test_one_secret_has_one_mask_in_one_home(settings: Settings) -> None:
    text = "token ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    masked = {home_wiring.open_redactor(settings).mask_text(text)[0] for _ in range(2)}
    assert len(masked) == 1
    assert text not in masked


def test_vectors_of_other_weights_never_meet_a_space(settings: Settings, opened: Store) -> None:
    space = wiring.wanted_space(settings, opened)
    assert (space.model_id, space.dim, space.status) == (MINILM, 384, "active")
    of_other_weights = replace(space, key=f"{MINILM}-00000000")
    with pytest.raises(DimensionMismatch, match=f"{MINILM}-00000000.*put the former ones back"):
        wiring.open_pool(settings, of_other_weights)
    pool = wiring.open_pool(settings, replace(space, key=f"{space.key}-g2", generation=2))
    assert (pool.model_id, pool.dim, pool.ready, pool.depth) == (MINILM, 384, False, 0)


def test_no_reranker_is_made_unless_a_model_is_set(settings: Settings) -> None:
    assert settings.rerank_model == ""
    assert wiring.open_reranker(settings, available_cores) is None


def test_a_search_is_reranked_by_the_model_of_the_settings(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_RERANK_MODEL", str(random_cross_encoder(tmp_path / "pairs")))
    with closing(wiring.open_services(settings)) as made:
        for text in ("zeppelin hangar", "zeppelin", "the door of a zeppelin"):
            made.poster.create(EpisodeDraft(text, "mac", "api"))
        asked = SearchQuery("zeppelin", min_score=0, explain=True)
        wait_for(lambda: not any(note.startswith("rerank") for note in made.engine.search(asked).degraded))
        hits = made.engine.search(asked).hits
        scores = [hit.explanation["stages"]["rerank"] for hit in hits if hit.explanation]
        assert scores == sorted(scores, reverse=True)
        assert len(set(scores)) == len(hits) == 3


def test_a_missing_cross_encoder_is_named_and_the_search_answers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_RERANK_MODEL", "nobody/has-this")
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "true")
    with closing(wiring.open_services(settings)) as made:
        made.poster.create(EpisodeDraft("zeppelin", "mac", "api"))
        asked = SearchQuery("zeppelin", min_score=0)
        wait_for(lambda: any("'nobody/has-this' is not on this disk" in n for n in made.engine.search(asked).degraded))
        assert len(made.engine.search(asked).hits) == 1


def test_new_spaces_have_token_vectors_unless_set_otherwise(settings: Settings, opened: Store) -> None:
    without = settings.model_copy(update={"token_vectors": False})
    assert wiring.model_files(settings, MINILM).space().token_dims == 256
    assert wiring.wanted_space(without, opened).token_dims == 0
    assert wiring.wanted_space(settings, opened).token_dims == 0, "a space stays as it began"


def test_services_answer_by_words_before_a_model(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_MODEL", "/nonexistent/model")
    with closing(wiring.open_services(load())) as services:
        services.poster.create(EpisodeDraft("The zeppelin hangar", "mac", "acme"))
        answer = services.engine.search(SearchQuery("zeppelin"))
        assert [hit.episode.summary for hit in answer.hits] == ["The zeppelin hangar"]
        assert answer.degraded == ["dense: no embedding model is loaded here"]
