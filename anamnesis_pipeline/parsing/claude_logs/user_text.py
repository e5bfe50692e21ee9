"""Find the author of a user record's text: a person, another session or agent, or the client, hooks and tools.

A record has `origin`, `promptSource` or `isMeta`; older ones only tags around the text. A person may quote each of
these tags: such a text is another author's only if it consists of whole blocks and additions of the client itself.
"""

import re
from collections import Counter
from collections.abc import Mapping
from html import unescape
from typing import NamedTuple

from anamnesis_pipeline.model import SegmentKind
from anamnesis_pipeline.parsing.claude_logs.log_lines import Record
from anamnesis_pipeline.parsing.claude_logs.tagged import between, without

_MARKUP = re.compile(r"\s*<([a-z][a-z_-]*)")
_CONTINUED = "This session is being continued from a previous conversation that ran out of context"
_NOTICE = re.compile(
    r"\[Request interrupted by user|\[SYSTEM NOTIFICATION|\[Cross-session |\s*<task-notification>\s*<task-id>"
)
_COMMAND_TAGS = ("command-", "local-command-", "bash-", "user-memory-input")
INJECTED_TAGS = ("system-reminder", "user-prompt-submit-hook", "ide_opened_file", "ide_selection")
"""Tags of blocks that the client adds to the text of a person or a tool."""
_INJECTED_STARTS = ("Stop hook feedback:", "Caveat: The messages below were generated")
_MARKS_ITS_OWN = (2, 1, 38)
"""The earliest version whose logs mark such text."""

_ORIGINS = {
    "human": SegmentKind.PROMPT,
    "channel": SegmentKind.CHANNEL,
    "peer": SegmentKind.PEER,
    "peer-send-message": SegmentKind.PEER,
    "coordinator": SegmentKind.PEER,
    "task-notification": SegmentKind.NOTIFICATION,
}
"""Kind of the text by `origin.kind`; any other origin is a machine's prompt."""
_SOURCES = {
    "typed": SegmentKind.PROMPT,
    "queued": SegmentKind.PROMPT,
    "suggestion_accepted": SegmentKind.PROMPT,
    "system": SegmentKind.MACHINE_PROMPT,
}
"""Kind of the text by `promptSource`."""
_ENVELOPES: Mapping[str, tuple[SegmentKind, tuple[str, ...]]] = {
    "channel": (SegmentKind.CHANNEL, ("user", "user_name", "username", "sender", "person")),
    "teammate-message": (SegmentKind.PEER, ("teammate_id",)),
    "cross-session-message": (SegmentKind.PEER, ("from-name", "name", "from")),
    "agent-message": (SegmentKind.PEER, ("from-name", "name", "from")),
    "subagent-message": (SegmentKind.PEER, ("from-name", "name", "from")),
    "task-notification": (SegmentKind.NOTIFICATION, ()),
    "agent-notification": (SegmentKind.NOTIFICATION, ()),
    "github-webhook-activity": (SegmentKind.NOTIFICATION, ()),
    "ci-monitor-event": (SegmentKind.NOTIFICATION, ()),
    "mcp-resource-update": (SegmentKind.NOTIFICATION, ()),
    "mcp-polling-update": (SegmentKind.NOTIFICATION, ()),
    "tick": (SegmentKind.NOTIFICATION, ()),
    "scheduled-task": (SegmentKind.MACHINE_PROMPT, ("name",)),
}
"""Tag around a delivered text -> its kind, and the attributes that name its sender, the best first."""
_OPENING = re.compile(rf'\s*<({"|".join(_ENVELOPES)})((?:\s+[\w:.-]+="[^"]*")*)\s*>')
_ATTRIBUTE = re.compile(r'([\w:.-]+)="([^"]*)"')
_INTRODUCED = re.compile(
    r"\s*(?:Another Claude session sent a message|The coordinator sent a message|"
    r"A background agent completed a task)(?: while you were working)?:[ \t]*\r?\n"
)
_ADVICE = (
    r"(?:This came from another Claude session|That .other Claude session. is an agent|"
    r"(?:IMPORTANT: )?This is NOT from your user|After completing your current task,|"
    r"Address this before completing your current task|Read the output file to retrieve|Full transcript available at)"
)
"""Beginnings of the client's notes to the model behind a delivered text."""
_BEHIND = re.compile(rf"\s*(?:\Z|{_ADVICE})")
_BEHIND_OR_NEXT = re.compile(rf"\s*(?:\Z|{_ADVICE}|<(?:{'|'.join(_ENVELOPES)})[\s>])")
_ADVICE_BEHIND = re.compile(rf"\n[ \t]*\r?\n[ \t]*{_ADVICE}")

