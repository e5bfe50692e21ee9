"""The index of a memory: one line per topic, no content, at most 200 lines, beside what a person wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.errors import TopicRefused
from anamnesis_pipeline.knowledge.memory_index import MAX_LINES, PRECEDENCE, render, with_index
from anamnesis_pipeline.knowledge.what_holds import Held, by_project, read_held
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.documents.index_block import without_index
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.samples import edit
from anamnesis_tests.support.topics import SHOP, put_pinned, put_pointer, put_topic

WHERE = EpisodeFilter(projects=(SHOP,))
DEPLOYS = "/c/memory/topics/deploys.md"


@pytest.fixture
def filled(store: Store) -> Store:
    put_topic(
        store,
        DEPLOYS,
        "# Deploys\n\nHow the shop goes live.",
        "## Day\n\n- On Thursdays. <!-- sources: ep1 2026-03-04 -->\n- With blue. <!-- sources: ep1 2026-03-04 -->",
    )
    put_topic(store, "/d/memory/topics/prices.md", "## Currency\n\n- Cents.", machine="nas", title="Prices", minute=60)
    put_topic(store, "/c/memory/topics/lessons.md", "# Lessons\n\n- Port in use\n  - Notice: refused\n- Slow tests")
    put_topic(store, "/o/memory/topics/other.md", "# Other\n\nx", project="acme/other")
    put_pinned(store, "german", "Answer in German.")
    put_pointer(store, "backups", description="nightly, kept for 30 days")
    put_pointer(store, "vpn", project="general", machine="", path="~/vpn.conf", category="personal")
    return store


def test_topics_are_read_with_purpose_text_and_sources(filled: Store) -> None:
    held = read_held(filled, WHERE)
    deploys, prices = held.topics
    assert (deploys.name, deploys.title, deploys.purpose, deploys.is_for) == (
        "deploys",
        "Deploys",
        "How the shop goes live.",
        "How the shop goes live.",
    )
    assert deploys.text.startswith("# Deploys\n\nHow the shop goes live.\n\n## Day\n\n- On Thursdays.")
    assert [source.episode_id for source in deploys.sources] == ["ep1"]
    assert (prices.title, prices.is_for, prices.machine) == ("Prices", "Currency", "nas")
    assert [each.keyword for each in held.pointers] == ["backups", "vpn"]


def test_superseded_sections_are_not_in_a_topic(filled: Store) -> None:
    edit(filled, f"{DEPLOYS}#1", status="superseded")
    assert "Thursdays" not in read_held(filled, WHERE).topics[0].text


def test_index_names_each_topic_once_without_content(filled: Store) -> None:
    index = render(SHOP, read_held(filled, WHERE), "box")
    assert index.splitlines()[:3] == ["# Memory of acme/shop", "", f"{PRECEDENCE} Read a topic before you rely on it."]
    assert index.count(DEPLOYS) == 1
    for line in (
        f"- **Deploys**: How the shop goes live. (2026-03-01) → `{DEPLOYS}`",
        "- **Prices**: Currency (2026-03-01) → `nas:/d/memory/topics/prices.md`",
        "- 2 lessons, to read before similar work: `/c/memory/topics/lessons.md`",
        "- Answer in German.",
        "- backups (infrastructure) → `nas:/srv/backups`: nightly, kept for 30 days",
        "- vpn (personal) → `~/vpn.conf`",
    ):
        assert line in index.splitlines()
    assert not {"Thursdays", "Port in use", "Other"} & set(index.replace(".", " ").split())


def test_index_follows_from_the_store_alone(filled: Store) -> None:
    first = render(SHOP, read_held(filled, WHERE), "box")
    assert render(SHOP, by_project(read_held(filled, EpisodeFilter()))[SHOP], "box") == first


def test_index_has_at_most_200_lines(store: Store) -> None:
    for number in range(150):
        put_topic(store, f"/c/memory/topics/t{number:03}.md", f"# T{number:03}\n\n{'about ' * 90}")
        put_pinned(store, f"p{number}", f"Prefer {number}", minute=number)
        put_pointer(store, f"k{number}")
    index = render(SHOP, read_held(store, WHERE), "box")
    lines = index.splitlines()
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= 240
    assert sum(line.startswith("- Prefer") for line in lines) == 10
    assert "- and 40 more: `anamnesis topics` lists all" in lines


def test_stored_text_ends_no_block_and_begins_no_line(store: Store) -> None:
    put_topic(store, "/c/memory/topics/x.md", "# T\n\nabout <!-- anamnesis index ends --> it\u2028# no")
    put_pinned(store, "p", "one <!-- two --> three")
    text = with_index("# Mine\n", SHOP, read_held(store, WHERE), "box")
    assert text.count("-->") == 2
    assert with_index(text, SHOP, read_held(store, WHERE), "box") == text


@given(st.text(st.sampled_from("a#-\n é"), max_size=80), st.sampled_from(["\n", "\r\n"]))
def test_text_around_the_index_stays(mine: str, end: str) -> None:
    mine = f"{mine}\n".replace("\n", end)
    held = Held()
    text = with_index(mine, SHOP, held, "box")
    assert text.startswith(mine)
    later = with_index(text + f"after{end}", SHOP, held, "box")
    assert later == text + f"after{end}"
    assert without_index(later.replace(end, "\n")).split() == [*mine.split(), "after"]
    assert without_index(later.replace(end, "\n")).count("\n") == later.replace(end, "\n").count("\n")


def test_index_leaves_the_200_lines_to_both(filled: Store) -> None:
    held = read_held(filled, WHERE)
    text = with_index("mine\n" * 189, SHOP, held, "box")
    assert len(text.splitlines()) == MAX_LINES
    assert "- and more: `anamnesis topics` lists all" in text
    assert with_index(text, SHOP, held, "box") == text
    with pytest.raises(TopicRefused, match="has 191 other lines"):
        with_index("mine\n" * 190, SHOP, held, "box")
