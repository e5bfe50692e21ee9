"""Recall over long chats: each chat is stored in an empty memory, a message an episode, and asked for by its questions.

Used by longmemeval.py and beam.py, which read the data. The result file has JSON lines: first `{"meta": facts}`, then a
row for each question: `id`, `kind`, `ranks` (of each message that answers its rank among the first ten; null: not
found), `session_ranks` (of each session that answers its rank among the distinct sessions of the first 50 results),
`sessions` (their ids, best first), `results`, `tokens` (characters / 4 of the first five) and `ms` (of the search for
ten, at the client). Each row is written when it is known, and a file of the same data, commit, models and numbers of
the ranking is added to, so that a run can be broken off.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from memory_scores import DEPTH, Row, first, interval, percentile, ranks_of
from service import commit, sidecar, wait_embedded

from anamnesis_pipeline.settings import Settings

SESSION_DEPTH = 50
"""Results whose sessions are ranked."""

READ = 5
"""Results whose tokens count."""

SUMMARY_CHARS = 50_000
"""The longest summary that the service takes."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a chat. `id` is unique in the chat; `timestamp`: ISO 8601 with zone."""

    id: str
    session: str
    text: str
    timestamp: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with the ids of the messages and the sessions that answer it."""

    id: str
    kind: str
    text: str
    messages: tuple[str, ...]
    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chat:
    """What is stored before its questions are asked."""

    messages: Sequence[Message]
    questions: Sequence[Asked]


def arguments(benchmark: str, about: str | None, metavar: str, example: str) -> argparse.Namespace:
    """Return what the command line says: `data`, `out` (if not named: after benchmark and data), `limit`, `fresh`."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar=metavar, help=example)
    parser.add_argument("--out", type=Path, help=f"rows (default: {benchmark}-NAME.jsonl, with the name of {metavar})")
    parser.add_argument("--limit", type=count, metavar="N", help="ask at most N questions now")
    parser.add_argument("--fresh", action="store_true", help="ask again what --out holds already")
    args = parser.parse_args()
    args.out = args.out or Path(f"{benchmark}-{name_of(args.data)}.jsonl")
    return args


def count(text: str) -> int:
    """Return a number of questions, at least 1, for argparse."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def name_of(data: Path) -> str:
    """Return the name of a file without `.json`, or of a folder; of a link its own, not its target's."""
    return Path(os.path.abspath(data)).name.removesuffix(".json")


@contextmanager
def readable(what: object) -> Iterator[None]:
    """Exit with a sentence about `what` if what is read inside is missing or not of the form expected."""
    try:
        yield
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        why = f"no {error} in it" if isinstance(error, KeyError) else error
        sys.exit(f"Cannot use {what} ({why}): download it again, with `git lfs pull` if it is a pointer of Git LFS")


def loaded(path: Path) -> Any:
    """Return the JSON of a file; exit with a sentence if there is none."""
    with readable(path):
        return json.loads(path.read_text(encoding="utf-8"))


def facts(benchmark: str, data: Path) -> dict[str, Any]:
    """Return what is measured, when and with what; `sha256` is of the file, or of all JSON files of the folder, and
    `ranking` has the numbers that are not the defaults.
    """
    settings = Settings()
    digest = hashlib.sha256()
    for path in [data] if data.is_file() else sorted(data.rglob("*.json")):
        digest.update(str(path.relative_to(data)).encode())
        with readable(path), path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return {
        "benchmark": benchmark,
        "data": name_of(data),
        "sha256": digest.hexdigest()[:16],
        "commit": commit(),
        "model": settings.model,
        "rerank_model": settings.rerank_model,
        "ranking": settings.ranking.changed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
    }


def rows_of(out: Path, meta: dict[str, Any]) -> list[Row]:
    """Return the rows of a result file, and cut off a last line that a killed run left unfinished.

    Exit with a sentence if it is no result file, or differs from `meta` in more than date and Python.
    """
    held = out.read_bytes() if out.exists() else b""
    if not held:
        return []
    whole = held[: held.rfind(b"\n") + 1]
    instead = "name another --out, or ask all again with --fresh"
    try:
        head, *rows = map(json.loads, whole.splitlines())
        before = {key: head["meta"].get(key) for key in meta}
    except (AttributeError, KeyError, TypeError, ValueError):
        sys.exit(f"{out} is not a result file that says what was measured: {instead}")
    other = [key for key in meta if before[key] != meta[key] and key not in ("date", "python")]
    if other:
        told = ", ".join(f"{key} {before[key]} (now {meta[key]})" for key in other)
        sys.exit(f"{out} was measured with {told}: {instead}")
    os.truncate(out, len(whole))
    return rows


