"""Documents from their folder to episodes, and what becomes of their sections when they change."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anamnesis_pipeline.errors import HostUnreachable
from anamnesis_pipeline.parsing.documents.languages import CONVERTED
from anamnesis_pipeline.parsing.documents.trust import TagPattern
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.pipeline.llm_choice import LlmChoice, LlmRules
from anamnesis_pipeline.pipeline.tag_patterns import put_patterns
from anamnesis_pipeline.sources.base import Read
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.crawled_documents import COLORS, MAX_BYTES, PORTS, SETUP, T0, DocumentHome, page, write


def test_a_section_is_an_episode_with_its_place_and_time(home: DocumentHome) -> None:
    notes = home.holding("CLAUDE.md", page(SETUP, PORTS))
    found = home.one("3010")
    assert found.kind == "document"
    assert found.path == f"{notes.root}/CLAUDE.md"
    assert found.timestamp == datetime.fromtimestamp(T0, UTC)
    assert found.metadata["title"][-1] == "Ports"
    assert found.metadata["trust"] == "curated"
    first, last = found.metadata["lines"]
    assert page(SETUP, PORTS).split("\n")[first - 1 : last][0] == "## Ports"
    assert {"document", "markdown", "curated", "source:notes"} <= set(found.tags)
    assert "Ports" in found.summary
    assert "3010" in found.summary


def test_a_password_in_a_table_is_masked_before_it_is_archived(store: Store, tmp_path: Path) -> None:
    home = DocumentHome(store, tmp_path, Redactor(bytes(32)).mask_text)
    notes = home.source("notes")
    write(notes, "logins.csv", "host,user,password\ncellar-db,anna,hK29vvQp8Zt41\n")
    (report,) = home.ingest(notes)
    assert report.crawl.masked == {"password": 1}
    frames = store.archive.frames(notes.key, "logins.csv", 0)
    assert list(home.archive.lines(notes.key, "logins.csv", frames))[1].startswith("cellar-db,anna,[REDACTED:password:")
    assert "hK29vvQp8Zt41" not in home.one("cellar-db").raw_exchange


def test_patterns_tag_the_documents_that_are_parsed_from_then_on(home: DocumentHome) -> None:
    notes = home.holding("a.md", page(SETUP))
    put_patterns(home.store.settings, [TagPattern("3010", "ports", field="content"), TagPattern("a.md", "first")])
    home.change(notes, "b.md", page(PORTS))
    assert not {"ports", "first"} & set(home.one("installer").tags)
    assert "ports" in home.one("3010").tags
    home.change(notes, "a.md", page(SETUP + " It changed."))
    assert "first" in home.one("It changed.").tags


def test_a_bad_file_of_each_format_is_named_and_stops_nothing(home: DocumentHome) -> None:
    notes = home.source("notes")
    bad = [f"bad.{names.split()[0]}" for names in CONVERTED.values()]
    for path in bad:
        write(notes, path, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 40)
    write(notes, "good.md", page(SETUP))
    (report,) = home.ingest(notes)
    assert [problem.split(": ")[0] for problem in report.crawl.problems] == sorted(bad)
    assert all(len(problem.split(": ", 1)[1]) > 10 for problem in report.crawl.problems)
    assert "installer" in home.one("installer").raw_exchange


def test_a_second_run_and_a_touched_file_write_nothing(home: DocumentHome) -> None:
    notes = home.holding("a.md", page(SETUP, PORTS))
    before = home.store.overview.counts()
    (again,) = home.ingest(notes)
    assert (again.crawl.unchanged, again.crawl.bytes_read, again.documents.versions) == (1, 0, 0)
    assert again.episodes.put.created == again.episodes.put.updated == 0
    touched = home.change(notes, "a.md", page(SETUP, PORTS))
    assert (touched.crawl.new, touched.crawl.replaced, touched.documents.versions) == (0, 0, 0)
    assert home.ingest(notes)[0].crawl.unchanged == 1
    assert home.store.overview.counts() == before


def test_a_changed_section_supersedes_its_predecessor_alone(home: DocumentHome) -> None:
    notes = home.holding("a.md", page(SETUP, PORTS))
    setup, old = home.one("installer"), home.one("3010")
    home.change(notes, "a.md", page(SETUP, PORTS.replace("3010", "4010")))
    new = home.one("4010")
    assert home.one("installer").episode_id == setup.episode_id
    replaced = home.store.episodes.get([old.episode_id])[old.episode_id]
    assert (replaced.status, replaced.superseded_by) == ("superseded", new.episode_id)
    assert replaced.superseded_at is not None
    assert new.superseded_at is None
    assert "3010" in replaced.raw_exchange
    assert new.timestamp == datetime.fromtimestamp(T0 + 50, UTC)


def test_a_section_stays_itself_when_others_come_above_it(home: DocumentHome) -> None:
    notes = home.holding("a.md", page(PORTS))
    before = home.one("3010")
    home.change(notes, "a.md", page(SETUP, COLORS, PORTS))
    after = home.one("3010")
    assert (after.episode_id, after.status, after.timestamp) == (before.episode_id, "active", before.timestamp)
    assert after.metadata["lines"][0] > before.metadata["lines"][0]


@pytest.mark.parametrize("left", [page(SETUP), ""], ids=["a section", "a file"])
def test_what_is_gone_is_retired_and_active_when_it_returns(home: DocumentHome, left: str) -> None:
    notes = home.holding("a.md", page(SETUP, PORTS))
    home.change(notes, "b.md", page(COLORS))
    if left:
        assert home.change(notes, "a.md", left).episodes.settled.retired == 1
    else:
        Path(notes.root, "a.md").unlink()
        home.ingest(notes)
    gone = home.one("3010", every=True)
    assert (gone.status, gone.superseded_by) == ("superseded", None)
    assert "orange" in home.said()
    report = home.change(notes, "a.md", page(SETUP, PORTS), T0 + 90)
    assert home.one("3010").status == "active"
    assert report.episodes.settled.revived >= 1
    assert report.documents.written == 0, "it is the very text there was"


def test_a_root_that_lists_nothing_retires_nothing_and_says_so(home: DocumentHome) -> None:
    notes = home.holding("a.md", page(SETUP, PORTS))
    Path(notes.root, "a.md").unlink()
    (report,) = home.ingest(notes)
    (problem,) = report.crawl.problems
    assert "lists nothing where 1 file had been read" in problem
    assert "3010" in home.said()
    home.change(notes, "b.md", page(COLORS))
    assert "3010" not in home.said()


def test_a_file_that_grew_too_large_stays_as_it_was_and_is_named(home: DocumentHome) -> None:
    notes = home.holding("a.md", page(SETUP, PORTS))
    report = home.change(notes, "a.md", page(COLORS) + " " * MAX_BYTES)
    assert report.crawl.problems == ["a.md: too large by now, what was read of it stays as it was"]
    assert "3010" in home.said()
    home.change(notes, "a.md", page(COLORS), T0 + 90)
    assert "3010" not in home.said()
    assert "orange" in home.said()


def test_a_renamed_heading_is_a_change_and_not_a_loss(home: DocumentHome) -> None:
    notes = home.holding("a.md", page(SETUP, PORTS))
    old = home.one("3010")
    home.change(notes, "a.md", page(SETUP, PORTS.replace("## Ports", "## Where it listens")))
    new = home.one("3010")
    assert new.episode_id != old.episode_id
    assert home.store.episodes.get([old.episode_id])[old.episode_id].superseded_by == new.episode_id


@pytest.mark.parametrize("how", ["its root is not there", "nobody wants it any more"])
def test_a_source_keeps_its_episodes_when(home: DocumentHome, how: str) -> None:
    notes = home.holding("a.md", page(SETUP, PORTS))
    before = home.texts()
    if how == "its root is not there":
        Path(notes.root).rename(f"{notes.root}.unmounted")
    else:
        del home.specs["notes"]
        Path(notes.root, "a.md").unlink()
    (report,) = home.ingest(notes)
    assert len(report.crawl.problems) == ("notes" in home.specs)
    assert home.texts() == before


def test_what_cannot_be_read_is_named_and_stops_nothing(home: DocumentHome) -> None:
    notes = home.holding("a.md", page(SETUP))
    (problem,) = home.change(notes, "b.md", b"\x00\x01\x02 binary \x00").crawl.problems
    assert "b.md" in problem
    assert home.store.overview.counts(notes.key).files_unread == 1
    assert not home.change(notes, "b.md", page(PORTS), T0 + 90).crawl.problems
    assert "3010" in home.said()


def test_a_document_handed_in_is_found_by_its_title_and_tags(home: DocumentHome) -> None:
    sent = page(SETUP, PORTS).encode()
    ids = home.pipeline.add_document(
        "uploads", "1f/a.md", sent, project="acme/shop", instance="ann", tags=("onboarding",), title="Book"
    )
    found = home.one("3010")
    assert found.instance == "ann"
    assert home.pipeline.add_document("uploads", "1f/a.md", sent) == ids
    assert found.episode_id in ids
    assert (found.project, found.source, found.path) == ("acme/shop", "uploads", "1f/a.md")
    assert found.metadata["title"][0] == "Book"
    assert "onboarding" in found.tags
    assert len(home.episodes(every=True)) == len(ids)


CODE = '''"""Prices of the shop."""


def total_price(lines: list[int], discount: float = 0.0) -> float:
    """What a customer pays for these lines, after the discount."""
    unpublished_detail = sum(lines)
    return unpublished_detail * (1 - discount)
'''


def test_code_is_searched_by_its_outline_and_read_as_it_stands(home: DocumentHome) -> None:
    home.holding("shop/prices.py", CODE)
    (found,) = [e for e in home.episodes() if "unpublished_detail" in e.raw_exchange]
    searched = "".join(p.passage.with_context for p in home.store.episodes.passages_of(found.episode_id))
    assert (found.kind, found.metadata["language"]) == ("code", "python")
    assert "total_price" in searched
    assert "after the discount" in searched
    assert "unpublished_detail" not in searched
    assert found.raw_exchange.strip().startswith("def total_price")
    assert found.metadata["lines"][0] == 4
    assert "total_price" in found.summary


def test_no_llm_sees_code_nor_a_private_source_or_its_copies(home: DocumentHome) -> None:
    mine, theirs = home.clones("mine", "theirs")
    open_to_all = home.source("open_to_all")
    for copy in (mine, theirs):
        write(copy, "a.md", page(PORTS))
    write(open_to_all, "b.md", page(COLORS))
    write(open_to_all, "prices.py", CODE)
    home.ingest(theirs, mine, open_to_all)
    choice = LlmChoice(home.store, LlmRules(), is_local=False, private_sources=frozenset({mine.key}))
    at_home = LlmChoice(home.store, LlmRules(), is_local=True, private_sources=frozenset({mine.key}))
    parts = {word: home.store.forgetting.parts([home.one(word).episode_id])[0] for word in ("3010", "orange")}
    code = next(p for p in home.store.forgetting.parts_of_files([(open_to_all.key, "prices.py")]))
    assert choice.against(parts["3010"]) == "private", "the part goes by the other copy"
    assert at_home.against(parts["3010"]) == choice.against(parts["orange"]) == ""
    assert at_home.against(code) == "code"


def test_an_empty_file_is_no_problem_and_has_no_sections(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "__init__.py", "")
    assert not home.change(notes, "a.md", page(SETUP), T0).crawl.problems
    assert not home.change(notes, "a.md", "\n").crawl.problems
    assert home.episodes() == []
    assert len(home.episodes(every=True)) > 0


def test_a_host_that_goes_away_leaves_the_rest_for_the_next_run(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "a.md", page(SETUP))
    write(notes, "b.md", page(PORTS))

    class GoesAway(LocalHost):
        @contextmanager
        def fetching(self, files: Sequence[tuple[str, int]]) -> Iterator[Read]:
            def read(path: str, offset: int, length: int) -> bytes:
                if path.endswith("b.md"):
                    raise HostUnreachable("notes: connection dropped")
                return self.read(path, offset, length)

            yield read

    home.hosts["notes"] = GoesAway("notes")
    (report,) = home.ingest(notes)
    assert report.crawl.problems == ["notes: connection dropped"]
    assert set(home.store.files.cursors(notes.key)) == {"a.md"}, "b.md is still new, and asks for a run"
    home.hosts["notes"] = LocalHost("notes")
    home.ingest(notes)
    assert "3010" in "".join(home.texts())
