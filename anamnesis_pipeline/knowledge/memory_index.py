"""The index of a project's memory, `MEMORY.md`: which topics there are, what each is for, and where to read it.

Derived from what is stored, without further content, and at most 200 lines: Claude Code reads no more of it. Pure.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from anamnesis_pipeline.errors import TopicRefused
from anamnesis_pipeline.knowledge.what_holds import MAX_PINNED, Held, Pointer, Topic, lessons_in, pointer_of
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.parsing.documents.index_block import INDEX_BEGINS, INDEX_ENDS, block_of
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.store.memory_layers import PINNED

MAX_LINES = 200
MAX_TOPICS, MAX_POINTERS = 110, 40
LINE_CHARS = 240
MIN_LINES = 8
"""Lines that an index has beside a text of a person, at the least."""
PRECEDENCE = "Topics win; session summaries route; raw sessions arbitrate; indexes are derived."

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]|<!--|-->")


def render(project: str, held: Held, here: str, max_lines: int = MAX_LINES) -> str:
    """Return the index of a project, in at most `max_lines` lines.

    :param here: name of this machine; paths on others begin with theirs.
    """
    lessons = lessons_in(held)
    at = ", ".join(_at(each.machine, each.path, here) for each in held.lessons[:3])
    told = [f"- {counted(len(lessons), 'lesson')}, to read before similar work: {at}"] if lessons else []
    lines = [
        f"# Memory of {_flat(project)}",
        "",
        f"{PRECEDENCE} Read a topic before you rely on it.",
        *_under("Pinned preferences", held.pinned, MAX_PINNED, _of_pinned),
        *_under("Lessons", told, 1, str),
        *_under("Topics", held.topics, MAX_TOPICS, lambda each: _of_topic(each, here)),
        *_under("Pointers", held.pointers, MAX_POINTERS, lambda each: _of_pointer(each, here)),
    ]
    if len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], "- and more: `anamnesis topics` lists all"]
    return "".join(f"{line}\n" for line in lines)


def with_index(text: str, project: str, held: Held, here: str) -> str:
    """Return the text of a person's `MEMORY.md` with the index in a marked block, in the place of the former one or at
    the end. All else is unchanged, line ends included.

    :raises TopicRefused: there is too little room below the 200 lines that are read.
    """
    end = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text else end if text.endswith("\n") else 2 * end
    before, after = block_of(text) or (text + gap, "")
    own = len(before.splitlines()) + len(after.splitlines())
    room = MAX_LINES - own - 2  # the marks
    if room < MIN_LINES:
        raise TopicRefused(
            f"MEMORY.md of {project} has {own} other lines, and only {MAX_LINES} are read; leave {MIN_LINES + 2} "
            "to the index: move some into a topic"
        )
    block = f"{INDEX_BEGINS}\n{render(project, held, here, room)}{INDEX_ENDS}\n"
    return before + block.replace("\n", end) + after


def listed_as(episode: Episode) -> list[str]:
    """Return how the lines of an index begin that list a pinned preference or a pointer; none for other episodes."""
    pointer = pointer_of(episode)
    lines = [f"- {pointer.keyword} ({pointer.category}) → "] if pointer is not None else []
    return [_flat(line) for line in (*lines, *([_of_pinned(episode)] if PINNED in episode.tags else []))]


def _under(heading: str, items: Sequence[object], most: int, line_of: Callable[..., str]) -> Iterable[str]:
    if not items:
        return
    yield from ("", f"## {heading}", "")
    for item in items[:most]:
        yield _flat(line_of(item))
    if len(items) > most:
        yield f"- and {len(items) - most} more: `anamnesis topics` lists all"


def _of_pinned(episode: Episode) -> str:
    return f"- {episode.summary}"


def _of_topic(topic: Topic, here: str) -> str:
    about = f": {topic.is_for}" if topic.is_for else ""
    at = _at(topic.machine, topic.path, here)
    room = LINE_CHARS - len(at) - len(topic.title) - 30
    about = about if len(about) <= room else f"{about[: max(room, 0)]}…"
    return f"- **{topic.title}**{about} ({topic.updated:%Y-%m-%d}) → {at}"


def _of_pointer(pointer: Pointer, here: str) -> str:
    at = _at(pointer.machine, pointer.path, here)
    about = f": {pointer.description}" if pointer.description else ""
    return f"- {pointer.keyword} ({pointer.category}) → {at}{about}"


def _at(machine: str, path: str, here: str) -> str:
    return f"`{path}`" if machine in {"", here} else f"`{machine}:{path}`"


def _flat(text: str) -> str:
    flat = " ".join(_UNSEEN.sub(" ", text).split())
    return flat if len(flat) <= LINE_CHARS else f"{flat[: LINE_CHARS - 1]}…"
