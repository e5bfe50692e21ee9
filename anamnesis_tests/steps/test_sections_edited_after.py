"""A section that was forgotten, or deleted, stays away from its document when it is edited a little."""

from pathlib import Path

import pytest

from anamnesis_pipeline.model import Source
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind
from anamnesis_pipeline.steps.blocklist import add_rule, blocklist, lift
from anamnesis_pipeline.steps.episodes import delete_episode
from anamnesis_pipeline.steps.forget_target import ForgetRequest
from anamnesis_pipeline.steps.host_clock import read_problems
from anamnesis_tests.steps.crawled_documents import COLORS, PORTS, SETUP, T0, DocumentHome, page

EDITED = PORTS.replace("3000 of", "3000 on")
ANEW = "## Ports\n\nEach service says in its settings where 3010 callers can find it, and nothing is fixed any more."


@pytest.fixture
def notes(home: DocumentHome) -> Source:
    return home.holding("a.md", page(SETUP, PORTS))


def forget(home: DocumentHome, word: str = "3010") -> str:
    found = home.one(word).episode_id
    home.forget(word)
    return found


@pytest.mark.parametrize(
    "now", [EDITED, EDITED.replace("## Ports", "## Where it listens"), EDITED + "\n\nA line more.", PORTS.upper()]
)
def test_an_edited_copy_stays_away_and_other_sections_come(home: DocumentHome, notes: Source, now: str) -> None:
    forget(home)
    home.change(notes, "a.md", page(SETUP.replace("twice", "thrice"), now, COLORS))
    assert "3010" not in home.kept()
    assert "thrice" in home.said()
    assert "orange" in home.said()


@pytest.mark.parametrize("name", ["diary.txt", "diary.md"])
def test_what_grew_around_a_forgotten_text_comes_without_it(home: DocumentHome, name: str) -> None:
    first = "The ambassador of Lapland told us in confidence that he keeps a walrus in the cellar of the embassy.\n"
    notes = home.holding(name, first)
    forget(home, "walrus")
    days = [f"On day {n} the gate was painted by {n} people, and {n * 3} of them liked it.\n" for n in range(30)]
    home.change(notes, name, first.replace("told", "wrote") + "".join(days))
    assert "walrus" not in home.kept()
    assert "On day 0 the gate" in home.kept()
    assert "On day 29 the gate" in home.said()
    (entry,) = blocklist(home.store, 10)
    assert entry.label == f"notes:{notes.root}/{name}"
    way_back = f"stays away; to let it in: anamnesis exclude remove {entry.id}"
    assert f"{name}: what is much like a forgotten text {way_back}" in read_problems(home.store.settings, notes.key)
    home.change(notes, name, first + "".join(days) + "The last day was a Sunday.\n", T0 + 90)
    assert "walrus" not in home.kept()
    assert "Sunday" in home.said()


def test_a_section_that_is_written_anew_is_remembered(home: DocumentHome, notes: Source) -> None:
    forget(home)
    home.change(notes, "a.md", page(SETUP, ANEW))
    assert "nothing is fixed any more" in home.one("3010").raw_exchange


def test_an_edited_copy_stays_away_from_a_renamed_file(home: DocumentHome, notes: Source) -> None:
    forget(home)
    Path(notes.root, "a.md").unlink()
    home.change(notes, "in/b.md", page(SETUP, EDITED))
    assert "installer" in home.said()
    assert "3010" not in home.kept()
    home.change(notes, "in/b.md", page(COLORS, EDITED), T0 + 90)
    assert "orange" in home.said()
    assert "3010" not in home.kept()


def test_an_edited_copy_stays_away_from_every_clone(home: DocumentHome) -> None:
    laptop, desk = home.clones("laptop", "desk")
    home.change(laptop, "a.md", page(SETUP, PORTS), T0)
    forget(home)
    home.change(desk, "a.md", page(SETUP, EDITED))
    assert "3010" not in home.kept()


def test_the_same_words_in_another_document_are_its_own(home: DocumentHome, notes: Source) -> None:
    forget(home)
    home.change(notes, "other.md", page(COLORS.replace("orange", "3010"), EDITED))
    assert "Dagster" in home.said()


def test_a_deleted_section_stays_away_edited_until_it_is_lifted(home: DocumentHome, notes: Source) -> None:
    found = home.one("3010").episode_id
    delete_episode(home.store, found)
    home.change(notes, "a.md", page(SETUP, EDITED))
    assert "3010" not in home.said()
    lift(home.store, found)
    home.ingest(notes)
    assert "3000 on" in home.one("3010").raw_exchange


@pytest.mark.parametrize("now", [PORTS, EDITED])
def test_a_lifted_section_comes_back_as_it_is_by_now(home: DocumentHome, notes: Source, now: str) -> None:
    found = forget(home)
    home.change(notes, "a.md", page(SETUP, now))
    lifted = lift(home.store, found)
    assert lifted is not None
    assert (lifted.parts, lifted.files) == (0, 1)
    home.ingest(notes)
    assert home.one("3010").raw_exchange.strip() == now
    assert not home.store.exclusion.has_buried()


def test_entries_of_one_form_are_told_apart(home: DocumentHome) -> None:
    def entry(day: str, said: str) -> str:
        return f"## {day}\n\nThe weather was fine, the mood of all was good.\n\nDone: {said}"

    days = [entry("Monday", "the walrus of the zoo was fed with herring"), entry("Tuesday", "nothing at all to tell")]
    notes = home.holding("diary.md", page(*days))
    forget(home, "walrus")
    home.change(notes, "diary.md", page(*days, entry("Wednesday", "a letter from the mayor came")))
    assert "mayor" in home.said()
    assert "walrus" not in home.kept()


def test_the_current_text_stays_when_an_older_one_is_forgotten(home: DocumentHome, notes: Source) -> None:
    home.change(notes, "a.md", page(SETUP, EDITED))
    home.forget(ids=tuple(e.episode_id for e in home.episodes(every=True) if "3000 of" in e.raw_exchange))
    home.change(notes, "a.md", page(COLORS, SETUP, EDITED), T0 + 90)
    assert "3000 on" in home.one("3010").raw_exchange


def test_a_rule_that_keeps_an_edited_text_away_is_named(home: DocumentHome, notes: Source) -> None:
    rule, _ = add_rule(home.store, Rule(RuleKind.CONTENT_PATTERN, "3000 of"))
    home.pipeline.forgetter().forget(ForgetRequest(ids=(home.one("3010").episode_id,)), rule.rule_id)
    report = home.change(notes, "a.md", page(SETUP, EDITED))
    assert report.crawl.problems[0].endswith(f"anamnesis exclude remove {rule.rule_id}")
    assert "3010" not in home.said()
