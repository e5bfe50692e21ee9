"""Which text of a document gives way to which when others come, go and are renamed around it."""

import json
from pathlib import Path

from anamnesis_tests.documents.made_documents import pdf_file
from anamnesis_tests.steps.crawled_documents import DocumentHome


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
