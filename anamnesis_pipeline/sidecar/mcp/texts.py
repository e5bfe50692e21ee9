"""Text answers of the tools: quoted, dated, attributed, within a budget. Pure.

Plain text without a structured result, since Claude Code shows the model only the structured one if both exist. Stored
text may imitate our own words: every line of it has a prefix and is defused, as in hooks.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anamnesis_pipeline.model import MEMORY_BEGINS, MEMORY_ENDS, MEMORY_PREFACES, RECORD_KIND
from anamnesis_pipeline.parsing.text.plain_text import without_markup
from anamnesis_pipeline.parsing.text.wording import counted, kind_label, session_text
from anamnesis_pipeline.search.quoting import defused, id_label, label
from anamnesis_pipeline.search.token_estimate import cost, cut
from anamnesis_pipeline.services.asking import Line, changed_since, resume_text

HIT_TOKENS = 100
"""Limit of one search hit, including its head."""
LINE_TOKENS = 85
"""Limit of one record in a list."""
PAGE_TOKENS, PAGE_CHARS = 6_000, 16_000
"""Limits of one page of `read`; far below the 10,000 tokens at which Claude Code warns, for any tokenizer."""
LONGEST_LINE = 2_000
QUOTE = "> "
HEADER = MEMORY_PREFACES[1]

QUOTE_TOKENS = 66
"""Limit of a hit's quoted sentences: what most heads leave of `HIT_TOKENS`."""
ORIGIN_TOKENS = 90
"""Limit of the line that tells how to go on with the session of hits."""
QUOTED_TOKENS = 60
"""Limit of each quote of an answer about a thing."""
_NAME_TOKENS = 16
_TITLE_TOKENS, _SHORT_TITLE_TOKENS = 22, 9
"""Limits of a title beside a short quote and a long one."""
_TAGS_TOKENS = 18


def flat(text: str) -> str:
    """Return the text defused, on one line."""
    return " ".join(defused(text).split())


def block(lines: Sequence[str]) -> str:
    """Wrap an answer in the fence that marks it, so that it is not remembered again."""
    return "\n".join([MEMORY_BEGINS, HEADER, *lines, MEMORY_ENDS])


def head(record: Mapping[str, Any]) -> str:
    """Return `[decision] 2026-03-05 09:12 acme-api · session on laptop · id ...`, always in this order."""
    parts = [
        f"[{_type(record)}] {when(record['timestamp'])} {_project(record)}",
        _origin(record),
        *_standing(record),
        f"id {id_label(record.get('short_id') or record['episode_id'])}",
    ]
    return " · ".join(parts)


