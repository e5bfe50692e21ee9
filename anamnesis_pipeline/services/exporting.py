"""Export episodes as portable JSON lines (docs/reference/export-format.md) or as Markdown; read compressed exports."""

import gzip
import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import zstandard

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Episode, EpisodeFilter, Passage
from anamnesis_pipeline.parsing.text.titles import title_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.records.statuses import StatusChange

SCHEMA = "anamnesis.episode/1"
"""Part of every line, so that each is self-describing."""
Format = Literal["jsonl", "markdown"]
PAGE = 200
MAX_CHANGES = 500
"""Max changes of an episode's status in a line, the latest ones."""
PASSES = 5
"""Maximum passes while clients keep editing."""
EDITS = (Happening.EDIT, Happening.PROMOTE)
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"


def export(store: Store, where: EpisodeFilter, out: BinaryIO, format: Format = "jsonl") -> int:
    """Write the episodes that pass the filter, oldest first. Return their number."""
    count = 0
    for text in exported(store, where, format):
        out.write(text)
        count += 1
    return count


def exported(store: Store, where: EpisodeFilter, format: Format = "jsonl") -> Iterator[bytes]:
    """Yield the episodes that pass the filter, oldest first, each as UTF-8. Of their texts, those of one page are in
    memory.

    Episodes written meanwhile may be included or not; none is written twice or partially. An edit may move an episode
    in time across the read position: episodes that one pass missed so are appended by the next.
    """
    written: set[str] = set()
    for _ in range(PASSES):
        edits = store.events.latest(1, EDITS)
        for page in _pages(store, where):
            new = [episode for episode in page if episode.episode_id not in written]
            histories = store.statuses.histories([episode.episode_id for episode in new], MAX_CHANGES)
            for episode in new:
                written.add(episode.episode_id)
                changes = histories.get(episode.episode_id, ())
                if format == "markdown":
                    yield section_of(episode, changes).encode()
                    continue
                held = [stored.passage for stored in store.episodes.passages_of(episode.episode_id)]
                yield line_of(episode, held, changes)
        if store.events.latest(1, EDITS) == edits:
            break


def _pages(store: Store, where: EpisodeFilter) -> Iterator[list[Episode]]:
    cursor = None
    while True:
        page = store.episodes.page(where, PAGE, cursor, oldest_first=True)
        yield page.items
        if (cursor := page.next_cursor) is None:
            return


def line_of(episode: Episode, passages: Sequence[Passage], changes: Sequence[StatusChange] = ()) -> bytes:
    """Return one episode as a line of UTF-8. Pure."""
    return json.dumps(body_of(episode, passages, changes), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def section_of(episode: Episode, changes: Sequence[StatusChange] = ()) -> str:
    """Return one episode as a section of Markdown. Its text is fenced, so that none of it is markup of ours. Pure."""
    about = [
        ("Id", f"`{episode.episode_id}`"),
        ("Time", episode.timestamp.isoformat()),
        ("Project", episode.project),
        ("Kind", episode.kind),
        ("Instance", episode.instance),
        ("Tags", ", ".join(episode.tags)),
        ("File", f"{episode.machine}:{episode.path}" if episode.path else ""),
        ("Session", episode.session_id),
        ("Status", f"{episode.status}, for it: `{episode.superseded_by}`" if episode.superseded_by else episode.status),
        *(
            ("Since", f"{change.at:%Y-%m-%d %H:%M} UTC: {change.status} (by {change.by}) {change.reason}".strip())
            for change in changes
        ),
    ]
    lines = [f"- {name}: {' '.join(value.split())}" for name, value in about if value]
    blocks = [f"## {title_of(episode)}", "\n".join(lines), _fenced(episode.summary)]
    if episode.raw_exchange.strip() not in ("", episode.summary.strip()):
        blocks.append(_fenced(episode.raw_exchange))
    return "\n\n".join(blocks) + "\n\n"


def _fenced(text: str) -> str:
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"


def body_of(episode: Episode, passages: Sequence[Passage], changes: Sequence[StatusChange] = ()) -> dict[str, Any]:
    """Return the fields of a line, which docs/reference/export-format.md explains. Pure."""
    return {
        "schema": SCHEMA,
        "episode_id": episode.episode_id,
        "timestamp": episode.timestamp.isoformat(),
        "instance": episode.instance,
        "project": episode.project,
        "kind": episode.kind,
        "summary": episode.summary,
        "raw_exchange": episode.raw_exchange,
        "tags": list(episode.tags),
        "status": episode.status,
        "superseded_by": episode.superseded_by,
        "superseded_at": episode.superseded_at.isoformat() if episode.superseded_at else None,
        "status_history": [
            {
                "former": change.former,
                "status": change.status,
                "successor": change.successor,
                "by": change.by,
                "reason": change.reason,
                "at": change.at.isoformat(),
            }
            for change in changes
        ],
        "source": episode.source,
        "machine": episode.machine,
        "path": episode.path,
        "session_id": episode.session_id,
        "message_ids": list(episode.message_ids),
        "message_keys": list(episode.message_keys),
        "metadata": dict(episode.metadata),
        "passages": [
            {"text": passage.text, "context": passage.context, "message_ids": list(passage.message_ids)}
            for passage in passages
        ],
        "retrieval_count": episode.retrieval_count,
        "last_retrieved": episode.last_retrieved.isoformat() if episode.last_retrieved else None,
    }


@contextmanager
def packing(out: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Yield a stream that writes into `out`, compressed by the file's suffix: `.zst`, `.gz`, or not."""
    if name.endswith(".zst"):
        with zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(out, closefd=False) as packed:
            yield packed
    elif name.endswith(".gz"):
        with gzip.GzipFile(fileobj=out, mode="wb") as zipped:
            yield zipped  # type: ignore[misc]
    else:
        yield out


@contextmanager
def unpacking(packed: io.BufferedReader, path: Path) -> Iterator[io.BufferedReader | gzip.GzipFile]:
    """Yield the lines of a stream, decompressed if its first bytes show a compression.

    :raises GiveUp: the compressed stream is damaged.
    """
    begin = packed.peek(4)[:4]
    try:
        if begin == _ZSTD:
            with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as content:
                yield io.BufferedReader(content, 1 << 20)
        elif begin[:2] == _GZIP:
            with gzip.GzipFile(fileobj=packed) as content:
                yield content
        else:
            yield packed
    except (zstandard.ZstdError, gzip.BadGzipFile, EOFError) as problem:
        raise GiveUp(f"{path} is damaged: {problem}; what came before is imported") from problem


def is_export(path: Path) -> bool:
    """Return whether a file begins like an export, compressed or not."""
    try:
        with path.open("rb") as packed, unpacking(packed, path) as lines:
            return lines.read(1) == b"{"
    except (OSError, GiveUp):
        return False
