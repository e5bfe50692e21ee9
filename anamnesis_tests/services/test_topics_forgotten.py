"""What topic files keep of what is forgotten is named, and no table keeps any of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.topic_traces import TopicTraces
from anamnesis_pipeline.services.topics import indexed, open_topics, write_indexes
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Kind, Proposal, State
from anamnesis_pipeline.store.tables import BY_NAME
from anamnesis_tests.support.archived_logs import OTHER, SESSION, Home
from anamnesis_tests.support.dreams import PROJECT, dreamt, fill, lessons_of, migrate, post, proposals_of
from anamnesis_tests.support.topics import put_topic
from anamnesis_tests.support.worked_sessions import REFUSED


@pytest.fixture
def home(tmp_path: Path, store: Store) -> Iterator[Home]:
    """An empty memory on every store."""
    home = Home(tmp_path, store)
    yield home
    home.close()


def accepted(home: Home) -> Proposal:
    """A lesson that is in its file."""
    migrate(home, SESSION, 1)
    migrate(home, OTHER, 10_000)
    home.ingest()
    (lesson,) = [each for each in dreamt(home) if each.kind is Kind.LESSON]
    return proposals_of(home).accept(lesson.proposal_id, "Ada")


def stored(home: Home) -> str:
    """Everything that the tables hold."""
    with home.store.gateway.read() as tables:
        return "\n".join(str(row) for name in BY_NAME for row in tables[name].each({}))


def test_lines_written_from_forgotten_episodes_are_named(home: Home) -> None:
    accepted(home)
    wanted = f"{lessons_of(home)}, line 7, under 'Errors': edit the file"
    assert lessons_of(home).read_text().splitlines()[6].startswith(f"- {REFUSED}")
    assert any(place.startswith(wanted) for place in home.preview(session_id=SESSION).remains)
    assert any(place.startswith(wanted) for place in home.forget(session_id=SESSION).remains)
    assert REFUSED in lessons_of(home).read_text(), "a person's file is unchanged"


def test_line_without_its_comment_is_named(home: Home) -> None:
    accepted(home)
    text = lessons_of(home).read_text()
    lessons_of(home).write_text(text.partition(" <!-- sources")[0] + "\n")
    (named,) = [place for place in home.preview(session_id=SESSION).remains if str(lessons_of(home)) in place]
    assert ", line 7," in named


def test_former_texts_are_named(home: Home) -> None:
    lesson = accepted(home)
    proposals_of(home).undo(lesson.proposal_id, "Ada")
    (former,) = (home.settings.topics_dir / ".former").iterdir()
    (named,) = [place for place in home.preview(session_id=SESSION).remains if str(former) in place]
    assert "a former text of a topic; delete the file" in named


def test_other_topics_are_not_named(home: Home) -> None:
    accepted(home)
    other = post(home, "We deploy on Fridays", 1)
    assert not any("lessons.md" in place for place in home.preview(ids=(other.episode_id,)).remains)


def test_topic_of_another_machine_is_named(home: Home) -> None:
    said = post(home, "We deploy on Fridays", 1)
    entry = f"## Day\n\n- Friday. <!-- sources: {said.episode_id} -->"
    put_topic(home.store, "/c/memory/topics/deploys.md", "# Deploys", entry, machine="nas")
    remains = home.preview(ids=(said.episode_id,)).remains
    assert any(place.startswith("nas:/c/memory/topics/deploys.md, under 'Day': ") for place in remains)


def test_file_that_cannot_be_read_stops_no_forgetting(home: Home) -> None:
    accepted(home)
    lessons_of(home).write_bytes(b"\xff\xfe")
    report = home.forget(session_id=SESSION)
    assert report.episodes > 0
    assert f"{lessons_of(home)}, which cannot be read: look for it there" in report.remains


def test_private_topics_are_counted_only(home: Home) -> None:
    accepted(home)
    traces = TopicTraces(home.store, open_topics(home.settings), "box")
    (told,) = traces.remains(home.episodes(), Private(projects=("shop",)))
    assert told == "1 line of topic files that are private"


@pytest.mark.parametrize("state", [State.OPEN, State.REJECTED, State.ACCEPTED, State.UNDONE])
def test_no_table_keeps_a_quote_of_forgotten_evidence(home: Home, state: State) -> None:
    fill(home)
    proposals = proposals_of(home)
    for each in dreamt(home):
        if state is State.REJECTED:
            proposals.reject(each.proposal_id, "Ada")
        elif state is not State.OPEN:
            proposals.accept(each.proposal_id, "Ada")
            if state is State.UNDONE:
                proposals.undo(each.proposal_id, "Ada")
    assert REFUSED in stored(home)
    assert "5433" in stored(home)
    home.forget(project=PROJECT)
    assert home.store.proposals.page(10, None) == []
    for words in (REFUSED, "5433", "docker compose up", "Mondays"):
        assert words not in stored(home), words


def test_index_is_made_again_without_what_is_forgotten(home: Home) -> None:
    pinned = post(home, "Prefer the okapi buffer", 1, type="preference", tags=["pinned"])
    post(home, "Prefer tests", 2, type="preference", tags=["pinned"])
    write_indexes(home.store, open_topics(home.settings), "box", indexed(home.store, Private()), into_memory=False)
    index = lessons_of(home).with_name("MEMORY.md")
    assert "okapi" in index.read_text()
    home.forget(ids=(pinned.episode_id,))
    assert "okapi" not in index.read_text()
    assert "Prefer tests" in index.read_text()


def test_index_in_claude_codes_memory_is_named(home: Home) -> None:
    home.say("hello", "hi")
    home.ingest()
    (home.logs / "-code-shop/memory").mkdir()
    project = home.episodes()[0].project
    pinned = post(home, "Prefer the okapi buffer", 1, project=project, type="preference", tags=["pinned"])
    topics = open_topics(home.settings)
    written = write_indexes(home.store, topics, "box", indexed(home.store, Private()), into_memory=True)
    assert written[project] == home.logs / "-code-shop/memory/MEMORY.md"
    forgetter = wiring.open_forgetter(home.settings, home.store)
    remains = forgetter.preview(ForgetRequest(ids=(pinned.episode_id,))).remains
    assert any(place.startswith(str(written[project])) and "an index; edit it" in place for place in remains)
