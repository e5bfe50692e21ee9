"""The documents of one project in several places, and sections that stay themselves when others come and go."""

import json
from pathlib import Path

import pytest

from anamnesis_pipeline.model import Source
from anamnesis_tests.support.crawled_documents import (
    COLORS,
    PORTS,
    SETUP,
    T0,
    DocumentHome,
    make_repository,
    page,
    write,
)
from anamnesis_tests.support.made_documents import pdf_file
from anamnesis_tests.support.samples import put


def test_a_section_on_two_machines_is_one_episode(home: DocumentHome) -> None:
    laptop, desk = home.source("laptop"), home.source("desk", root=home.place / "desk" / "work")
    make_repository(laptop, "shop")
    make_repository(desk)
    write(laptop, "shop/docs/a.md", page(SETUP, PORTS))
    write(desk, "docs/a.md", page(SETUP, PORTS), T0 + 20)
    home.ingest(laptop, desk)
    assert len(home.episodes(every=True)) == len(set(home.texts()))
    assert {e.project for e in home.episodes()} == {"acme/shop"}
    Path(laptop.root, "shop/docs/a.md").unlink()
    home.ingest(laptop, desk)
    assert {e.machine for e in home.episodes()} == {"desk"}, "it is still there, and says where"
    tags = {tag for e in home.episodes(every=True) for tag in e.tags if tag.startswith("source:")}
    assert tags == {"source:desk"}, "and of which source"


def test_code_of_one_repository_is_the_same_below_whatever_root(home: DocumentHome) -> None:
    laptop, desk = home.source("laptop"), home.source("desk", root=home.place / "desk" / "work")
    make_repository(laptop, "shop")
    make_repository(desk)
    for source, folder in ((laptop, "shop/src"), (desk, "src")):
        code = "import shop.taxes\n\n\ndef total(prices):\n    return sum(prices) * 1.19\n"
        write(source, f"{folder}/prices.py", code)
        write(source, f"{folder}/shop.yaml", "currency: EUR\ncountries: [de, at, ch]\nrounding: half-even\n")
    home.ingest(laptop, desk)
    assert len(home.episodes(every=True)) == len(set(home.texts())) == 3
    assert {e.status for e in home.episodes(every=True)} == {"active"}
    assert any("src/prices.py" in e.summary for e in home.episodes())


def test_of_two_copies_the_later_change_is_current(home: DocumentHome) -> None:
    laptop, desk = home.clones("laptop", "desk")
    for copy in (laptop, desk):
        write(copy, "a.md", page(SETUP, PORTS))
    home.ingest(laptop, desk)
    home.change(desk, "a.md", page(SETUP, PORTS.replace("3010", "4010")))
    assert "4010" in home.said()
    assert "3010" not in home.said()
    home.change(laptop, "a.md", page(SETUP, PORTS, COLORS), T0 + 90)
    assert "3010" not in home.said(), "that section did not change there"


def test_nothing_is_superseded_within_the_doubt_about_the_clocks(home: DocumentHome) -> None:
    laptop, desk = home.clones("laptop", "desk")
    write(laptop, "a.md", page(SETUP, PORTS))
    write(desk, "a.md", page(SETUP, PORTS.replace("3010", "4010")), T0 + 50)
    home.hosts["desk"].clock_skew_s = lambda: -120.0  # type: ignore[method-assign]
    home.ingest(laptop, desk)
    assert all(port in home.said() for port in ("3010", "4010"))


def test_worktrees_on_a_machine_go_by_its_one_clock(home: DocumentHome) -> None:
    trees = [home.source(name, machine="desk") for name in ("main", "feature")]
    home.hosts["desk"].clock_skew_s = lambda: -120.0  # type: ignore[method-assign]
    for tree, port, at in zip(trees, ("3010", "4010"), (T0, T0 + 50), strict=True):
        make_repository(tree)
        write(tree, "a.md", page(SETUP, PORTS.replace("3010", port)), at)
    home.ingest(*trees)
    assert "4010" in home.said()
    assert "3010" not in home.said()


def test_a_document_outside_a_repository_is_one_per_machine(home: DocumentHome) -> None:
    laptop, desk = home.source("laptop"), home.source("desk")
    write(laptop, "a.md", page(SETUP))
    write(desk, "a.md", page(SETUP))
    home.ingest(laptop, desk)
    assert len([e for e in home.episodes() if "installer" in e.raw_exchange]) == 2