_FORK = "fork-boilerplate"
_DIRECTIVE = "Your directive:"
_SKILL = re.compile(r"Base directory for this skill: (?:[/~]|[A-Za-z]:[\\/])[^\n]*(?:\r?\n[ \t]*){2}\S")
_SKILL_ARGUMENTS = "\n\nARGUMENTS: "
_PLAN = "Implement the following plan:"
_FEEDBACK = "User feedback on this plan:"
_NOT_IN_A_NAME = re.compile(r"[\s\[\]<>()]+")
_NAME_CHARS = 60


class Said(NamedTuple):
    """A run of a user record's text. `sender`: the sender's name, if known."""

    kind: SegmentKind
    text: str
    sender: str = ""


def text_kind(text: str) -> SegmentKind | None:
    """Return the author of a text whose record has no marks; None for injected text."""
    if text.startswith(_CONTINUED):
        return SegmentKind.COMPACT_SUMMARY
    markup = _MARKUP.match(text)
    tag = markup[1] if markup else ""
    if tag.startswith(_COMMAND_TAGS) and f"</{tag}>" in text:
        return SegmentKind.COMMAND
    if _NOTICE.match(text):
        return SegmentKind.NOTIFICATION
    if tag in INJECTED_TAGS or text.startswith(_INJECTED_STARTS):
        return None
    return SegmentKind.PROMPT


def kinds_of(record: Record, text: str, skipped: Counter[str]) -> list[Said]:
    """Return the texts of a record, if any; skipped content is counted in `skipped`."""
    if record.get("isCompactSummary") is True:
        return [Said(SegmentKind.COMPACT_SUMMARY, text)]
    cut = 0
    for tag in INJECTED_TAGS:
        text, count = without(text, f"<{tag}>", f"</{tag}>")
        cut += count
    text = text.strip() if cut else text
    skipped["user:injected"] += cut
    if not text:
        return []
    marked = marked_kind(record)
    is_typed = marked is SegmentKind.PROMPT
    found = _plan(record, text) or (None if is_typed else _of_machine(record, text, marked, skipped))
    if found is not None:
        return found
    if marked is None and is_meta(record):
        skipped["user:meta"] += 1
        return []
    kind = text_kind(text)
    if kind is None and text.startswith(_INJECTED_STARTS) and _is_typed(record, marked):
        kind = SegmentKind.PROMPT
    if kind is None:
        skipped["user:injected"] += 1
        return []
    return [Said(own_kind(record), text, _sender(record)) if kind is SegmentKind.PROMPT else Said(kind, text)]


def marked_kind(record: Record) -> SegmentKind | None:
    """Return the kind of plain text in a record by its sender marks; None: there are none. Text that the client wrote
    is no person's prompt, even if it follows from one.
    """
    origin, source = record.get("origin"), record.get("promptSource")
    kind = origin.get("kind") if isinstance(origin, dict) else None
    marked = _SOURCES.get(source) if isinstance(source, str) else None
    if isinstance(kind, str):
        marked = _ORIGINS.get(kind, SegmentKind.MACHINE_PROMPT)
    if marked is not None and not (marked is SegmentKind.PROMPT and is_meta(record)):
        return marked
    is_scheduled = isinstance(record.get("scheduledTaskId"), str) or record.get("turnOrigin") == "scheduled"
    return SegmentKind.MACHINE_PROMPT if is_scheduled else None


def is_meta(record: Record) -> bool:
    """Return whether the client marks the record as written by itself."""
    return record.get("isMeta") is True or record.get("isSynthetic") is True


def own_kind(record: Record) -> SegmentKind:
    """Return the kind of plain text in a user record, which depends on the record's sender."""
    marked = marked_kind(record) or SegmentKind.PROMPT
    is_task = marked is SegmentKind.PROMPT and record.get("isSidechain") is True
    return SegmentKind.AGENT_PROMPT if is_task else marked


