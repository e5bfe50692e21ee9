"""Documents that are to be forgotten, also when they are edited afterwards, masked anew, and written back."""

import json
from collections import Counter
from pathlib import Path

import pytest

from anamnesis_pipeline.cli.forget import render
from anamnesis_pipeline.model import Section, Source
from anamnesis_pipeline.parsing.documents.sections import sections_of
from anamnesis_pipeline.pipeline import forgotten_sections
from anamnesis_pipeline.pipeline.host_clock import read_problems
from anamnesis_pipeline.pipeline.publish import delete_episode
from anamnesis_pipeline.services.blocklist import add_rule, blocklist, lift
from anamnesis_pipeline.services.extract import EVERY, extract, extractable
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.rescan import Rescan, Rules
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind
from anamnesis_tests.support.crawled_documents import COLORS, PORTS, SETUP, T0, DocumentHome, page, write


def let_bad_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sections can be made of `bad.md` any more when something of it is forgotten."""

    def sections_or_failure(path: str, text: str) -> list[Section]:
        if path == "bad.md":
            raise AttributeError("no dict")
        return sections_of(path, text)

    monkeypatch.setattr(forgotten_sections, "sections_of", sections_or_failure)


def mask_ports(text: str) -> tuple[str, Counter[str]]:
    return text.replace("3010", "[MASKED]"), Counter({"port": text.count("3010")})


def test_a_forgotten_section_leaves_every_version_and_copy(home: DocumentHome) -> None:
    laptop, desk = home.clones("laptop", "desk")
    for copy in (laptop, desk):
        write(copy, "a.md", page(SETUP, PORTS))
    write(laptop, "elsewhere/b.md", page(COLORS, PORTS))
    home.ingest(laptop, desk)
    write(laptop, "a.md", page(SETUP, PORTS, COLORS), T0 + 50)
    home.ingest(laptop, desk)
    target = next(e for e in home.episodes() if "3010" in e.raw_exchange and e.path.endswith("/a.md"))
    preview = home.pipeline.forgetter().preview(ForgetRequest(ids=(target.episode_id,)))
    report = home.forget(ids=(target.episode_id,))
    assert (preview.lines, preview.files) == (report.lines, report.files) == (4 * 2, 3)
    assert "3010" not in home.kept()
    assert all(word in home.archived() for word in ("installer", "orange"))
    assert any("the file itself, on laptop" in line for line in report.remains)


def test_what_was_forgotten_stays_away_under_whatever_path(home: DocumentHome) -> None:
    laptop, desk = home.holding("a.md", page(SETUP, PORTS), "laptop"), home.source("desk")
    home.forget("3010")
    write(laptop, "a.md", page(SETUP, PORTS, COLORS), T0 + 50)
    write(desk, "copy/c.md", page(PORTS, COLORS))
    home.ingest(laptop, desk)
    assert "3010" not in home.kept()
    assert len([text for text in home.texts() if "orange" in text]) == 2
    assert "installer" in home.said()


@pytest.mark.parametrize("heading", ["## Where it listens", "**Ports**", "Ports\n-----", ""])
@pytest.mark.parametrize("how", ["forgotten", "deleted"])
def test_a_forgotten_body_stays_away_under_any_heading(home: DocumentHome, heading: str, how: str) -> None:
    laptop, desk = home.holding("a.md", page(SETUP, PORTS), "laptop"), home.source("desk")
    found = home.one("3010").episode_id
    if how == "deleted":
        delete_episode(home.store, found)
    else:
        home.forget("3010")
    body = PORTS.removeprefix("## Ports").strip().replace(", and", ",\nand")
    write(desk, "other.md", f"# Other things\n\n{heading}\n\n{body}\n\n{COLORS}\n")
    home.change(desk, "fx.txt", body)
    assert "3010" not in home.said(every=True)
    assert "orange" in home.said()
    assert how == "deleted" or "3010" not in home.archived()
    lift(home.store, found)
    home.ingest(laptop, desk)
    assert "3010" in home.said()


def test_a_short_body_is_no_reason_to_stay_away(home: DocumentHome) -> None:
    notes = home.holding("a.md", page("## Walrus\n\nNothing is known of it.", COLORS))
    home.forget("Walrus")
    home.change(notes, "b.md", page("## Quagga and other zebras of the plains\n\nNothing is known of it."))
    assert "Quagga" in home.said()


def test_a_file_without_sections_stops_no_other_later(home: DocumentHome, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = home.holding("a.md", page(SETUP, PORTS))
    home.forget("3010")
    let_bad_fail(monkeypatch)
    write(notes, "bad.md", page(PORTS))
    (problem,) = home.change(notes, "good.md", page(COLORS)).crawl.problems
    assert "bad.md: no sections could be made of it" in problem
    assert "orange" in home.said()
    assert "3010" not in home.archived()


def test_a_deleted_section_stays_away_when_its_file_changes(home: DocumentHome) -> None:
    notes = home.holding("a.md", page(SETUP, PORTS))
    assert delete_episode(home.store, home.one("3010").episode_id)
    home.change(notes, "a.md", page(COLORS, SETUP, PORTS))
    assert "3010" not in home.said(every=True)
    assert "orange" in home.said()


def test_a_forgotten_file_is_gone_and_its_new_sections_come(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "in/a.md", page(SETUP, PORTS))
    home.change(notes, "b.md", page(COLORS), T0)
    home.forget(path=f"{notes.root}/in")
    assert "installer" not in home.archived() + home.said()
    assert "orange" in home.archived()
    home.change(notes, "in/a.md", page(SETUP, COLORS.replace("orange", "purple")))
    assert "purple" in home.said()
    assert "installer" not in home.archived() + home.said()


@pytest.mark.parametrize("asked", [{"machine": "laptop"}, {"source": "laptop"}])
def test_others_keep_what_a_machine_or_source_forgets(home: DocumentHome, asked: dict[str, str]) -> None:
    folder = home.place / "notes"
    laptop, desk = home.source("laptop", root=folder), home.source("desk", root=folder)
    write(laptop, "a.md", page(SETUP, PORTS))
    home.ingest(laptop, desk)
    request = ForgetRequest(path=str(folder), **asked)
    preview = home.pipeline.forgetter().preview(request)
    assert {shown.machine for shown in preview.shown} == {"laptop"}
    assert (preview.messages, preview.sections) == (0, preview.episodes)
    assert "with 2 sections, " in render(preview)
    home.pipeline.forgetter().forget(request)
    assert {episode.machine for episode in home.episodes(every=True)} == {"desk"}
    assert home.archived().count("3010") == 1
    home.change(desk, "a.md", page(COLORS, SETUP, PORTS))
    assert "3010" in home.said()


@pytest.mark.parametrize("machine", ["laptop", "desk"], ids=["read first", "read last"])
def test_a_clone_keeps_what_the_other_one_forgets(home: DocumentHome, machine: str) -> None:
    clones = home.clones("laptop", "desk")
    for clone in clones:
        write(clone, "a.md", page(SETUP, PORTS))
    home.ingest(*clones)
    if machine == "desk":
        preview = home.pipeline.forgetter().preview(ForgetRequest(machine=machine))
        assert (preview.episodes, preview.files) == (0, 1)
    home.forget(machine=machine)
    assert "3010" in home.one("3010").raw_exchange
    assert home.archived().count("3010") == 1


def test_a_forgotten_text_supersedes_its_predecessor_no_more(home: DocumentHome) -> None:
    notes = home.holding("a.md", page(SETUP, PORTS))
    home.change(notes, "a.md", page(SETUP, PORTS.replace("3010", "4010")))
    home.forget("4010")
    old = home.one("3010", every=True)
    assert (old.status, old.superseded_by) == ("superseded", None)


def test_a_rescan_masks_documents_and_what_was_made_of_them(home: DocumentHome) -> None:
    home.holding("a.md", page(SETUP, PORTS, "## The 3010 of it\n\nA heading is a text like any other one here."))
    Rescan(home.store, home.archive, Rules(mask_ports, mask_ports, "1"), dry_run=False).run()
    assert "3010" not in home.kept() + "".join(str(e.metadata) for e in home.episodes(every=True))
    assert "[MASKED]" in home.archived()
    assert "[MASKED]" in home.said()


def test_every_version_of_a_document_can_be_written_back(home: DocumentHome, tmp_path: Path) -> None:
    notes = home.holding("in/a.md", page(SETUP, PORTS))
    home.change(notes, "in/a.md", page(SETUP))
    wanted = extractable(home.store, path=f"{notes.root}/in/a.md", generation=EVERY)
    extract(home.store, home.archive, wanted, tmp_path / "back", force=False)
    assert (tmp_path / "back/notes/in/a.md").read_text() == page(SETUP)
    assert (tmp_path / "back/notes/in/a.generation-0.md").read_text() == page(SETUP, PORTS)


def chat(*turns: tuple[str, str]) -> str:
    """An export of claude.ai, on one line."""
    messages = [
        {"uuid": f"{who}{n}", "sender": who, "text": text, "created_at": f"2025-03-04T05:0{n}:07Z"}
        for n, turn in enumerate(turns)
        for who, text in zip(("human", "assistant"), turn, strict=True)
    ]
    return json.dumps([{"uuid": "c1", "name": "Ports", "chat_messages": messages}])


PORT_TURN = ("Which port does the sidecar use, and why that one?", "It uses 3010, as the first that was free.")
COLOR_TURN = ("And which color has a warning on the dashboard?", "Orange, since red is what errors have.")


def test_a_turn_of_a_chat_is_forgotten_and_the_others_stay(home: DocumentHome) -> None:
    notes = home.holding("conversations.json", chat(PORT_TURN, COLOR_TURN))
    found, color = home.one("3010"), home.one("Orange").episode_id
    assert (found.kind, found.timestamp.isoformat()) == ("exchange", "2025-03-04T05:00:07+00:00")
    assert found.raw_exchange.startswith("[User]\nWhich port")
    assert len(home.episodes()) == 2
    home.forget("3010")
    assert "3010" not in home.archived()
    assert "Orange" in home.archived()
    more = ("A third question, about doors?", "They open.")
    home.change(notes, "conversations.json", chat(PORT_TURN, COLOR_TURN, more), T0)
    assert "3010" not in home.kept()
    assert {episode.episode_id for episode in home.episodes()} > {color}


def test_of_files_still_there_some_are_named_and_others_counted(home: DocumentHome) -> None:
    notes = home.source("notes")
    for number in range(12):
        write(notes, f"in/{number:02}.md", page(SETUP.replace("twice", f"{number} times")))
    home.ingest(notes)
    report = home.pipeline.forgetter().preview(ForgetRequest(path=f"{notes.root}/in"))
    named = [place for place in report.remains if "the file itself" in place]
    assert [place.rpartition("/")[2] for place in named] == ["00.md", "01.md", "02.md"]
    assert "9 more files, on notes" in report.remains


def test_a_version_without_sections_is_named(home: DocumentHome, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = home.holding("a.md", page(SETUP, PORTS))
    home.change(notes, "bad.md", page(SETUP, PORTS))
    let_bad_fail(monkeypatch)
    request = ForgetRequest(query="3010")
    (problem,) = home.pipeline.forgetter().preview(request).problems
    assert f"anamnesis forget --path {notes.root}/bad.md --yes" in problem
    assert home.pipeline.forgetter().forget(request).problems == [problem]
    assert home.archived().count("3010") == 1
    assert "3010" not in home.said()
    assert home.forget(path=f"{notes.root}/bad.md").problems == []
    assert "3010" not in home.archived()


def test_a_rescan_names_a_damaged_file_and_goes_on_behind_it(home: DocumentHome) -> None:
    notes = home.holding("a.md", page(SETUP))
    home.change(notes, "b.md", page(PORTS))

    def mask(text: str) -> tuple[str, Counter[str]]:
        if text.startswith("# Handbook") and "installer" in text:
            raise ValueError("no text")
        return mask_ports(text)

    (problem,) = Rescan(home.store, home.archive, Rules(mask, mask, "1"), dry_run=False).run().problems
    assert problem.startswith("a.md of notes--notes--0 could not be masked: ValueError")
    assert "[MASKED]" in home.archived()


# --- copies that are edited a little afterwards -----------------------------------------------------------


EDITED = PORTS.replace("3000 of", "3000 on")
ANEW = "## Ports\n\nEach service says in its settings where 3010 callers can find it, and nothing is fixed any more."


@pytest.fixture
def notes(home: DocumentHome) -> Source:
    return home.holding("a.md", page(SETUP, PORTS))


@pytest.mark.parametrize(
    "now", [EDITED, EDITED.replace("## Ports", "## Where it listens"), EDITED + "\n\nA line more.", PORTS.upper()]
)
def test_an_edited_copy_stays_away_and_other_sections_come(home: DocumentHome, notes: Source, now: str) -> None:
    home.forget("3010")
    home.change(notes, "a.md", page(SETUP.replace("twice", "thrice"), now, COLORS))
    assert "3010" not in home.kept()
    assert "thrice" in home.said()
    assert "orange" in home.said()


@pytest.mark.parametrize("name", ["diary.txt", "diary.md"])
def test_what_grew_around_a_forgotten_text_comes_without_it(home: DocumentHome, name: str) -> None:
    first = "The ambassador of Lapland told us in confidence that he keeps a walrus in the cellar of the embassy.\n"
    notes = home.holding(name, first)
    home.forget("walrus")
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
    home.forget("3010")
    home.change(notes, "a.md", page(SETUP, ANEW))
    assert "nothing is fixed any more" in home.one("3010").raw_exchange


def test_an_edited_copy_stays_away_from_a_renamed_file(home: DocumentHome, notes: Source) -> None:
    home.forget("3010")
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
    home.forget("3010")
    home.change(desk, "a.md", page(SETUP, EDITED))
    assert "3010" not in home.kept()


def test_the_same_words_in_another_document_are_its_own(home: DocumentHome, notes: Source) -> None:
    home.forget("3010")
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
    found = home.one("3010").episode_id
    home.forget("3010")
    home.change(notes, "a.md", page(SETUP, now))
    lifted = lift(home.store, found)
    assert (lifted.parts, lifted.files) == (0, 1)
    home.ingest(notes)
    assert home.one("3010").raw_exchange.strip() == now
    assert not home.store.exclusion.has_buried()


def test_entries_of_one_form_are_told_apart(home: DocumentHome) -> None:
    def entry(day: str, said: str) -> str:
        return f"## {day}\n\nThe weather was fine, the mood of all was good.\n\nDone: {said}"

    days = [entry("Monday", "the walrus of the zoo was fed with herring"), entry("Tuesday", "nothing at all to tell")]
    notes = home.holding("diary.md", page(*days))
    home.forget("walrus")
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
