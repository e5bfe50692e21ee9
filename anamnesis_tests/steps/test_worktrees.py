"""Which projects are offered as worktrees of one repository, and joining them."""

from pathlib import Path

import pytest

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.exchanges.projects import project_label
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.session_model import SessionRecord, to_episode
from anamnesis_pipeline.steps.worktrees import join, joined_now, offers, part, repository_of, require_not_exposed
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.exchanges.ingested import Ingested
from anamnesis_tests.exchanges.log_lines import START, Log
from anamnesis_tests.store.samples import put

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
                uuid=f"a{number}{name}", message_id=f"m{number}{name}",
            )  # fmt: skip
        home.write(log.lines, f"{session}.jsonl", f"-home-dev-{folder}")
    home.ingest()
    assert offered(store) == {"~/shop": {"~/shop-cart": "by 3 files that both worked on"}}
