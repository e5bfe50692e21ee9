"""Project identity on real repositories, and aliases on a real store."""

import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anamnesis_pipeline.commands.projects import render
from anamnesis_pipeline.errors import BadSetting, HostUnreachable
from anamnesis_pipeline.exchanges.projects import project_label, resolved_project
from anamnesis_pipeline.model import Episode, Passage, Where
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.project_labels import Private, is_private
from anamnesis_pipeline.search.query import Mode, SearchQuery
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind, RuleSet
from anamnesis_pipeline.steps.folder_project import projects_of_folder
from anamnesis_pipeline.steps.projects import (
    SEEN,
    ProjectRow,
    add_alias,
    guesses_of,
    machine_labels,
    merge_spellings,
    project_labels,
    project_rows,
    remove_alias,
    right_guesses,
)
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES
from anamnesis_tests.exchanges.ingested import Ingested
from anamnesis_tests.exchanges.log_lines import SESSION, Log
from anamnesis_tests.exchanges.test_parsing import git
from anamnesis_tests.store.samples import put


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A main worktree with two more beside it. What is above all three is of the test too."""
    main = tmp_path / "home" / "shop"
    main.mkdir(parents=True)
    git(main, "init")
    git(main, "commit", "--allow-empty", "-m", "x")
    for name in ("shop-a", "shop-b"):
        git(main, "worktree", "add", f"../{name}")
    return main


# --- identity --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["git@github.com:acme/shop.git", None])
def test_three_worktrees_are_one_project_also_when_two_of_them_are_gone(
    store: Store, repository: Path, url: str | None
) -> None:
    if url:
        git(repository, "remote", "add", "origin", url)
    places = [str(repository), *(str(repository.parent / name) for name in ("shop-a", "shop-b"))]
    before = {project_labels(store.settings)(place) for place in places}
    assert before == {"acme/shop" if url else project_label(str(repository))}
    for place in places[1:]:
        git(repository, "worktree", "remove", place)
    assert {project_labels(store.settings)(place) for place in places} == before, "another process still knows"
    shutil.rmtree(repository)
    assert {project_labels(store.settings)(place) for place in places} == before


def test_a_worktree_inside_its_repository_that_was_never_seen_alive_is_told_by_what_is_around_it(
    store: Store, repository: Path
) -> None:
    gone = repository / ".claude" / "worktrees" / "quiet-otter"
    assert project_labels(store.settings)(str(gone)) == project_label(str(repository))


def test_a_link_to_a_directory_is_the_project_that_it_leads_to(store: Store, repository: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for target in (repository, plain):
        link = tmp_path / f"link-to-{target.name}"
        link.symlink_to(target)
        label = project_labels(store.settings)
        assert label(str(link)) == label(str(target)) == project_label(str(target.resolve()))
        link.unlink()
        assert project_labels(store.settings)(str(link)) == project_label(str(target.resolve()))


def test_only_directories_of_this_machine_are_remembered(store: Store, repository: Path) -> None:
    label = project_labels(store.settings)
    for cwd in (str(repository), "/no/such/place", "C:\\work", ""):
        label(cwd)
    assert store.settings.all(SEEN) == {SEEN + str(repository): project_label(str(repository))}


def test_a_machine_that_is_away_gives_no_guess_that_is_kept_and_none_at_all_where_it_must_answer(store: Store) -> None:
    answers: list[str | HostUnreachable] = ["acme/shop", HostUnreachable("far is away"), "acme/tools"]

    def resolve(cwd: str) -> str:
        answer = answers.pop(0)
        if isinstance(answer, HostUnreachable):
            raise answer
        return answer

    label = machine_labels(store.settings, "far", resolve, must_answer=True)
    assert label("/srv/shop") == "acme/shop"
    for _ in range(2):
        with pytest.raises(HostUnreachable, match="far is away"):
            label("/srv/tools")
    assert machine_labels(store.settings, "far", lambda cwd: None, must_answer=True)("/srv/shop") == "acme/shop"
    assert machine_labels(store.settings, "far", resolve, must_answer=True)("/srv/tools") == "acme/tools"


def away(cwd: str) -> str:
    raise HostUnreachable("box is away")


def put_logs(home: Ingested) -> None:
    """A session of two directories with a subagent, one elsewhere, and the history of a third."""
    log = Log(cwd="/srv/shop")
    log.user("why is it slow", uuid="u-1")
    log.user("and in the folder below?", uuid="u-2", cwd="/srv/shop/web")
    home.write(log.lines)
    agent = Log(cwd="/srv/shop/web", isSidechain=True, agentId="a1")
    agent.user("look at the pages", uuid="u-3")
    home.write(agent.lines, f"{SESSION}/subagents/agent-a1.jsonl")
    other = Log(session=f"1{SESSION[1:]}", cwd="/srv/tools")
    other.user("which tools are there", uuid="u-4")
    home.write(other.lines, f"1{SESSION[1:]}.jsonl")
    home.write(['{"display":"typed long ago","timestamp":1,"project":"/srv/shop"}'], "history.jsonl")


def test_logs_that_were_parsed_while_their_machine_was_away_get_its_projects_when_it_answers(
    store: Store, tmp_path: Path
) -> None:
    home = Ingested(store, tmp_path, machine_labels(store.settings, "box", away))
    put_logs(home)
    home.ingest()
    before = {"/srv/shop": 4, "/srv/tools": 1}
    assert dict(names(store)) == before
    assert right_guesses(store, "box", machine_labels(store.settings, "box", away, must_answer=True)) == 0
    assert dict(names(store)) == before, "it is still away"

    asked: list[str] = []

    def resolve(cwd: str) -> str | None:
        asked.append(cwd)
        return "acme/shop" if cwd.startswith("/srv/shop") else None

    add_alias(store, "acme/shop", "acme/store")
    label = machine_labels(store.settings, "box", resolve, must_answer=True)
    assert right_guesses(store, "nas", label) == 0, "of another machine"
    assert right_guesses(store, "box", label) > 0
    assert dict(names(store)) == {"acme/store": 4, "/srv/tools": 1}
    assert store.episodes.count(Where(projects=("acme/store",))) == 4
    home.publish()
    assert dict(names(store)) == {"acme/store": 4, "/srv/tools": 1}
    assert {part.project for part in store.forgetting.parts_after("", 10)} == {"acme/shop", "/srv/tools"}
    assert "shop" in store.episodes.passages_of(home.episodes()[0].episode_id)[0].passage.context
    asked.clear()
    assert right_guesses(store, "box", machine_labels(store.settings, "box", resolve, must_answer=True)) == 0
    assert (asked, guesses_of(store.settings, "box")) == ([], {}), "each directory is asked for once"


def test_a_run_that_began_while_a_machine_was_away_takes_what_another_run_has_learned_meanwhile(store: Store) -> None:
    label = machine_labels(store.settings, "box", away)
    assert (label("/srv/shop"), label("/srv/tools")) == ("/srv/shop", "/srv/tools")
    sure = machine_labels(store.settings, "box", lambda cwd: "acme/shop" if cwd == "/srv/shop" else None)
    assert sure("/srv/shop") == "acme/shop"
    assert (label("/srv/shop"), label("/srv/tools")) == ("acme/shop", "/srv/tools")


def test_an_edited_episode_of_a_guessed_project_follows_but_not_to_where_somebody_took_it_from(
    store: Store, tmp_path: Path
) -> None:
    home = Ingested(store, tmp_path, machine_labels(store.settings, "box", away))
    put_logs(home)
    home.ingest()
    worded, moved, *_ = (episode for episode in home.episodes() if episode.project == "/srv/shop")
    store.episodes.replace(replace(worded, summary="said better"), [Passage(0, "said better")], worded.content_hash)
    store.episodes.replace(replace(moved, project="mine"), [Passage(0, "raw")], moved.content_hash)
    right_guesses(store, "box", machine_labels(store.settings, "box", lambda cwd: "acme/shop", must_answer=True))
    for _ in range(2):
        held = store.episodes.get([worded.episode_id, moved.episode_id])
        assert [(e.project, e.summary) for e in (held[worded.episode_id], held[moved.episode_id])] == [
            ("acme/shop", "said better"), ("mine", moved.summary),
        ]  # fmt: skip
        home.publish()


@pytest.mark.parametrize("is_worktree", [True, False])
def test_a_project_that_was_removed_does_not_go_over_to_the_repository_of_the_home_around_it(
    store: Store, repository: Path, is_worktree: bool
) -> None:
    gone = repository.parent / ("shop-a" if is_worktree else "notes")
    gone.mkdir(exist_ok=True)
    before = project_labels(store.settings)(str(gone))
    shutil.rmtree(gone)
    git(repository.parent, "init", "--quiet")
    git(repository.parent, "remote", "add", "origin", "git@example.org:ann/dotfiles.git")
    assert project_labels(store.settings)(str(gone)) == before


@pytest.mark.parametrize("above", [".", ".."])
def test_what_was_removed_before_it_was_seen_is_not_of_the_repository_of_the_home_but_of_one_below(
    store: Store, repository: Path, monkeypatch: pytest.MonkeyPatch, above: str
) -> None:
    home = repository.parent
    monkeypatch.setenv("HOME", str(home))
    dotfiles = (home / above).resolve()
    git(dotfiles, "init", "--quiet")
    git(dotfiles, "remote", "add", "origin", "git@github.com:ann/dotfiles.git")
    label = project_labels(store.settings)
    assert label(str(home / "notes" / "2024")) == project_label(str(home / "notes" / "2024"))
    assert label(str(repository / ".claude" / "worktrees" / "gone")) == project_label(str(repository))
    (home / "there").mkdir()
    assert label(str(home / "there")) == "ann/dotfiles"


@pytest.mark.parametrize(
    ("cwd", "label"),
    [
        ("c:\\Users\\Ann\\shop", "~/shop"),
        ("/mnt/c/Users/Ann/shop", "~/shop"),
        ("d:\\code\\shop", "D:/code/shop"),
        ("/mnt/d/code/shop", "D:/code/shop"),
        ("/mnt/data/shop", "/mnt/data/shop"),
        ("\\\\wsl$\\Ubuntu\\home\\ann\\shop", "~/shop"),
        ("\\\\wsl.localhost\\Ubuntu-24.04\\home\\ann\\shop", "~/shop"),
        ("\\\\nas\\team\\shop", "//nas/team/shop"),
        ("/home/ann/my shop/café ☕", "~/my shop/café ☕"),
        ("/home/ann/back\\slash", "~/back\\slash"),
        ("C:\\", "C:"),
    ],
)
def test_one_folder_is_one_project_however_its_system_writes_it(cwd: str, label: str) -> None:
    assert project_label(cwd) == label


def test_names_that_share_a_folder_of_logs_are_four_projects(tmp_path: Path) -> None:
    names = ("a-b", "a_b", "a/b", "a.b")
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        git(tmp_path / name, "init")
    assert len({resolved_project(os.fspath(tmp_path / name)) for name in names}) == 4


# --- aliases ---------------------------------------------------------------------------------------------


def ingested(store: Store, tmp_path: Path, *cwds: str) -> Ingested:
    home = Ingested(store, tmp_path)
    for number, cwd in enumerate(cwds):
        log = Log(session=f"{number}{SESSION[1:]}", cwd=cwd)
        log.user(f"prompt in {cwd}", uuid=f"u-{cwd}")
        home.write(log.lines, f"{number}{SESSION[1:]}.jsonl")
    home.ingest()
    return home


def names(store: Store) -> list[tuple[str, int]]:
    return [(row.name, row.episodes) for row in project_rows(store)]


def test_an_alias_merges_what_is_stored_and_what_comes_and_can_be_taken_back(store: Store, tmp_path: Path) -> None:
    home = ingested(store, tmp_path, "/w/old", "/w/new", "/w/other")
    assert add_alias(store, "/w/old", "/w/new") == 1
    assert names(store) == [("/w/new", 2), ("/w/other", 1)]
    assert store.episodes.count(Where(projects=("/w/new",))) == 2
    log = Log(session="later", cwd="/w/old")
    log.minute, log._count = 30, 50
    log.user("typed after the merge")
    home.write(log.lines, f"8{SESSION[1:]}.jsonl")
    home.ingest()
    assert names(store) == [("/w/new", 3), ("/w/other", 1)]
    assert home.ingest().parts == 0
    assert remove_alias(store, "/w/old") == 2
    assert names(store) == [("/w/old", 2), ("/w/new", 1), ("/w/other", 1)]


def test_aliases_lead_on_and_never_in_a_circle(store: Store, tmp_path: Path) -> None:
    ingested(store, tmp_path, "/w/a", "/w/b", "/w/c")
    add_alias(store, "/w/a", "/w/b")
    add_alias(store, "/w/b", "/w/c")
    assert project_rows(store) == [ProjectRow("/w/c", 3, ("/w/a", "/w/b"))]
    assert render(project_rows(store)) == "/w/c  3 episodes, also /w/a, /w/b"
    with pytest.raises(BadSetting, match="itself"):
        add_alias(store, "/w/c", "/w/a")
    with pytest.raises(BadSetting, match=r"no alias; those that are: /w/a, /w/b"):
        remove_alias(store, "/w/x")
    remove_alias(store, "/w/b")
    assert dict(names(store)) == {"/w/b": 2, "/w/c": 1}


def test_an_episode_that_is_edited_while_it_is_merged_keeps_its_own_name(store: Store) -> None:
    posted = Episode("e1", "direct", datetime(2026, 3, 1, tzinfo=UTC), "box", "/w/old", "note", "s", "raw")
    store.episodes.create(posted, [Passage(0, "raw")])
    add_alias(store, "/w/old", "/w/new")
    assert not store.episodes.create(posted, [Passage(0, "raw")]), "the same post again is no conflict"
    held = store.episodes.get(["e1"])["e1"]
    assert held.project == "/w/new"
    store.episodes.replace(replace(held, summary="edited"), [Passage(0, "raw")], held.content_hash)
    assert store.episodes.get(["e1"])["e1"].project == "/w/new"
    remove_alias(store, "/w/old")
    assert store.episodes.get(["e1"])["e1"].project == "/w/old"


DECOMPOSED = "Ku\u0308che-Steuerung"


def test_both_unicode_forms_of_a_path_are_one_project(store: Store, tmp_path: Path) -> None:
    home = Ingested(store, tmp_path, project_labels(store.settings))
    for number, name in enumerate(("Küche-Steuerung", DECOMPOSED)):
        log = Log(f"{number}{SESSION[1:]}", f"/Users/mira/Code/{name}")
        log.user(f"where is driver {number}", uuid=f"u{number}")
        said = {"type": "text", "text": f"In /Users/mira/Code/{name}/src/{number}.py"}
        log.assistant(said, message_id=f"m{number}", uuid=f"a{number}")
        home.write(log.lines, f"{number}{SESSION[1:]}.jsonl")
    home.ingest()
    assert store.projects.all() == ["~/Code/Küche-Steuerung"]
    for name in ("Küche-Steuerung", DECOMPOSED):
        where = Where(projects=(name,))
        for text, mode in ((name, Mode.EXACT), (f"`{name}`", Mode.EXACT), (name, Mode.HYBRID)):
            assert len(Engine(store, None).search(SearchQuery(text, mode=mode, where=where, fold=False)).hits) == 2
        assert projects_of_folder(store, f"/Users/mira/Code/{name}", "box", is_here=True, private=Private()) == (
            "~/Code/Küche-Steuerung",
        )
        assert is_private("~/Code/Küche-Steuerung", [name])
        assert RuleSet((Rule(RuleKind.PROJECT, name),)).of_project("~/Code/Küche-Steuerung")
        assert RuleSet((Rule(RuleKind.PATH, f"/x/{name}"),)).of_path("box", f"/x/{DECOMPOSED}/a.md")
    (line,) = home.archived(f"1{SESSION[1:]}.jsonl")[:1]
    assert json.loads(line)["cwd"].endswith(DECOMPOSED), "the archive keeps what was written"


def test_projects_stored_in_two_unicode_forms_are_merged_once(store: Store) -> None:
    store.settings.set(PROJECT_ALIASES, {"~/new": f"~/{DECOMPOSED}"})
    put(store, "one", "text", project="~/new")
    assert store.projects.all() == [f"~/{DECOMPOSED}"]
    for _ in range(2):
        merge_spellings(store)
        assert store.projects.all() == ["~/Küche-Steuerung"]
