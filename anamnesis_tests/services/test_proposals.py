"""Proposals of a whole memory: what detectors find in logs and notes, what deciding does, wherever a run ends."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from anamnesis_pipeline.errors import ProposalConflict, ProposalNotFound, TopicRefused
from anamnesis_pipeline.knowledge import dream as dream_module
from anamnesis_pipeline.knowledge.archiving import UnneededNotes
from anamnesis_pipeline.knowledge.dream import Observed
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.services.proposals import FILE_CHANGED, KIND_OFF, POLICY, last_run
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import Tables
from anamnesis_pipeline.store.knowledge_model import Kind, Observation, Proposal, State
from anamnesis_pipeline.store.records.observations import Unobserved
from anamnesis_tests.support.archived_logs import DAY, OTHER, SESSION, Home, record
from anamnesis_tests.support.dreams import dreamt, fill, lessons_of, migrate, post, proposals_of
from anamnesis_tests.support.worked_sessions import REFUSED, called, migration


class EndedError(Exception):
    """The process ended here."""


@pytest.fixture
def home(tmp_path: Path, store: Store) -> Iterator[Home]:
    """An empty memory on every store."""
    home = Home(tmp_path, store)
    yield home
    home.close()


def kinds(found: list[Proposal]) -> list[str]:
    return sorted(str(each.kind) for each in found)


@pytest.mark.mongo
def test_detectors_propose_what_logs_and_notes_hold(home: Home) -> None:
    fill(home)
    found = dreamt(home)
    assert kinds(found) == ["lesson", "merge", "supersede"]
    (lesson,) = [each for each in found if each.kind is Kind.LESSON]
    assert {each.quote for each in lesson.evidence} >= {REFUSED}
    assert lesson.change.topic is not None
    assert lesson.change.topic.name == "lessons"
    assert "Fixed by: docker compose up -d db" in lesson.change.topic.entry


@pytest.mark.mongo
def test_second_run_adds_nothing_and_reads_nothing(home: Home) -> None:
    fill(home)
    before = dreamt(home)
    assert dreamt(home) == before
    report = last_run(home.store)
    assert report is not None
    assert report.observed == 0


def test_one_session_alone_gives_no_lesson(home: Home) -> None:
    migrate(home, SESSION, 1)
    home.ingest()
    assert dreamt(home) == []
    migrate(home, OTHER, 10_000)
    home.ingest()
    assert kinds(dreamt(home)) == ["lesson"]


def delete_all(tables: Tables, table: str) -> None:
    tables[table].delete({})


def ended(home: Home, writes: int, work: Callable[[], object]) -> bool:
    """Whether the work ended before its last write."""
    gateway = home.store.gateway
    try:
        with patch.object(type(gateway), "write", _ending(type(gateway).write, writes)):
            work()
    except EndedError:
        return True
    return False


def _ending(whole: Any, writes: int) -> Any:
    left = [writes]

    def write(self: Any, work: Any, **given: Any) -> Any:
        if left[0] == 0:
            raise EndedError
        left[0] -= 1
        return whole(self, work, **given)

    return write


@pytest.mark.mongo
def test_dream_that_ends_anywhere_proposes_the_same(home: Home) -> None:
    fill(home)
    wanted: list[str] | None = None
    for writes in range(100):
        for name in home.store.settings.all("dream."):
            home.store.settings.set(name, None)
        for table in ("proposals", "proposal_evidence"):
            home.store.gateway.write(partial(delete_all, table=table))
        is_ended = ended(home, writes, lambda: dreamt(home))
        found = sorted(each.proposal_id for each in dreamt(home))
        wanted = wanted or found
        assert found == wanted, writes
        if not is_ended:
            assert writes > 10
            return
    pytest.fail("it never came to its end")


@pytest.mark.mongo
def test_accepting_that_ends_anywhere_is_done_or_not(home: Home) -> None:
    fill(home)
    (merge,) = [each for each in dreamt(home) if each.kind is Kind.MERGE]
    for writes in range(20):
        is_ended = ended(home, writes, lambda: proposals_of(home).accept(merge.proposal_id, "Ada"))
        held = home.store.episodes.get([merge.change.statuses[0].episode_id])
        state = home.store.proposals.get(merge.proposal_id).state
        assert (state is State.ACCEPTED) == (held[merge.change.statuses[0].episode_id].status == "superseded")
        if not is_ended:
            assert state is State.ACCEPTED
            return
        assert state is State.OPEN
    pytest.fail("it never came to its end")


def lesson_of(home: Home) -> Proposal:
    fill(home)
    (lesson,) = [each for each in dreamt(home) if each.kind is Kind.LESSON]
    return lesson


@pytest.mark.mongo
def test_accepted_lesson_is_written_and_undoing_removes_it(home: Home) -> None:
    lesson = lesson_of(home)
    assert not lessons_of(home).exists()
    proposals_of(home).accept(lesson.proposal_id, "Ada")
    text = lessons_of(home).read_text()
    assert REFUSED in text
    assert lesson.evidence[0].episode_id in text
    proposals_of(home).undo(lesson.proposal_id, "Ada")
    assert not lessons_of(home).exists()


def test_lesson_tells_only_what_it_quotes(home: Home) -> None:
    for number, day in enumerate((0, 70, 60, 50, 40, 30)):  # few of many are quoted: the first and the latest
        session = f"{number}{SESSION[1:]}"
        lines = json.dumps(migration(session, 1_440 * day)).replace("5433", f"543{number}")
        home.write(json.loads(lines), f"-code-shop/{session}.jsonl")
    home.ingest()
    (lesson,) = dreamt(home)
    told = lesson.title.removeprefix("Repeated error: ").removesuffix(" …")
    assert any(told in each.quote for each in lesson.evidence), "it goes with all that it tells"


def test_own_text_is_written_in_place_of_the_proposed_one(home: Home) -> None:
    lesson = lesson_of(home)
    proposals_of(home).accept(lesson.proposal_id, "Ada", entry="Start the database before migrating.")
    assert "- Start the database before migrating." in lessons_of(home).read_text()
    proposals_of(home).undo(lesson.proposal_id, "Ada")
    assert not lessons_of(home).exists()


def test_file_that_a_person_edits_meanwhile_is_not_overwritten(home: Home) -> None:
    lesson = lesson_of(home)
    lessons_of(home).parent.mkdir(parents=True)
    lessons_of(home).write_text("# Lessons\n\nMine.\n")
    done = proposals_of(home).accept(lesson.proposal_id, "Ada")
    assert (done.state, done.reason) == (State.EXPIRED, FILE_CHANGED)
    assert lessons_of(home).read_text() == "# Lessons\n\nMine.\n"
    assert lesson.proposal_id in {each.proposal_id for each in dreamt(home)}, "proposed again for the present text"
    assert proposals_of(home).accept(lesson.proposal_id, "Ada").state is State.ACCEPTED
    assert lessons_of(home).read_text().startswith("# Lessons\n\nMine.\n")
    assert REFUSED in lessons_of(home).read_text()


def test_proposals_for_one_file_are_accepted_one_after_the_other(home: Home) -> None:
    first = lesson_of(home)
    for session, at in ((SESSION, 20_000), (OTHER, 30_000)):
        lines = [record("user", "build the shop image", at, session)]
        lines += called("docker build .", "error: no space left on device sda1", at + 1, session, is_error=True)
        lines += called("docker system prune -f", "ok", at + 2, session)
        lines += called("docker build .", "built", at + 3, session)
        home.write(lines, f"-code-shop/{session}.jsonl")
    home.ingest()
    lessons = [each for each in dreamt(home) if each.kind is Kind.LESSON]
    assert len(lessons) == 2
    for each in lessons:
        assert proposals_of(home).accept(each.proposal_id, "Ada").state is State.ACCEPTED
    text = lessons_of(home).read_text()
    assert REFUSED in text
    assert "no space left on device" in text
    proposals_of(home).undo(first.proposal_id, "Ada")
    assert REFUSED not in lessons_of(home).read_text()
    assert "no space left on device" in lessons_of(home).read_text()


@pytest.mark.mongo
def test_accepting_lesson_that_ends_anywhere_is_finished_by_the_next_dream(home: Home) -> None:
    lesson = lesson_of(home)
    for writes in range(20):
        is_ended = ended(home, writes, lambda: proposals_of(home).accept(lesson.proposal_id, "Ada"))
        if home.store.proposals.get(lesson.proposal_id).state is State.OPEN:
            assert not lessons_of(home).exists()
            continue
        dreamt(home)
        done = home.store.proposals.get(lesson.proposal_id)
        assert done.applied is not None
        assert done.applied.is_done
        assert lessons_of(home).read_text().count(REFUSED) == 1
        if not is_ended:
            return
        proposals_of(home).undo(lesson.proposal_id, "Ada")
        home.store.gateway.write(partial(delete_all, table="proposals"))
        home.store.settings.set("dream.cursor.RepeatedErrors", None)
        dreamt(home)
    pytest.fail("it never came to its end")


def test_undoing_keeps_what_a_person_wrote_after_a_process_ended(home: Home) -> None:
    lesson = lesson_of(home)
    with patch.object(type(home.store.proposals), "finish", side_effect=EndedError), pytest.raises(EndedError):
        proposals_of(home).accept(lesson.proposal_id, "Ada")
    with lessons_of(home).open("a") as file:
        file.write("\nMine.\n")
    dreamt(home)
    proposals_of(home).undo(lesson.proposal_id, "Ada")
    text = lessons_of(home).read_text()
    assert "Mine." in text
    assert REFUSED not in text


def test_undoing_is_exact_after_a_process_ended(home: Home) -> None:
    lesson = lesson_of(home)
    with patch.object(type(home.store.proposals), "finish", side_effect=EndedError), pytest.raises(EndedError):
        proposals_of(home).accept(lesson.proposal_id, "Ada")
    dreamt(home)
    proposals_of(home).undo(lesson.proposal_id, "Ada")
    assert not lessons_of(home).exists()


def test_undoing_before_the_file_is_finished_is_exact(home: Home) -> None:
    lesson = lesson_of(home)
    with patch.object(type(home.store.proposals), "finish", side_effect=EndedError), pytest.raises(EndedError):
        proposals_of(home).accept(lesson.proposal_id, "Ada")
    assert proposals_of(home).undo(lesson.proposal_id, "Ada").state is State.UNDONE
    assert not lessons_of(home).exists()


def test_entry_that_a_person_wrote_before_stays(home: Home) -> None:
    lesson = lesson_of(home)
    change = proposals_of(home).file_change(lesson)
    assert change is not None
    lessons_of(home).parent.mkdir(parents=True)
    lessons_of(home).write_text(change.new)
    dreamt(home)
    assert proposals_of(home).accept(lesson.proposal_id, "Ada").state is State.EXPIRED
    dreamt(home)
    assert proposals_of(home).accept(lesson.proposal_id, "Ada").state is State.ACCEPTED
    done = proposals_of(home).undo(lesson.proposal_id, "Ada", "mine")
    assert (done.state, done.reason) == (State.UNDONE, f"mine; nothing to undo: {lessons_of(home)} is as it was before")
    assert lessons_of(home).read_text() == change.new


def test_deleted_topic_is_not_written_by_undoing(home: Home) -> None:
    lesson = lesson_of(home)
    proposals_of(home).accept(lesson.proposal_id, "Ada")
    lessons_of(home).unlink()
    done = proposals_of(home).undo(lesson.proposal_id, "Ada")
    assert (done.state, done.reason) == (State.UNDONE, f"nothing to undo: {lessons_of(home)} is as it was before")
    assert not lessons_of(home).exists()


@pytest.mark.parametrize("left", ["# Lessons\n\nMine, in other words.\n", None])
def test_undoing_an_entry_that_is_gone_expires(home: Home, left: str | None) -> None:
    lessons_of(home).parent.mkdir(parents=True)
    lessons_of(home).write_text("# Lessons\n\nMine.\n")
    lesson = lesson_of(home)
    proposals_of(home).accept(lesson.proposal_id, "Ada")
    lessons_of(home).unlink()
    if left is not None:
        lessons_of(home).write_text(left)
    done = proposals_of(home).undo(lesson.proposal_id, "Ada")
    assert done.state is State.EXPIRED
    assert done.reason.startswith(f"nothing to undo: {lessons_of(home)} ")
    assert lessons_of(home).exists() == (left is not None)
    assert left is None or lessons_of(home).read_text() == left


def test_undoing_without_the_former_text_takes_the_entry_out(home: Home) -> None:
    lessons_of(home).parent.mkdir(parents=True)
    lessons_of(home).write_text("# Lessons\n\nMine.\n")
    lesson = lesson_of(home)
    proposals_of(home).accept(lesson.proposal_id, "Ada")
    for former in (home.settings.topics_dir / ".former").iterdir():
        former.unlink()
    assert proposals_of(home).undo(lesson.proposal_id, "Ada").state is State.UNDONE
    assert REFUSED not in lessons_of(home).read_text()
    assert "Mine." in lessons_of(home).read_text()


def test_topic_of_another_machine_is_undone_there(home: Home) -> None:
    lesson = lesson_of(home)
    proposals_of(home).accept(lesson.proposal_id, "Ada")
    other = Home(home.base / "other", home.store)
    other.settings = other.settings.model_copy(update={"machine": "nas"})
    lessons_of(home).rename(home.base / "elsewhere")
    with pytest.raises(TopicRefused, match="is no place of topics"):
        proposals_of(other).undo(lesson.proposal_id, "Ada")
    other.settings = other.settings.model_copy(update={"home": home.settings.home})
    lessons_of(home).write_text("# Lessons\n\nOf the NAS.\n")
    with pytest.raises(ProposalConflict, match="it was accepted on box"):
        proposals_of(other).undo(lesson.proposal_id, "Ada")
    (home.base / "elsewhere").rename(lessons_of(home))
    assert proposals_of(home).undo(lesson.proposal_id, "Ada").state is State.UNDONE


def test_topic_that_cannot_be_written_stops_no_dream(home: Home) -> None:
    lesson = lesson_of(home)
    with patch.object(type(home.store.proposals), "finish", side_effect=EndedError), pytest.raises(EndedError):
        proposals_of(home).accept(lesson.proposal_id, "Ada")
    lessons_of(home).write_bytes(b"\xff\xfe is no UTF-8")
    assert kinds(dreamt(home)) == ["merge", "supersede"]


def test_text_of_private_source_becomes_no_open_note(home: Home) -> None:
    steps = [("npm run build", "ok"), ("docker build .", "ok"), ("kubectl rollout restart deploy/shop", "ok")]
    for session, at in ((SESSION, 1), (OTHER, 5_000)):
        lines = [record("user", "release it", at, session)]
        for number, (script, output) in enumerate(steps, 1):
            lines += called(script, output, at + number, session)
        home.write(lines, f"-code-shop/{session}.jsonl")
    home.ingest()
    (procedure,) = [each for each in dreamt(home) if each.kind is Kind.PATTERN]
    private = Private(sources=(home.source(),))
    with pytest.raises(ProposalConflict, match="private source"):
        proposals_of(home, private).accept(procedure.proposal_id, "Ada")
    assert proposals_of(home).accept(procedure.proposal_id, "Ada").state is State.ACCEPTED


@pytest.mark.parametrize(
    ("type", "who", "said", "expected"),
    [
        ("fact", "user", "the nightly import runs on port 6543 now, not on 5433", ["doubt"]),
        ("fact", "assistant", "The nightly import runs on port 6543, no longer on 5433.", ["doubt"]),
        ("decision", "user", "the nightly import runs on port 6543 now, not on 5433", ["contradiction"]),
        ("fact", "user", "the nightly import on port 5433 took an hour", []),
        ("fact", "user", "should the nightly import run on port 6543 instead of 5433?", []),
    ],
)
def test_old_note_is_spoken_against(home: Home, type: str, who: str, said: str, expected: list[str]) -> None:
    post(home, "The nightly import runs on port 5433", 1, type=type, timestamp=DAY - timedelta(days=60))
    home.write(
        [record("user", "hello there", 1, SESSION), record(who, said, 2, SESSION)], f"-code-shop/{SESSION}.jsonl"
    )
    home.ingest()
    assert kinds(dreamt(home, dream_off=("archive",))) == expected


def test_old_note_is_archived_when_it_is_hardly_retained(home: Home) -> None:
    posted = post(home, "Ordered pizza while it ran", 1, type="note", timestamp=datetime.now(UTC) - timedelta(days=80))
    assert dreamt(home) == []
    later = datetime.now(UTC) + timedelta(days=115)
    found = [each for batch in dream_module.found_by(home.store, UnneededNotes(), later) for each in batch]
    assert [each.episode_ids for each in found] == [[posted.episode_id]]


def test_no_note_of_one_instant_is_skipped(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime.now(UTC) - timedelta(days=80)
    drinks = ("tea", "coffee", "water", "juice", "cocoa")
    posted = {post(home, f"Ordered {each}", 1, type="note", timestamp=at).episode_id for each in drinks}
    dreamt(home)
    monkeypatch.setattr(dream_module, "PAGE", 2)
    later = datetime.now(UTC) + timedelta(days=115)
    found = [each for batch in dream_module.found_by(home.store, UnneededNotes(), later) for each in batch]
    assert sorted(each.target.removeprefix("archive ") for each in found) == sorted(posted)
    assert list(dream_module.found_by(home.store, UnneededNotes(), later)) == []


def test_policy_accepts_what_can_be_undone(home: Home) -> None:
    fill(home)
    assert kinds(dreamt(home, dream_auto=("merge",), dream_off=("supersede",))) == ["lesson"]
    (merge,) = home.store.proposals.page(10, State.ACCEPTED)
    assert (merge.kind, merge.decided_by) == (Kind.MERGE, POLICY)
    proposals_of(home).undo(merge.proposal_id, "Ada")
    assert home.store.episodes.get(merge.episode_ids)[merge.change.statuses[0].episode_id].status == "active"


def test_policy_leaves_what_is_pinned_to_a_person(home: Home) -> None:
    post(home, "The staging database runs on port 5433", 1, tags=["pinned"])
    post(home, "Staging database: port 5433", 2)
    assert kinds(dreamt(home, dream_auto=("merge",))) == ["merge"]


def test_kind_turned_off_expires_until_it_is_on_again(home: Home) -> None:
    fill(home)
    assert kinds(dreamt(home)) == ["lesson", "merge", "supersede"]
    assert kinds(dreamt(home, dream_off=("lesson", "supersede"))) == ["merge"]
    assert {each.reason for each in home.store.proposals.page(10, State.EXPIRED)} == {KIND_OFF}
    assert kinds(dreamt(home)) == ["lesson", "merge", "supersede"]


def test_policy_names_kinds_that_are_undone_exactly() -> None:
    with pytest.raises(ValueError, match="'lesson' must be one of"):
        Settings(dream_auto=("lesson",))


def say(home: Home, session: str, at: int, text: str) -> None:
    """A session in which a person says this."""
    home.write(
        [record("user", text, at, session), record("assistant", "Fine.", at + 1, session)], f"-code/{session}.jsonl"
    )
    home.ingest()


FACT = "Remember that the staging database is wiped every Monday."
REDIS = "We use Redis for the job queue because it is simple."
NATS = "We use NATS for the job queue, no longer Redis, because Redis lost jobs."


def test_fact_said_in_two_sessions_is_one_proposal(home: Home) -> None:
    say(home, SESSION, 1, FACT)
    (first,) = dreamt(home)
    say(home, OTHER, 10_000, FACT)
    (both,) = dreamt(home)
    assert (len(first.evidence), len(both.evidence)) == (1, 2)
    assert first.title == FACT


def test_superseded_decision_is_not_promoted(home: Home) -> None:
    say(home, SESSION, 1, REDIS)
    say(home, OTHER, 10_000, NATS)
    found = dreamt(home)
    assert [each.evidence[0].quote for each in found if each.kind is Kind.PROMOTE] == [NATS]
    assert kinds(found) == ["promote", "supersede"]


@pytest.mark.mongo
def test_promotion_expires_when_its_decision_is_superseded(home: Home) -> None:
    say(home, SESSION, 1, REDIS)
    (old,) = dreamt(home)
    say(home, OTHER, 10_000, NATS)
    assert kinds(dreamt(home)) == ["promote", "supersede"]
    expired = proposals_of(home).find(old.proposal_id)
    assert expired.state is State.EXPIRED
    assert expired.reason.startswith("superseded by")


def test_promotion_of_note_that_holds_no_longer_expires(home: Home) -> None:
    note = post(home, "Decision: we use Redis for the queue because it is simple", 1)
    (promotion,) = dreamt(home)
    post(home, "Nothing is decided on the queue", 2, replaces=note.episode_id)
    assert proposals_of(home).accept(promotion.proposal_id, "Ada").state is State.EXPIRED


def show_error(home: Home, session: str, at: int, line: str, fix: str) -> None:
    """A session in which a person shows an error, and Claude tells what fixed it."""
    lines = [record("user", f"the hook is red\n\n{line}", at, session), record("assistant", fix, at + 1, session)]
    home.write(lines, f"-code-shop/{session}.jsonl")
    home.ingest()


@pytest.mark.parametrize(
    ("line", "fix", "expected"),
    [
        (
            "ERROR hook refund rejected: no valid seal",
            "Same as in May: the raw body has to reach the check.",
            ["lesson"],
        ),
        ("ERROR hook refund rejected: no valid seal", "The clock of the machine was the cause.", []),
        ("ERROR the disk of the archive is full", "Same as in May: the raw body has to reach the check.", []),
    ],
)
def test_error_in_another_place_is_a_lesson(home: Home, line: str, fix: str, expected: list[str]) -> None:
    first = "ERROR hook invoice rejected: no valid seal"
    show_error(home, SESSION, 1, first, "The cause was the decoder, which ate the raw body.")
    show_error(home, OTHER, 10_000, line, fix)
    assert kinds(dreamt(home)) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("remove the javadoc, no javadoc in this repo", ["contradiction"]),
        ("remove the javadoc of the old parser", []),
        ("no javadoc for tests please", []),
    ],
)
def test_person_takes_back_what_a_person_asked_for(home: Home, said: str, expected: list[str]) -> None:
    say(home, SESSION, 1, "also: javadoc on every public method in this repo please")
    say(home, OTHER, 10_000, said)
    assert kinds(dreamt(home)) == expected


def test_wish_worded_otherwise_in_second_session_is_proposed(home: Home) -> None:
    say(home, SESSION, 1, "and dates on the page please with the month in words, not 03/05")
    say(home, OTHER, 10_000, "The list shows 12/11. Dates with the month in words please, like I said")
    (lesson,) = dreamt(home)
    assert lesson.kind is Kind.LESSON
    assert len({each.episode_id for each in lesson.evidence}) == 2


def restart(home: Home, session: str, at: int) -> None:
    """A session in which a node is emptied and used again."""
    lines = [record("user", "the ingester hangs", at, session)]
    for number, script in enumerate(("kubectl -n t cordon n4", "kubectl delete pod i-0", "kubectl uncordon n4"), 1):
        lines += called(script, "done", at + number, session)
    home.write(lines, f"-code/{session}.jsonl")
    home.ingest()


def test_steps_that_no_note_tells_are_a_procedure(home: Home) -> None:
    restart(home, SESSION, 1)
    restart(home, OTHER, 10_000)
    (procedure,) = dreamt(home)
    assert procedure.title == "Procedure: kubectl cordon, kubectl delete, kubectl uncordon"


def test_procedure_that_a_note_tells_is_not_proposed(home: Home) -> None:
    restart(home, SESSION, 1)
    restart(home, OTHER, 10_000)
    (project,) = {each.project for each in home.episodes()}
    post(home, "Restart: kubectl cordon the node, kubectl delete the pod, then uncordon it", 1, project=project)
    assert dreamt(home) == []


def test_notes_in_other_order_merge_and_turned_ones_do_not(home: Home) -> None:
    post(home, "Orders are copied nightly from staging to production", 1)
    post(home, "Orders are copied nightly from production to staging", 2)
    post(home, "For linting and formatting Python we use ruff", 3)
    post(home, "We use ruff for formatting and linting Python", 4)
    merged = [each for each in dreamt(home) if each.kind is Kind.MERGE]
    assert [each.title for each in merged] == ["Says the same: We use ruff for formatting and linting Python"]


def test_private_project_is_listed_when_it_is_named(home: Home) -> None:
    fill(home)
    dreamt(home)
    hidden = proposals_of(home, Private(projects=("shop",)))
    assert hidden.listed() == []
    assert hidden.waiting().open == 0
    assert kinds(hidden.listed(project="shop")) == ["lesson", "merge", "supersede"]


def test_page_is_full_despite_private_quotes(home: Home) -> None:
    fill(home)
    dreamt(home)
    proposals = proposals_of(home, Private(sources=(home.source(),)))
    assert kinds(proposals.listed(limit=2)) == ["merge", "supersede"]
    (first,) = proposals.listed(limit=1)
    (second,) = proposals.listed(limit=1, after=first)
    assert {first.kind, second.kind} == {Kind.MERGE, Kind.SUPERSEDE}


def test_projects_are_never_compared_with_each_other(home: Home) -> None:
    post(home, "We deploy on Fridays", 1)
    post(home, "We deploy on Mondays", 2, project="other")
    assert dreamt(home) == []


def test_proposal_goes_with_forgotten_evidence(home: Home) -> None:
    fill(home)
    (lesson,) = [each for each in dreamt(home) if each.kind is Kind.LESSON]
    home.forget(ids=(lesson.evidence[0].episode_id,))
    with pytest.raises(ProposalNotFound):
        proposals_of(home).find(lesson.proposal_id)
    assert Kind.LESSON not in {each.kind for each in dreamt(home)}


def test_text_that_cannot_be_read_stops_no_other(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dream_module.observations_of

    def fail(store: Store, of: Unobserved) -> list[Observation]:
        if of.origin == SESSION:
            raise ValueError("broken")
        return whole(store, of)

    with monkeypatch.context() as broken:
        broken.setattr(dream_module, "observations_of", fail)
        fill(home)
        assert kinds(dreamt(home)) == ["merge", "supersede"]
        last = last_run(home.store)
        assert last is not None
        assert SESSION in last.problems["Observations"]
    assert "lesson" in kinds(dreamt(home))


def test_text_that_is_never_read_waits_for_three_runs(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    post(home, "We deploy on Fridays", 1)

    def fail(store: Store, of: Unobserved) -> list[Observation]:
        raise ValueError("broken")

    monkeypatch.setattr(dream_module, "observations_of", fail)
    observed = (
        dream_module.observe(home.store, sources).waiting for sources in ([], ["direct"], ["logs"], [], ["direct"], [])
    )
    assert list(observed) == [1, 1, 1, 1, 1, 0], "an ingest is no try"
    assert dream_module.observe(home.store) == Observed()
