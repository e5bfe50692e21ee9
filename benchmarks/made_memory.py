"""A large memory for benchmarks of what holds: sessions of logs, notes and texts with authority, and no vectors.

Sessions consist of the chunks of the shared logs and of the made histories, as an ingest parsed them, with other words:
in each project two fifths of the words of five to eleven letters are its own, in each session half of all, and a third
of the numbers; words that tell what a sentence is (`wording.py`), errors and commands stay. Every tenth session has the
words of an earlier one. What tools print is cut to 600 characters. Projects are as large as 1/rank. Everything is
written by the store's public interface as an ingest leaves it, which takes minutes for 100,000 episodes.
"""

import random
import re
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from knowledge import Place, clock_of, histories_of, projects_of, write_session
from many_sessions import ingest
from service import SHARED

from anamnesis_pipeline.errors import EpisodeConflict
from anamnesis_pipeline.knowledge import error_signatures, wording
from anamnesis_pipeline.model import (
    EpisodeFilter,
    FileCursor,
    Part,
    Passage,
    SectionFacts,
    Segment,
    SegmentKind,
    Source,
    Summary,
    content_id,
    part_id_of,
)
from anamnesis_pipeline.parsing.claude_logs import commands
from anamnesis_pipeline.parsing.claude_logs.message_keys import RESULT_KEY, call_of, result_key, section_part_id
from anamnesis_pipeline.pipeline.publish import episode_of
from anamnesis_pipeline.services.posted import note_of
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.wiring import open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.episodes import Publication
from anamnesis_pipeline.store.records.messages import ParsedChunk

PROJECTS = 40
CHUNKS = 20
"""Chunks of a session."""
OUTPUT_CHARS = 600
SPAN = timedelta(days=730)
TOOLS = frozenset({SegmentKind.TOOL_INPUT, SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR})
NOTE_TYPES = ("decision", "fact", "preference", "lesson", "note")


@dataclass(frozen=True, slots=True)
class Templates:
    """What is varied: the chunks of each session of the logs, those of the histories, their notes and their texts."""

    long: list[list[Part]]
    short: list[list[Part]]
    notes: list[str]
    texts: list[str]
    words: "Words"


