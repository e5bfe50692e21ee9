"""A MongoDB that is gone for a minute, in the midst of an ingest, and while it is searched."""

import shutil
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from anamnesis_pipeline.errors import RetryLater, StoreBusy
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import SearchQuery
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.discovery import discover
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.sidecar.conftest import wait_for
from anamnesis_tests.support.live_system import EXAMPLES
from anamnesis_tests.support.mongo_server.server import LoopbackServer
from anamnesis_tests.support.samples import put

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]

GONE_S = 60.0
COMMITS_BEFORE = 6


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES, tmp_path / "projects"))


class Outage:
    """The server vanishes, at a commit or now, and is back after GONE_S."""

    def __init__(self, server: LoopbackServer, commits: int = 0) -> None:
        self._server = server
        self.began = self.over = 0.0
        self.thread = threading.Thread(target=self._pass)
        if commits:
            server.faults.add("commitTransaction", skip=commits - 1, does=self.thread.start)
        else:
            self.thread.start()

    def _pass(self) -> None:
        self.began = time.monotonic()
        self._server.vanish()
        time.sleep(GONE_S)
        self._server.come_back()
        self.over = time.monotonic()


def ingest_until_done(settings: Settings, store: Store, logs: Path) -> list[RetryLater]:
    """As the sensors do: what failed because the store did not answer is asked for again. Returns the failures."""
    failures: list[RetryLater] = []
    while True:
        try:
            ingest_all(wiring.open_pipeline(settings, store), discover(LocalHost("box"), [str(logs)]).sources)
        except StoreBusy as busy:
            failures.append(busy)
            time.sleep(1)
        else:
            return failures


def memory(store: Store) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Of each episode its content, and the passages that are searched."""
    ids = [episode.episode_id for episode in store.episodes.page(EpisodeFilter(include_superseded=True), 1_000).items]
    return {
        episode_id: (
            episode.content_hash,
            [(each.passage.text, each.passage.context) for each in store.episodes.passages_of(episode_id)],
        )
        for episode_id, episode in store.episodes.get(ids).items()
    }


def test_an_ingest_goes_on_after_a_minute_without_its_server(
    server: LoopbackServer, logs: Path, tmp_path: Path
) -> None:
    undisturbed = Settings(home=tmp_path / "whole", log_roots=(logs,), machine="box")
    with closing(wiring.open_store(undisturbed)) as store:
        assert ingest_until_done(undisturbed, store, logs) == []
        wanted, counts = memory(store), store.overview.counts()
    settings = Settings(
        home=tmp_path / "home", log_roots=(logs,), machine="box", store="mongo", mongo_uri=SecretStr(server.uri)
    )
    settings.home.mkdir()
    shutil.copy(undisturbed.home / "redaction.salt", settings.home)  # or secrets are masked by other words
    with closing(wiring.open_store(settings)) as store:
        outage = Outage(server, COMMITS_BEFORE)
        failures = ingest_until_done(settings, store, logs)
        assert outage.over > outage.began > 0, "the ingest was done before the server was back"
        assert all("does not answer" in str(failure) for failure in failures)
        assert memory(store) == wanted
        assert store.overview.counts() == counts
        assert ingest_until_done(settings, store, logs) == []
        assert memory(store) == wanted


def test_searches_fail_in_words_while_the_server_is_gone(server: LoopbackServer, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", machine="box", store="mongo", mongo_uri=SecretStr(server.uri))
    with closing(wiring.open_store(settings)) as store:
        crane = ["The harbour crane was moved", "Its crane was moved from the harbour", "The harbour is closed"]
        for number, text in enumerate([*crane, "Invoices", "Tea"]):
            put(store, f"e{number}", text)  # the order is that of an index which may lag behind, what is found is not
        engine, asked = Engine(store, None), SearchQuery("harbour crane moved", top_k=3)

        def found() -> list[str]:
            return sorted(hit.episode.episode_id for hit in engine.search(asked).hits)

        before = found()
        assert before == ["e0", "e1", "e2"]
        outage = Outage(server)
        wait_for(lambda: outage.began > 0)
        failures: list[str] = []
        while outage.thread.is_alive():
            try:
                found()
            except StoreBusy as busy:
                failures.append(str(busy))
        assert failures
        assert all("does not answer" in failure for failure in failures)
        assert found() == before
