"""What `make bench-memory` asks: the service, plain ways to search the same texts, and other memory systems.

Every arm searches the passages that the service made of what is stored; grep searches the logs' lines as they are.
"""

import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Protocol

import httpx
import numpy as np
from memory_scores import DEPTH
from memory_sets import Post, Question, Result
from service import wait_embedded
from typing_extensions import override

from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.search.engine import HIDDEN_KINDS
from anamnesis_pipeline.services.wiring import open_pool_of, wanted_space
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

EXCERPT_CHARS = 1_200
"""What a result of the plain arms shows at most, as the shared rule reads it."""

CONTEXT_TOKENS = 400
"""What a hook asks for at each prompt."""

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements-peers.txt"


class UnavailableError(Exception):
    """An arm cannot be asked here; the text says why."""


@dataclass(frozen=True, slots=True)
class Text:
    """A passage that is stored, or a line of a log. `scope`: its project."""

    id: str
    text: str
    scope: str
    episode: str
    message_ids: tuple[str, ...]
    timestamp: str = ""

    def result(self, start: int = 0) -> Result:
        """Return what a client would be shown of it, from a character on."""
        shown = self.text[start : start + EXCERPT_CHARS]
        return {"excerpt": shown, "source": {"message_ids": self.message_ids}, "episodes": [self.episode]}


@dataclass(frozen=True, slots=True)
class Place:
    """What is stored, and where: the service's address, its store, the logs as they are and the posts."""

    base: str
    store: Store
    settings: Settings
    passages: Sequence[Text]
    logs: Path | None
    posts: Sequence[Post]
    work: Path

    def by_scope(self, scopes: set[str | None]) -> dict[str | None, list[Text]]:
        """Scope -> its passages; None: all."""
        return {scope: [text for text in self.passages if scope in (None, text.scope)] for scope in scopes}


class Arm(Protocol):
    """One way to answer. `versions`: what is measured."""

    versions: dict[str, str]

    def ask(self, question: Question, gate: bool) -> list[Result]:
        """Return the first ten results, best first; with `gate` what a hook would put before the model."""

    def close(self) -> None:
        """End what was started."""


def passages_of(store: Store, most: int = sys.maxsize) -> list[Text]:
    """Return all passages that a search sees by default, or about so many of the newest, in the order of their ids."""
    found: list[Text] = []
    cursor: str | None = None
    while True:
        page = store.episodes.page(EpisodeFilter(), 200, cursor)
        for episode in page.items:
            if episode.kind not in HIDDEN_KINDS:
                found += [
                    Text(
                        str(stored.passage_id),
                        stored.passage.text,
                        episode.project,
                        episode.episode_id,
                        stored.passage.message_ids,
                        episode.timestamp.isoformat(),
                    )
                    for stored in store.episodes.passages_of(episode.episode_id)
                ]
        cursor = page.next_cursor
        if cursor is None or len(found) >= most:
            return sorted(found, key=lambda text: int(text.id))


class Nothing(Arm):
    """No memory: never answers."""

    versions: ClassVar[dict[str, str]] = {}

    def __init__(self, place: Place, scopes: set[str | None]) -> None:
        pass

    @override
    def ask(self, question: Question, gate: bool) -> list[Result]:
        return []

    @override
    def close(self) -> None:
        pass


def words(text: str) -> list[str]:
    """Return the words, in lower case."""
    return re.findall(r"\w+", text.lower())


class Grep(Arm):
    """The lines with the most distinct words of the question, of three letters or more, anywhere in the line and in any
    case; equal ones in the order of the files. Written in Python: it does what `rg -i -e WORD ...` and a count would.
    """

    versions: ClassVar[dict[str, str]] = {"grep": "in Python"}

    def __init__(self, place: Place, scopes: set[str | None]) -> None:
        read = [*log_lines(place.logs)] if place.logs else []
        read += [Text(post.id, post.text, post.project, post.id, ()) for post in place.posts]
        self._lines = [(line.text.lower(), line) for line in read]

    @override
    def ask(self, question: Question, gate: bool) -> list[Result]:
        wanted = sorted({word for word in words(question.text) if len(word) > 2}, key=len, reverse=True)
        counts = [
            (sum(word in lower for word in wanted), lower, line)
            for lower, line in self._lines
            if question.scope in (None, line.scope)
        ]
        best = sorted((each for each in counts if each[0]), key=lambda each: -each[0])[:DEPTH]
        return [line.result(start_of(lower, wanted)) for _, lower, line in best]

    @override
    def close(self) -> None:
        pass


