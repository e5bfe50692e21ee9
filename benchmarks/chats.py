"""Recall over long chats: each chat is stored in an empty memory, a message an episode, and asked for by its questions.

Used by longmemeval.py and beam.py, which read the data. A row of the result file is one question: `id`, `kind`, `ranks`
(of each message that answers its rank among the first ten; null: not found), `session_ranks` (of each session that
answers its rank among the distinct sessions of the first 50 results), `sessions` (their ids, best first), `results`,
`tokens` (characters / 4 of the first five) and `ms` (of the search for ten, at the client). A file that holds a
question already is added to, so that a run can be broken off.
"""

import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from memory_scores import DEPTH, Row, first, interval, percentile, ranks_of
from service import sidecar, wait_embedded

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


def run(chats: Iterable[Chat], out: Path, limit: int | None) -> list[Row]:
    """Ask the first `limit` questions that the result file lacks, add their rows, and return all rows."""
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []
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
            out.open("a", encoding="utf-8") as file,
        ):
            store(client, chat.messages)
            wait_embedded(base, 1_200)
            search(client, "hello, how are you?", DEPTH)
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
    """Print recall of messages and of sessions, over all questions and for each kind."""
    if not rows:
        print("no question was asked")
        return
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
