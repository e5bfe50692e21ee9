"""The record of a session: what was asked, done, decided and left, over all that joins it; and its form as an episode.

One session is one record per machine, whatever it was resumed, forked or continued in. A record is stored as an episode
of kind `session`; each revision is an episode that supersedes the former one.
"""

from dataclasses import dataclass, replace

from pydantic import AwareDatetime, TypeAdapter

from anamnesis_pipeline.markup import without_markup
from anamnesis_pipeline.model import Episode, content_id
from anamnesis_pipeline.sentences import beginning
from anamnesis_pipeline.wording import counted, project_name

SESSION_KIND = "session"
"""Kind of the episodes that records of sessions are."""
MAX_TITLE = 90
MAX_SUMMARY_CHARS = 480
METADATA = "session"
"""Under this name the metadata of an episode holds the record."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What is known of one session on one machine.

    `session_id` is the one in which it began; `session_ids` are all that are joined, in order. `outcome` is the last
    substantial message of Claude that answers a person. `files` are those that were changed, relative to the project
    where they are inside. `tests` are runs with their result in words, `commits` are `abc1234 subject`. `revision`
    counts from 1; a session that goes on gets the next.
    """

    session_id: str
    session_ids: tuple[str, ...]
    machine: str
    project: str
    branch: str
    title: str
    prompt: str
    outcome: str
    started: AwareDatetime
    ended: AwareDatetime
    messages: int
    errors: int
    files: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()
    revision: int = 1


_RECORDS = TypeAdapter(SessionRecord)


def name_with_source(session_id: str, source: str) -> str:
    """The name of a record where another one of its machine has the session's id for its name: Claude Code gives a
    session that goes on in another folder a log there, under the same id.
    """
    return f"{session_id}/{source}"


def episode_id_of(machine: str, name: str, revision: int) -> str:
    """The id of the episode of a revision. `name`: the id of the session in which it began, or `name_with_source`."""
    return content_id(SESSION_KIND, machine, name, str(revision))


def to_episode(record: SessionRecord, source: str, path: str = "", summary: str = "", name: str = "") -> Episode:
    """The episode of a record.

    :param source: key of the source in which the session began.
    :param path: the log in which it began.
    :param summary: made by an LLM; empty: title and outcome.
    :param name: as `episode_id_of` takes it; empty: the id of the session in which it began.
    """
    return Episode(
        episode_id=episode_id_of(record.machine, name or record.session_id, record.revision),
        source=source,
        timestamp=record.started,
        instance=record.machine,
        project=record.project,
        kind=SESSION_KIND,
        summary=summary or summary_of(record),
        raw_exchange=text_of(record),
        machine=record.machine,
        path=path,
        session_id=record.session_id,
        metadata={METADATA: _RECORDS.dump_python(record, mode="json")},
    )


def of_episode(episode: Episode) -> SessionRecord | None:
    """The record that an episode holds, with the project that the episode has by now; None where it holds none, or one
    with fields that are missing or malformed.
    """
    if episode.kind != SESSION_KIND:
        return None
    try:
        record = _RECORDS.validate_python(episode.metadata.get(METADATA))
    except ValueError:
        return None
    return replace(record, project=episode.project)


def summary_of(record: SessionRecord) -> str:
    """Title and outcome in whole sentences without markup, at most MAX_SUMMARY_CHARS."""
    title = record.title if record.title.endswith((".", "!", "?", "\u2026")) else f"{record.title}."
    outcome = " ".join(without_markup(record.outcome).split())
    told = outcome if outcome.startswith(record.title) else f"{title} {outcome}"
    return beginning(told, MAX_SUMMARY_CHARS)


def text_of(record: SessionRecord) -> str:
    """The record as text to read and to search."""
    place = f"in {project_name(record.project)}" + (f" on {record.machine}" if record.machine else "")
    branch = f", branch {record.branch}" if record.branch else ""
    counts = f"{counted(record.messages, 'message')}, {counted(record.errors, 'error')}"
    blocks = [
        record.title,
        f"Session {place}{branch}, {record.started:%Y-%m-%d %H:%M} to {record.ended:%Y-%m-%d %H:%M} UTC: {counts}.",
        f"Asked: {record.prompt}" if record.prompt else "",
        f"Outcome: {record.outcome}" if record.outcome else "",
    ]
    for heading, lines in (
        ("Decisions", record.decisions),
        ("Open items", record.open_items),
        ("Commits", record.commits),
        ("Tests", record.tests),
        ("Files changed", record.files),
        ("Commands", record.commands),
    ):
        blocks.append("\n".join((f"{heading}:", *(f"- {line}" for line in lines))) if lines else "")
    return "\n\n".join(filter(None, blocks))
