"""One-line titles of episodes: from prompts or statements, else from tool calls. Pure, and without an LLM.

Titles are computed from stored data on display, so old episodes have titles, and edited ones the right one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import filterfalse, islice
from typing import Any

from anamnesis_pipeline.model import Episode, EpisodeHead
from anamnesis_pipeline.parsing.text.plain_text import content_words_of, plain, prose, shortened

TITLE_CHARS = 90
READ_CHARS, BLOCK_CHARS = 20_000, 2_000
"""Max characters read of a text, and of each message in it: the subject of a chunk is at its beginning."""
TELLING = 3
"""Minimum meaningful words of a sentence; a shorter one is used only if there is no other."""
SAME_LETTERS = 16
"""Letters at a summary's beginning; if the text contains them, the summary was taken from it."""
NAMES = 3
"""Max files, or names in tool output, in a title."""

_BLOCK = re.compile(
    r"^\[([A-Z][A-Za-z ]{2,50}(?:, (?!continued)[A-Za-z ]{2,30})?)(?: \([^)\n]*\))?(?:, continued)?\]\n", re.MULTILINE
)
_ASKED = frozenset(
    {
        "User",
        "User, while Claude was working",
        "User, through a channel",
        "Task for the subagent",
        "Message of another session or agent",
        "Prompt sent by Claude Code",
    }
)
_SAID = frozenset({"Claude", "Plan of Claude, accepted by the user", "Recap made by Claude Code"})
_FORMULA = re.compile(r"This session is being continued from|Your task is to create a detailed summary")
"""Beginnings of texts from a compaction."""
_LEAD = re.compile(
    r"^(?:(?:ok(?:ay)?|yes|yep|no|sure|great|good|perfect|excellent|alright|right|now|then|next|first|finally|so|and|but"
    r"|also|again|please|hi|hello|hey|claude|well|actually|wait|hmm|of course|absolutely)\b[\s,.!:–—-]+"
    r"|(?:let me|let's|let us|i'll|i will|i need to|i should|i want to|i'm going to|i am going to|we need to|we should"
    r"|help you|can you|could you|would you)\s+(?:(?:now|also|just|first|then|quickly|please)\s+)*)+",
    re.IGNORECASE,
)
_IDLE = frozenset(
    """continue proceed go ahead start begin done thanks thank good great perfect excellent works working fine sounds
    looks look see check analyze chronologically conversation sure yes okay ok right now still wait let file files
    following next step steps here need want everything something thing things way""".split()
)
_TOOL = re.compile(r"(?:[A-Z]|mcp__)[\w .:-]*")
_COLON = re.compile(r":\s+(?=[A-Z#-])")
_FIELD = re.compile(r"^(\w+): (.*)$", re.MULTILINE)
_WROTE = re.compile(
    r"^(?:The file (\S+) has been (?:updated|created)|File created successfully at: (\S+))", re.MULTILINE
)
_SEARCHED = re.compile(r"^Web search results for query: \"([^\"\n]+)\"", re.MULTILINE)
_DEFINED = re.compile(
    r"^\s*(?:\d+\s*[→|:\t]\s*)?(?:(?:export|public|abstract|default|async)\s+)*"
    r"(?:defmodule|class|interface|module|struct|enum|trait|def|defp|fn|func|function)\s+([A-Za-z_][\w.]{2,60})(?=\s*[(<:{,]|\s+do\b|\s*$)",
    re.MULTILINE,
)
_HEADING = re.compile(r"^#{2,4} ([^\n]{3,60})$", re.MULTILINE)
_SOUGHT = re.compile(r"[A-Za-z_][\w-]{2,}")
_HASH = re.compile(r"[A-Z]{2}|[a-z][A-Z][A-Z0-9]|[0-9][a-zA-Z]|[A-Z][a-z]?[A-Z][a-z]?[A-Z]")
_NAME = re.compile(r"\b(?:[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[a-z][a-z0-9]+(?:_[a-z0-9]+)+)\b")
_DOES = {
    "Bash": "Run",
    "MultiEdit": "Edit",
    "NotebookEdit": "Edit",
    "Grep": "Search for",
    "Glob": "List",
    "WebFetch": "Fetch",
    "WebSearch": "Search the web for",
    "Task": "Ask a subagent to",
    "Agent": "Ask a subagent to",
    "TodoWrite": "Update the list of tasks",
}
"""Tool -> the verb of its action; for others their name is the verb."""


def title_of(episode: Episode | EpisodeHead) -> str:
    """Return the title of an episode, at most TITLE_CHARS, without markdown, code and tool output."""
    metadata = episode.metadata
    if way := _texts(metadata.get("title")):
        return _end_of_way(way)
    raw = episode.raw_exchange[:READ_CHARS] if isinstance(episode, Episode) and "exchange_id" in metadata else ""
    blocks = list(_blocks(raw))
    summary = prose(episode.summary)
    known, ends = _letters(raw), _letters(summary[0]) if summary else ""
    is_own = not blocks or not (ends[:SAME_LETTERS] in known or ends[-SAME_LETTERS:] in known)
    if is_own:  # an LLM or a person wrote the summary
        found = (
            title_of_sentences(summary)
            or title_of_sentences(prose(str(metadata.get("prompt", ""))))
            or plain(episode.summary)
        )
    else:
        found = (
            title_of_sentences(_sentences(blocks, _ASKED))
            or title_of_sentences(_sentences(blocks, _SAID))
            or title_of_sentences(_sentences(blocks, frozenset({"Summary made by Claude Code"})))
            or actions([text for speaker, text in blocks if speaker == "Tool call"])
            or output_title([text for _, text in blocks], str(metadata.get("prompt", "")))
        )
    return shortened(found, TITLE_CHARS) or episode.kind