def start_of(lower: str, wanted: Sequence[str]) -> int:
    """Where to begin to show a line: a little before its longest word of the question."""
    place = next(at for word in wanted if (at := lower.find(word)) >= 0)
    return max(0, place - EXCERPT_CHARS // 4)


def log_lines(logs: Path) -> Iterator[Text]:
    """Yield each line of the logs with the id of its record."""
    for path in sorted(logs.rglob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file):
                record: Any = None
                with suppress(json.JSONDecodeError):
                    record = json.loads(line)
                uuid = record.get("uuid") if isinstance(record, dict) else None
                yield Text(f"{path.name}:{number}", line, path.parent.name, "", (uuid,) if uuid else ())


class Bm25(Arm):
    """Okapi BM25 over lower-cased words, without stop words or stemming; k1 1.5, b 0.75, as rank_bm25 has them."""

    versions: ClassVar[dict[str, str]] = {"BM25": "k1 1.5, b 0.75"}

    def __init__(self, place: Place, scopes: set[str | None]) -> None:
        self._indexes = {scope: Bm25Index(texts) for scope, texts in place.by_scope(scopes).items()}

    @override
    def ask(self, question: Question, gate: bool) -> list[Result]:
        return self._indexes[question.scope].best(question.text)

    @override
    def close(self) -> None:
        pass


class Bm25Index:
    """The words of some texts."""

    def __init__(self, texts: Sequence[Text], k1: float = 1.5, b: float = 0.75) -> None:
        self._texts = texts
        counts = [Counter(words(text.text)) for text in texts]
        lengths = np.array([counted.total() for counted in counts], dtype=np.float64)
        norm = k1 * (1 - b + b * lengths / max(lengths.mean(), 1)) if texts else lengths
        found: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, counted in enumerate(counts):
            for word, count in counted.items():
                found[word].append((number, count * (k1 + 1) / (count + norm[number])))
        self._postings = {
            word: (
                np.array([number for number, _ in rows]),
                np.array([weight for _, weight in rows])
                * math.log(1 + (len(texts) - len(rows) + 0.5) / (len(rows) + 0.5)),
            )
            for word, rows in found.items()
        }

    def best(self, query: str) -> list[Result]:
        """Return the ten best texts that share a word with the query."""
        scores = np.zeros(len(self._texts))
        for word in words(query):
            if word in self._postings:
                numbers, weights = self._postings[word]
                scores[numbers] += weights
        order = np.argsort(-scores, kind="stable")
        return distinct(self._texts[n] for n in itertools.takewhile(lambda n: scores[n] > 0, order))


def distinct(texts: Iterator[Text]) -> list[Result]:
    """Return the first ten results; of a post that was cut into passages the best one."""
    seen: set[str] = set()
    found: list[Result] = []
    for text in texts:
        if len(found) == DEPTH:
            break
        if text.message_ids or text.episode not in seen:
            seen.add(text.episode)
            found.append(text.result())
    return found


class Dense(Arm):
    """The cosine of the service's own vectors of the passages' texts, compared with all of them."""

    def __init__(self, place: Place, scopes: set[str | None]) -> None:
        space = wanted_space(place.settings, place.store)
        self.versions = {"dense": f"{space.model_id}, {space.precision}"}
        self._pool = open_pool_of(place.store, space, priority=Priority.QUERY)
        self._pool.load()
        vectors = place.store.vectors.get(space.key, Variant.TEXT, [int(text.id) for text in place.passages])
        self._indexes = {}
        for scope, texts in place.by_scope(scopes).items():
            texts = [text for text in texts if int(text.id) in vectors]
            rows = np.stack([np.asarray(vectors[int(text.id)], dtype=np.float32) for text in texts])
            self._indexes[scope] = texts, rows / np.linalg.norm(rows, axis=1, keepdims=True)

    @override
    def ask(self, question: Question, gate: bool) -> list[Result]:
        texts, rows = self._indexes[question.scope]
        order = np.argsort(-(rows @ self._pool.embed([question.text], "query")[0]), kind="stable")
        return distinct(texts[n] for n in order)

    @override
    def close(self) -> None:
        self._pool.close()


class Service(Arm):
    """Anamnesis over HTTP: `POST /api/episodes/search`, for context `POST /api/context`."""

    def __init__(self, place: Place, scopes: set[str | None]) -> None:
        self.versions = {"anamnesis": version("anamnesis")}
        self._client = httpx.Client(base_url=place.base, timeout=120, trust_env=False)
        self._members: dict[str, set[str]] = defaultdict(set)
        for text in place.passages:
            self._members[text.episode].update(text.message_ids)

    @override
    def ask(self, question: Question, gate: bool) -> list[Result]:
        if gate:
            return self._context(question)
        body = {"query": question.text, "top_k": DEPTH, "track": False, "project": question.scope}
        reply = self._client.post("/api/episodes/search", json=body).raise_for_status()
        return [hit | {"episodes": [hit["episode_id"], *hit["also"]]} for hit in reply.json()["results"]]

    def _context(self, question: Question) -> list[Result]:
        """Return one result for each episode that the block quotes; the first has its text."""
        body = {"query": question.text, "max_tokens": CONTEXT_TOKENS, "cwd": question.cwd}
        block = self._client.post("/api/context", json=body).raise_for_status().json()
        return [
            {"excerpt": "" if n else block["text"], "source": {"message_ids": self._members[e]}, "episodes": [e]}
            for n, e in enumerate(block["episodes"])
        ]

    @override
    def close(self) -> None:
        self._client.close()


class Peer(Arm):
    """Another memory system, in its own process and virtual environment; see memory_peer.py."""

    def __init__(self, place: Place, scopes: set[str | None], name: str) -> None:
        python = peers_python(place.work)
        command = [python, HERE / "memory_peer.py", name, place.work / "peers"]
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [*map(str, command)],
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        self.versions = self._reply()
        self._texts = {text.id: text for text in place.passages}
        for scope, texts in place.by_scope(scopes).items():
            passages = [{"id": text.id, "text": text.text, "timestamp": text.timestamp} for text in texts]
            self._call({"index": scope or "", "passages": passages})

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # it has ended, and said why
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        """Read one line.

        :raises UnavailableError: the process ended.
        """
        assert self._process.stdout
        if line := self._process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._said.seek(0)
        said = self._said.read().strip().splitlines() or ["it ended without a word"]
        raise UnavailableError(said[-1])

    @override
    def ask(self, question: Question, gate: bool) -> list[Result]:
        answer = self._call({"search": question.text, "scope": question.scope or "", "k": DEPTH})
        return distinct(self._texts[key] for key in answer["ids"])

    @override
    def close(self) -> None:
        try:
            self._process.communicate(timeout=30)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()
        self._said.close()


def peers_python(work: Path) -> Path:
    """Return the interpreter of the peers' virtual environment, made and filled when it is missing.

    :raises UnavailableError: pip could not install them.
    """
    place = work / "peers-venv"
    python, done = place / "bin/python", place / "installed.txt"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        for command in (
            [sys.executable, "-m", "venv", place],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS],
        ):
            run = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
            if run.returncode:
                raise UnavailableError((run.stderr.strip().splitlines() or ["pip failed"])[-1])
        done.write_text(wanted, encoding="utf-8")
    return python