class Words:
    """Puts other words in the place of some."""

    _CHANGED = re.compile(r"\b(?:[a-z]{5,11}|\d{1,4})\b")

    def __init__(self, texts: Sequence[str]) -> None:
        told = " ".join(Path(module.__file__ or "").read_text() for module in (wording, error_signatures, commands))
        self._kept = frozenset(re.findall(r"[a-z]{3,}", told.lower()))
        found = sorted({word for text in texts for word in re.findall(r"\b[a-z]{5,11}\b", text)} - self._kept)
        self._others = random.Random(7).sample(found, min(len(found), 6_000))

    def said(self, text: str, project: int, session: int) -> str:
        """Return a text in the words of a project and a session."""
        return self._CHANGED.sub(lambda found: self._other(found[0], project, session), text)

    @lru_cache(maxsize=1 << 18)  # noqa: B019 - one object per process
    def _other(self, word: str, project: int, session: int) -> str:
        own, new = (zlib.crc32(f"{word} {name}".encode()) for name in (f"p{project}", f"s{session}"))
        if word.isdigit():
            return str(new % 10 ** len(word)) if new % 3 == 0 else word
        if word in self._kept:
            return word
        if new % 2 == 0:
            return self._others[new // 2 % len(self._others)]
        return self._others[own // 5 % len(self._others)] if own % 5 < 2 else word


def templates() -> Templates:
    """Read the shared logs and the made histories for tuning."""
    histories = histories_of("dev")
    with tempfile.TemporaryDirectory() as folder:
        place, parts = Place(Path(folder)), []
        for name in ("claude_logs", "claude_logs_2"):
            shutil.copytree(SHARED / "data" / name / "projects", place.logs, dirs_exist_ok=True)
        for history in histories:
            for project in projects_of(history):
                place.claude(project).mkdir(parents=True, exist_ok=True)
            for session in history["sessions"]:
                write_session(place, session.get("project") or history["project"], session, clock_of(history, NOW))
        settings = Settings(home=place.home, log_roots=(place.logs,), machine="box")
        with closing(open_store(settings)) as store:
            ingest(settings, store)
            sessions = {each.session_id for each in store.episodes.page(EpisodeFilter(kinds=("session",)), 1_000).items}
            for session_id in sorted(sessions):
                page = store.episodes.page(EpisodeFilter(session_id=session_id, kinds=("exchange", "subagent")), 1_000)
                found = {each.part_id: each for each in store.forgetting.parts([e.episode_id for e in page.items])}
                parts.append([found[each.episode_id] for each in reversed(page.items) if each.episode_id in found])
    long = [each for each in parts if len(each) > CHUNKS]
    short = [each for each in parts if 0 < len(each) <= CHUNKS]
    texts = [segment.text for each in (*long, *short) for part in each for segment in part.segments]
    return Templates(
        long,
        short,
        [note["text"] for history in histories for note in history["notes"]],
        [file["text"] for history in histories for name, file in history["files"].items() if name.endswith(".md")],
        Words(texts),
    )


NOW = datetime.now(UTC)


def make_memory(store: Store, writer: EpisodeWriter, episodes: int, notes: int, texts: int) -> None:
    """Write so many episodes in all: sessions, notes, and sections of texts with authority."""
    made, rng = templates(), random.Random(11)
    sources = [Source(f"logs-{number}", "box", "/logs", f"-dev-{number}") for number in range(PROJECTS)]
    written = [Source(f"texts-{number}", "box", f"/dev/{number}", kind="documents") for number in range(PROJECTS)]
    store.files.put_sources([*sources, *written])
    weights = [1 / rank for rank in range(1, PROJECTS + 1)]
    for number in range(texts):
        add_text(store, made, written[number % PROJECTS], number)
    for number in range(notes):
        (project,) = rng.choices(range(PROJECTS), weights)
        text = made.words.said(rng.choice(made.notes), project, 10**6 + number)
        kind = NOTE_TYPES[number % len(NOTE_TYPES)]
        note = note_of(text, project=f"acme/project-{project}", instance="box", type=kind)
        at = NOW - SPAN * (1 - number / notes)
        with suppress(EpisodeConflict):  # a short one may say the same as another
            writer.create(note.model_copy(update={"timestamp": at}).draft(), embed=False)
    number = 0
    while (held := store.overview.counts().episodes) < episodes:
        for _ in range(50):
            (project,) = rng.choices(range(PROJECTS), weights)
            add_session(store, made, sources[project], project, number, SPAN * (1 - held / episodes))
            number += 1


def add_session(store: Store, made: Templates, source: Source, project: int, number: int, ago: timedelta) -> None:
    """Write a session: chunks that follow each other in a log, and a whole session of a history."""
    rng = random.Random(number)
    log = rng.choice(made.long)
    start = rng.randrange(len(log) - CHUNKS + 1)
    chosen = [*log[start : start + CHUNKS], *rng.choice(made.short)]
    worded = number - 10 if number % 10 == 9 else number
    parts = list(_varied(made.words, chosen, source, project, number, worded, NOW - ago))
    _write(store, source, f"{parts[0].session_id}.jsonl", parts)


def add_text(store: Store, made: Templates, source: Source, number: int) -> None:
    """Write a section of a CLAUDE.md or a topic."""
    project = number % PROJECTS
    text = made.words.said(made.texts[number % len(made.texts)], project, 2 * 10**6 + number)
    topic = number % 3 > 0
    path = f"memory/topics/subject-{number}.md" if topic else f"folder-{number}/CLAUDE.md"
    tags = ("curated", "topic") if topic else ("curated",)
    segment = Segment(f"section:{number}", "", SegmentKind.DOCUMENT, 0, text, NOW - SPAN * (number % 7 / 7))
    part = Part(
        part_id=section_part_id(source.key, str(number), [text]),
        source=source.key,
        path=path,
        session_id="",
        exchange_id="",
        ordinal=0,
        kind="document",
        project=f"acme/project-{project}",
        cwd="",
        prompt=text.split("\n")[0],
        segments=(segment,),
        closed=True,
        section=SectionFacts((text.split("\n")[0],), 1, text.count("\n") + 1, trust="curated", tags=tags),
    )
    _write(store, source, path, [part])


def _varied(
    words: Words, chosen: Sequence[Part], source: Source, project: int, number: int, worded: int, until: datetime
) -> Iterator[Part]:
    """Yield chunks as those of another session. What tools print is cut, and calls keep their results."""
    session = str(uuid.UUID(int=number))
    at = until - timedelta(hours=2)
    keys = [segment.message_key.removeprefix("f:") for part in chosen for segment in part.segments]
    calls = {content_id("tool_use", call_of(key)): call_of(key) for key in keys if key.startswith(RESULT_KEY)}
    for ordinal, part in enumerate(chosen):
        segments = []
        for segment in part.segments:
            at += timedelta(seconds=20)
            text = segment.text[-OUTPUT_CHARS:] if segment.kind in TOOLS - {SegmentKind.TOOL_INPUT} else segment.text
            text = words.said(text[: 4 * OUTPUT_CHARS], project, worded)
            key, hashed = segment.message_key.removeprefix("f:"), segment.message_key.rpartition(":")[2]
            if key.startswith(RESULT_KEY):
                key = result_key(f"{call_of(key)}-{number}", segment.text)
            elif hashed in calls:
                key = f"{key.rpartition(':')[0]}-{number}:{content_id('tool_use', f'{calls[hashed]}-{number}')}"
            else:
                key = f"{key}-{number}"
            uid = content_id(segment.uuid, str(number))
            segments.append(replace(segment, message_key=key, uuid=uid, start=0, text=text, timestamp=at))
        yield replace(
            part,
            part_id=part_id_of(segments[0]),
            source=source.key,
            path=f"{session}.jsonl",
            session_id=session,
            exchange_id=content_id(part.exchange_id, str(number)),
            ordinal=ordinal,
            project=f"acme/project-{project}",
            cwd=f"/dev/{project}",
            prompt=words.said(part.prompt, project, worded),
            segments=tuple(segments),
            agent_id=part.agent_id and f"{part.agent_id}-{number}",
        )


def _write(store: Store, source: Source, path: str, parts: Sequence[Part]) -> None:
    unique = list({part.part_id: part for part in parts}.values())
    before = FileCursor(source.key, path, size=9_000, offset=9_000, lines=len(parts), mtime_ns=1)
    store.files.commit_crawl(None, before, None)
    stored = replace(before, version=1)
    keys = list(dict.fromkeys(segment.message_key for part in unique for segment in part.segments))
    chunk = ParsedChunk(stored, replace(stored, parsed_lines=len(parts)), keys, parts=unique)
    if not store.messages.commit_parsed(chunk):
        raise RuntimeError(f"{path} of {source.key} was not written: another file has one of its messages")
    store.episodes.publish([_publication(part, source) for part in unique])


def _publication(part: Part, source: Source) -> Publication:
    said = " ".join(" ".join(segment.text for segment in part.segments).split())
    episode = episode_of(part, source, Summary(part.part_id, part.content_hash, said[:200], ""))
    return Publication(part, None, [(episode, [Passage(0, said[:1_000])])])
