from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings import reranker
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.models import find_cross_encoder
from anamnesis_pipeline.embeddings.reranker import CrossEncoding, Reranker
from anamnesis_pipeline.errors import ModelLoading, RerankerSlow, UnknownModel
from anamnesis_tests.support.fake_models import Gate, wait_for
from anamnesis_tests.support.tiny_models import random_cross_encoder

TEXTS = ["ok", "the hook retries webhooks twice", "another text " * 600]


class Lengths:
    """Longer texts answer better. `before` runs first."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self._before = before

    def scores(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        self._before()
        return np.array([len(text) for text in texts], dtype=np.float32)


@pytest.fixture
def open_reranker() -> Iterator[Callable[..., Reranker]]:
    opened: list[Reranker] = []

    def make(load: Callable[[], CrossEncoding], max_wait_s: float = 30.0) -> Reranker:
        opened.append(Reranker("made", load, available_cores, max_wait_s))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def answered(made: Reranker) -> list[float]:
    """The scores of TEXTS once the model is loaded."""

    def is_loaded() -> bool:
        try:
            made.scores("why?", TEXTS)
        except ModelLoading:
            return False
        return True

    wait_for(is_loaded)
    return made.scores("why?", TEXTS).tolist()


def test_scores_are_those_of_the_library(tmp_path: Path, open_reranker: Callable[..., Reranker]) -> None:
    from sentence_transformers import CrossEncoder

    from anamnesis_pipeline.embeddings.cross_encoder import CrossEncoderModel

    folder = random_cross_encoder(tmp_path / "pairs")
    found = answered(open_reranker(lambda: CrossEncoderModel("pairs", folder, "cpu")))
    expected = CrossEncoder(str(folder), device="cpu", local_files_only=True).predict([("why?", t) for t in TEXTS])
    assert found == pytest.approx(expected.tolist(), abs=1e-5)
    assert len({round(score, 4) for score in found}) == len(TEXTS)


def test_a_model_of_several_scores_is_refused(tmp_path: Path) -> None:
    from anamnesis_pipeline.embeddings.cross_encoder import CrossEncoderModel

    folder = random_cross_encoder(tmp_path / "classes", scores=3)
    with pytest.raises(UnknownModel, match="3 scores"):
        CrossEncoderModel("classes", folder, "cpu")


def test_a_folder_without_weights_does_not_load(tmp_path: Path) -> None:
    from anamnesis_pipeline.embeddings.cross_encoder import CrossEncoderModel

    with pytest.raises(UnknownModel, match="does not load as a cross-encoder"):
        CrossEncoderModel("empty", tmp_path, "cpu")


def test_an_absent_model_is_not_downloaded_with_local_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UnknownModel, match="none may be downloaded"):
        find_cross_encoder("nobody/has-this-cross-encoder", local_only=True)
    assert find_cross_encoder(str(tmp_path), local_only=True) == tmp_path


def test_a_loading_model_answers_at_once(open_reranker: Callable[..., Reranker]) -> None:
    gate = Gate()

    def load() -> CrossEncoding:
        gate()
        return Lengths()

    made = open_reranker(load)
    with pytest.raises(ModelLoading, match="still loading"):
        made.scores("why?", TEXTS)
    gate.opened.set()
    assert answered(made) == [len(text) for text in TEXTS]


def test_a_slow_model_is_waited_for_once(open_reranker: Callable[..., Reranker]) -> None:
    gate = Gate()
    made = open_reranker(lambda: Lengths(gate), max_wait_s=0.01)
    made.load_in_background()
    wait_for(lambda: _reason(made) != "loading")
    gate.reached.wait(30)
    assert "an earlier question" in _reason(made)
    gate.opened.set()
    wait_for(lambda: _reason(made) == "")


def _reason(made: Reranker) -> str:
    try:
        made.scores("why?", TEXTS)
    except ModelLoading:
        return "loading"
    except RerankerSlow as exc:
        return str(exc)
    return ""


def test_a_model_that_does_not_load_is_tried_again(
    open_reranker: Callable[..., Reranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[CrossEncoding | Exception] = [OSError("disk"), Lengths()]

    def load() -> CrossEncoding:
        found = attempts.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    made = open_reranker(load)
    made.load_in_background()
    with pytest.raises(UnknownModel, match="made does not load: OSError: disk"):
        answered(made)
    monkeypatch.setattr(reranker, "RETRY_S", 0.0)
    assert answered(made) == [len(text) for text in TEXTS]


def test_a_failing_model_fails_its_call_alone(open_reranker: Callable[..., Reranker]) -> None:
    failures = [ValueError("window")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()

    with closing(open_reranker(lambda: Lengths(fail_once))) as made:
        with pytest.raises(UnknownModel, match="made fails: ValueError: window"):
            answered(made)
        assert answered(made) == [len(text) for text in TEXTS]
