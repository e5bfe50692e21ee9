"""What writes does so only in the store that the sidecar of its home searches."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from anamnesis_pipeline.cli import config, exclude, ingest, model, projects, search, summaries
from anamnesis_pipeline.cli.exporting import run_import
from anamnesis_pipeline.cli.forget import finish_forgetting, run_forget
from anamnesis_pipeline.cli.ingest import run_ingest
from anamnesis_pipeline.cli.local_services import mention_other_store, other_store, require_stored
from anamnesis_pipeline.cli.redact import run_rescan
from anamnesis_pipeline.cli.sources import SourceRequest, run_add, run_remove
from anamnesis_pipeline.cli.uploads import run_upload
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.parsing.claude_logs.projects import project_label
from anamnesis_pipeline.pipeline.projects import SEEN
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.runtime.up_lock import Running, hold_lock
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.posting import EpisodeDraft, EpisodeWriter
from anamnesis_pipeline.services.uploads import Handed
from anamnesis_pipeline.services.wiring import open_pieces, open_store, store_place
from anamnesis_pipeline.settings import Settings, sidecar_url
from anamnesis_tests.support.loopback import LoopbackServer, json_answer

ELSEWHERE = "MongoDB mongo:27017/anamnesis"


@pytest.fixture
def sidecar() -> Iterator[str]:
    """Address of one that searches another store."""
    ready = {"status": "ready", "missing": [], "coverage": None, "store": ELSEWHERE}
    with LoopbackServer().respond(json_answer(ready)).running() as server:
        yield server.url


@pytest.fixture
def settings(sidecar: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a home with a store in a file, and with the sidecar's port."""
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_PORT", sidecar.rpartition(":")[2])
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(tmp_path))
    found = Settings()
    open_store(found).close()
    (tmp_path / "notes.md").write_text("# Ports\n\nThe sidecar listens on port 3010.\n")
    return found


@pytest.fixture
def running(settings: Settings, sidecar: str) -> Iterator[Settings]:
    """The same while an `anamnesis up` of the home runs."""
    with hold_lock(settings.home / "up.lock", Running(1, "life", sidecar, "http://127.0.0.1:1", [])):
        yield settings


def test_another_name_of_one_server_is_no_other_store(settings: Settings) -> None:
    own = settings.model_copy(update={"store": "mongo", "mongo_uri": SecretStr("mongodb://u:p@here:27017/?x=y")})
    sidecar = {"url": "http://127.0.0.1:3010", "store": ELSEWHERE}
    assert other_store(own, sidecar) is None
    assert other_store(own, sidecar | {"store": None}) is None
    told = str(other_store(settings, sidecar))
    assert ELSEWHERE in told
    assert str(settings.database) in told


@pytest.mark.parametrize(
    "write",
    [
        lambda settings: run_ingest(settings, print),
        lambda settings: run_forget(settings, ForgetRequest(project="acme"), yes=True),
        finish_forgetting,
        lambda settings: run_rescan(settings, dry_run=False, say=print),
        lambda settings: run_import(settings, settings.home.parent / "notes.md", print),
        lambda settings: run_upload(settings, [settings.home.parent / "notes.md"], Handed("", b"")),
        lambda settings: config.store_setting(settings, "embed_cpu_pct", "50"),
        lambda settings: config.unstore_setting(settings, "embed_cpu_pct"),
        lambda settings: projects.alias(settings, "a", "b"),
        lambda settings: projects.unalias(settings, "a"),
        lambda settings: ingest.retry_letters(settings, print),
        lambda settings: summaries.run_summarize(settings, print),
        lambda settings: model.add(settings, "hashing"),
        lambda settings: exclude.remove(settings, "x"),
        lambda settings: run_add(settings, SourceRequest(str(settings.home.parent)), print),
        lambda settings: run_remove(settings, "notes"),
    ],
)
def test_nothing_is_written_where_nobody_searches(running: Settings, write: Callable[[Settings], object]) -> None:
    with pytest.raises(GiveUp, match=rf"searches {ELSEWHERE}.*config.toml.*Nothing was changed"):
        write(running)


def test_sidecar_of_another_home_is_mentioned(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    config.store_setting(settings, "embed_cpu_pct", "50")
    with closing(open_store(settings)) as store:
        assert store.settings.get("config.embed_cpu_pct") == 50
    said = capsys.readouterr()
    assert f"searches {ELSEWHERE}, and this command opens {store_place(settings)}" in said.err
    assert said.out == ""


def test_what_only_reads_says_which_store_it_reads(
    running: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mention_other_store(running)
    assert f"this command opens {store_place(running)}" in capsys.readouterr().err
    found = {"results": [{"id": "theirs"}], "degraded": []}
    monkeypatch.setattr(search, "search_sidecar", lambda *_: found)
    answer, remark = search.search(running, {"query": "crane", "mode": "hybrid"})
    assert answer == found, "what this memory lacks is no matter of the other one"
    assert f"of another memory: the sidecar at {sidecar_url(running)} searches {ELSEWHERE}" in str(remark)


@pytest.mark.parametrize(("elsewhere", "start"), [("", "anamnesis up"), ("http://webserver:3000", "./start.sh")])
def test_an_empty_home_is_told_with_what_starts_it(tmp_path: Path, elsewhere: str, start: str) -> None:
    with pytest.raises(GiveUp, match=f"nothing is stored in .*empty yet; start it with: {start}"):
        require_stored(Settings(home=tmp_path / "empty", dagster_url=elsewhere))


def test_search_inside_private_project_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_PORT", "1")
    settings = Settings()
    inside = tmp_path / "hush" / "src"
    inside.mkdir(parents=True)
    label = project_label(str(inside.parent))
    with closing(open_store(settings)) as store:
        poster = EpisodeWriter(store, open_redactor(settings).mask_text, open_pieces(), None)
        poster.create(EpisodeDraft("The zeppelin hangar", settings.machine, label))
        store.settings.set("config.private_projects", [label])
        store.settings.set(SEEN + str(inside), label)

    def found() -> list[str]:
        wanted = {"project": None, "instance": None, "since": None, "until": None, "kinds": (), "tags": ()}
        body = search.search_body("zeppelin", top_k=5, mode=Mode.HYBRID, **wanted)
        return [hit["project"] for hit in search.search(settings, body)[0]["results"]]

    monkeypatch.chdir(tmp_path)
    assert found() == []
    monkeypatch.chdir(inside)
    assert found() == [label]


def test_a_refused_question_is_told_without_an_empty_path(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_PORT", "1")
    body = {"query": "ports", "mode": "exact", "lists": ["words_text"]}
    with pytest.raises(GiveUp, match=r"^the question is refused: mode exact asks "):
        search.search(Settings(), body)
