import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.model import Section
from anamnesis_pipeline.parsing.documents.blocks import SHORT
from anamnesis_pipeline.parsing.documents.sections import MAX_SECTIONS, sections_of

LONG = "This sentence is long enough to be a section of its own, as it says something."


def text_of(section: Section) -> str:
    return "\n".join(piece.text for piece in section.pieces)


def anchors(path: str, text: str) -> list[str]:
    return [section.anchor for section in sections_of(path, text)]


# --- headings --------------------------------------------------------------------------------------------


def test_a_section_is_titled_with_the_headings_around_it() -> None:
    text = f"intro {LONG}\n# Setup\n{LONG}\n## Docker\n{LONG}\n### Ports\n{LONG}\n#### Deep\n{LONG}\n# Use\n{LONG}\n"
    found = sections_of("x/CLAUDE.md", text)
    assert [section.anchor for section in found] == ["~top", "Setup", "Setup > Docker", "Setup > Docker > Ports", "Use"]
    assert [" > ".join(section.title) for section in found] == [
        "CLAUDE.md",
        *(f"CLAUDE.md > {section.anchor}" for section in found[1:]),
    ]
    assert (found[3].first_line, found[3].last_line) == (6, 9)
    assert "#### Deep" in text_of(found[3])


CODE = "```sh\n# install\napt install x\n```\n~~~~\n# more\n~~~~\n"
RESTRUCTURED = f"=====\nTitle\n=====\n{LONG}\n\nPart\n----\n{LONG}\n\nInner\n~~~~~\n{LONG}\n\nNext\n----\n{LONG}\n"
TITLED = {
    "not a comment in a code block": (f"# One\n{LONG}\n{CODE}", ["One"]),
    "not front matter": (f"---\ntitle: x\ntags: {LONG}\n---\nOne\n===\n{LONG}\n", ["~top", "One"]),
    "underlined ones": (f"One\n===\n{LONG}\n\nTwo\n---\n{LONG}\n", ["One", "One > Two"]),
    "without marks": (f"# **The** `x` [way](http://e.x/y) #\n{LONG}", ["The x way"]),
    "not in a quote or list": (f"# One\n> # quoted\n> {LONG}\n\n- # listed\n{LONG}", ["One"]),
    "equal ones by their number": (f"# A~2\n{LONG}\n" + f"# A\n{LONG}\n" * 3, ["A~~2", "A", "A~2", "A~3"]),
    "deeper ones of a long section": (
        f"# A\n{LONG}\n#### One\n{LONG * 90}\n#### Two\n{LONG * 90}",
        ["A", "A > One", "A > Two"],
    ),
    "of restructured text": (RESTRUCTURED, ["Title", "Title > Part", "Title > Part > Inner", "Title > Next"]),
}


@pytest.mark.parametrize("what", TITLED)
def test_headings_title_sections(what: str) -> None:
    text, expected = TITLED[what]
    assert anchors("a.rst" if "restructured" in what else "a.md", text) == expected


def test_what_is_under_a_heading_is_a_section_of_its_own_however_short() -> None:
    found = sections_of("a.md", f"# Host\n{LONG}\n## Port\n3010\n## User\n{LONG}")
    assert [section.anchor for section in found] == ["Host", "Host > Port", "Host > User"]
    assert text_of(found[1]) == "## Port\n3010"


@pytest.mark.parametrize("first", ["# Manual\n", "Manual\n======\n"])
def test_a_heading_over_headings_alone_is_found_in_their_titles(first: str) -> None:
    found = sections_of("a.md", f"{first}\n## Install\n{LONG}\n# End\n## Last\n{LONG}")
    assert [(section.anchor, text_of(section).split("\n")[0]) for section in found] == [
        ("Manual > Install", "## Install"),
        ("End > Last", "## Last"),
    ]


def test_a_heading_that_says_it_all_is_a_section() -> None:
    found = sections_of("a.md", "# Decisions\n## We use PostgreSQL, not MySQL\n## Deploys are on Fridays\n")
    assert [text_of(section) for section in found] == ["## We use PostgreSQL, not MySQL", "## Deploys are on Fridays"]


def test_a_section_that_comes_or_goes_changes_no_other() -> None:
    text = f"# Notes\n\n## Winter\n{LONG}\n"
    (winter,) = sections_of("a.md", text)
    found = sections_of("a.md", text.replace("## Winter", "## Autumn\nrain\n## Winter") + "## Spring\nsun\n")
    assert (winter.anchor, winter.pieces) in [(section.anchor, section.pieces) for section in found]


def test_a_file_that_says_nothing_has_no_section() -> None:
    assert sections_of("a.md", "# Hi\n\nshort\n") == []
    assert sections_of("a.txt", "short") == []


@pytest.mark.parametrize("path", ["CLAUDE.md", "x/.claude/memory/fan.md", "projects/-x/memory/fan.md"])
def test_what_is_kept_to_be_remembered_may_be_as_short_as_it_likes(path: str) -> None:
    (section,) = sections_of(path, "Yearly: new fan.\n")
    assert section.pieces[0].text == "Yearly: new fan."
    assert sections_of("a.txt", "") == []


