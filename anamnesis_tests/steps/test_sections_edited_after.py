"""A section that was forgotten, or deleted, stays away from its document when it is edited a little."""

from pathlib import Path

import pytest

from anamnesis_pipeline.model import Source
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind
from anamnesis_pipeline.steps.blocklist import add_rule, blocklist, lift
from anamnesis_pipeline.steps.episodes import delete_episode
from anamnesis_pipeline.steps.forget_target import ForgetRequest
from anamnesis_pipeline.steps.host_clock import read_problems
from anamnesis_tests.steps.crawled_documents import COLORS, PORTS, SETUP, T0, DocumentHome, make_repository, page, write

EDITED = PORTS.replace("3000 of", "3000 on")
ANEW = "## Ports\n\nEach service says in its settings where 3010 callers can find it, and nothing is fixed any more."


@pytest.fixture
def notes(home: DocumentHome) -> Source:
    notes = home.source("notes")
    write(notes, "a.md", page(SETUP, PORTS))
    home.ingest(notes)
    return notes


def forget(home: DocumentHome, word: str = "3010") -> str:
    found = home.one(word).episode_id
    home.pipeline.forgetter().forget(ForgetRequest(ids=(found,)))
    return found


def everything(home: DocumentHome) -> str:
    return home.archived() + "".join(e.raw_exchange + e.summary for e in home.episodes(every=True))


@pytest.mark.parametrize(
    "now", [EDITED, EDITED.replace("## Ports", "## Where it listens"), EDITED + "\n\nA line more.", PORTS.upper()]
)
def test_an_edited_copy_stays_away_and_the_other_sections_come(home: DocumentHome, notes: Source, now: str) -> None:
    forget(home)
    write(notes, "a.md", page(SETUP.replace("twice", "thrice"), now, COLORS), T0 + 50)
    home.ingest(notes)
    assert "3010" not in everything(home)
    assert "thrice" in "".join(home.texts())
    assert "orange" in "".join(home.texts())


@pytest.mark.parametrize("name", ["diary.txt", "diary.md"])
def test_what_grew_around_a_forgotten_text_is_remembered_without_it(home: DocumentHome, name: str) -> None:
    notes = home.source("notes")
    first = "The ambassador of Lapland told us in confidence that he keeps a walrus in the cellar of the embassy.\n"
    write(notes, name, first)
    home.ingest(notes)
    forget(home, "walrus")
    later = "".join(
        f"On day {n} the gate was painted by {n} people, and {n * 3} of them liked it.\n" for n in range(30)
    )
    write(notes, name, first.replace("told", "wrote") + later, T0 + 50)
    home.ingest(notes)
    assert "walrus" not in everything(home)
    assert "On day 0 the gate" in everything(home)
    assert "On day 29 the gate" in "".join(home.texts())
    (entry,) = blocklist(home.store, 10)
    assert entry.label == f"notes:{notes.root}/{name}"
    way_back = (
        f"{name}: what is much like a forgotten text stays away; to let it in: anamnesis exclude remove {entry.id}"
    )
    assert way_back in read_problems(home.store.settings, notes.key)
    write(notes, name, first + later + "The last day was a Sunday.\n", T0 + 90)
    home.ingest(notes)
    assert "walrus" not in everything(home)
    assert "Sunday" in "".join(home.texts())


def test_a_section_that_is_written_anew_is_remembered(home: DocumentHome, notes: Source) -> None:
    forget(home)
    write(notes, "a.md", page(SETUP, ANEW), T0 + 50)
    home.ingest(notes)
    assert "nothing is fixed any more" in home.one("3010").raw_exchange


def test_an_edited_copy_stays_away_from_a_renamed_file_and_from_what_that_becomes(
    home: DocumentHome, notes: Source
) -> None:
    forget(home)
    Path(notes.root, "a.md").unlink()
    write(notes, "in/b.md", page(SETUP, EDITED), T0 + 50)
    home.ingest(notes)
    assert "installer" in "".join(home.texts())
    assert "3010" not in everything(home)
    write(notes, "in/b.md", page(COLORS, EDITED), T0 + 90)
    home.ingest(notes)
    assert "orange" in "".join(home.texts())
    assert "3010" not in everything(home)


