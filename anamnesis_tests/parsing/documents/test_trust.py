import time

import pytest

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.model import Source, Trust
from anamnesis_pipeline.parsing.documents.trust import TagPattern, checked_pattern, has_authority, tags_of, trust_of


@pytest.mark.parametrize(
    "path",
    [
        "CLAUDE.md",
        "a/b/claude.md",
        "CLAUDE.local.md",
        "sub/AGENTS.md",
        ".claude/projects/x/memory/MEMORY.md",
        "/home/u/.claude/memory/deep/er.md",
        "/repo/.claude/agent-memory/reviewer/MEMORY.md",
        "/repo/.claude/agent-memory-local/reviewer/notes.md",
        "README_handoff.md",
        "README_handoff_2026-01.md",
        "x/api_handoff_notes.txt",
        "README_project_history_wasp.md",
    ],
)
def test_what_was_written_to_be_remembered_is_curated(path: str) -> None:
    assert trust_of(path) is Trust.CURATED


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "notes/memory/a.md",
        ".claude/settings.json",
        "MYCLAUDE.md",
        ".claude/projects/x/memory/sessions/compressed/2026/a.md",
    ],
)
def test_other_files_are_files(path: str) -> None:
    assert trust_of(path) is Trust.FILE


@pytest.mark.parametrize(
    ("kind", "spec", "root", "path", "named"),
    [
        ("documents", "", "/home/u/.claude", "projects/x/memory/MEMORY.md", True),  # Claude Code's own
        ("documents", "nas", "/home/u/.claude", "projects/x/memory/MEMORY.md", True),
        ("documents", "notes", "/n", "CLAUDE.md", True),
        ("documents", "notes", "/n", ".claude/CLAUDE.md", True),
        ("documents", "notes", "/n", "cloned/CLAUDE.md", False),
        ("documents", "notes", "/n", "cloned/.claude/memory/a.md", False),
        ("reserved", "", "", "CLAUDE.md", False),  # an upload
    ],
)
def test_authority_comes_from_where_a_file_is(kind: str, spec: str, root: str, path: str, named: bool) -> None:
    assert has_authority(Source("s", kind=kind, spec=spec, root=root), path) is named
    tags = tags_of(f"/x/.claude/memory/topics/{path}", "markdown", is_named=named)
    assert ("curated" in tags, "topic" in tags) == (named, named)


def test_a_document_has_its_format_language_and_trust_as_tags() -> None:
    assert tags_of("x/CLAUDE.md", "markdown") == ("document", "markdown", "curated")
    topic = "/home/u/.claude/projects/x/memory/topics/deploys.md"
    assert tags_of(topic, "markdown") == ("document", "markdown", "curated", "topic")
    assert "topic" not in tags_of("docs/memory/topics/deploys.md", "markdown")
    assert tags_of("x/a.py", "python") == ("document", "python", "code")
    assert tags_of("docker-compose.yml", "yaml") == ("document", "yaml", "config")


def test_patterns_tag_by_name_and_by_content() -> None:
    patterns = [
        TagPattern("invoice", "money"),
        TagPattern(r"\bACME-\d+", "acme", field="content", regex=True, ignorecase=False),
        TagPattern("a.b", "literal"),
        TagPattern("INVOICE", "never", ignorecase=False),
    ]
    assert tags_of("x/Invoice_3.pdf", "pdf", patterns, "see ACME-17") == ("document", "pdf", "money", "acme")
    assert tags_of("axb/a.b", "text", patterns, "acme-17") == ("document", "text", "literal")
    assert tags_of("in\udcffvoice invoice", "text", patterns) == ("document", "text", "money")


@pytest.mark.parametrize(
    "pattern",
    [
        TagPattern("(", "t", regex=True),
        TagPattern("", "t"),
        TagPattern("x", " "),
        TagPattern("(?=a)", "t", regex=True),
        TagPattern("x", "t", field="body"),
    ],  # type: ignore[arg-type]
)
def test_a_pattern_that_cannot_work_is_refused(pattern: TagPattern) -> None:
    with pytest.raises(BadSetting):
        checked_pattern(pattern)


def test_a_literal_may_look_like_a_broken_expression() -> None:
    assert checked_pattern(TagPattern("(", "t")).match == "("


def test_no_pattern_takes_longer_than_the_text_is_long() -> None:
    began = time.perf_counter()
    tags_of("x", "text", [TagPattern("(a+)+$", "t", field="content", regex=True)], "a" * 100_000 + "b")
    assert time.perf_counter() - began < 60, "one that goes back would take for ever"