def test_messages_between_sessions_are_sections_of_their_own() -> None:
    text = f"# Intercom\n{LONG}\n### MSG-1 from a\nok, done, tests are green\n### MSG-2\n## inner\n### note\n{LONG}\n"
    assert [s.title[1:] for s in sections_of("x/claude_intercom.md", text)] == [(), ("MSG-1 from a",), ("MSG-2",)]


# --- text without headings -------------------------------------------------------------------------------


def paragraphs(seed: int, count: int) -> list[str]:
    return [f"Paragraph {seed}.{n}. " + f"{LONG} " * (1 + (seed + n) % 5) for n in range(count)]


def test_a_short_text_is_one_section() -> None:
    text = f"One\n\n{LONG}\n\nTwo"
    assert [text_of(section) for section in sections_of("a.txt", text)] == [text]


def test_an_insertion_at_the_top_of_a_long_text_renames_few_pieces() -> None:
    text = "\n\n".join(paragraphs(1, 200))
    before = sections_of("a.txt", text)
    after = sections_of("a.txt", "\n\n".join(paragraphs(2, 5)) + "\n\n" + text)
    assert len(before) > 8
    same = {(s.anchor, text_of(s)) for s in before} & {(s.anchor, text_of(s)) for s in after}
    assert len(same) >= len(before) - 2


def test_one_huge_line_is_cut_and_nothing_of_it_lost() -> None:
    text = "word " * 10_000 + "x" * 20_000
    found = sections_of("a.txt", text)
    assert "".join(text_of(section) for section in found).replace(" ", "") == text.replace(" ", "")
    assert all(len(text_of(section)) <= 6_200 for section in found)
    assert len({section.anchor for section in found}) == len(found)


# --- for all documents -----------------------------------------------------------------------------------

TITLES = st.lists(st.sampled_from(["Setup", "Docker", "Port > 1", "A", "B", "a~2", "Über uns"]), min_size=1, max_size=9)
BODIES = st.sampled_from(["", "3010", LONG, f"{LONG}\n\n{LONG}", "x " * SHORT, f"```\n# no\n```\n{LONG}"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    titles = draw(TITLES)
    return draw(BODIES) + "\n" + "".join(f"{'#' * draw(st.integers(1, 6))} {t}\n{draw(BODIES)}\n" for t in titles)


@given(documents())
def test_no_line_of_markdown_is_lost_or_told_twice(text: str) -> None:
    found = sections_of("a.md", text)
    if not found:
        assert len(text) < 60
        return
    lines = text.split("\n")
    covered = [n for s in found for n in range(s.first_line, s.last_line + 1)]
    assert len(covered) == len(set(covered)) or len(text) > SHORT  # a line of a long one may be cut
    left = {n: line for n, line in enumerate(lines, 1) if line.strip() and n not in covered}
    for number, line in left.items():
        assert any(line.lstrip("# ") in s.title for s in found if s.first_line > number)
    told = "".join("".join(text_of(s) for s in found).split())
    assert told == "".join("".join(line for n, line in enumerate(lines, 1) if n not in left).split())
    assert len({s.anchor for s in found}) == len(found)


@given(st.permutations([f"Part {n}" for n in range(6)]), st.sets(st.integers(0, 5)), st.booleans())
def test_a_section_keeps_its_anchor_when_others_come_go_or_move(order: list[str], gone: set[int], extra: bool) -> None:
    def written(titles: list[str]) -> str:
        return "# Top\n\n" + "".join(f"## {t}\n{t}: {LONG}\n#### inner\n{LONG}\n" for t in titles)

    kept = [title for n, title in enumerate(order) if n not in gone]
    before = {s.title[-1]: s.anchor for s in sections_of("a.md", written(sorted(order)))}
    after = {s.title[-1]: s.anchor for s in sections_of("a.md", written(["New", *kept] if extra else kept))}
    assert {title: before[title] for title in kept} == {title: after[title] for title in kept}


@given(st.lists(st.text(alphabet=st.sampled_from("ab #=-`~\n\t>*\u2028é"), max_size=80), max_size=30))
def test_any_text_gives_sections_with_anchors_of_their_own(pieces: list[str]) -> None:
    text = "\n".join(pieces)
    for path in ("a.md", "a.rst", "a.txt", "intercom.md"):
        found = sections_of(path, text)
        assert len({s.anchor for s in found}) == len(found)
        assert all(1 <= s.first_line <= s.last_line <= text.count("\n") + 1 for s in found)
        assert all(a.first_line <= b.first_line for a, b in itertools.pairwise(found))


def test_a_document_of_too_many_sections_has_the_rest_in_its_last_one() -> None:
    text = "".join(f"## {n}\n\nThe meter of room {n} was read.\n" for n in range(MAX_SECTIONS + 3))
    found = sections_of("a.md", text)
    assert len(found) == MAX_SECTIONS
    assert [piece.text.split("\n")[0] for piece in found[-1].pieces] == [
        f"## {n}" for n in range(MAX_SECTIONS - 1, MAX_SECTIONS + 3)
    ]
    assert found[-1].last_line == text.count("\n") + 1