def actions(calls: Sequence[str]) -> str:
    """Describe tool calls in words: the tool and the files, or the command's description. Empty: no calls.

    :param calls: each the name of a tool and a line for each of its fields.
    """
    done: dict[str, list[str]] = {}
    for call in calls:
        tool, _, rest = call.partition("\n")
        if not _TOOL.fullmatch(tool):  # the rest of a long call
            continue
        fields = dict(_FIELD.findall(rest[:BLOCK_CHARS]))
        path = fields.get("file_path") or fields.get("notebook_path") or ""
        sought = ", ".join(_SOUGHT.findall(fields.get("pattern", ""))[:NAMES])
        told = fields.get("description") or fields.get("query") or sought or fields.get("url")
        what = path.rstrip("/").rpartition("/")[2] if path else plain(told or fields.get("command", ""))
        name = _DOES.get(tool, tool.rpartition("__")[2].replace("_", " "))
        if tool in {"Bash", "Task", "Agent"} and fields.get("description"):
            name = ""
        done.setdefault(name.strip(), []).append(what)
    told = []
    for name, whats in done.items():
        named = list(dict.fromkeys(filter(None, whats)))
        more = f" and {len(named) - NAMES} more" if len(named) > NAMES else ""
        told.append(f"{name} {', '.join(named[:NAMES])}{more}".strip())
    return "; ".join(told)


def _blocks(raw: str) -> Iterator[tuple[str, str]]:
    """Yield the speakers in an episode's text, each with the beginning of the message."""
    found = list(_BLOCK.finditer(raw))
    for number, match in enumerate(found):
        end = found[number + 1].start() if number + 1 < len(found) else len(raw)
        yield match[1], raw[match.end() : min(end, match.end() + BLOCK_CHARS)]


def _sentences(blocks: Iterable[tuple[str, str]], speakers: frozenset[str]) -> Iterator[str]:
    for speaker, text in blocks:
        if speaker in speakers:
            yield from prose(text)


def title_of_sentences(sentences: Iterable[str]) -> str:
    """Return the first informative sentence, or the most informative one, without filler at its beginning; empty:
    none.
    """
    best, most = "", 1
    for sentence in islice(filterfalse(_FORMULA.match, sentences), 40):
        opened = _LEAD.sub("", sentence).rstrip(" :.,;") or sentence
        before = _COLON.split(opened, maxsplit=1)[0]
        opened = before if len({*content_words_of(before)} - _IDLE) >= TELLING else opened
        words = len({*content_words_of(opened)} - _IDLE)
        if words >= TELLING and len(opened) > 15:
            return _capital(opened)
        if words > most:
            best, most = _capital(opened), words
    return best


def _capital(sentence: str) -> str:
    """Return the sentence with a capital letter, unless it begins with a file name or code."""
    first = sentence.split(" ", 1)[0]
    return sentence[:1].upper() + sentence[1:] if first.strip(",:;!?").isalpha() and first.islower() else sentence


def output_title(texts: Sequence[str], prompt: str) -> str:
    """Return the subject of tool output: the files written, the search query, or the names in it."""
    text = "\n".join(texts)
    if written := [one or other for one, other in _WROTE.findall(text)]:
        return actions([f"Edit\nfile_path: {path}" for path in written])
    if searched := _SEARCHED.search(text):
        return f"Search the web for {searched[1]}"
    asked = title_of_sentences(prose(prompt))
    if headings := [name for heading in _HEADING.findall(text) if (name := plain(heading))][:NAMES]:
        return f"Text on {', '.join(headings)}"
    counted = Counter(name for name in _NAME.findall(text) if not _HASH.search(name))
    frequent = [name for name, times in counted.most_common(NAMES) if times > 1]
    if defined := _DEFINED.findall(text):
        whole = [name for name in defined if name[0].isupper()] or [*defined[:NAMES], *frequent]
        return f"Code of {', '.join([*dict.fromkeys(whole)][:NAMES])}"
    if len(frequent) == NAMES:
        return f"Text on {', '.join(frequent)}"
    return f"Output of tools: {asked}" if asked else "Output of tools"


def _end_of_way(way: Sequence[str]) -> str:
    """Return a section's heading path; of a long one its end."""
    names = [plain(name) or name for name in way]
    while len(names) > 1 and len(" / ".join(names)) > TITLE_CHARS:
        names = names[1:]
    return shortened(" / ".join(names), TITLE_CHARS)


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str) and each] if isinstance(value, list | tuple) else []


def _letters(text: str) -> str:
    return re.sub(r"[\W\d_]+", "", text).casefold()
