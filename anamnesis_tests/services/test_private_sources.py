"""What an LLM is sent of a private source, and that with `local_only` nothing is dialed."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.pipeline.source_specs import put_specs
from anamnesis_pipeline.pipeline.survey import look
from anamnesis_pipeline.runtime.crawler_wiring import built_in, open_crawler
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.uploads import SOURCE, Handed, Uploads
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec
from anamnesis_tests.support.archived_logs import FOLDER, OTHER, SESSION, record
from anamnesis_tests.support.llm_services import LlmHome, Service, running_service
from anamnesis_tests.support.loopback import Answer
from anamnesis_tests.support.ollama_server import OllamaServer
from anamnesis_tests.support.watched_ingest import ELSEWHERE

REPLY = json.dumps({"summary": "Something was said.", "tags": [], "records": [], "skip": False})
OPEN_PAGE = "# Lighthouse\n\nThe lamp of the lighthouse turns once every eleven seconds, except in fog.\n"
SECRET_PAGE = "# Wombat plans\n\n## Wombat budget\n\nThe wombat project gets a quarter of what the walrus asked for.\n"


class Crawled(LlmHome):
    """A home that reads what `sources add` would have it read, of this machine."""

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch, service: Service) -> None:
        super().__init__(base, monkeypatch)
        monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(base / "nothing"))
        monkeypatch.setenv("ANAMNESIS_LLM_BATCH_MIN", "10000")
        monkeypatch.setenv("ANAMNESIS_SUMMARY_MIN_VALUE", "0")
        monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "false")
        self.set(**service.settings)
        service.respond(service.says(REPLY))

    def crawl(self, *specs: SourceSpec) -> None:
        """One look at all sources, and a run of each."""
        settings = wiring.effective_settings(self.store)
        put_specs(self.store.settings, specs, built_in(settings), settings.machine)
        look(open_crawler(settings, self.store, lasting=False), datetime.now(UTC), everything=True)
        pipeline = wiring.open_pipeline(settings, self.store)
        ingest_all(pipeline, [s for s in self.store.files.sources() if s.kind != "reserved"])

    def uploads(self) -> Uploads:
        """What takes files in."""
        return wiring.open_uploads(wiring.effective_settings(self.store), self.store)

    def edit(self, episode_id: str, changes: dict[str, str]) -> None:
        """What a PATCH does."""
        EpisodeWriter(self.store, lambda text: (text, Counter()), minilm_pieces(), None).patch(episode_id, changes)

    def summarize_uploads(self) -> None:
        """What a run of their source does."""
        pipeline = wiring.open_pipeline(wiring.effective_settings(self.store), self.store)
        (source,) = (source for source in self.store.files.sources() if source.key == SOURCE)
        pipeline.summarize_parts(source)


def spec(name: str, kind: str, root: Path, *, private: bool) -> SourceSpec:
    return SourceSpec(name, kind, str(root), machine="box", private=private)


@pytest.fixture(params=["anthropic"])
def crawled(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Crawled, Service]]:
    with running_service(request.param, tmp_path, monkeypatch) as service:
        home = Crawled(tmp_path, monkeypatch, service)
        yield home, service
        home.store.close()


def sent(service: Service) -> str:
    """Everything that the LLM was sent."""
    return "\n".join(service.prompts).casefold()


def make_files(folder: Path) -> list[SourceSpec]:
    """Documents and logs, open ones and private ones; the private logs go on with an open session."""
    for name, text in (
        ("open/sea.md", OPEN_PAGE),
        ("open/copy.md", SECRET_PAGE),
        ("mine/wombat-plans.md", SECRET_PAGE),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    shared = (
        SESSION,
        0,
        "/code/gnat",
        "Why does the gnat reader fail on empty files? It crashed twice.",
        "An error: it reads a byte before it looks. The fix is a check.",
    )
    said = (
        OTHER,
        60,
        "/code/wombat",
        "Why does the wombat ledger not add up? That is wrong.",
        "The error is in the wombat rounding. The fix is cents.",
    )
    harmless = (
        "22222222" + SESSION[8:],
        5,
        "/code/shop",
        "Why is the heron page slow? It was an error to ship it.",
        "The decision: the heron page is cached. The fix is in.",
    )
    for root, (session, at, cwd, *texts) in (
        ("logs", shared),
        ("logs", harmless),
        ("mine-logs", shared),
        ("mine-logs", said),
    ):
        lines = [record(("user", "assistant")[n], text, at + n, session, cwd=cwd) for n, text in enumerate(texts)]
        (folder / root / FOLDER).mkdir(parents=True, exist_ok=True)
        (folder / root / FOLDER / f"{session}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return [
        spec("mine", DOCUMENTS, folder / "mine", private=True),
        spec("open", DOCUMENTS, folder / "open", private=False),
        spec("mine-logs", LOGS, folder / "mine-logs", private=True),
        spec("logs", LOGS, folder / "logs", private=False),
    ]


# The OpenAI-compatible service of these tests is on this machine, so it may see everything, as Ollama here may.
@pytest.mark.parametrize("crawled", ["anthropic", "claude_cli"], indirect=True)
def test_no_word_of_a_private_source_reaches_an_llm_elsewhere(crawled: tuple[Crawled, Service], tmp_path: Path) -> None:
    home, service = crawled
    specs = make_files(tmp_path)
    home.crawl(*(each for each in specs if each.private))
    assert service.prompts == []
    home.crawl(*specs)
    assert "lighthouse" in sent(service)
    assert "heron" in sent(service)
    assert "wombat" not in sent(service), "a word, a heading or a path"
    assert "gnat" not in sent(service), "a private log has a copy of this session"


@pytest.mark.parametrize("crawled", ["ollama"], indirect=True)
def test_an_llm_here_is_asked_about_private_sources_too(crawled: tuple[Crawled, Service], tmp_path: Path) -> None:
    home, service = crawled
    home.crawl(*make_files(tmp_path))
    assert all(word in sent(service) for word in ("lighthouse", "heron", "wombat", "gnat"))


def test_a_private_source_that_is_removed_stays_private(crawled: tuple[Crawled, Service], tmp_path: Path) -> None:
    home, service = crawled
    specs = make_files(tmp_path)
    home.set(summarizer="none")
    home.crawl(*specs)
    home.set(**service.settings)
    home.crawl(*(each for each in specs if not each.private))
    assert "wombat" not in sent(service)


SAID_LATER = {
    "handed in again": lambda home, upload: home.uploads().take(handed("hush")),
    "edited": lambda home, upload: home.edit(upload.episode_ids[0], {"project": "acme/hush"}),
    "another file": lambda home, upload: home.uploads().take(replace(handed("hush"), filename="b.md", data=SAME)),
}
SAME = SECRET_PAGE.encode() + b"\n## Quokka\n\nThe quokka was not asked, and says so at every meeting since then.\n"


def handed(project: str) -> Handed:
    return Handed("wombat.md", SECRET_PAGE.encode(), project=project)


@pytest.mark.parametrize("way", SAID_LATER)
def test_an_upload_is_private_when_any_of_its_projects_is(crawled: tuple[Crawled, Service], way: str) -> None:
    home, service = crawled
    home.set(private_projects=["hush"])
    upload = home.uploads().take(handed("open"))
    SAID_LATER[way](home, upload)
    home.uploads().take(Handed("sea.md", OPEN_PAGE.encode(), project="open"))
    home.summarize_uploads()
    assert "lighthouse" in sent(service)
    assert "wombat" not in sent(service)


def test_an_upload_that_was_private_stays_so_under_another_name(crawled: tuple[Crawled, Service]) -> None:
    home, service = crawled
    home.set(private_projects=["hush"])
    home.uploads().take(handed("hush"))
    home.uploads().take(handed("open"))
    home.summarize_uploads()
    assert service.prompts == []


# --- nothing is dialed with local_only --------------------------------------------------------------------


def ingest(home: LlmHome, tmp_path: Path, how: str, *, local_only: bool, url: str = "") -> dict[str, dict[str, Any]]:
    """What a watched process says of its ingests, by summarizer."""
    home.converse(1)
    environment = {
        **os.environ,
        "ANAMNESIS_LOCAL_ONLY": str(local_only),
        "ANAMNESIS_ANTHROPIC_API_KEY": "sk-ant-SECRET-KEY",
        "HOME": str(tmp_path / "user"),
    }
    command, root = [sys.executable, "-m", "anamnesis_tests.support.watched_ingest"], Path(__file__).parents[2]
    command += [str(home.base), how, url]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    assert found.keys() == ({"ollama here"} if url else ELSEWHERE.keys())
    return found


@pytest.mark.parametrize("how", ["ingest", pytest.param("whole", marks=pytest.mark.slow)])
def test_nothing_is_dialed_and_the_status_says_why(llm_home: LlmHome, tmp_path: Path, how: str) -> None:
    for name, seen in ingest(llm_home, tmp_path, how, local_only=True).items():
        assert seen["refused"] == [], name
        assert seen["counts"] == {extractive.MODEL: 1}, name
        assert seen["problem"].startswith("local_only keeps all text here"), name
    if how == "whole":
        (space,) = llm_home.store.spaces.all()
        assert llm_home.store.vectors.pending_sources(space.key) == {}


def test_without_it_each_of_these_summarizers_is_caught_dialing(llm_home: LlmHome, tmp_path: Path) -> None:
    for name, seen in ingest(llm_home, tmp_path, "ingest", local_only=False).items():
        assert seen["refused"] != [], name
        assert seen["counts"] == {"problem": 1}, name


def test_a_server_here_that_passes_prompts_on_is_not_followed(llm_home: LlmHome, tmp_path: Path) -> None:
    with OllamaServer().running() as server:
        server.respond(Answer(307, headers={"location": "http://203.0.113.9:11434/api/chat?key=SECRET"}))
        (seen,) = ingest(llm_home, tmp_path, "ingest", local_only=True, url=server.url).values()
    assert len(server.received) == 1
    assert seen["refused"] == []
    assert seen["counts"] == {"problem": 1}
