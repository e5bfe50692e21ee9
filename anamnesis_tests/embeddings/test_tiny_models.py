"""Models of other makes with random weights: every way to make one vector, and bf16 that is too far from fp32."""

import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anamnesis_pipeline.embeddings.cores import Priority, available_cores
from anamnesis_pipeline.embeddings.pinned_pool import LoadedModel
from anamnesis_pipeline.errors import BadSetting, UnknownModel
from anamnesis_pipeline.pipeline.embed import embed_sources
from anamnesis_pipeline.services.wiring import open_pool, open_pool_of, open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_tests.support.samples import put
from anamnesis_tests.support.tiny_models import as_published, loaded, saved, saved_other

TEXTS = ["ok", "why did webhook retries double-charge", "a longer text " * 40, "日本語", "x " * 300]


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("with_dense", [False, True])
def test_every_pooling_dense_and_normalize_layer_counts(tmp_path: Path, pooling: str, with_dense: bool) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    more = [Dense(32, 12), Normalize()] if with_dense else []
    files = saved(tmp_path, *more, pooling=pooling)
    fitting = TEXTS[:4]
    expected = as_published(files.path).encode(fitting, normalize_embeddings=True)
    for precision, nearest in (("fp32", 0.99999), ("bf16", 0.99)):
        made = loaded(files, precision).embed(fitting)
        assert made.shape == (4, 12 if with_dense else 32) == (4, files.dim)
        assert float(np.sum(made * expected, axis=1).min()) > nearest


def test_pooled_modes_side_by_side_make_one_wide_vector(tmp_path: Path) -> None:
    files = saved(tmp_path, pooling=("cls", "mean"))
    made = loaded(files).embed([*TEXTS[:3], "word " * 700])
    assert made.shape == (4, 64) == (4, files.dim)
    expected = as_published(files.path).encode(TEXTS[:3], normalize_embeddings=True)
    assert float(np.sum(made[:3] * expected, axis=1).min()) > 0.99999


def test_a_distilbert_is_a_model(tmp_path: Path) -> None:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(dim=32, n_layers=1, n_heads=2, hidden_dim=64, max_position_embeddings=48)
    files = saved_other(tmp_path, DistilBertModel(config))
    assert (files.dim, files.window) == (32, 48)
    assert loaded(files).embed(TEXTS).shape == (len(TEXTS), 32)


@pytest.mark.parametrize("padding", [0, 1])
def test_a_roberta_takes_texts_of_its_window_and_longer_ones(tmp_path: Path, padding: int) -> None:
    from transformers import RobertaConfig, RobertaModel

    config = RobertaConfig(
        vocab_size=30522,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=66,
        pad_token_id=padding,
    )
    files = saved_other(tmp_path, RobertaModel(config))
    assert files.window == 65 - padding
    model = loaded(files)
    texts = ["word " * count for count in (1, files.window - 3, files.window - 2, files.window - 1, 700)]
    assert max(len(ids) for ids in model.token_ids(texts)) == 702
    made = model.embed(texts)
    assert made.shape == (5, 32)
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)


def test_model_of_another_width_than_its_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match="vectors of 32 numbers, and its files say 48"):
        loaded(replace(saved(tmp_path), dim=48))


def test_a_precision_is_measured_before_it_serves_and_only_once(tmp_path: Path) -> None:
    files = saved(tmp_path)
    settings, told = Settings(precision="bf16", home=tmp_path), []

    def note(model: LoadedModel) -> None:
        told.append((model.precision, model.fidelity))

    for space in (files.space(precision="bf16"), files.space(precision="fp32")):
        pool = open_pool(settings, space, on_loaded=note)
        pool.load()
        pool.close()
    assert {precision for precision, _ in told} == {"bf16"}
    assert all(0.998 <= fidelity <= 1.0001 for _, fidelity in told)


def test_a_recorded_fidelity_is_taken_over(tmp_path: Path) -> None:
    from anamnesis_pipeline.embeddings.transformer_model import load_model

    assert load_model(saved(tmp_path), "bf16", "cpu", 0.99876).fidelity == 0.99876


@pytest.mark.parametrize(("is_native", "precision"), [(True, "bf16"), (False, "fp32")])
def test_a_gpu_that_would_emulate_bf16_computes_in_fp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_native: bool, precision: str
) -> None:
    import torch

    from anamnesis_pipeline.embeddings import transformer_model

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation or is_native)
    model = transformer_model.TransformerModel
    monkeypatch.setattr(transformer_model, "TransformerModel", lambda files, of, device, *more: model(files, of))
    assert transformer_model.load_model(saved(tmp_path), "bf16", "cuda", 0.9999).precision == precision


def test_model_that_bf16_bends_too_far_runs_in_fp32(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from anamnesis_pipeline.embeddings.transformer_model import load_model

    files = saved(tmp_path, pooling="cls", scale=40.0)
    with caplog.at_level(logging.WARNING):
        model = load_model(files, "bf16", "cpu", None)
    assert (model.precision, model.fidelity) == ("fp32", None)
    (warning,) = [record.getMessage() for record in caplog.records if "fp32" in record.getMessage()]
    assert "bf16" in warning
    assert "0.998 is wanted" in warning


def test_what_bf16_bends_too_far_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("anamnesis_pipeline.embeddings.models.has_gpu", lambda: True)  # `auto` tries bf16 first
    monkeypatch.setattr("anamnesis_pipeline.embeddings.precision.has_gpu", lambda: False)
    files = saved(tmp_path, pooling="cls", scale=40.0)
    with closing(open_store(Settings(home=tmp_path / "home"))) as store:
        store.spaces.put(files.space(precision="bf16"))
        put(store, "e", "a text")
        for warnings in (1, 1):
            with closing(open_pool_of(store, store.spaces.all()[0], priority=Priority.LIVE)) as pool:
                pool.load()
                assert pool.precision == "fp32"
                embed_sources(store, files.space().key, ["direct"], pool, 25)
            assert len([record for record in caplog.records if "0.998" in record.getMessage()]) == warnings
        assert store.spaces.all()[0].precision == "fp32"


def test_a_pool_follows_the_settings_of_cores_and_device(tmp_path: Path) -> None:
    space = saved(tmp_path).space()
    last = available_cores()[-1]
    pool = open_pool(Settings(embed_cores=(last,)), space, priority=Priority.BACKGROUND)
    assert (list(pool.cores), pool.device, pool.workers) == ([last], "cpu", 0)
    with pytest.raises(BadSetting, match="cores 9999"):
        open_pool(Settings(embed_cores=(9_999,)), space)
    with pytest.raises(BadSetting, match="no NVIDIA GPU"):
        open_pool(Settings(device="cuda"), space)
