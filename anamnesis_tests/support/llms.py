"""An LLM in this process, and parts worth asking it about."""

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.errors import LlmAnswerInvalid
from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.llm.prompts import Request
from anamnesis_pipeline.llm.provider import Reply
from anamnesis_pipeline.model import (
    FileCursor,
    LlmBudget,
    LlmUse,
    Part,
    Segment,
    SegmentKind,
    Source,
    Summary,
    part_id_of,
)
from anamnesis_pipeline.pipeline.llm_choice import Llm, LlmRules
from anamnesis_pipeline.pipeline.summarize import SummaryReport, summarize_source
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.recording import Recorder
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.messages import ParsedChunk
from anamnesis_tests.support.archived_logs import Home, unmasked

SOURCE = Source("mac--acme--00000000", "mac", "/logs", "acme")
DAY = "2026-11-22"
START = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
EXPECTED = LlmUse(1, 1_000, 100, 0.01)
USED = LlmUse(1, 400, 50, 0.004)
REPLY = json.dumps(
    {
        "skip": False,
        "summary": "The retry double-charged. It now sends an idempotency key.",
        "tags": ["Webhooks", "payments"],
        "records": [{"type": "error", "text": "Retries charged twice.", "why": "No key was sent.", "messages": [2]}],
    }
)


@dataclass
class LlmHere:
    """Answers with `reply`, or with what `script` holds next: a text, or an exception to raise."""

    name: str = "ollama"
    model: str = "tiny"
    is_paid: bool = False
    is_local: bool = True
    concurrency: int = 2
    reply: str = REPLY
    script: list[str | Exception] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)
    closed: int = 0
    on_ask: Callable[[], None] = lambda: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expected(self, request: Request) -> LlmUse:
        return EXPECTED if self.is_paid else replace(EXPECTED, dollars=0)

    def ask(self, request: Request) -> Reply:
        with self._lock:
            self.asked.append(request)
            answer = self.script.pop(0) if self.script else self.reply
        self.on_ask()
        if isinstance(answer, Exception):
            raise answer
        return Reply(answer, USED if self.is_paid else replace(USED, dollars=0))

    def close(self) -> None:
        self.closed += 1


@dataclass
class BatchLlmHere(LlmHere):
    """Also takes batches. `failing` is raised by the next `submit`, before or after it `arrived`."""

    name: str = "anthropic"
    is_paid: bool = True
    is_local: bool = False
    batch_factor: float = 1.0
    done: bool = True
    looks: int = 0
    arrives: bool = True
    failing: list[BaseException] = field(default_factory=list)
    unseen: list[BaseException] = field(default_factory=list)
    """Raised by the next `collect`."""
    batches: dict[str, list[Request]] = field(default_factory=dict)
    errors: dict[str, Reply] = field(default_factory=dict)
    prices: dict[str, LlmUse] = field(default_factory=dict)
    """What a reply of a model costs, where that is not `USED`."""

    def submit(self, requests: Sequence[Request]) -> str:
        batch_id = f"batch{len(self.batches) + 1}"
        if self.arrives:
            self.batches[batch_id] = list(requests)
        if self.failing:
            raise self.failing.pop(0)
        return batch_id

    def collect(self, batch_id: str, model: str) -> Mapping[str, Reply] | None:
        self.looks += 1
        if self.unseen:
            raise self.unseen.pop(0)
        if batch_id not in self.batches:
            raise LlmAnswerInvalid(f"no batch {batch_id}")
        if not self.done:
            return None
        good = Reply(self.reply, self.prices.get(model, USED))
        return {r.key: self.errors.get(r.key) or good for r in self.batches[batch_id]}

    def find(self, keys: Sequence[str], known: Collection[str]) -> str | None:
        """By the number of keys alone while it is not done, as the Claude API has it."""
        found = (
            name
            for name, held in self.batches.items()
            if name not in known and (len(held) == len(keys) if not self.done else {r.key for r in held} == set(keys))
        )
        return next(found, None)


@dataclass
class Clock:
    """Stands still until it is moved; whoever sleeps moves it."""

    now: datetime = field(default_factory=lambda: datetime(2026, 11, 22, 12, 0, tzinfo=UTC))
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> datetime:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += timedelta(seconds=seconds)


def part(number: int, *texts: str, closed: bool = True, project: str = "acme/api") -> Part:
    """A prompt and what was answered; without texts one that is worth an LLM."""
    texts = texts or (f"Why does retry {number} charge twice?", "An error: the request failed. The fix is a key.")
    segments = tuple(
        Segment(
            f"k{number}-{n}",
            f"u{number}-{n}",
            (SegmentKind.PROMPT, SegmentKind.STATEMENT)[n > 0],
            0,
            text,
            START + timedelta(minutes=10 * number + n),
        )
        for n, text in enumerate(texts)
    )
    return Part(
        part_id_of(segments[0]),
        SOURCE.key,
        "a.jsonl",
        "s1",
        f"x{number}",
        number,
        "exchange",
        project,
        "/w/api",
        texts[0][:80],
        segments,
        closed,
    )


ONE = part(1)
"""A part that is worth an LLM."""


def parsed(store: Store, *parts: Part) -> None:
    """Write parts as the parser does."""
    store.files.put_sources([SOURCE])
    before = store.files.cursors(SOURCE.key).get("a.jsonl")
    if before is None:
        store.files.commit_crawl(None, FileCursor(SOURCE.key, "a.jsonl", lines=1), None)
        before = store.files.cursors(SOURCE.key)["a.jsonl"]
    assert store.messages.commit_parsed(ParsedChunk(before, replace(before, parsed_lines=1), (), (), parts))


class Run:
    """Summarizes the source again and again with one LLM and one clock."""

    def __init__(self, store: Store, backend: LlmHere, **rules: object) -> None:
        self.store, self.backend, self.clock = store, backend, Clock()
        rules = {"requests_per_minute": 10_000, **rules}
        self.llm = Llm(lambda: self.backend, LlmRules(**rules), self.clock, self.clock.sleep)

    def __call__(self, **how: object) -> SummaryReport:
        return summarize_source(self.store, SOURCE, self.llm, **how)

    def summary(self, of: Part) -> Summary:
        found = self.store.summaries.summary(of.part_id)
        assert found is not None
        return found


class HomeRun(Run):
    """Summarizes the logs of a home again and again, at first with a version that knows no secret, and publishes."""

    def __init__(self, home: Home, backend: LlmHere) -> None:
        budget = LlmBudget(dollars=100.0)
        super().__init__(home.store, backend, min_value=0.0, budget=budget, batch_min=2)
        self.home = home

    def __call__(self, **how: object) -> SummaryReport:
        report = summarize_source(self.store, self.home.source(), self.llm, **how)
        wiring.open_pipeline(self.home.settings, self.store).publish(self.home.source())
        return report


def recorder(home: Home, llm: LlmHere) -> Recorder:
    """What keeps pairs of a home, and asks the LLM for their records."""
    pieces, rules = wiring.open_pieces(), LlmRules(min_value=0.0, requests_per_minute=10_000)
    poster = EpisodeWriter(home.store, unmasked, pieces, None)
    return Recorder(home.store, poster, pieces, Llm(lambda: llm, rules), extractive.summarize)
