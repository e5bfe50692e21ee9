"""Which text of a section is current, and what a document is known by."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.model import FileCursor, FileStat, Section, SectionPiece, SegmentKind, Source
from anamnesis_pipeline.pipeline.document_archive import versioned
from anamnesis_pipeline.pipeline.document_versions import Version, is_remote, noted, origins, waiting
from anamnesis_pipeline.pipeline.documents import parts_of, verdicts_on
from anamnesis_pipeline.pipeline.forgotten_sections import without_sections
from anamnesis_pipeline.store.records.documents import SectionOccurrence, Verdict

NOTES = Source("notes", "laptop", "/home/ann/work", "", "documents")


def seen(part_id: str, since: int, *, file: str = "a.md", skew: int = 0, present: bool = True, became: str = ""):
    return SectionOccurrence(file, file, part_id, "p", "s", 0, 1, 2, since, skew, part_id, part_id, "", present, became)


SKEWED = [seen("a", 6, skew=3), seen("c", 11, file="c.md", skew=3)]


@pytest.mark.parametrize(
    ("sightings", "machines", "expected"),
    [
        ([seen("old", 1), seen("new", 2, file="b.md")], {}, {"old": Verdict(False, "new"), "new": Verdict(True)}),
        ([seen("a", 5), seen("b", 5, file="b.md")], {}, {"a": Verdict(True), "b": Verdict(True)}),
        (
            [seen("a", 0, skew=3), seen("b", 5, file="b.md", skew=2), seen("c", 11, file="c.md", skew=3)],
            {},
            {"a": Verdict(False, "c"), "b": Verdict(False, "c"), "c": Verdict(True)},
        ),
        (SKEWED, {}, {"a": Verdict(True), "c": Verdict(True)}),
        (SKEWED, {"a.md": "vps", "c.md": "vps"}, {"a": Verdict(False, "c"), "c": Verdict(True)}),
        (SKEWED, {"a.md": "vps", "c.md": "nas"}, {"a": Verdict(True), "c": Verdict(True)}),
        ([seen("a", 1, present=False)], {}, {"a": Verdict(False)}),
        ([seen("a", 1, present=False, became="b")], {}, {"a": Verdict(False, "b")}),
    ],
    ids=[
        "the last one",
        "both at one time",
        "beyond the doubt about both clocks",
        "within that doubt",
        "one clock",
        "two clocks",
        "gone",
        "became another",
    ],
)
def test_the_last_text_is_current(
    sightings: list[SectionOccurrence], machines: dict[str, str], expected: dict[str, Verdict]
):
    assert verdicts_on(sightings, machines) == expected


@given(st.lists(st.builds(seen, st.sampled_from("abc"), st.integers(0, 9), present=st.booleans()), min_size=1))
def test_something_is_current_exactly_if_something_is_present(sightings: list[SectionOccurrence]):
    found = verdicts_on(sightings, {})
    assert any(v.is_current for v in found.values()) == any(s.present for s in sightings)
    assert all(v.superseded_by != part_id for part_id, v in found.items())


def test_a_document_of_a_repository_is_known_by_remote_and_path():
    labels = {"/home/ann/code/shop": "acme/shop", "/srv/code": "acme/shop", "/home/ann/code": "~/code"}
    one = origins(NOTES, "/home/ann/code", ["shop"], labels.__getitem__)("shop/docs/a.md")
    other = origins(Source("x", "desk"), "/srv/code", ["."], labels.__getitem__)("docs/a.md")
    assert (one.place, one.project, one.cwd) == (other.place, "acme/shop", "/home/ann/code/shop/docs")


def test_a_root_inside_a_repository_knows_the_path_from_its_top():
    labels = Counter[str]()

    def label(folder: str) -> str:
        labels[folder] += 1
        return "acme/shop" if folder.startswith("/srv/code") else "~"

    inside = origins(NOTES, "/srv/code/docs", [], label)("a.md")
    assert inside.place == origins(NOTES, "/srv/code", ["."], label)("docs/a.md").place
    assert max(labels.values()) < 3


def test_a_document_without_a_remote_is_known_by_machine():
    here = origins(NOTES, "/data", [], lambda folder: "/data")("a.md")
    there = origins(Source("x", "desk"), "/data", [], lambda folder: "/data")("a.md")
    assert here.place != there.place
    assert origins(NOTES, "/data", [], lambda folder: "/data", lambda path: "handbook")("a.md").project == "handbook"
    names = ("acme/shop", "git.example.org/team/shop", "~/code/shop", "/srv/shop", "C:/code/shop", "notes")
    assert [is_remote(name) for name in names] == [True, True, False, False, False, False]


def test_versions_that_wait_are_noted_and_read_again():
    versions = [Version(0, 5, 1, "acme/shop", "p", "/x", "Title", ("a", "b")), Version(1, 9)]
    assert waiting(FileCursor("s", "p", parser_state=noted(versions))) == versions
    assert (noted([]), waiting(FileCursor("s", "p"))) == ("", [])


def test_a_new_text_is_a_version_and_the_same_one_is_not():
    first = versioned(NOTES, FileStat("a.md", 3, 5, 1, 1), None, ["abc"], Version(0, 5)).after
    touched = versioned(NOTES, FileStat("a.md", 3, 9, 1, 2), first, ["abc"], Version(0, 9))
    assert (touched.lines, touched.after.generation, touched.after.mtime_ns) == (None, 0, 9)
    changed = versioned(NOTES, FileStat("a.md", 3, 9, 1, 2), first, ["abd"], Version(0, 9))
    assert (changed.lines, changed.after.generation) == (["abd"], 1)
    assert [v.generation for v in waiting(changed.after)] == [0, 1], "the first was not parsed yet"


def test_a_text_has_one_id_under_one_heading_of_one_document():
    def ids(place: str, anchor: str, text: str) -> list[str]:
        section = Section(anchor, ("a.md", anchor), (SectionPiece(SegmentKind.DOCUMENT, text),), 1, 2)
        return [part.part_id for part, _ in parts_of(NOTES, "a.md", text, Version(0, 5, place=place), [section])]

    every = [ids("p", "A", "x"), ids("q", "A", "x"), ids("p", "B", "x"), ids("p", "A", "y")]
    assert len({part_id for (part_id,) in every}) == 4
    assert ids("p", "A", "x") == every[0]


def test_nothing_goes_where_no_section_is_to_go():
    lines = ["# A handbook that is long enough for a section of its own, as I hope", "", "and more"]
    assert without_sections("a.md", lines, {"section:other"}) == lines
