"""What topics are shown and changed: here, in the home, and on machines that only get a diff."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline.errors import TopicRefused
from anamnesis_pipeline.knowledge.memory_index import render
from anamnesis_pipeline.knowledge.topic_files import Ref
from anamnesis_pipeline.knowledge.topic_store import Approval, TopicStore
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.services.topics import change_of, held_of, indexed, topics_body, write_indexes
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import TopicEdit
from anamnesis_tests.support.samples import DAY, edit, put
from anamnesis_tests.support.topics import SHOP, put_pinned, put_pointer, put_topic

EDIT = TopicEdit("deploys", "Day", "Not in December.")
SOURCES = [Ref("ep1", "2026-03-04")]
ADDED = "- Not in December. <!-- sources: ep1 2026-03-04 -->\n"
NEW = f"# Deploys\n\n## Day\n\n{ADDED}"


@pytest.fixture
def topics(store: Store, tmp_path: Path) -> TopicStore:
    """With logs of the project on this machine, and a memory beside them."""
    root = tmp_path / "projects"
    (root / "-shop/memory").mkdir(parents=True)
    store.files.put_sources([Source("logs", "box", str(root), "-shop")])
    put(store, "said", "hello", source="logs", project=SHOP, kind="exchange")
    return TopicStore(tmp_path / "topics", [root])


def test_new_topic_goes_beside_claude_codes_memory(store: Store, topics: TopicStore, tmp_path: Path) -> None:
    change = change_of(store, topics, "box", SHOP, EDIT, SOURCES)
    assert (change.path, change.is_here) == (tmp_path / "projects/-shop/memory/topics/deploys.md", True)
    assert (change.former, change.new) == (None, NEW)
    assert change.diff.startswith("--- /dev/null\n+++ b/deploys.md\n")


def test_accepted_change_is_written_once_and_taken_back(store: Store, topics: TopicStore) -> None:
    change = change_of(store, topics, "box", SHOP, EDIT, SOURCES)
    done = topics.write_topic(Approval("p", "ann", DAY), change.path, change.former, change.new)
    again = change_of(store, topics, "box", SHOP, EDIT, SOURCES)
    assert (again.former, again.new, again.diff) == (NEW, NEW, "")
    topics.write_topic(Approval("p", "ann", DAY), change.path, change.new, topics.former(done.former))
    assert topics.read(change.path) is None


def test_project_without_logs_here_has_its_topics_in_the_home(store: Store, topics: TopicStore) -> None:
    change = change_of(store, topics, "box", "acme/other", EDIT, SOURCES)
    assert change.path == topics.folder / "acme%2Fother/deploys.md"


def test_topic_of_another_machine_gets_a_diff(store: Store, topics: TopicStore) -> None:
    put_topic(store, "/r/memory/topics/deploys.md", "# Deploys\n\n## Day\n\n- Thursday.", machine="nas")
    change = change_of(store, topics, "box", SHOP, EDIT, SOURCES)
    assert (change.machine, str(change.path), change.is_here) == ("nas", "/r/memory/topics/deploys.md", False)
    assert change.diff.endswith(f" - Thursday.\n+{ADDED}")


def test_section_of_a_topic_names_its_file(store: Store, topics: TopicStore) -> None:
    path = topics.folder / "acme%2Fshop/prices.md"
    topics.write_topic(Approval("p", "ann", DAY), path, None, "# Prices\n\n- In cents.\n")
    put_topic(store, str(path), "# Prices\n\n- In cents.")
    section = TopicEdit(f"{path}#0", "Since then", "- a\n- b")
    change = change_of(store, topics, "box", SHOP, section, [])
    assert (change.path, change.new) == (path, "# Prices\n\n- In cents.\n\n## Since then\n\n- a\n- b\n")
    edit(store, f"{path}#0", status="superseded")
    with pytest.raises(TopicRefused, match="no section of a topic any more"):
        change_of(store, topics, "box", SHOP, section, [])


def test_what_a_private_source_says_becomes_no_topic(store: Store, topics: TopicStore) -> None:
    store.files.put_sources([Source("hidden", "box", "/secret", ".", DOCUMENTS, "removed")])
    put(store, "ep1", "secret", source="hidden", project=SHOP)
    with pytest.raises(TopicRefused, match="quotes a private source"):
        change_of(store, topics, "box", SHOP, EDIT, SOURCES)
    assert change_of(store, topics, "box", SHOP, EDIT, [Ref("said")]).is_here


@pytest.mark.parametrize(("file", "name"), [("CLAUDE.md", "claude.md"), ("memory/MEMORY.md", "notes.md")])
def test_text_that_is_no_topic_gets_one(store: Store, topics: TopicStore, file: str, name: str) -> None:
    put(store, "own", "words", kind="document", project=SHOP, path=f"/c/{file}", tags=("document", "curated"))
    change = change_of(store, topics, "box", SHOP, TopicEdit("own", "Since then", "a"), [])
    assert (change.path.name, change.former, change.is_here) == (name, None, True)


def test_topic_is_shown_with_age_text_and_history(store: Store) -> None:
    path = "/c/memory/topics/deploys.md"
    put_topic(store, path, "# Deploys\n\nHow it goes live.", "## Day\n\n- Friday.", f"## When\n\n{ADDED}")
    edit(store, f"{path}#1", status="superseded", superseded_by=f"{path}#2")
    now = DAY + timedelta(days=40)
    held = held_of(store, Private(), "shop")
    body = topics_body(store, held, "box", now, "shop", "deploys")
    (topic,) = body["topics"]
    assert (topic["purpose"], topic["age_days"], topic["entries"]) == ("How it goes live.", 39, 1)
    assert (topic["sources"], topic["text"]) == (
        [{"episode_id": "ep1", "day": "2026-03-04"}],
        f"# Deploys\n\nHow it goes live.\n\n## When\n\n{ADDED}",
    )
    assert [(each["episode_id"], each["superseded_by"]) for each in topic["history"] or []] == [
        (f"{path}#1", f"{path}#2")
    ]
    assert body["index"] == render(SHOP, held, "box")


def test_private_topics_are_shown_where_they_are_named(store: Store) -> None:
    put_topic(store, "/c/memory/topics/secret.md", "# Secret\n\nx", project="me/secret")
    put_pinned(store, "p", "Prefer secrecy", project="me/secret")
    put_pointer(store, "vault", project="me/secret")
    private = Private(projects=("secret",))
    assert not held_of(store, private, "")
    assert len(held_of(store, private, "secret").topics) == 1
    assert len(held_of(store, private, "", ["*"]).pointers) == 1


def test_indexes_go_to_the_home_or_beside_what_a_person_wrote(store: Store, topics: TopicStore, tmp_path: Path) -> None:
    put_topic(store, "/c/memory/topics/deploys.md", "# Deploys\n\nHow it goes live.")
    put_pinned(store, "p", "Prefer tests", project="acme/other")
    put_pointer(store, "vpn", project="general")
    mine = tmp_path / "projects/-shop/memory/MEMORY.md"
    mine.write_text("# Mine\n")
    found = indexed(store, Private())
    at_home = write_indexes(store, topics, "box", found, into_memory=False)
    assert {name: path.parent.name for name, path in at_home.items()} == {
        "acme/other": "acme%2Fother",
        SHOP: "acme%2Fshop",
    }
    assert mine.read_text() == "# Mine\n"
    assert write_indexes(store, topics, "box", found, into_memory=True)[SHOP] == mine
    assert mine.read_text().startswith("# Mine\n\n<!-- anamnesis index begins")
    assert "vpn" in mine.read_text()
    before = mine.stat().st_mtime_ns
    write_indexes(store, topics, "box", found, into_memory=True)
    assert mine.stat().st_mtime_ns == before, "an unchanged index is not written again"


def test_now_is_not_part_of_an_index(store: Store) -> None:
    put_topic(store, "/c/memory/topics/deploys.md", "# Deploys\n\nHow it goes live.")
    held = held_of(store, Private(), SHOP)
    days = (datetime(2026, 4, 1, tzinfo=UTC), datetime(2027, 4, 1, tzinfo=UTC))
    one, other = (topics_body(store, held, "box", day, SHOP)["index"] for day in days)
    assert one == other