def run(
    chats: Iterable[Chat], out: Path, meta: dict[str, Any], limit: int | None = None, fresh: bool = False
) -> list[Row]:
    """Ask the first `limit` questions that the result file lacks (fresh: of all), add their rows, return all rows.

    :param meta: the facts; a file that has others ends the run with a sentence, unless `fresh`.
    """
    rows = [] if fresh else rows_of(out, meta)
    known, left = {row["id"] for row in rows}, limit
    out.parent.mkdir(parents=True, exist_ok=True)
    for chat in chats:
        missing = [question for question in chat.questions if question.id not in known][:left]
        if not missing:
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            sidecar(Path(folder) / "home") as base,
            httpx.Client(base_url=base, timeout=120, trust_env=False) as client,
            out.open("a" if rows else "w", encoding="utf-8") as file,
        ):
            store(client, chat.messages)
            wait_embedded(base, 1_200)
            search(client, "hello, how are you?", DEPTH)
            if not rows:
                file.write(json.dumps({"meta": meta}, ensure_ascii=False) + "\n")
            for question in missing:
                row = ask(lambda text, k: search(client, text, k), chat, question)
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
                rows.append(row)
        print(f"{len(rows)} questions", flush=True)
        left = None if left is None else left - len(missing)
        if left == 0:
            break
    return rows


def store(client: httpx.Client, messages: Sequence[Message]) -> None:
    """Post every message that has a word as an episode, in order."""
    for number, message in enumerate(messages):
        if not re.search(r"\w", message.text):
            continue
        body = {
            "episode_id": f"message-{number}",
            "timestamp": message.timestamp,
            "instance": "bench",
            "project": "chat",
            "summary": message.text[:SUMMARY_CHARS],
            "raw_exchange": message.text if len(message.text) > SUMMARY_CHARS else "",
            "tags": [message.session],
        }
        client.post("/api/episodes", json=body).raise_for_status()


def search(client: httpx.Client, text: str, k: int) -> list[dict[str, Any]]:
    """Return the first k results."""
    reply = client.post("/api/episodes/search", json={"query": text, "top_k": k, "track": False})
    found: list[dict[str, Any]] = reply.raise_for_status().json()["results"]
    return found


def ask(find: Callable[[str, int], list[dict[str, Any]]], chat: Chat, question: Asked) -> Row:
    """Return the question's row."""
    started = time.perf_counter()
    results = find(question.text, DEPTH)
    took = (time.perf_counter() - started) * 1_000
    of_result = [[chat.messages[number_of(key)] for key in (hit["episode_id"], *hit["also"])] for hit in results]
    deep = [chat.messages[number_of(hit["episode_id"])].session for hit in find(question.text, SESSION_DEPTH)]
    sessions = list(dict.fromkeys(deep))
    read = sum(len(hit.get("summary") or "") + len(hit.get("excerpt") or "") for hit in results[:READ])
    return {
        "id": question.id,
        "kind": question.kind,
        "ranks": ranks_of(of_result, question.messages, lambda group, gold: gold in [each.id for each in group]),
        "session_ranks": ranks_of(sessions, question.sessions, lambda session, gold: session == gold),
        "sessions": sessions,
        "results": len(results),
        "tokens": round(read / 4),
        "ms": round(took, 2),
    }


def number_of(episode_id: str) -> int:
    """Return the place of an episode's message in its chat."""
    return int(episode_id.rsplit("-", 1)[1])


def shares(rows: Sequence[Row], k: int) -> tuple[float, float]:
    """Return the shares of rows with any, and with all, of their golds among the first k."""
    any_of = [first(row) <= k for row in rows]
    all_of = [all(rank is not None and rank <= k for rank in row["ranks"]) for row in rows]
    return statistics.fmean(any_of), statistics.fmean(all_of)


def report(rows: Sequence[Row]) -> None:
    """Print recall of messages and of sessions, over all questions and for each kind; exit with a sentence if there is
    no question.
    """
    if not rows:
        sys.exit("No question was asked: the data has none with an answer")
    kinds = dict.fromkeys(row["kind"] for row in rows)
    for level, key in (("messages", "ranks"), ("sessions", "session_ranks")):
        print(f"\n{level:<28}{'n':>5}{'any@5':>8}{'all@5':>8}{'any@10':>8}{'all@10':>8}{'MRR':>8}   95% of any@5")
        for kind in [*kinds, None]:
            part = [row | {"ranks": row[key]} for row in rows if kind in (None, row["kind"]) and row[key]]
            if part:
                figures = [*shares(part, 5), *shares(part, 10), statistics.fmean(1 / first(row) for row in part)]
                low, high = interval([float(first(row) <= 5) for row in part])
                shown = "".join(f"{figure:>8.3f}" for figure in figures)
                print(f"{kind or 'all':<28}{len(part):>5}{shown}   {low:.2f} to {high:.2f}")
    times = sorted(row["ms"] for row in rows)
    tokens = statistics.fmean(row["tokens"] for row in rows)
    print(f"\n{tokens:,.0f} tokens an answer; ms p50 {percentile(times, 0.5):.1f}, p95 {percentile(times, 0.95):.1f}")