ARMS: dict[str, tuple[str, Any]] = {
    "nothing": ("no memory", Nothing),
    "grep": ("grep", Grep),
    "bm25": ("BM25", Bm25),
    "dense": ("dense, MiniLM", Dense),
    "mempalace": ("MemPalace", lambda place, scopes: Peer(place, scopes, "mempalace")),
    "engram": ("engram", lambda place, scopes: Peer(place, scopes, "engram")),
    "anamnesis": ("**Anamnesis**", Service),
}
"""Name -> title, and what opens it for a place and the scopes that are asked."""

OURS = "anamnesis"


def post_all(base: str, posts: Sequence[Post]) -> None:
    """Store the posts through the service and wait for their vectors."""
    with httpx.Client(base_url=base, timeout=120, trust_env=False) as client:
        for post in posts:
            body = {
                "episode_id": post.id,
                "timestamp": post.timestamp,
                "instance": "bench",
                "project": post.project,
                "summary": post.text,
                "raw_exchange": post.text if post.exchange else "",
                "tags": list(post.tags),
            }
            client.post("/api/episodes", json=body).raise_for_status()
    wait_embedded(base, 1_200)


@contextmanager
def opened(name: str, place: Place, scopes: set[str | None]) -> Iterator[Arm | UnavailableError]:
    """An arm, or why it cannot be asked; ended afterwards."""
    try:
        arm: Arm = ARMS[name][1](place, scopes)
    except UnavailableError as why:
        yield why
        return
    try:
        yield arm
    finally:
        arm.close()
