"""Which documents of a tree are read; git itself says what it ignores."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.model import FileStat
from anamnesis_pipeline.sources.base import Survey
from anamnesis_pipeline.sources.document_selection import Chosen, Rules, chosen, names_of
from anamnesis_pipeline.sources.ignore_patterns import Patterns, check_patterns
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec

SPEC = SourceSpec("notes", DOCUMENTS, "/repo", machine="mac")


def kind_of(path: str) -> str | None:
    name = path.rpartition("/")[2].lower()
    if name.endswith((".lock", ".png")) or ".min." in name or name == ".env":
        return None
    return name.rpartition(".")[2] or None


RULES = Rules(kind_of, large=("pdf",), skip=("node_modules", "dist"))


def stat(path: str, size: int = 100) -> FileStat:
    return FileStat(path, size, 1, 1, 1)


def choose(
    paths: Iterable[str | FileStat],
    spec: SourceSpec = SPEC,
    *,
    ignores: dict[str, str] | None = None,
    repositories: tuple[str, ...] = (),
    rules: Rules = RULES,
) -> Chosen:
    files = tuple(stat(path) if isinstance(path, str) else path for path in paths)
    return chosen(Survey("/repo", files, "", (), ignores or {}, repositories), spec, rules)


def names(found: Chosen) -> list[str]:
    return [file.path for file in found.files]


def with_patterns(include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> SourceSpec:
    return SourceSpec("notes", DOCUMENTS, "/repo", machine="mac", include=include, exclude=exclude)


NAMED = ["CLAUDE.md", "README_handoff_x.md", "src/a.py", ".github/ci.yml", ".claude/projects/p/memory/m.md"]
OWN = [".claude/agents/a.md", ".claude/plans/p.md"]
LOG = "projects/-a/11111111-2222-4333-8444-555555555555"
DOCS = ["docs/a.md", "docs/b/c.md"]
TREE_OF_DOCS = ["CLAUDE.md", "a/CLAUDE.md", *DOCS, "docs/draft/d.md"]
NESTED = {".gitignore": "*.md\n", "inner/.gitignore": "b.md\n"}
WANTED: dict[str, tuple[list[str], dict[str, Any], list[str]]] = {
    "every format that is read": ([*NAMED, "logo.png", "poetry.lock", "app.min.js", ".env"], {}, NAMED),
    "of Claude's folder what people wrote": ([*OWN, ".claude/settings.json", ".claude/plugins/x/a.md"], {}, OWN),
    "no logs": ([f"{LOG}.jsonl", f"{LOG}/tool-results/x.txt", "history.jsonl", NAMED[0]], {}, NAMED[:1]),
    "what is included": (
        TREE_OF_DOCS,
        {"spec": with_patterns(("/CLAUDE.md", "docs/"))},
        ["CLAUDE.md", *DOCS, "docs/draft/d.md"],
    ),
    "not what is excluded": (TREE_OF_DOCS, {"spec": with_patterns(exclude=("draft/", "CLAUDE.md"))}, DOCS),
    "what is included but for some": (TREE_OF_DOCS, {"spec": with_patterns(("docs/**/*.md", "!d.md"))}, DOCS),
    "no key or lock file, even if included": ([".env", "poetry.lock", "logo.png"], {"spec": with_patterns(("*",))}, []),
    "by its own ignore files in a nested repository": (
        ["a.md", "inner/a.md", "inner/b.md"],
        {"ignores": NESTED, "repositories": (".", "inner")},
        ["inner/a.md"],
    ),
    "a pattern that is none counts for nothing": (["a.md", "b.md"], {"ignores": {".gitignore": "!\nb.md\n"}}, ["a.md"]),
}


@pytest.mark.parametrize("what", WANTED)
def test_documents_are_chosen_by_path_and_pattern(what: str) -> None:
    paths, given, expected = WANTED[what]
    assert names(choose(paths, **given)) == expected


def test_skipped_and_hidden_folders_are_left_out_at_every_depth_but_those_of_claude_and_github() -> None:
    found = choose(
        ["node_modules/a.md", "a/dist/c.md", ".cache/x.md", "a/.git/x.md", ".hidden.md", ".claude/CLAUDE.md"]
    )
    assert names(found) == [".hidden.md", ".claude/CLAUDE.md"]
    assert found.left_out == {"in a folder that is skipped": 3, "in a hidden folder": 1}


@pytest.mark.parametrize(("size", "is_read"), [(1 << 20, True), ((1 << 20) + 1, False), (0, False)])
def test_a_text_may_be_as_large_as_the_limit_and_not_larger(size: int, is_read: bool) -> None:
    assert bool(choose([stat("a.md", size)]).files) == is_read


def test_what_only_its_size_leaves_out_is_told_from_what_is_not_wanted() -> None:
    large = 1 << 30
    files = [stat("a.md", large), stat("b.lock", large), stat("c.md", large), stat("d.md", 0), stat("e.md")]
    assert choose(files, ignores={".gitignore": "c.md"}, repositories=(".",)).too_large == {"a.md"}


def test_a_link_is_read_only_if_what_it_leads_to_would_be() -> None:
    links = {"config.txt": ".env", "key.txt": ".ssh/key.txt", "b.txt": "secret/b.txt", "c.txt": "docs/c.md"}
    files = tuple(stat(path) for path in links)
    found = chosen(Survey("/repo", files, "", (), {".gitignore": "secret/"}, (".",), links), SPEC, RULES)
    assert names(found) == ["c.txt"]


def test_a_pdf_and_an_export_of_chats_may_be_fifty_times_as_large() -> None:
    files = [stat("a.pdf", 50 << 20), stat("x/conversations.json", 50 << 20), stat("b.pdf", (50 << 20) + 1)]
    found = choose(files)
    assert names(found) == ["a.pdf", "x/conversations.json"]
    assert found.left_out == {"larger than 50 MiB": 1}


def test_an_empty_own_ignore_file_opts_a_project_out_and_a_pattern_in_one_wins_over_git() -> None:
    own = {"out/.anamnesisignore": "\n", ".anamnesisignore": "!CLAUDE.local.md\nb.md\n"}
    ignores = {**own, ".gitignore": "*.local.md\n"}
    found = choose(["out/a.md", "out/b/c.md", "CLAUDE.local.md", "x.local.md", "b.md", "c.md"], ignores=ignores)
    assert names(found) == ["CLAUDE.local.md", "c.md"]
    assert found.left_out == {
        "opted out by an empty .anamnesisignore": 2,
        "ignored by .gitignore": 1,
        "ignored by .anamnesisignore": 1,
    }
    assert found.examples["opted out by an empty .anamnesisignore"] == ("out/a.md", "out/b/c.md")


def test_what_somebody_excluded_is_left_out_with_the_reason() -> None:
    rules = Rules(kind_of, excluded=lambda path: "private" if path.startswith("diary/") else None)
    found = choose(["diary/a.md", "b.md"], rules=rules)
    assert (names(found), found.left_out) == (["b.md"], {"excluded: private": 1})


def test_only_a_few_examples_are_kept_of_each_reason() -> None:
    found = choose([f"{n}.png" for n in range(100)])
    (count,), (examples,) = found.left_out.values(), found.examples.values()
    assert (count, len(examples)) == (100, 5)


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ((), ()),
        (("CLAUDE.md", "projects/*/memory/**/*.md"), ("CLAUDE.md", "*.md")),
        (("docs/",), ()),
        (("docs",), ()),
        (("docs/**",), ()),
        (("*.md", "!x.md"), ("*.md",)),
    ],
)
def test_names_asked_of_the_far_end_lack_no_included_file(include: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert names_of(with_patterns(include)) == expected


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(BadSetting, match="pattern"):
        check_patterns(["*.md", "!"])


# --- git as the oracle -----------------------------------------------------------------------------------

TREE = [
    "a.md",
    "b.md",
    "x/a.md",
    "x/b.md",
    "x/y/a.md",
    "x/y/b.md",
    "x/y/z/a.md",
    "y/a.md",
    "y/z/b.md",
    "z/x/a.md",
]
PIECES = st.sampled_from(["a.md", "b.md", "*.md", "x", "y", "z", "x/y", "*", "**", "?.md", "[ab].md", "x/*", "**/z"])
PATTERNS = st.builds(
    lambda negate, anchor, piece, end: f"{negate}{anchor}{piece}{end}",
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/"]),
    PIECES,
    st.sampled_from(["", "", "/", "/**"]),
)
IGNORE_FILES = st.dictionaries(
    st.sampled_from(["", "x/", "x/y/", "y/"]).map(lambda folder: f"{folder}.gitignore"),
    st.lists(PATTERNS, min_size=1, max_size=4).map(lambda lines: "\n".join([*lines, "# a comment", ""])),
    max_size=3,
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for path in TREE:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("text\n")
    return root


def ignored_by_git(root: Path, ignores: dict[str, str]) -> set[str]:
    for path, text in ignores.items():
        (root / path).write_text(text)
    asked = subprocess.run(
        ["git", "-C", str(root), "check-ignore", "--no-index", "--stdin"],
        input="\n".join(TREE),
        capture_output=True,
        text=True,
        check=False,
    )
    for path in ignores:
        (root / path).unlink()
    return set(asked.stdout.split())


@settings(max_examples=60, deadline=None)
@given(ignores=IGNORE_FILES)
def test_what_git_ignores_is_left_out_and_nothing_else(repository: Path, ignores: dict[str, str]) -> None:
    found = choose(TREE, ignores=ignores, repositories=(".",))
    assert set(TREE) - set(names(found)) == ignored_by_git(repository, ignores)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(("pattern", "path"), [("*a" * 12 + "b", "a" * 4_000), ("**/a/" * 10 + "b", "a/" * 400 + "c")])
def test_patterns_made_to_stall_take_time_in_proportion_to_the_path(pattern: str, path: str) -> None:
    assert not Patterns([pattern]).cover(path)


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("[!a]x", "bx", "ax"),
        ("a[+-3]b", "a0b", "a/b"),
        ("[[:digit:]ä]x", "äx", "bx"),
        (r"[\]\-]x", "]x", "\\x"),
        ("[]a]x", "]x", "bx"),
    ],
)
def test_a_set_of_characters_is_gits_and_never_reaches_over_a_folder(pattern: str, taken: str, left: str) -> None:
    assert Patterns([pattern]).cover(taken)
    assert not Patterns([pattern]).cover(left)