def test_an_edited_copy_stays_away_from_every_clone_of_a_repository(home: DocumentHome) -> None:
    laptop, desk = home.source("laptop"), home.source("desk")
    for clone in (laptop, desk):
        make_repository(clone)
    write(laptop, "a.md", page(SETUP, PORTS))
    home.ingest(laptop)
    forget(home)
    write(desk, "a.md", page(SETUP, EDITED), T0 + 50)
    home.ingest(desk)
    assert "3010" not in everything(home)


def test_the_same_words_in_another_document_are_its_own(home: DocumentHome, notes: Source) -> None:
    forget(home)
    write(notes, "other.md", page(COLORS.replace("orange", "3010"), EDITED))
    home.ingest(notes)
    assert "Dagster" in "".join(home.texts())


def test_a_deleted_section_stays_away_edited_and_comes_as_it_is_when_the_entry_is_lifted(
    home: DocumentHome, notes: Source
) -> None:
    found = home.one("3010").episode_id
    delete_episode(home.store, found)
    write(notes, "a.md", page(SETUP, EDITED), T0 + 50)
    home.ingest(notes)
    assert "3010" not in "".join(home.texts())
    lift(home.store, found)
    home.ingest(notes)
    assert "3000 on" in home.one("3010").raw_exchange


@pytest.mark.parametrize("now", [PORTS, EDITED])
def test_a_forgotten_section_comes_back_as_it_is_by_now_when_the_entry_is_lifted(
    home: DocumentHome, notes: Source, now: str
) -> None:
    found = forget(home)
    write(notes, "a.md", page(SETUP, now), T0 + 50)
    home.ingest(notes)
    lifted = lift(home.store, found)
    assert lifted is not None
    assert (lifted.parts, lifted.files) == (0, 1)
    home.ingest(notes)
    assert home.one("3010").raw_exchange.strip() == now
    assert not home.store.exclusion.has_buried()


def test_entries_of_one_form_are_told_apart(home: DocumentHome) -> None:
    def entry(day: str, said: str) -> str:
        return f"## {day}\n\nThe weather was fine, the mood of all was good.\n\nDone: {said}"

    notes = home.source("notes")
    days = [entry("Monday", "the walrus of the zoo was fed with herring"), entry("Tuesday", "nothing at all to tell")]
    write(notes, "diary.md", page(*days))
    home.ingest(notes)
    forget(home, "walrus")
    write(notes, "diary.md", page(*days, entry("Wednesday", "a letter from the mayor came")), T0 + 50)
    home.ingest(notes)
    assert "mayor" in "".join(home.texts())
    assert "walrus" not in everything(home)


def test_the_current_text_stays_when_an_older_one_is_forgotten(home: DocumentHome, notes: Source) -> None:
    write(notes, "a.md", page(SETUP, EDITED), T0 + 50)
    home.ingest(notes)
    old = next(e for e in home.episodes(every=True) if "3000 of" in e.raw_exchange)
    home.pipeline.forgetter().forget(ForgetRequest(ids=(old.episode_id,)))
    write(notes, "a.md", page(COLORS, SETUP, EDITED), T0 + 90)
    home.ingest(notes)
    assert "3000 on" in home.one("3010").raw_exchange


def test_where_a_rule_keeps_an_edited_text_away_the_rule_is_named(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "a.md", page(SETUP, PORTS))
    home.ingest(notes)
    rule, _ = add_rule(home.store, Rule(RuleKind.CONTENT_PATTERN, "3000 of"))
    home.pipeline.forgetter().forget(ForgetRequest(ids=(home.one("3010").episode_id,)), rule.rule_id)
    write(notes, "a.md", page(SETUP, EDITED), T0 + 50)
    (report,) = home.ingest(notes)
    assert report.crawl.problems[0].endswith(f"anamnesis exclude remove {rule.rule_id}")
    assert "3010" not in "".join(home.texts())