def places_of_all(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the project and origin shared by all hits, to be stated once."""
    shared = [{place(hit) for hit in found} for place in (_project, _origin)]
    return [places.pop() for places in shared if len(places) == 1 and len(found) > 1]


def hit(rank: int, found: Mapping[str, Any], common: Sequence[str] = ()) -> str:
    """Format a search hit: kind, id, day, confidence, place, title, best sentences, why and tags.

    :param common: the shared values, which are omitted.
    """
    episode_id = id_label(found.get("short_id") or found["episode_id"])
    parts = [
        f"{rank}. [{_type(found)} {episode_id}] {found['timestamp'][:10]}",
        found["confidence"],
        *(place for place in (_project(found), _origin(found)) if place not in common),
        *_standing(found),
    ]
    first, last = " · ".join(parts), _notes(found)
    text = flat(found.get("quote") or found["excerpt"] or found["summary"])
    left = HIT_TOKENS - cost(first) - cost(last) - 4  # prefixes and ellipsis
    title = cut(flat(found["title"]), max(min(_TITLE_TOKENS, left - cost(text)), _SHORT_TITLE_TOKENS))
    quoted = QUOTE + cut(text, max(left - cost(title), 12))
    said = text.casefold().startswith(title.removesuffix("…").casefold())  # as for a note
    return "\n".join([first if said else f"{first} {QUOTE}{title}", quoted, *([last] if last else [])])


def origins(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each session of the hits that can be resumed: the ranks, the command, what changed since."""
    ranks: dict[str, list[str]] = {}
    told: dict[str, str] = {}
    for rank, each in enumerate(found, 1):
        source = each["source"]
        if command := resume_text(source):
            ranks.setdefault(command, []).append(str(rank))
            told[command] = f" · {changed_since(source['ground'])}" if "ground" in source else ""
    lines = [f"go on with {', '.join(its)} {QUOTE}{flat(command)}{told[command]}" for command, its in ranks.items()]
    return [cut(text, ORIGIN_TOKENS) for text in lines]


def told(rank: int, lines: Sequence[Line]) -> str:
    """Format an item of an answer about a thing: its heading, then what was done and said, each quote on a line."""
    texts = [
        f"{each.ours} {QUOTE}{cut(flat(each.quote), QUOTED_TOKENS)}" if each.quote else each.ours for each in lines
    ]
    return "\n".join([f"{rank}. {texts[0]}", *texts[1:]])


def line(record: Mapping[str, Any], text: str = "") -> str:
    """Format a record of a list: head, title and start of its summary, which often begins with the title."""
    first, title, summary = head(record), flat(record["title"]), flat(record["summary"])
    left = LINE_TOKENS - cost(first) - 2
    told = summary if summary.startswith(title.removesuffix("…")) else f"{title} · {summary}"
    return f"{first}\n{QUOTE}{cut(flat(text) or told, max(left, 12))}"


def session_line(record: Mapping[str, Any]) -> str:
    """Format a session of a list: start, request and outcome; empty for other records."""
    known = record["metadata"].get("session")
    if record["kind"] != "session" or not isinstance(known, Mapping):
        return ""
    goes_on = " · goes on" if record["metadata"].get("is_open") else ""
    commits = known.get("commits") or []
    done = f" · {counted(len(commits), 'commit')}" if commits else ""
    first = f"[session] {when(record['timestamp'])} {_name(record['project']) or '(no project)'}{goes_on}{done}"
    first += f" · session {id_label(known['session_id'])}"
    outcome = without_markup(str(known.get("outcome") or ""))
    title = str(known.get("title") or "")
    told = " ".join(filter(None, (title if title.endswith((".", "?", "!", "…")) else f"{title}.", outcome)))
    return f"{first}\n{QUOTE}{cut(flat(told or record['summary']), max(LINE_TOKENS - cost(first) - 2, 12))}"


def record_lines(record: Mapping[str, Any]) -> list[str]:
    """Format a whole record, verbatim, each line prefixed; lines longer than `LONGEST_LINE` are broken."""
    lines = [head(record)]
    if place := _place(record["source"]):
        lines.append(f"from {QUOTE}{place}")
    if notes := _notes(record, whole=True):
        lines.append(notes)
    text = record.get("raw_exchange") or record["summary"]
    if record.get("raw_exchange") and flat(record["summary"]) not in flat(text):
        lines.append(f"summary {QUOTE}{flat(record['summary'])}")
    return [*lines, *(QUOTE + part for part in _broken(defused(text)))]


def pages(lines: Sequence[str]) -> list[list[str]]:
    """Split the lines into pages of limited length, at least one."""
    found: list[list[str]] = [[]]
    tokens = chars = 0
    for text in lines:
        price = cost(text) + 1
        if found[-1] and (tokens + price > PAGE_TOKENS or chars + len(text) > PAGE_CHARS):
            found.append([])
            tokens = chars = 0
        found[-1].append(text)
        tokens, chars = tokens + price, chars + len(text) + 1
    return found


def when(timestamp: str) -> str:
    """Format as `2026-03-05 09:12` (UTC)."""
    return timestamp[:16].replace("T", " ")


def _name(text: str) -> str:
    """Sanitize a project, machine or kind: it cannot imitate another field of the head."""
    return cut(label(text), _NAME_TOKENS)


def _type(record: Mapping[str, Any]) -> str:
    """Return the type of a record that an LLM drew, e.g. `decision`; of any other record, its kind."""
    drawn = record.get("metadata", {}).get("type") if record["kind"] == RECORD_KIND else None
    return _name(kind_label(drawn if isinstance(drawn, str) and drawn else record["kind"]))


def _project(record: Mapping[str, Any]) -> str:
    return _name(record["project"]) or "(no project)"


def _origin(record: Mapping[str, Any]) -> str:
    """Describe the source: a session, a document or a posting client; and its machine."""
    source = record["source"]
    said = {"curated": "curated document", "file": "document", "transcript": "session"}
    what = said.get(source.get("trust", ""), "posted by " + _name(record["instance"]))
    return f"{what} on {_name(source['machine'])}" if source.get("machine") else what


def _place(source: Mapping[str, Any]) -> str:
    """Return file, lines, headings and session, where present."""
    lines = source.get("lines") or []
    path = flat(source.get("path") or "")
    parts = [
        f"{path}:{lines[0]}" if path and lines else path,
        " / ".join(flat(title) for title in source.get("title") or []),
        f"session {flat(session_text(source))}" if source.get("session_id") else "",
    ]
    return ", ".join(part for part in parts if part)


def _notes(record: Mapping[str, Any], *, whole: bool = False) -> str:
    """Return why and tags, on one line."""
    why = record.get("metadata", {}).get("why")
    shown = _type(record) if record["kind"] == RECORD_KIND else ""
    tags = ", ".join(flat(tag) for tag in record["tags"] if tag != shown)
    parts = [f"why {QUOTE}{flat(why)}" if isinstance(why, str) and why else "", f"tags {QUOTE}{tags}" if tags else ""]
    text = " · ".join(part for part in parts if part)
    return text if whole else cut(text, _TAGS_TOKENS)


def _standing(record: Mapping[str, Any]) -> list[str]:
    """Return the status if it is not simply active, with what took its place; and that something does not exist."""
    status = record.get("status", "active")
    if status == "active":
        return ["NOT THERE"] if record["kind"] == "absent" else []
    return [f"{status} by {id_label(record['superseded_by'])}" if record.get("superseded_by") else status]


def _broken(text: str) -> Iterator[str]:
    for long in text.split("\n"):
        yield from (long[at : at + LONGEST_LINE] for at in range(0, max(len(long), 1), LONGEST_LINE))
