"""Documents that are to be forgotten, masked anew, and written back."""

import json
from collections import Counter
from pathlib import Path

import pytest

from anamnesis_pipeline.commands.forget import render
from anamnesis_pipeline.document_model import Section
from anamnesis_pipeline.documents.sections import sections_of
from anamnesis_pipeline.steps import forgotten_sections
from anamnesis_pipeline.steps.blocklist import lift
from anamnesis_pipeline.steps.episodes import delete_episode
from anamnesis_pipeline.steps.extract import EVERY, extract, extractable
from anamnesis_pipeline.steps.forget_target import ForgetRequest
from anamnesis_pipeline.steps.rescan import Rescan, Rules
from anamnesis_tests.steps.crawled_documents import COLORS, PORTS, SETUP, T0, DocumentHome, make_repository, page, write


def let_bad_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sections can be made of `bad.md` any more when something of it is forgotten."""

    def sections_or_failure(path: str, text: str) -> list[Section]:
        if path == "bad.md":
            raise AttributeError("no dict")
        return sections_of(path, text)

    monkeypatch.setattr(forgotten_sections, "sections_of", sections_or_failure)


def test_a_forgotten_section_leaves_every_version_and_every_copy(home: DocumentHome) -> None:
    laptop, desk = home.source("laptop"), home.source("desk")
    for copy in (laptop, desk):
        make_repository(copy)
        write(copy, "a.md", page(SETUP, PORTS))
    write(laptop, "elsewhere/b.md", page(COLORS, PORTS))
    home.ingest(laptop, desk)
    write(laptop, "a.md", page(SETUP, PORTS, COLORS), T0 + 50)
    home.ingest(laptop, desk)
    target = next(e for e in home.episodes() if "3010" in e.raw_exchange and e.path.endswith("/a.md"))
    preview = home.pipeline.forgetter().preview(ForgetRequest(ids=(target.episode_id,)))
    report = home.pipeline.forgetter().forget(ForgetRequest(ids=(target.episode_id,)))
    assert (preview.lines, preview.files) == (report.lines, report.files) == (4 * 2, 3)
    assert "3010" not in home.archived()
    assert "3010" not in "".join(e.raw_exchange for e in home.episodes(every=True))
    assert all(word in home.archived() for word in ("installer", "orange"))
    assert any("the file itself, on laptop" in line for line in report.remains)


def test_what_was_forgotten_stays_away_under_whatever_path(home: DocumentHome) -> None:
    laptop, desk = home.source("laptop"), home.source("desk")
    write(laptop, "a.md", page(SETUP, PORTS))
    home.ingest(laptop)
    home.pipeline.forgetter().forget(ForgetRequest(ids=(home.one("3010").episode_id,)))
    write(laptop, "a.md", page(SETUP, PORTS, COLORS), T0 + 50)
    write(desk, "copy/c.md", page(PORTS, COLORS))
    home.ingest(laptop, desk)
    assert "3010" not in home.archived() + "".join(e.raw_exchange for e in home.episodes(every=True))
    assert len([text for text in home.texts() if "orange" in text]) == 2
    assert "installer" in "".join(home.texts())


@pytest.mark.parametrize("heading", ["## Where it listens", "**Ports**", "Ports\n-----", ""])
@pytest.mark.parametrize("how", ["forgotten", "deleted"])
def test_the_body_of_a_forgotten_section_stays_away_under_another_heading_and_without_one(
    home: DocumentHome, heading: str, how: str
) -> None:
    laptop, desk = home.source("laptop"), home.source("desk")
    write(laptop, "a.md", page(SETUP, PORTS))
    home.ingest(laptop)
    found = home.one("3010").episode_id
    if how == "deleted":
        delete_episode(home.store, found)
    else:
        home.pipeline.forgetter().forget(ForgetRequest(ids=(found,)))
    body = PORTS.removeprefix("## Ports").strip().replace(", and", ",\nand")
    write(desk, "other.md", f"# Other things\n\n{heading}\n\n{body}\n\n{COLORS}\n")
    write(desk, "fx.txt", body)
    home.ingest(desk)
    assert "3010" not in "".join(e.raw_exchange for e in home.episodes(every=True))
    assert "orange" in "".join(home.texts())
    assert how == "deleted" or "3010" not in home.archived()
    lift(home.store, found)
    home.ingest(laptop, desk)
    assert "3010" in "".join(home.texts())


def test_a_short_body_is_no_reason_to_stay_away(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "a.md", page("## Walrus\n\nNothing is known of it.", COLORS))
    home.ingest(notes)
    home.pipeline.forgetter().forget(ForgetRequest(ids=(home.one("Walrus").episode_id,)))
    write(notes, "b.md", page("## Quagga and other zebras of the plains\n\nNothing is known of it."))
    home.ingest(notes)
    assert "Quagga" in "".join(home.texts())


def test_a_file_of_which_no_sections_can_be_made_stops_no_other_once_something_was_forgotten(
    home: DocumentHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = home.source("notes")
    write(notes, "a.md", page(SETUP, PORTS))
    home.ingest(notes)
    home.pipeline.forgetter().forget(ForgetRequest(ids=(home.one("3010").episode_id,)))
    let_bad_fail(monkeypatch)
    write(notes, "bad.md", page(PORTS))
    write(notes, "good.md", page(COLORS))
    (report,) = home.ingest(notes)
    (problem,) = report.crawl.problems
    assert "bad.md: no sections could be made of it" in problem
    assert "orange" in "".join(home.texts())
    assert "3010" not in home.archived()


def test_a_deleted_section_stays_away_when_its_file_changes(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "a.md", page(SETUP, PORTS))
    home.ingest(notes)
    assert delete_episode(home.store, home.one("3010").episode_id)
    write(notes, "a.md", page(COLORS, SETUP, PORTS), T0 + 50)
    home.ingest(notes)
    assert "3010" not in "".join(e.raw_exchange for e in home.episodes(every=True))
    assert "orange" in "".join(home.texts())


def test_a_forgotten_file_is_gone_as_a_whole_and_its_new_sections_come(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "in/a.md", page(SETUP, PORTS))
    write(notes, "b.md", page(COLORS))
    home.ingest(notes)
    home.pipeline.forgetter().forget(ForgetRequest(path=f"{notes.root}/in"))
    assert "installer" not in home.archived() + "".join(home.texts())
    assert "orange" in home.archived()
    write(notes, "in/a.md", page(SETUP, COLORS.replace("orange", "purple")), T0 + 50)
    home.ingest(notes)
    assert "purple" in "".join(home.texts())
    assert "installer" not in home.archived() + "".join(home.texts())


@pytest.mark.parametrize("asked", [{"machine": "laptop"}, {"source": "laptop"}])
def test_what_one_machine_or_source_had_is_forgotten_and_every_other_keeps_its_own(
    home: DocumentHome, asked: dict[str, str]
) -> None:
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
    write(desk, "a.md", page(COLORS, SETUP, PORTS), T0 + 50)
    home.ingest(desk)
    assert "3010" in "".join(home.texts())


def test_a_clone_on_another_machine_keeps_what_one_of_them_forgets(home: DocumentHome) -> None:
    laptop, desk = home.source("laptop"), home.source("desk")
    for clone in (laptop, desk):
        make_repository(clone)
        write(clone, "a.md", page(SETUP, PORTS))
    home.ingest(laptop, desk)
    home.pipeline.forgetter().forget(ForgetRequest(machine="laptop"))
    assert "3010" in home.one("3010").raw_exchange
    assert home.archived().count("3010") == 1


def test_a_clone_that_was_read_first_keeps_what_the_next_one_forgets(home: DocumentHome) -> None:
    clones = [home.source(name) for name in ("laptop", "desk")]
    for clone in clones:
        make_repository(clone)
        write(clone, "a.md", page(SETUP, PORTS))
    home.ingest(*clones)
    preview = home.pipeline.forgetter().preview(ForgetRequest(machine="desk"))
    assert (preview.episodes, preview.files) == (0, 1)
    home.pipeline.forgetter().forget(ForgetRequest(machine="desk"))
    assert "3010" in home.one("3010").raw_exchange
    assert home.archived().count("3010") == 1


def test_the_predecessor_of_a_forgotten_text_is_not_superseded_by_it_any_more(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "a.md", page(SETUP, PORTS))
    home.ingest(notes)
    write(notes, "a.md", page(SETUP, PORTS.replace("3010", "4010")), T0 + 50)
    home.ingest(notes)
    home.pipeline.forgetter().forget(ForgetRequest(ids=(home.one("4010").episode_id,)))
    old = home.one("3010", every=True)
    assert (old.status, old.superseded_by) == ("superseded", None)


def test_a_rescan_masks_documents_and_what_was_made_of_them(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "a.md", page(SETUP, PORTS, "## The 3010 of it\n\nA heading is a text like any other one here."))
    home.ingest(notes)

    def mask(text: str) -> tuple[str, Counter[str]]:
        return text.replace("3010", "[MASKED]"), Counter({"port": text.count("3010")})

    Rescan(home.store, home.archive, Rules(mask, mask, "1"), dry_run=False).run()
    every = home.episodes(every=True)
    assert "3010" not in home.archived() + "".join(f"{e.raw_exchange}{e.summary}{e.metadata}" for e in every)
    assert "[MASKED]" in home.archived()
    assert "[MASKED]" in "".join(home.texts())


def test_every_version_of_a_document_can_be_written_back(home: DocumentHome, tmp_path: Path) -> None:
    notes = home.source("notes")
    write(notes, "in/a.md", page(SETUP, PORTS))
    home.ingest(notes)
    write(notes, "in/a.md", page(SETUP), T0 + 50)
    home.ingest(notes)
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


def test_a_chat_that_was_exported_is_exchanges(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "conversations.json", chat(PORT_TURN, COLOR_TURN))
    home.ingest(notes)
    found = home.one("3010")
    assert (found.kind, found.timestamp.isoformat()) == ("exchange", "2025-03-04T05:00:07+00:00")
    assert found.raw_exchange.startswith("[User]\nWhich port")
    assert len(home.episodes()) == 2


def test_a_turn_of_a_chat_is_forgotten_and_the_others_stay(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "conversations.json", chat(PORT_TURN, COLOR_TURN))
    home.ingest(notes)
    color = home.one("Orange").episode_id
    home.pipeline.forgetter().forget(ForgetRequest(ids=(home.one("3010").episode_id,)))
    assert "3010" not in home.archived()
    assert "Orange" in home.archived()
    write(
        notes, "conversations.json", chat(PORT_TURN, COLOR_TURN, ("A third question, about doors?", "They open.")), T0
    )
    home.ingest(notes)
    every = home.episodes(every=True)
    assert "3010" not in home.archived() + "".join(e.raw_exchange for e in every)
    assert {e.episode_id for e in every if e.status == "active"} > {color}


def test_of_many_files_that_are_still_there_the_first_few_are_named_and_the_others_counted(home: DocumentHome) -> None:
    notes = home.source("notes")
    for number in range(12):
        write(notes, f"in/{number:02}.md", page(SETUP.replace("twice", f"{number} times")))
    home.ingest(notes)
    report = home.pipeline.forgetter().preview(ForgetRequest(path=f"{notes.root}/in"))
    named = [place for place in report.remains if "the file itself" in place]
    assert [place.rpartition("/")[2] for place in named] == ["00.md", "01.md", "02.md"]
    assert "9 more files, on notes" in report.remains


def test_a_version_of_which_no_sections_can_be_made_is_named_and_the_others_are_forgotten(
    home: DocumentHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = home.source("notes")
    for name in ("a.md", "bad.md"):
        write(notes, name, page(SETUP, PORTS))
    home.ingest(notes)
    let_bad_fail(monkeypatch)
    request = ForgetRequest(query="3010")
    (problem,) = home.pipeline.forgetter().preview(request).problems
    assert f"anamnesis forget --path {notes.root}/bad.md --yes" in problem
    assert home.pipeline.forgetter().forget(request).problems == [problem]
    assert home.archived().count("3010") == 1
    assert "3010" not in "".join(home.texts())
    assert home.pipeline.forgetter().forget(ForgetRequest(path=f"{notes.root}/bad.md")).problems == []
    assert "3010" not in home.archived()


def test_a_rescan_goes_on_behind_a_file_that_is_damaged_and_names_it(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "a.md", page(SETUP))
    write(notes, "b.md", page(PORTS))
    home.ingest(notes)

    def mask(text: str) -> tuple[str, Counter[str]]:
        if text.startswith("# Handbook") and "installer" in text:
            raise ValueError("no text")
        return text.replace("3010", "[MASKED]"), Counter({"port": text.count("3010")})

    report = Rescan(home.store, home.archive, Rules(mask, mask, "1"), dry_run=False).run()
    (problem,) = report.problems
    assert problem.startswith("a.md of notes--notes--0 could not be masked: ValueError")
    assert "[MASKED]" in home.archived()