def _plan(record: Record, text: str) -> list[Said]:
    """Return a plan that the user accepted, which is the model's text, and the user's comment on it."""
    plan = record.get("planContent")
    if not isinstance(plan, str) or not plan.strip() or not (plan in text or text.startswith(_PLAN)):
        return []
    _, is_inside, behind = text.partition(plan)
    feedback = behind.partition(f"\n\n{_FEEDBACK}")[2].strip()
    said = Said(SegmentKind.PLAN, plan if is_inside else text.removeprefix(_PLAN).strip())
    return [said, Said(SegmentKind.STEERING, feedback)] if feedback else [said]


def _of_machine(record: Record, text: str, marked: SegmentKind | None, skipped: Counter[str]) -> list[Said] | None:
    """Return another author's text in a record that does not name them; None: there is none."""
    if delivered := _delivered(text, is_sure=marked is not None or is_meta(record)):
        is_notice = all(said.kind is SegmentKind.NOTIFICATION for said in delivered)
        return [Said(SegmentKind.NOTIFICATION, text)] if is_notice else delivered
    if text.startswith(f"<{_FORK}>") and between(text, f"<{_FORK}>", f"</{_FORK}>") is not None:
        skipped[f"user:{_FORK}"] += 1
        task = text.partition(f"</{_FORK}>")[2].strip().removeprefix(_DIRECTIVE).strip()
        return [Said(SegmentKind.AGENT_PROMPT, task)] if task else []
    of_tool = is_meta(record) and marked is None and isinstance(record.get("sourceToolUseID"), str)
    if _SKILL.match(text) or (of_tool and not text.startswith("[")):
        return [Said(SegmentKind.SKILL, text.rpartition(_SKILL_ARGUMENTS)[0] or text)]
    introduced = _INTRODUCED.match(text)
    advice = _ADVICE_BEHIND.search(text) if introduced or marked is SegmentKind.PEER else None
    if marked is SegmentKind.PEER or advice:
        body = text[introduced.end() if introduced else 0 : advice.start() if advice else None].strip()
        return [Said(SegmentKind.PEER, body or text, _sender(record))]
    return None


def _delivered(text: str, *, is_sure: bool) -> list[Said]:
    """Return the texts of the blocks that make up `text`, each with its sender; none if there is anything else.

    :param is_sure: the record is marked as not by a person, so text behind the blocks is the client's.
    """
    said: list[Said] = []
    introduced = _INTRODUCED.match(text)
    at = introduced.end() if introduced else 0
    while opening := _OPENING.match(text, at):
        closing, end = f"</{opening[1]}>", opening.end()
        while (ended := text.find(closing, end)) >= 0 and not _BEHIND_OR_NEXT.match(text, ended + len(closing)):
            end = ended + len(closing)  # the body quotes it
        if ended < 0 and is_sure:
            ended = text.rfind(closing, opening.end())
        if ended < 0:
            return []
        at = ended + len(closing)
        kind, names = _ENVELOPES[opening[1]]
        attributes = dict(_ATTRIBUTE.findall(opening[2]))
        sender = next((attributes[name] for name in names if attributes.get(name)), "")
        said.append(Said(kind, text[opening.end() : ended].strip(), _name(sender)))
    return said if is_sure or _BEHIND.match(text, at) else []


def _sender(record: Record) -> str:
    """Return the name of the record's sender from its origin."""
    origin = record.get("origin")
    names = [origin.get(field) for field in ("name", "from")] if isinstance(origin, dict) else []
    return next((_name(name) for name in names if isinstance(name, str) and name), "")


def _name(text: str) -> str:
    """Return a name that fits on a line of the transcript."""
    return _NOT_IN_A_NAME.sub(" ", unescape(text)).strip()[:_NAME_CHARS]


def _is_typed(record: Record, marked: SegmentKind | None) -> bool:
    """Return whether the record was written by a human: by its marks, by a field that only the client's prompt sets, or
    because its version marks the client's own text (`isMeta`), and did not mark this.
    """
    if marked is not None or isinstance(record.get("promptSource"), str):
        return marked is SegmentKind.PROMPT
    if "permissionMode" in record:
        return True
    version = record.get("version")
    found = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", version) if isinstance(version, str) else None
    return found is not None and tuple(map(int, found.groups())) >= _MARKS_ITS_OWN