@pytest.mark.parametrize("logs_first", [True, False])
def test_a_memory_is_of_the_project_of_the_logs_beside_it(home: DocumentHome, logs_first: bool) -> None:
    claude = home.source("claude")
    write(claude, "projects/-code-shop/memory/ports.md", page(PORTS))
    write(claude, "projects/-other/memory/colors.md", page(COLORS))
    if not logs_first:
        home.ingest(claude)
        assert home.one("3010").project != "acme/shop"
    logs = Source("claude--logs", "claude", f"{claude.root}/projects", "-code-shop")
    home.store.files.put_sources([logs])
    put(home.store, "e1", "said", source=logs.key, project="acme/shop")
    home.ingest(claude)
    assert home.one("3010").project == "acme/shop"
    assert home.one("orange").project != "acme/shop"
    (again,) = home.ingest(claude)
    assert again.documents.versions == 0
    assert home.episodes(every=True) == home.episodes()


# --- sections when others come, go and are renamed --------------------------------------------------------


def day(name: str, heading: str = "## Update") -> str:
    return f"{heading}\n\nOn {name} the cellar was measured, and somebody wrote down what the {name} meter said.\n"


def test_equal_headings_keep_texts_when_one_is_inserted_above(home: DocumentHome) -> None:
    notes = home.holding("log.md", "# Log\n\n" + "".join(map(day, ("friday", "monday", "sunday"))))
    before = {name: home.one(name).episode_id for name in ("friday", "monday", "sunday")}
    home.change(notes, "log.md", "# Log\n\n" + "".join(map(day, ("today", "friday", "monday", "sunday"))))
    assert {name: home.one(name).episode_id for name in before} == before
    assert {e.status for e in home.episodes(every=True)} == {"active"}


def test_an_edited_text_supersedes_its_own_under_equal_headings(home: DocumentHome) -> None:
    notes = home.holding("log.md", "".join(map(day, ("friday", "monday", "sunday"))))
    old = home.one("monday").episode_id
    home.change(notes, "log.md", "".join(map(day, ("today", "friday", "tuesday", "sunday"))))
    assert home.one("monday", every=True).superseded_by == home.one("tuesday").episode_id
    assert home.one("monday", every=True).episode_id == old
    assert len(home.episodes()) == 4


def test_a_text_gone_from_equal_headings_gives_way_to_no_other(home: DocumentHome) -> None:
    notes = home.holding("log.md", "".join(map(day, ("friday", "monday"))))
    home.change(notes, "log.md", day("monday"))
    gone = home.one("friday", every=True)
    assert (gone.status, gone.superseded_by) == ("superseded", None)
    assert home.one("monday").status == "active"


def test_the_pages_of_a_pdf_stay_themselves_when_one_is_inserted(home: DocumentHome) -> None:
    pages = [[f"The {name} page tells at length of the roof, and of the people who repaired it."] for name in "ABC"]
    notes = home.holding("roof.pdf", pdf_file(pages))
    before = {e.episode_id for e in home.episodes()}
    home.change(notes, "roof.pdf", pdf_file([["A new first page that says what is on the other pages."], *pages]))
    assert len(before) == 3
    assert before < {e.episode_id for e in home.episodes()}
    assert {e.metadata["title"][-1] for e in home.episodes()} == {f"Page {n}" for n in range(1, 5)}


def test_an_item_inserted_into_a_list_changes_one_group(home: DocumentHome) -> None:
    items = [{"id": f"meter-{n}", "text": f"the meter in room {n} was read"} for n in range(40)]
    notes = home.holding("meters.json", json.dumps(items))
    before = {e.episode_id for e in home.episodes()}
    home.change(notes, "meters.json", json.dumps([{"id": "new", "text": "a new one"}, *items]))
    assert len(before) > 5
    assert len(before - {e.episode_id for e in home.episodes()}) <= 1


def test_sections_of_a_renamed_file_give_way_to_the_same_texts(home: DocumentHome) -> None:
    notes = home.holding("old.md", day("friday", "## One") + day("monday", "## Two"))
    before = {e.raw_exchange: e.episode_id for e in home.episodes()}
    Path(notes.root, "old.md").rename(Path(notes.root, "new.md"))
    home.ingest(notes)
    now = {e.raw_exchange: e.episode_id for e in home.episodes()}
    retired = {e.episode_id: e.superseded_by for e in home.episodes(every=True) if e.status == "superseded"}
    assert retired == {before[text]: now[text] for text in before}
