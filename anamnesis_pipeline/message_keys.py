"""Keys by which a message is known, in whatever copy of it; see docs/decisions/0001-ids.md. Pure."""

import re
from collections.abc import Iterable, Mapping

from anamnesis_pipeline.model import content_id

RESULT_KEY = "r:"
"""Begins the key of a tool's result."""


def result_key(call: str, text: str) -> str:
    """Key of a tool's result. Not every service numbers its calls beyond one session, so the text counts too."""
    return f"{RESULT_KEY}{call}:{content_id(text)}"


def call_of(key: str) -> str:
    """Id of the call in a `result_key`."""
    return key.removeprefix(RESULT_KEY).rpartition(":")[0]


def borrowed_key(key: str) -> str:
    """Key of a message as long as only a fork, or a session moved to the background, was read that says so."""
    return f"f:{key}"


SECTION_KEY = "section:"
"""Begins the key of a piece of a document."""


def section_key(text: str) -> str:
    """Key of a piece of a section: its text alone, so that a tombstone meets it wherever it stands."""
    return f"{SECTION_KEY}{content_id(text.strip())}"


TELLING_BODY_CHARS = 40
"""A shorter body stands under many a heading by accident."""
_HEADING = re.compile(
    r"(?:#{1,6}[ \t][^\n]*|\*\*[^\n]+\*\*:?|__[^\n]+__:?|[^\n]+\n[ \t]*(?:={3,}|-{3,}|~{3,}))[ \t]*(?:\n\s*|\Z)"
)


def section_body_key(texts: Iterable[str]) -> str | None:
    """Key of what a section says under its heading, whatever the heading is and however the lines are broken; None
    where that is too short to be told by.

    :param texts: of its pieces, in order.
    """
    body = "\n".join(texts).lstrip()
    at = 0
    while found := _HEADING.match(body, at):
        at = found.end()
    words = " ".join(body[at:].split())
    return f"{SECTION_KEY}{content_id('body', words)}" if len(words) >= TELLING_BODY_CHARS else None


def chat_message_key(conversation: str, message_id: str) -> str:
    """Key of a message of an exported chat: its name there, so that a tombstone meets it in every later export."""
    return f"{SECTION_KEY}{content_id('message', conversation, message_id)}"


def section_part_id(place: str, anchor: str, texts: Iterable[str]) -> str:
    """Id of one text of a section: the same in every copy of the document.

    :param place: of the document, see `place_of`.
    :param anchor: the section's titles without a number, see `anchors.unnumbered`: which of several equal headings it
        is under may change.
    :param texts: of its pieces.
    """
    return content_id("section", place, anchor, *texts)


def place_of(*names: str) -> str:
    """What a document is known by: project and path in the repository, or machine and path."""
    return content_id("place", *names)


TYPED_KEY, CLAIM_KEY = "y", "c"
"""Begin the key of an entry of the history, and the further one of a transcript's prompt that no entry is known of."""
TYPED_WITHIN_MS = 600_000
"""An entry of the history is at most so far in time from the transcript's prompt that it is the same as."""


def typed_key(begin: str, typed: str, at_ms: int) -> str:
    """Key of what was typed at that time (ms since 1970); keys of the same are in the order of time."""
    return f"{begin}:{typed}:{max(at_ms, 0):015d}"


def forgotten_typed(key: str) -> str:
    """How a tombstone names what a forgotten transcript's prompt is called in the history (an alias of it that is a
    `typed_key`), and not the equal prompt that is typed a little later.
    """
    return f"f{key}"


def typed_near(key: str) -> tuple[str, str] | None:
    """The first and last `typed_key` that another side's name of the same prompt may be; None for other keys."""
    begin, _, rest = key.partition(":")
    typed, _, at = rest.rpartition(":")
    other = {TYPED_KEY: CLAIM_KEY, CLAIM_KEY: TYPED_KEY, forgotten_typed(TYPED_KEY): forgotten_typed(CLAIM_KEY)}
    if begin not in other or not at.isdecimal():
        return None
    first, last = (typed_key(other[begin], typed, int(at) + shift) for shift in (-TYPED_WITHIN_MS, TYPED_WITHIN_MS))
    return first, last


def nearest_typed(near: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Entry of the history -> the message that it is, the nearest in time first; each takes one of the others.

    :param near: entry -> further key of a message -> message, for all that may be the same.
    """
    pairs = sorted(
        (abs(typed_at(entry) - typed_at(claim)), entry, message)
        for entry, claims in near.items()
        for claim, message in claims.items()
    )
    found: dict[str, str] = {}
    taken: set[str] = set()
    for _, entry, message in pairs:
        if entry not in found and message not in taken:
            found[entry] = message
            taken.add(message)
    return found


def typed_at(key: str) -> int:
    """When it was typed, in ms since 1970, as a `typed_key` says; 0 for other keys."""
    at = key.rpartition(":")[2]
    return int(at) if at.isdecimal() else 0


AGENT_KEY = "sa:"
"""Begins an `agent_key`."""


def agent_key(session_id: str, agent_id: str) -> str:
    """The further key of the tool result that says which subagent its call spawned."""
    return f"{AGENT_KEY}{content_id(session_id, agent_id)}"
