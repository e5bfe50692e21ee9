"""Project identity on real repositories, aliases on a real store, and worktrees that are offered to be joined."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anamnesis_pipeline.cli.projects import render
from anamnesis_pipeline.errors import BadSetting, HostUnreachable
from anamnesis_pipeline.model import Episode, EpisodeFilter, Passage
from anamnesis_pipeline.parsing.claude_logs.projects import project_label
from anamnesis_pipeline.pipeline.projects import (
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
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.project_labels import Private, is_private
from anamnesis_pipeline.search.query import Mode, SearchQuery
from anamnesis_pipeline.services.folder_project import projects_of_folder
from anamnesis_pipeline.services.worktrees import join, joined_now, offers, part, repository_of, require_not_exposed
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind, RuleSet
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES
from anamnesis_pipeline.store.session_model import SessionRecord, to_episode
from anamnesis_tests.parsing.claude_logs.test_parsing import git
from anamnesis_tests.support.ingested import Ingested
from anamnesis_tests.support.log_lines import SESSION, START, Log
from anamnesis_tests.support.samples import put


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
def test_worktrees_are_one_project_also_when_two_are_gone(store: Store, repository: Path, url: str | None) -> None:
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


def test_a_worktree_never_seen_is_told_by_what_is_around_it(store: Store, repository: Path) -> None:
    gone = repository / ".claude" / "worktrees" / "quiet-otter"
    assert project_labels(store.settings)(str(gone)) == project_label(str(repository))


def test_a_link_is_the_project_that_it_leads_to(store: Store, repository: Path, tmp_path: Path) -> None:
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


def test_a_machine_that_is_away_gives_no_guess_that_is_kept(store: Store) -> None:
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


def test_logs_of_a_machine_that_was_away_get_its_projects(store: Store, tmp_path: Path) -> None:
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
    assert store.episodes.count(EpisodeFilter(projects=("acme/store",))) == 4
    home.publish()
    assert dict(names(store)) == {"acme/store": 4, "/srv/tools": 1}
    assert {part.project for part in store.forgetting.parts_after("", 10)} == {"acme/shop", "/srv/tools"}
    assert "shop" in store.episodes.passages_of(home.episodes()[0].episode_id)[0].passage.context
    asked.clear()
    assert right_guesses(store, "box", machine_labels(store.settings, "box", resolve, must_answer=True)) == 0
    assert (asked, guesses_of(store.settings, "box")) == ([], {}), "each directory is asked for once"


def test_a_run_takes_what_another_has_learned_meanwhile(store: Store) -> None:
    label = machine_labels(store.settings, "box", away)
    assert (label("/srv/shop"), label("/srv/tools")) == ("/srv/shop", "/srv/tools")
    sure = machine_labels(store.settings, "box", lambda cwd: "acme/shop" if cwd == "/srv/shop" else None)
    assert sure("/srv/shop") == "acme/shop"
    assert (label("/srv/shop"), label("/srv/tools")) == ("acme/shop", "/srv/tools")


def test_an_edited_episode_of_a_guessed_project_follows(store: Store, tmp_path: Path) -> None:
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
            ("acme/shop", "said better"),
            ("mine", moved.summary),
        ]
        home.publish()


@pytest.mark.parametrize("is_worktree", [True, False])
def test_a_removed_project_is_not_of_the_homes_repository(store: Store, repository: Path, is_worktree: bool) -> None:
    gone = repository.parent / ("shop-a" if is_worktree else "notes")
    gone.mkdir(exist_ok=True)
    before = project_labels(store.settings)(str(gone))
    shutil.rmtree(gone)
    git(repository.parent, "init", "--quiet")
    git(repository.parent, "remote", "add", "origin", "git@example.org:ann/dotfiles.git")
    assert project_labels(store.settings)(str(gone)) == before


@pytest.mark.parametrize("above", [".", ".."])
def test_what_was_removed_unseen_is_not_of_the_homes_repository(
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
def test_one_folder_is_one_project_however_it_is_written(cwd: str, label: str) -> None:
    assert project_label(cwd) == label


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


def test_an_alias_merges_what_is_stored_and_what_comes(store: Store, tmp_path: Path) -> None:
    home = ingested(store, tmp_path, "/w/old", "/w/new", "/w/other")
    assert add_alias(store, "/w/old", "/w/new") == 1
    assert names(store) == [("/w/new", 2), ("/w/other", 1)]
    assert store.episodes.count(EpisodeFilter(projects=("/w/new",))) == 2
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


def test_an_episode_edited_while_it_is_merged_keeps_its_name(store: Store) -> None:
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
        where = EpisodeFilter(projects=(name,))
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


# --- worktrees --------------------------------------------------------------------------------------------


GQC, DOV, SPOTTER = "~/projects/spotter-worktrees/gqc", "~/projects/spotter-worktrees/dov", "~/projects/spotter"


def stored(store: Store, *projects: str) -> None:
    for project in projects:
        put(store, f"e {project}", "x", kind="exchange", project=project, machine="box")


PUBLIC = Private()


def offered(store: Store, private: Private = PUBLIC) -> dict[str, dict[str, str]]:
    return {offer.target: dict(offer.projects) for offer in offers(store, private, "box")}


@pytest.mark.parametrize(
    ("path", "repository"),
    [
        ("~/projects/spotter-worktrees/gqc", "~/projects/spotter"),
        ("~/shop/.worktrees/streaming", "~/shop"),
        ("~/shop/.worktrees/streaming/src", "~/shop"),
        ("~/shop/.claude/worktrees/fix", "~/shop"),
        ("~/shop.worktrees/fix", "~/shop"),
        ("~/shop_worktree/fix", "~/shop"),
        ("C:/code/shop/worktrees/fix", "C:/code/shop"),
        ("~/worktrees/shop", ""),
        ("~/shop", ""),
        ("acme/worktrees/x", ""),
        ("~/my-worktrees-notes/x", ""),
    ],
)
def test_path_of_a_worktree_tells_its_repository(path: str, repository: str) -> None:
    assert repository_of(path) == repository


def test_gone_worktrees_are_offered_and_joined_only_on_request(store: Store) -> None:
    stored(store, GQC, DOV, SPOTTER, "~/other")
    assert offered(store) == {SPOTTER: {GQC: "by its path", DOV: "by its path"}}
    assert set(store.projects.all()) == {GQC, DOV, SPOTTER, "~/other"}
    offer, changed = join(store, PUBLIC, "box", SPOTTER)
    assert (set(offer.projects), changed) == ({GQC, DOV}, 2)
    assert set(store.projects.all()) == {SPOTTER, "~/other"}
    assert offered(store) == {}
    assert joined_now(store) == {SPOTTER: [DOV, GQC]}
    assert part(store, SPOTTER) == ([DOV, GQC], 2)
    assert set(store.projects.all()) == {GQC, DOV, SPOTTER, "~/other"}
    assert joined_now(store) == {}
    with pytest.raises(BadSetting, match="nothing was joined"):
        part(store, SPOTTER)
    with pytest.raises(BadSetting, match="no worktrees of '~/other'"):
        join(store, PUBLIC, "box", "~/other")


def test_part_of_a_repository_name_joins_and_parts_it(store: Store) -> None:
    stored(store, "~/shop", "~/shop-worktrees/fix", "~/till", "~/till-worktrees/fix")
    assert join(store, PUBLIC, "box", "SHOP")[0].target == "~/shop"
    assert joined_now(store) == {"~/shop": ["~/shop-worktrees/fix"]}
    assert part(store, "sho")[0] == ["~/shop-worktrees/fix"]
    with pytest.raises(BadSetting, match=r"may be several repositories: ~/shop, ~/till"):
        join(store, PUBLIC, "box", "~/")
    with pytest.raises(BadSetting, match="no worktrees of 'nosuch' are known"):
        join(store, PUBLIC, "box", "nosuch")


def test_worktrees_without_their_repository_are_offered_together(store: Store) -> None:
    stored(store, GQC)
    assert offered(store) == {}
    stored(store, DOV)
    assert offered(store) == {SPOTTER: {GQC: "by its path", DOV: "by its path"}}


def test_repository_with_a_remote_is_found_by_its_name(store: Store) -> None:
    stored(store, "acme/spotter", GQC, "~/.claude-worktrees/spotter/fix")
    reason = "by the name of its repository"
    assert offered(store) == {"acme/spotter": {GQC: reason, "~/.claude-worktrees/spotter/fix": reason}}
    stored(store, "other/spotter")
    assert "acme/spotter" not in offered(store)


@pytest.mark.parametrize("name", ["gqc", "spotter"])
def test_private_project_is_neither_offered_nor_joined(store: Store, name: str) -> None:
    stored(store, GQC, SPOTTER)
    private = Private(projects=(name,))
    assert offered(store, private) == {}
    with pytest.raises(BadSetting):
        join(store, private, "box", SPOTTER)
    assert set(store.projects.all()) == {GQC, SPOTTER}


def test_private_name_is_not_merged_into_a_public_one(store: Store) -> None:
    private = Private(projects=("gqc",))
    with pytest.raises(BadSetting, match="make '~/projects/spotter' private first"):
        require_not_exposed(store, private, GQC, SPOTTER)
    require_not_exposed(store, private, SPOTTER, GQC)


def test_folder_that_is_there_is_not_offered(store: Store, tmp_path: Path) -> None:
    put(store, "e1", "x", kind="exchange", project=GQC, machine="box", metadata={"cwd": str(tmp_path)})
    stored(store, SPOTTER)
    assert offered(store) == {}


def test_sibling_is_offered_by_its_branch(store: Store) -> None:
    stored(store, "~/code/shop", "~/code/shop-fix-cart", "~/code/shop-api")
    record = SessionRecord(
        "s", ("s",), "box", "~/code/shop-fix-cart", "ann/fix-cart", "T", "P", "O", START, START, 1, 0
    )
    store.episodes.put([(to_episode(record, "direct"), [])])
    assert offered(store) == {"~/code/shop": {"~/code/shop-fix-cart": "by its branch"}}


def test_sibling_is_offered_by_files_that_both_worked_on(store: Store, tmp_path: Path) -> None:
    home = Ingested(store, tmp_path, project_label)
    for number, (folder, files) in enumerate([("shop", "abcd"), ("shop-cart", "abc"), ("shop-api", "xyz")]):
        session = f"4f0c2b1e-0f3d-4a53-9a0e-6c1c3b7a9d1{number}"
        log = Log(session=session, cwd=f"/home/dev/{folder}")
        log.user(f"Look at the files of {folder}.", uuid=f"u{number}")
        for name in files:
            path = f"/home/dev/{folder}/src/{name}.py"
            log.assistant(
                {"type": "tool_use", "id": f"t{number}{name}", "name": "Read", "input": {"file_path": path}},
                uuid=f"a{number}{name}",
                message_id=f"m{number}{name}",
            )
        home.write(log.lines, f"{session}.jsonl", f"-home-dev-{folder}")
    home.ingest()
    assert offered(store) == {"~/shop": {"~/shop-cart": "by 3 files that both worked on"}}
