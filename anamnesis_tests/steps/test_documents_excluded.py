"""Documents of which a rule keeps some away: by its text, its bytes, its path, its project."""

from collections import Counter
from pathlib import Path

import pytest

from anamnesis_pipeline.model import EXCLUDED
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind, sha256_of
from anamnesis_pipeline.steps.blocklist import add_rule, lift
from anamnesis_pipeline.steps.crawl_documents import RULES_FILES
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.steps.crawled_documents import PORTS, SETUP, T0, DocumentHome, page, write

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
