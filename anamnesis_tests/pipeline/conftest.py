"""Homes of documents and of logs, one whose summaries are made by real clients, and the services that these call."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.archived_logs import Home
from anamnesis_tests.support.crawled_documents import DocumentHome
from anamnesis_tests.support.llm_services import KINDS, LlmHome, Service, running_service
from anamnesis_tests.support.llms import LlmHere, Run, parsed


@pytest.fixture
def home(store: Store, tmp_path: Path) -> DocumentHome:
    """Of documents, where tests have no other home."""
    return DocumentHome(store, tmp_path)


@pytest.fixture
def log_home(tmp_path: Path) -> Iterator[Home]:
    """Of logs."""
    home = Home(tmp_path)
    yield home
    home.close()


@pytest.fixture
def llm_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmHome]:
    home = LlmHome(tmp_path, monkeypatch)
    yield home
    home.close()


@pytest.fixture(params=KINDS)
def service(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llm_home: LlmHome
) -> Iterator[Service]:
    """Each service once, with the home set up to use it."""
    with running_service(request.param, tmp_path, monkeypatch) as running:
        llm_home.set(**running.settings)
        yield running


@pytest.fixture
def start(store: Store) -> Callable[..., Run]:
    """Begins to summarize the parts that it is given, with the LLM that is among them or one in this process."""

    def start(*given: LlmHere | Part, **rules: object) -> Run:
        parsed(store, *(each for each in given if isinstance(each, Part)))
        backends = [each for each in given if isinstance(each, LlmHere)]
        return Run(store, *(backends or [LlmHere()]), **rules)

    return start
