"""What is read from a private source, and what an LLM is sent meanwhile: real clients, and servers that remember it."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anamnesis_pipeline import wiring
from anamnesis_pipeline.crawler_wiring import built_in, open_crawler
from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec
from anamnesis_pipeline.steps.pipeline import ingest_all
from anamnesis_pipeline.steps.posting import Poster
from anamnesis_pipeline.steps.source_specs import put_specs
from anamnesis_pipeline.steps.survey import look
from anamnesis_pipeline.steps.uploads import SOURCE, Handed, Uploads
from anamnesis_tests.steps.archived_logs import FOLDER, OTHER, SESSION, record
from anamnesis_tests.steps.services import LlmHome, Service, running_service

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
        Poster(self.store, lambda text: (text, Counter()), minilm_pieces(), None).patch(episode_id, changes)

    def summarize_uploads(self) -> None:
        """What a run of their source does."""
        pipeline = wiring.open_pipeline(wiring.effective_settings(self.store), self.store)
        (source,) = (source for source in self.store.files.sources() if source.key == SOURCE)
        pipeline.summarize_parts(source)


def spec(name: str, kind: str, root: Path, *, private: bool) -> SourceSpec:
    return SourceSpec(name, kind, str(root), machine="box", private=private)


@contextmanager
def crawled(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Crawled, Service]]:
    with running_service(kind, folder, monkeypatch) as service:
        home = Crawled(folder, monkeypatch, service)
        yield home, service
        home.store.close()


def make_files(folder: Path) -> list[SourceSpec]:
    """Documents and logs, open ones and private ones; the private logs go on with an open session."""
    for name, text in (
        ("open/sea.md", OPEN_PAGE),
        ("open/copy.md", SECRET_PAGE),
        ("mine/wombat-plans.md", SECRET_PAGE),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    shared = [
        record("user", "Why does the gnat reader fail on empty files? It crashed twice.", 0, cwd="/code/gnat"),
        record("assistant", "An error: it reads a byte before it looks. The fix is a check.", 1, cwd="/code/gnat"),
    ]
    said = [
        record("user", "Why does the wombat ledger not add up? That is wrong.", 60, OTHER, cwd="/code/wombat"),
        record("assistant", "The error is in the wombat rounding. The fix is cents.", 61, OTHER, cwd="/code/wombat"),
    ]
    harmless = [
        record("user", "Why is the heron page slow? It was an error to ship it.", 5, "22222222" + SESSION[8:]),
        record("assistant", "The decision: the heron page is cached. The fix is in.", 6, "22222222" + SESSION[8:]),
    ]
    for root, session, lines in (
        ("logs", SESSION, shared), ("logs", "22222222" + SESSION[8:], harmless), ("mine-logs", SESSION, shared),
        ("mine-logs", OTHER, said),
    ):  # fmt: skip
        (folder / root / FOLDER).mkdir(parents=True, exist_ok=True)
        (folder / root / FOLDER / f"{session}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return [
        spec("mine", DOCUMENTS, folder / "mine", private=True), spec("open", DOCUMENTS, folder / "open", private=False),
        spec("mine-logs", LOGS, folder / "mine-logs", private=True), spec("logs", LOGS, folder / "logs", private=False),
    ]  # fmt: skip


# The OpenAI-compatible service of these tests is on this machine, so it may see everything, as Ollama here may.
@pytest.mark.parametrize("kind", ["anthropic", "claude_cli"])
def test_no_word_heading_nor_path_of_a_private_source_reaches_an_llm_elsewhere(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crawled(kind, tmp_path, monkeypatch) as (home, service):
        specs = make_files(tmp_path)
        home.crawl(*(each for each in specs if each.private))
        assert service.prompts == []
        home.crawl(*specs)
        sent = "\n".join(service.prompts).casefold()
        assert "lighthouse" in sent
        assert "heron" in sent
        assert "wombat" not in sent
        assert "gnat" not in sent, "a private log has a copy of this session"


def test_an_llm_of_this_machine_is_asked_about_private_sources_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crawled("ollama", tmp_path, monkeypatch) as (home, service):
        home.crawl(*make_files(tmp_path))
        sent = "\n".join(service.prompts).casefold()
        assert all(word in sent for word in ("lighthouse", "heron", "wombat", "gnat"))


def test_what_was_read_of_a_private_source_stays_private_when_the_source_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crawled("anthropic", tmp_path, monkeypatch) as (home, service):
        specs = make_files(tmp_path)
        home.set(summarizer="none")
        home.crawl(*specs)
        home.set(**service.settings)
        home.crawl(*(each for each in specs if not each.private))
        assert "wombat" not in "\n".join(service.prompts).casefold()


SAID_LATER = {
    "handed in again": lambda home, upload: home.uploads().take(handed("hush")),
    "edited": lambda home, upload: home.edit(upload.episode_ids[0], {"project": "acme/hush"}),
    "another file": lambda home, upload: home.uploads().take(replace(handed("hush"), filename="b.md", data=SAME)),
}
SAME = SECRET_PAGE.encode() + b"\n## Quokka\n\nThe quokka was not asked, and says so at every meeting since then.\n"


def handed(project: str) -> Handed:
    return Handed("wombat.md", SECRET_PAGE.encode(), project=project)


@pytest.mark.parametrize("way", SAID_LATER)
def test_an_upload_is_private_when_its_first_project_or_one_that_it_was_given_since_is(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crawled("anthropic", tmp_path, monkeypatch) as (home, service):
        home.set(private_projects=["hush"])
        upload = home.uploads().take(handed("open"))
        SAID_LATER[way](home, upload)
        home.uploads().take(Handed("sea.md", OPEN_PAGE.encode(), project="open"))
        home.summarize_uploads()
        sent = "\n".join(service.prompts).casefold()
        assert "lighthouse" in sent
        assert "wombat" not in sent


def test_an_upload_that_was_private_stays_so_under_another_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crawled("anthropic", tmp_path, monkeypatch) as (home, service):
        home.set(private_projects=["hush"])
        home.uploads().take(handed("hush"))
        home.uploads().take(handed("open"))
        home.summarize_uploads()
        assert service.prompts == []
