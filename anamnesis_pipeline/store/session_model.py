"""The record of a session: prompts, work, decisions and open items, across joined sessions; and its form as an episode.

One session is one record per machine, across resumes, forks and continuations. A record is stored as an episode of kind
`session`; each revision is an episode that supersedes the former one.
"""

from dataclasses import dataclass, replace

from pydantic import AwareDatetime, TypeAdapter

from anamnesis_pipeline.model import Episode, content_id
from anamnesis_pipeline.parsing.text.plain_text import without_markup
from anamnesis_pipeline.parsing.text.sentences import beginning
from anamnesis_pipeline.parsing.text.wording import counted, project_name

SESSION_KIND = "session"
"""Kind of session record episodes."""
MAX_TITLE = 90
MAX_SUMMARY_CHARS = 480
METADATA = "session"
"""Metadata key of the record in its episode."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """Facts about one session on one machine.

    `session_id` is the first session, `session_ids` are all joined ones, in order. `outcome` is Claude's last
    substantial answer to a person. `files` were changed, and are relative to the project if inside. `tests` are runs
    with their result in words, `commits` are `abc1234 subject`. `revision` counts from 1 and grows when a session
    continues.
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
    """Return a record's name if another record of its machine already uses the session's id: Claude Code logs a session
    that continues in another folder there, under the same id.
    """
    return f"{session_id}/{source}"


def episode_id_of(machine: str, name: str, revision: int) -> str:
    """Return the id of the episode of a revision. `name`: the id of the first session, or `name_with_source`."""
    return content_id(SESSION_KIND, machine, name, str(revision))


def to_episode(record: SessionRecord, source: str, path: str = "", summary: str = "", name: str = "") -> Episode:
    """Return the episode of a record.

    :param source: key of the source in which the session began.
    :param path: the log in which it began.
    :param summary: made by an LLM; empty: title and outcome.
    :param name: as in `episode_id_of`; empty: the id of the first session.
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
    """Return the record in an episode, with the episode's current project; None if there is none, or its fields are
    missing or malformed.
    """
    if episode.kind != SESSION_KIND:
        return None
    try:
        record = _RECORDS.validate_python(episode.metadata.get(METADATA))
    except ValueError:
        return None
    return replace(record, project=episode.project)


def summary_of(record: SessionRecord) -> str:
    """Return title and outcome in whole sentences without markup, at most MAX_SUMMARY_CHARS."""
    title = record.title if record.title.endswith((".", "!", "?", "\u2026")) else f"{record.title}."
    outcome = " ".join(without_markup(record.outcome).split())
    told = outcome if outcome.startswith(record.title) else f"{title} {outcome}"
    return beginning(told, MAX_SUMMARY_CHARS)


def text_of(record: SessionRecord) -> str:
    """Return the record as text for display and search."""
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
