"""Documents of which a rule keeps some away: by its text, its bytes, its path, its project."""

from collections import Counter
from pathlib import Path

import pytest

from anamnesis_pipeline.model import EXCLUDED
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind, sha256_of
from anamnesis_pipeline.steps.blocklist import add_rule, lift
from anamnesis_pipeline.steps.crawl_documents import RULES_FILES
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.steps.crawled_documents import (
    PORTS,
    SETUP,
    T0,
    DocumentHome,
    make_repository,
    page,
    write,
)

WALRUS = "# Zoo\nThe walrus sleeps here.\n"


def test_only_the_sections_that_a_rule_by_text_means_are_held_and_come_when_it_is_lifted(home: DocumentHome) -> None:
    notes = home.source("notes")
    write(notes, "a.md", page(SETUP, PORTS))
    rule, _ = add_rule(home.store, Rule(RuleKind.CONTENT_PATTERN, "installer"))
    (report,) = home.ingest(notes)
    assert (report.crawl.left_out, report.crawl.problems) == ({}, [])
    assert "3010" in "".join(home.texts())
    assert "installer" not in "".join(e.raw_exchange for e in home.episodes(every=True))
    lift(home.store, rule.rule_id)
    home.ingest(notes)
    assert "installer" in "".join(home.texts())


def test_a_file_that_is_kept_out_by_its_very_bytes_is_not_read_and_comes_when_the_rule_is_lifted(
    home: DocumentHome,
) -> None:
    notes = home.source("notes")
    write(notes, "a.md", page(SETUP))
    rule, _ = add_rule(home.store, Rule(RuleKind.CONTENT, sha256_of(page(SETUP))))
    (report,) = home.ingest(notes)
    assert (report.crawl.left_out, report.crawl.problems, home.texts()) == ({EXCLUDED: 1}, [], [])
    lift(home.store, rule.rule_id)
    home.ingest(notes)
    assert "installer" in "".join(home.texts())


@pytest.mark.parametrize(("kind", "value"), [(RuleKind.PATTERN, "a.md"), (RuleKind.PROJECT, "acme/shop")])
def test_what_is_stored_of_an_excluded_document_stays_and_goes_on_when_the_rule_is_lifted(
    home: DocumentHome, kind: RuleKind, value: str
) -> None:
    notes = home.source("notes")
    make_repository(notes)
    write(notes, "a.md", page(SETUP))
    home.ingest(notes)
    before = home.texts()
    rule, _ = add_rule(home.store, Rule(kind, value))
    write(notes, "a.md", page(SETUP) + "\n## Gecko\nIt sleeps in the sun, as the keeper of the zoo wrote.\n", T0 + 60)
    write(notes, "deep/a.md", page("The okapi of the new page sleeps in the shade of the tree."), T0 + 60)
    (report,) = home.ingest(notes)
    assert (report.crawl.left_out, report.crawl.gone, home.texts()) == ({EXCLUDED: 2}, 0, before)
    lift(home.store, rule.rule_id)
    home.ingest(notes)
    assert "gecko" in "".join(home.texts()).lower()
    assert "okapi" in "".join(home.texts())


def test_a_rule_that_comes_while_many_documents_are_read_counts_for_the_next_ones(store: Store, tmp_path: Path) -> None:
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
