"""Models of other makes, with random weights, as sentence-transformers saves them: every way to make one vector, and
what happens when bf16 is too far from fp32.
"""

import logging
from pathlib import Path

import numpy as np
import pytest

from anamnesis_pipeline.embeddings.cores import Priority, available_cores
from anamnesis_pipeline.embeddings.models import ModelFiles, find_model
from anamnesis_pipeline.embeddings.pinned_pool import LoadedModel
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.wiring import open_pool
from anamnesis_tests.embeddings.tiny_models import random_model

TEXTS = ["ok", "why did webhook retries double-charge", "a longer text " * 40, "日本語", "x " * 300]


def saved(folder: Path, *more: object, pooling: str = "mean", scale: float = 1.0) -> ModelFiles:
    """A tiny model with this pooling and further modules; `scale` blows its weights up."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    base = SentenceTransformer(str(random_model(folder / "base", layers=2)), device="cpu")
    with torch.no_grad():
        for weights in base.parameters():
            weights.mul_(scale)
    modules = [base[0], Pooling(32, pooling_mode=pooling), *more]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"))
    return find_model(str(folder / "model"))


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("with_dense", [False, True])
def test_every_pooling_dense_and_normalize_layer_counts(tmp_path: Path, pooling: str, with_dense: bool) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    from anamnesis_pipeline.embeddings.transformer_model import TransformerModel

    more = [Dense(32, 12), Normalize()] if with_dense else []
    files = saved(tmp_path, *more, pooling=pooling)
    fitting = TEXTS[:4]
    plain = SentenceTransformer(str(files.path), device="cpu")
    expected = plain.encode(fitting, normalize_embeddings=True)
    for precision, nearest in (("fp32", 0.99999), ("bf16", 0.99)):
        made = TransformerModel(files, precision).embed(fitting)
        assert made.shape == (4, 12 if with_dense else 32) == (4, files.dim)
        assert float(np.sum(made * expected, axis=1).min()) > nearest


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


def test_a_model_that_bf16_bends_too_far_runs_in_fp32_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from anamnesis_pipeline.embeddings.transformer_model import load_model

    files = saved(tmp_path, pooling="cls", scale=40.0)
    with caplog.at_level(logging.WARNING):
        model = load_model(files, "bf16", "cpu", None)
    assert (model.precision, model.fidelity) == ("fp32", None)
    (warning,) = [record.getMessage() for record in caplog.records if "fp32" in record.getMessage()]
    assert "bf16" in warning
    assert "0.998 is wanted" in warning


def test_a_pool_follows_the_settings_of_cores_and_device(tmp_path: Path) -> None:
    space = saved(tmp_path).space()
    last = available_cores()[-1]
    pool = open_pool(Settings(embed_cores=(last,)), space, priority=Priority.BACKGROUND)
    assert (list(pool.cores), pool.device, pool.workers) == ([last], "cpu", 0)
    with pytest.raises(BadSetting, match="cores 9999"):
        open_pool(Settings(embed_cores=(9_999,)), space)
    with pytest.raises(BadSetting, match="no NVIDIA GPU"):
        open_pool(Settings(device="cuda"), space)
