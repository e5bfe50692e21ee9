"""Keys that identify a message in every copy; see docs/decisions/0001-ids.md. Pure."""

import re
from collections.abc import Iterable, Mapping

from anamnesis_pipeline.model import content_id

RESULT_KEY = "r:"
"""Prefix of a tool result's key."""


def result_key(call: str, text: str) -> str:
    """Return the key of a tool's result. Some services number calls per session only, so the text counts too."""
    return f"{RESULT_KEY}{call}:{content_id(text)}"


def call_of(key: str) -> str:
    """Return the id of the call in a `result_key`."""
    return key.removeprefix(RESULT_KEY).rpartition(":")[0]


def borrowed_key(key: str) -> str:
    """Return the key of a message that was read only in a fork or in a session moved to the background."""
    return f"f:{key}"


SECTION_KEY = "section:"
"""Prefix of the key of a piece of a document."""


def section_key(text: str) -> str:
    """Return the key of a piece of a section: its text alone, so that a tombstone matches it everywhere."""
    return f"{SECTION_KEY}{content_id(text.strip())}"


TELLING_BODY_CHARS = 40
"""Shorter bodies occur under many headings by accident."""
_HEADING = re.compile(
    r"(?:#{1,6}[ \t][^\n]*|\*\*[^\n]+\*\*:?|__[^\n]+__:?|[^\n]+\n[ \t]*(?:={3,}|-{3,}|~{3,}))[ \t]*(?:\n\s*|\Z)"
)


def section_body_key(texts: Iterable[str]) -> str | None:
    """Return the key of a section's body, independent of its heading and line breaks; None if it is too short to
    identify a section.

    :param texts: of its pieces, in order.
    """
    body = "\n".join(texts).lstrip()
    at = 0
    while found := _HEADING.match(body, at):
        at = found.end()
    words = " ".join(body[at:].split())
    return f"{SECTION_KEY}{content_id('body', words)}" if len(words) >= TELLING_BODY_CHARS else None


def chat_message_key(conversation: str, message_id: str) -> str:
    """Return the key of a message of an exported chat, from its id there, so that tombstones match later exports."""
    return f"{SECTION_KEY}{content_id('message', conversation, message_id)}"


def section_part_id(place: str, anchor: str, texts: Iterable[str]) -> str:
    """Return the id of one text of a section, equal in every copy of the document.

    :param place: of the document, see `place_of`.
    :param anchor: the section's titles without a number, see `anchors.unnumbered`: the number among equal headings may
        change.
    :param texts: of its pieces.
    """
    return content_id("section", place, anchor, *texts)


def place_of(*names: str) -> str:
    """Return the id of a document's place: project and path in the repository, or machine and path."""
    return content_id("place", *names)


TYPED_KEY, CLAIM_KEY = "y", "c"
"""Prefixes of a prompt history entry's key, and of the alias of a transcript's prompt without a known entry."""
TYPED_WITHIN_MS = 600_000
"""Max milliseconds between a prompt history entry and the transcript's prompt that it equals."""


def typed_key(begin: str, typed: str, at_ms: int) -> str:
    """Return the key of a text typed at that time (ms since 1970); keys of equal texts sort by time."""
    return f"{begin}:{typed}:{max(at_ms, 0):015d}"


def forgotten_typed(key: str) -> str:
    """Return the tombstone key of a forgotten transcript's prompt (from its alias, a `typed_key`); it does not match an
    equal prompt typed a little later.
    """
    return f"f{key}"


def typed_near(key: str) -> tuple[str, str] | None:
    """Return the first and last `typed_key` that the same prompt may have on the other side; None for other keys."""
    begin, _, rest = key.partition(":")
    typed, _, at = rest.rpartition(":")
    other = {TYPED_KEY: CLAIM_KEY, CLAIM_KEY: TYPED_KEY, forgotten_typed(TYPED_KEY): forgotten_typed(CLAIM_KEY)}
    if begin not in other or not at.isdecimal():
        return None
    first, last = (typed_key(other[begin], typed, int(at) + shift) for shift in (-TYPED_WITHIN_MS, TYPED_WITHIN_MS))
    return first, last


def nearest_typed(near: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return prompt history entry -> its message, nearest in time first, one to one.

    :param near: entry -> alias of a message -> message, for all candidates.
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
    """Return when it was typed, in ms since 1970, from a `typed_key`; 0 for other keys."""
    at = key.rpartition(":")[2]
    return int(at) if at.isdecimal() else 0


AGENT_KEY = "sa:"
"""Prefix of an `agent_key`."""


def agent_key(session_id: str, agent_id: str) -> str:
    """Return the alias of the tool result that names the subagent spawned by its call."""
    return f"{AGENT_KEY}{content_id(session_id, agent_id)}"
