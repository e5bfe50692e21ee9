"""Documents that a rule keeps away by text, bytes, path or project: they cost no runs, and come when it is lifted."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline.model import EXCLUDED, Source
from anamnesis_pipeline.pipeline.crawl_documents import RULES_FILES
from anamnesis_pipeline.pipeline.exclusion import Exclusions
from anamnesis_pipeline.pipeline.in_flight import Flights
from anamnesis_pipeline.pipeline.projects import add_alias
from anamnesis_pipeline.pipeline.survey import Crawler, Hosts, look
from anamnesis_pipeline.services.blocklist import add_rule, blocklist, lift
from anamnesis_pipeline.services.crawler_status import SpecStatus, crawler_status
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.sources.document_selection import Rules
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind, sha256_of
from anamnesis_pipeline.sources.specs import SourceSpec
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.crawled_documents import (
    PORTS,
    SETUP,
    T0,
    DocumentHome,
    SameRules,
    make_repository,
    page,
    write,
)

PROJECT = Rule(RuleKind.PROJECT, "acme/shop")
SECRET_PLAN = "# Plan\n\nRun the installer twice, since the first run only downloads the parts.\n"
LATER_PLAN = SECRET_PLAN.replace("twice", "thrice")
CONTENT = Rule(RuleKind.CONTENT, sha256_of(SECRET_PLAN))
RULES = Rules(lambda path: "markdown" if path.endswith(".md") else None)


class Ticks:
    """One source of documents, looked at and read as ticks do."""

    def __init__(self, store: Store, place: Path) -> None:
        self.home = DocumentHome(store, place)
        self.source = self._known_as_a_look_does(self.home.source("shop"))
        make_repository(self.source)
        self.now = datetime(2026, 5, 1, tzinfo=UTC)

    def _known_as_a_look_does(self, source: Source) -> Source:
        self.home.specs["shop"] = SourceSpec("shop", "documents", source.root, machine="shop")
        (found,) = self.look(datetime(2026, 4, 1, tzinfo=UTC)) or [source]
        return found

    def crawler(self) -> Crawler:
        store, specs = self.home.store, list(self.home.specs.values())
        hosts = Hosts(specs, self.home.hosts["shop"], lambda machine, place: pytest.fail("asks another machine"))
        return Crawler(store, hosts, SameRules(RULES), Flights(), 300, Exclusions(store))

    def look(self, now: datetime) -> list[Source]:
        report = look(self.crawler(), now, budget_s=10)
        return [source for source in report.sources if source.key in report.changed]

    def tick(self) -> int:
        """How many sources were read since something seemed new in them."""
        self.now += timedelta(seconds=300)
        changed = self.look(self.now)
        self.home.ingest(*changed)
        return len(changed)

    def write(self, text: str) -> Path:
        """Write the plan, which the next tick reads."""
        file = write(self.source, "plan.md", text, T0 + 60 * (text == LATER_PLAN))
        self.tick()
        return file

    def row(self) -> SpecStatus:
        """What the status says of the source."""
        (row,) = crawler_status(self.home.store, list(self.home.specs.values()), 300, self.now).sources
        return row


@pytest.fixture
def ticks(store: Store, tmp_path: Path) -> Ticks:
    return Ticks(store, tmp_path)


@pytest.mark.parametrize("rule", [PROJECT, CONTENT])
def test_documents_kept_away_ask_for_one_run_until_lifted(ticks: Ticks, rule: Rule) -> None:
    added, _ = add_rule(ticks.home.store, rule)
    for name in ("plan.md", "other.md"):
        write(ticks.source, name, SECRET_PLAN)
        assert [ticks.tick() for _ in range(3)] == [1, 0, 0]
        assert ticks.home.episodes() == []
    assert ticks.row().errors == ()
    assert ticks.home.store.overview.counts().files_unread == 0
    lift(ticks.home.store, added.rule_id)
    assert [ticks.tick() for _ in range(2)] == [1, 0]
    assert len(ticks.home.texts()) == 2


def test_a_document_read_before_its_project_was_excluded_stays(ticks: Ticks) -> None:
    ticks.write(SECRET_PLAN)
    added, _ = add_rule(ticks.home.store, PROJECT)
    ticks.write(LATER_PLAN)
    assert ticks.tick() == 0
    assert "twice" in ticks.home.texts()[0]
    lift(ticks.home.store, added.rule_id)
    ticks.tick()
    assert ["thrice" in text for text in ticks.home.texts()] == [True]


def test_a_document_gone_while_it_is_kept_away_asks_for_one_run(ticks: Ticks) -> None:
    add_rule(ticks.home.store, PROJECT)
    write(ticks.source, "other.md", SECRET_PLAN)
    ticks.write(SECRET_PLAN).unlink()
    assert [ticks.tick() for _ in range(2)] == [1, 0]


def test_an_alias_of_an_excluded_project_lets_its_documents_in(ticks: Ticks) -> None:
    add_rule(ticks.home.store, PROJECT)
    ticks.write(SECRET_PLAN)
    (label,) = {ticks.home.pipeline.labels.of(ticks.source)(ticks.source.root)}
    add_alias(ticks.home.store, label, "market")
    add_rule(ticks.home.store, Rule(RuleKind.PROJECT, "another"))
    assert ticks.tick() == 1


def test_a_document_that_grew_too_large_asks_for_no_run(ticks: Ticks) -> None:
    ticks.write(SECRET_PLAN)
    write(ticks.source, "plan.md", SECRET_PLAN + " " * (1 << 20))
    assert [ticks.tick() for _ in range(2)] == [0, 0]
    write(ticks.source, "plan.md", LATER_PLAN, T0 + 60)
    assert ticks.tick() == 1
    assert ["thrice" in text for text in ticks.home.texts()] == [True]


def test_a_root_that_lists_nothing_asks_for_no_run(ticks: Ticks) -> None:
    (Path(ticks.source.root) / ".git").rename(ticks.home.place / "elsewhere")
    ticks.write(SECRET_PLAN).unlink()
    assert [ticks.tick() for _ in range(2)] == [0, 0]
    assert "lists nothing where 1 file had been read" in str(ticks.row())
    assert "twice" in ticks.home.texts()[0]


@pytest.mark.parametrize("rule", [PROJECT, CONTENT, Rule(RuleKind.PATTERN, "plan.md")])
def test_the_status_counts_what_rules_leave_out(ticks: Ticks, rule: Rule) -> None:
    add_rule(ticks.home.store, rule)
    ticks.write(SECRET_PLAN)
    ticks.tick()
    assert ticks.row().look.left_out == {"excluded by a rule": 1}


def test_what_was_forgotten_with_a_rule_comes_when_that_goes(ticks: Ticks) -> None:
    store, folder = ticks.home.store, f"{ticks.source.root}/in"
    write(ticks.source, "in/plan.md", SECRET_PLAN + "\n## Then\n\nHave a cup of tea, and read what it says.\n")
    ticks.tick()
    added, _ = add_rule(store, Rule(RuleKind.PATH, folder))
    ticks.home.pipeline.forgetter().forget(ForgetRequest(path=folder), added.rule_id)
    assert [entry.id for entry in blocklist(store, 10)] == [added.rule_id]
    assert [ticks.tick() for _ in range(2)] == [0, 0]
    assert ticks.home.episodes(every=True) == []
    assert lift(store, added.rule_id).files == 1
    assert [ticks.tick() for _ in range(2)] == [1, 0]
    assert len(ticks.home.texts()) == 2
    assert blocklist(store, 10) == []


def test_a_forgotten_section_comes_at_the_next_look_when_lifted(ticks: Ticks) -> None:
    ticks.write(SECRET_PLAN)
    found = ticks.home.one("twice").episode_id
    ticks.home.forget("twice")
    assert [ticks.tick() for _ in range(2)] == [0, 0]
    lift(ticks.home.store, found)
    assert [ticks.tick() for _ in range(2)] == [1, 0]
    assert "twice" in ticks.home.texts()[0]


def test_a_text_names_its_successor_when_that_is_no_longer_held(ticks: Ticks) -> None:
    ticks.write(SECRET_PLAN)
    added, _ = add_rule(ticks.home.store, Rule(RuleKind.CONTENT_PATTERN, "thrice"))
    ticks.write(LATER_PLAN)
    (old,) = ticks.home.episodes(every=True)
    assert (old.status, old.superseded_by) == ("superseded", None)
    lift(ticks.home.store, added.rule_id)
    ticks.home.ingest(*(s for s in ticks.home.store.files.sources() if s.spec == "shop"))
    assert ticks.home.one("twice", every=True).superseded_by == ticks.home.one("thrice").episode_id


# --- what a rule means ------------------------------------------------------------------------------------


WALRUS = "# Zoo\nThe walrus sleeps here.\n"


def test_sections_held_by_a_rule_come_when_it_is_lifted(home: DocumentHome) -> None:
    notes = home.source("notes")
    rule, _ = add_rule(home.store, Rule(RuleKind.CONTENT_PATTERN, "installer"))
    report = home.change(notes, "a.md", page(SETUP, PORTS), T0)
    assert (report.crawl.left_out, report.crawl.problems) == ({}, [])
    assert "3010" in home.said()
    assert "installer" not in home.said(every=True)
    lift(home.store, rule.rule_id)
    home.ingest(notes)
    assert "installer" in home.said()


def test_a_file_excluded_by_its_bytes_comes_when_it_is_lifted(home: DocumentHome) -> None:
    notes = home.source("notes")
    rule, _ = add_rule(home.store, Rule(RuleKind.CONTENT, sha256_of(page(SETUP))))
    report = home.change(notes, "a.md", page(SETUP), T0)
    assert (report.crawl.left_out, report.crawl.problems, home.texts()) == ({EXCLUDED: 1}, [], [])
    lift(home.store, rule.rule_id)
    home.ingest(notes)
    assert "installer" in home.said()


@pytest.mark.parametrize("rule", [Rule(RuleKind.PATTERN, "a.md"), Rule(RuleKind.PROJECT, "acme/shop")])
def test_an_excluded_document_stays_as_stored_until_it_is_lifted(home: DocumentHome, rule: Rule) -> None:
    (notes,) = home.clones("notes")
    home.change(notes, "a.md", page(SETUP), T0)
    before = home.texts()
    rule, _ = add_rule(home.store, rule)
    write(notes, "a.md", page(SETUP) + "\n## Gecko\nIt sleeps in the sun, as the keeper of the zoo wrote.\n", T0 + 60)
    report = home.change(notes, "deep/a.md", page("The okapi of the new page sleeps in the shade of the tree."))
    assert (report.crawl.left_out, report.crawl.gone, home.texts()) == ({EXCLUDED: 2}, 0, before)
    lift(home.store, rule.rule_id)
    home.ingest(notes)
    assert all(word in home.said() for word in ("Gecko", "okapi"))


def test_a_rule_that_comes_meanwhile_counts_at_once(store: Store, tmp_path: Path) -> None:
    seen: list[str] = []

    def mask(text: str) -> tuple[str, Counter[str]]:
        if not seen:
            add_rule(store, Rule(RuleKind.CONTENT, sha256_of(WALRUS)))
        seen.append(text)
        return text, Counter()

    home = DocumentHome(store, tmp_path, mask=mask)
    notes = home.source("notes")
    for number in range(3 * RULES_FILES):
        write(notes, f"{number:03}.md", WALRUS)
    report = home.pipeline.crawl(notes)
    assert (report.new, report.left_out) == (RULES_FILES, {EXCLUDED: 2 * RULES_FILES})
