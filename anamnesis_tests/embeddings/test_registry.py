import json
from pathlib import Path

import pytest

from anamnesis_pipeline.embeddings.models import find_model, model_choices
from anamnesis_pipeline.embeddings.registry import KNOWN_MODELS, MINILM, known_model
from anamnesis_tests.embeddings.test_models import made_up_model


def in_hub_cache(cache: Path, model_id: str, **files: object) -> None:
    revision = "0" * 40
    folder = cache / f"models--{model_id.replace('/', '--')}"
    made_up_model(folder / "snapshots" / revision, **files)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(revision, encoding="utf-8")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import huggingface_hub

    real = huggingface_hub.snapshot_download
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: real(*a, cache_dir=tmp_path, **k))
    return tmp_path


def test_the_bundled_model_is_as_its_entry_says() -> None:
    known, files = known_model(MINILM), find_model(MINILM)
    assert known is not None
    assert (known.dim, known.window, known.download_mb) == (files.dim, files.window, 0)
    assert known_model(f"sentence-transformers/{MINILM}") is known


def test_there_is_one_for_every_need_and_each_is_named_where_a_model_is_refused() -> None:
    ids = [known.model_id for known in KNOWN_MODELS]
    assert len(set(ids)) == len(ids) >= 7
    assert [known.model_id for known in KNOWN_MODELS if "recommended" in known.description] == [
        "BAAI/bge-large-en-v1.5"
    ]
    assert all(model_id in model_choices() for model_id in ids)
    assert known_model("acme/unheard-of") is None


@pytest.mark.parametrize("known", [known for known in KNOWN_MODELS if known.download_mb], ids=lambda k: k.model_id)
def test_a_known_model_gets_the_prefixes_of_its_entry(cache: Path, known) -> None:
    in_hub_cache(cache, known.model_id)
    files = find_model(known.model_id, local_only=True)
    assert (files.query_prefix, files.passage_prefix) == (known.query_prefix, known.passage_prefix)


def test_what_a_models_own_files_say_wins_over_its_entry(cache: Path) -> None:
    own = {"prompts": {"query": "ask: ", "document": ""}}
    in_hub_cache(cache, "BAAI/bge-large-en-v1.5", config_sentence_transformers=json.loads(json.dumps(own)))
    assert find_model("BAAI/bge-large-en-v1.5", local_only=True).query_prefix == "ask: "
