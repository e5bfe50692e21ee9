"""The asset `summaries`: one summary per closed chunk, by an LLM if worthwhile, allowed and within budget."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from anamnesis_pipeline.errors import BadSetting, LlmAnswerInvalid, LlmRefused
from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.llm.prompts import Request, build_prompt, request_for
from anamnesis_pipeline.llm.provider import Provider
from anamnesis_pipeline.llm.replies import parse_reply
from anamnesis_pipeline.model import LlmBudget, LlmUse, Part, Source, Summary
from anamnesis_pipeline.parsing.claude_logs.value import value_of
from anamnesis_pipeline.pipeline.llm_calls import (
    ATTEMPTS,
    FORGOTTEN,
    LOOK_AGAIN,
    Answer,
    BatchDesk,
    LlmCaller,
    NoAnswer,
    Pace,
    takes_batches,
)
from anamnesis_pipeline.pipeline.llm_choice import AGAINST, Llm, LlmChoice
from anamnesis_pipeline.pipeline.llm_guard import OnHold, close_breakers
from anamnesis_pipeline.store.base import Store

PAGE = 200
"""Chunks in memory at once; at least `batch_min` for a backend with batches."""
FIRST_RETRY = timedelta(minutes=10)
LONGEST_RETRY = timedelta(days=7)
MAX_ATTEMPTS = 8
"""Max failed LLM calls for a chunk, over 21 hours. Then the extractive summary stays."""
NO_BACKEND_RETRY = timedelta(hours=1)
NO_BUDGET_RETRY = timedelta(days=1)
BY_HAND = timedelta(days=3_650)
"""A manual run ignores retry times."""
GIVEN_UP = timedelta(days=3_600)
"""Retry delay of a chunk given up."""
NO_BUDGET = (
    "a paid LLM runs on a schedule only with a budget: set llm_daily_dollars or llm_daily_tokens, or start it by hand "
    "with: anamnesis summarize"
)
IN_A_BATCH = "its summary is being made in a batch"
UNSUMMARIZED = "unsummarized"
"""Tag of valuable chunks that wait for an LLM summary."""
MUCH = 3.0
"""Minimum value for that tag."""


@dataclass(frozen=True, slots=True)
class SummaryReport:
    """Result of one run. `counts`: `written`, `cached`, `low value`, `private`, `skipped`, `flagged`, `in a batch`.

    `used`: cost of this run's single calls, unanswered ones included; a batch's cost is booked with the batch.
    """

    model: str = extractive.MODEL
    counts: Mapping[str, int] = field(default_factory=Counter)
    used: LlmUse = field(default_factory=LlmUse)
    problem: str = ""
    """The last reason for a missing LLM summary."""

    looked_at: int = 0
    """Chunks processed, with any outcome."""

    @property
    def written(self) -> int:
        """Number of new or changed summaries."""
        return self.counts.get("written", 0)


def summarize_source(
    store: Store,
    source: Source,
    llm: Llm,
    *,
    by_hand: bool = False,
    asked_at: datetime | None = None,
    project: str | None = None,
    limit: int | None = None,
) -> SummaryReport:
    """Summarize the closed chunks of a source that need a summary, newest first.

    :param by_hand: a manual run: a paid LLM needs no budget, and earlier failures are retried at once.
    :param asked_at: start of the manual run, over one or many sources; refusals since then stand.
    :param project: only chunks of this project.
    :param limit: max number of chunks.
    """
    now = llm.clock()
    when = now + BY_HAND if by_hand else now
    if not store.summaries.parts_to_summarize(source.key, when, 1, project):
        return SummaryReport()
    if by_hand:
        close_breakers(store.settings, asked_at or now)
    with closing(_Run(store, llm, by_hand=by_hand)) as run:
        for parts in _pages(store, source.key, when, project, limit, run.page):
            run.summarize(parts)
        return run.report()


def summarize_part(store: Store, part: Part, llm: Llm, failed: int = 0) -> Summary:
    """Return the summary of one chunk by the rules of a scheduled run, but without retries, since a caller waits. It is
    not stored. Without an LLM summary, `problem` says why, and `retry_at` when to try again.

    :param failed: number of earlier failures.
    """
    with closing(_Run(store, llm, by_hand=False, attempts=1, failed=failed)) as run:
        return run.summary_of(part)


def _pages(
    store: Store, source: str, when: datetime, project: str | None, limit: int | None, size: int
) -> Iterator[list[Part]]:
    """Yield pages of chunks that need a summary, each chunk once, although unanswered ones stay listed."""
    last, left = None, limit
    while left is None or left > 0:
        most = size if left is None else min(size, left)
        page = store.summaries.parts_to_summarize(source, when, most, project, after=last)
        if page:
            yield page
        if len(page) < most:
            return
        last, left = page[-1], None if left is None else left - len(page)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A chunk, the request for its summary, and the record uuid of each message in it."""

    part: Part
    request: Request
    message_ids: tuple[str, ...]


class _Run:
    """Summaries of one source by one backend."""

    def __init__(self, store: Store, llm: Llm, *, by_hand: bool, attempts: int = ATTEMPTS, failed: int = 0) -> None:
        """:param failed: earlier failures of a chunk without a stored summary."""
        self._store, self._failed = store, failed
        self._rules = llm.rules
        self._clock = llm.clock
        self._by_hand = by_hand
        self._counts: Counter[str] = Counter()
        self._problem = ""
        self._looked_at = 0
        self._backend: Provider | None = None
        self._desk: BatchDesk | None = None
        self._refusal: NoAnswer | None = None
        """Why no more calls are made in this run."""
        try:
            self._backend = llm.open() if llm.open else None
        except (BadSetting, LlmRefused) as exc:
            self._refusal = NoAnswer(str(exc), self._clock() + NO_BACKEND_RETRY)
        is_local = self._backend is not None and self._backend.is_local
        self._choice = LlmChoice(store, llm.rules, is_local=is_local, private_sources=llm.private_sources())
        if self._backend is not None:
            pace = Pace(self._rules.budget, self._rules.requests_per_minute, attempts)
            self._caller = LlmCaller(store, self._backend, pace, llm.mask, clock=llm.clock, sleep=llm.sleep)
            if self._backend.is_paid and self._rules.budget == LlmBudget() and not by_hand:
                self._refusal = NoAnswer(NO_BUDGET, self._clock() + NO_BUDGET_RETRY)

    @property
    def page(self) -> int:
        """Number of chunks processed together."""
        batches = self._backend is not None and takes_batches(self._backend)
        return max(PAGE, self._rules.batch_min) if batches else PAGE

    @property
    def model(self) -> str:
        """The model of this run's summaries."""
        return self._backend.model if self._backend is not None else extractive.MODEL

    def close(self) -> None:
        """Close the backend's connections."""
        if self._backend is not None:
            self._backend.close()

    def report(self) -> SummaryReport:
        """Return the results so far."""
        problem = self._problem or (self._refusal.problem if self._refusal else "")
        used = self._caller.spent if self._backend is not None else LlmUse()
        return SummaryReport(self.model, self._counts, used, problem, self._looked_at)

    def summarize(self, parts: Sequence[Part]) -> None:
        """Write a summary of each chunk."""
        self._looked_at += len(parts)
        for_llm = [part for part in parts if self._is_for_llm(part)]
        chosen = {part.part_id for part in for_llm}
        self._write([self._plain(part) for part in parts if part.part_id not in chosen])
        if self._backend is not None:
            self._ask(for_llm, self._backend)
        elif self._refusal is not None:
            self._write([self._flagged(part, self._refusal) for part in for_llm])

    def summary_of(self, part: Part) -> Summary:
        """Return the summary of a chunk that is not stored."""
        if against := self._against(part):
            return replace(self._plain(part), problem=AGAINST[against])
        if self._backend is None:
            assert self._refusal is not None  # without a refusal, "no LLM" is a reason against
            return self._flagged(part, self._refusal)
        asked = _asked(part, self._backend)
        if not self._store.llm.note_asked({asked.request.key: part}):
            return self._flagged(part, NoAnswer(FORGOTTEN))
        known = self._store.llm.replies([asked.request.key]).get(asked.request.key)
        if known is not None:
            return self._from(asked, Answer(known, is_cached=True))
        return self._from(asked, self._refusal or self._caller.ask(asked.request, _is_as_asked_for, _is_readable))

    # --- which chunks -------------------------------------------------------------------------------------

    def _is_for_llm(self, part: Part) -> bool:
        against = self._against(part)
        if against and against != "no LLM":
            self._counts[against] += 1
        return not against

    def _against(self, part: Part) -> str:
        """Return why no LLM may see a chunk, a key of `AGAINST`; empty: it may."""
        if self._backend is None and self._refusal is None:
            return "no LLM"
        return self._choice.against(part)

    # --- asking --------------------------------------------------------------------------------------------

    def _ask(self, parts: Sequence[Part], backend: Provider) -> None:
        """Get summaries from the cache, else by batch, else by single calls; flag chunks that cannot be sent now."""
        if not parts:
            return
        self._open_desk(backend)
        asked = [_asked(part, backend) for part in parts]
        noted = self._store.llm.note_asked({each.request.key: each.part for each in asked})
        asked = [each for each in asked if each.request.key in noted]
        known = self._store.llm.replies([each.request.key for each in asked])
        in_batches = self._desk.waiting() if self._desk else frozenset()
        waiting = [each for each in asked if each.request.key in in_batches and each.request.key not in known]
        unknown = [each for each in asked if each.request.key not in in_batches | known.keys()]
        unknown = self._without_failures_of_batches(unknown)
        handed_in, singly = self._hand_in(unknown)
        self._write([self._in_a_batch(each.part) for each in [*waiting, *handed_in]])
        self._write(
            [self._from(e, Answer(known[e.request.key], is_cached=True)) for e in asked if e.request.key in known]
        )
        for each, answer in self._answers(singly, backend.concurrency):
            if answer != NoAnswer(FORGOTTEN):  # text rewritten or forgotten meanwhile gets no summary
                self._write([self._from(each, answer)])

    def _answers(self, asked: Sequence[_Asked], at_once: int) -> Iterator[tuple[_Asked, Answer | NoAnswer]]:
        """Yield each request with its answer, as they arrive; an answer that ends the run stops further calls."""
        if self._refusal is not None:
            yield from ((each, self._refusal) for each in asked)
            return
        threads = ThreadPoolExecutor(max(1, min(at_once, len(asked))), thread_name_prefix="llm")
        try:
            futures: dict[Future[Answer | NoAnswer], _Asked] = {
                threads.submit(self._caller.ask, each.request, _is_as_asked_for, _is_readable): each for each in asked
            }
            for future in as_completed(list(futures)):
                answer = future.result()
                yield futures.pop(future), answer
                if isinstance(answer, NoAnswer) and answer.ends_the_run:
                    self._refusal = answer
                    break
            threads.shutdown(wait=True, cancel_futures=True)
            for future, each in futures.items():
                if not future.cancelled():
                    yield each, future.result()
                elif self._refusal is not None:  # only a refusal cancels
                    yield each, self._refusal
        finally:  # at the end, wait for calls in progress; drop queued ones
            threads.shutdown(wait=True, cancel_futures=True)

    # --- batches -------------------------------------------------------------------------------------------

    def _open_desk(self, backend: Provider) -> None:
        """Open the batch desk and collect pending batches: once, and only if there is something to ask."""
        if self._desk is not None or not takes_batches(backend):
            return
        self._desk = BatchDesk(self._store, backend, self._caller, _is_as_asked_for, self._clock)
        try:
            self._desk.collect()
        except OnHold as hold:
            self._refusal = self._refusal or NoAnswer(str(hold), hold.until)

    def _without_failures_of_batches(self, asked: Sequence[_Asked]) -> list[_Asked]:
        """Flag chunks that a batch has just failed, which get single calls later; return the others."""
        failed = self._store.llm.failures([each.request.key for each in asked])
        left, flagged = [], []
        for each in asked:
            problem = failed.get(each.request.key)
            if problem is None or self._attempts(each.part):
                left.append(each)
            else:
                flagged.append(self._flagged(each.part, NoAnswer(problem, is_judged=True)))
        self._write(flagged)
        return left

    def _hand_in(self, asked: Sequence[_Asked]) -> tuple[list[_Asked], list[_Asked]]:
        """Submit a batch of requests without earlier failures. Return those in it, and the others."""
        if self._desk is None or self._refusal is not None:
            return [], list(asked)
        fresh = {each.request.key: each.request for each in asked if not self._attempts(each.part)}
        try:
            keys = self._desk.submit(list(fresh.values()), self._rules.batch_min)
        except OnHold as hold:
            self._refusal, keys = NoAnswer(str(hold), hold.until), frozenset()
        in_it = [each for each in asked if each.request.key in keys]
        return in_it, [each for each in asked if each.request.key not in keys]

    # --- summaries -----------------------------------------------------------------------------------------

    def _write(self, summaries: Sequence[Summary]) -> None:
        self._counts["written"] += self._store.summaries.put_summaries(summaries)

    def _plain(self, part: Part) -> Summary:
        """Return the final summary: an existing LLM summary of this text, else an extractive one."""
        existing = self._of_llm(part)
        if existing is not None:
            return replace(existing, retry_at=None, attempts=0)
        return Summary(part.part_id, part.content_hash, extractive.summarize(part), extractive.MODEL)

    def _from(self, asked: _Asked, answer: Answer | NoAnswer) -> Summary:
        part = asked.part
        if isinstance(answer, NoAnswer):
            return self._flagged(part, answer)
        self._counts["cached"] += answer.is_cached
        try:
            read = parse_reply(answer.text, asked.message_ids)
        except LlmAnswerInvalid as exc:  # cached by a version that could read it
            return self._flagged(part, NoAnswer(str(exc), is_judged=True))
        self._counts["skipped"] += read.skip
        text = extractive.summarize(part) if read.skip else read.text
        return Summary(
            part.part_id,
            part.content_hash,
            text,
            self.model,
            read.tags,
            read.records,
            skip=read.skip,
            reply_key=asked.request.key,
        )

    def _flagged(self, part: Part, why: NoAnswer) -> Summary:
        """Return the provisional summary until the next attempt; an LLM's earlier one of this text stays."""
        self._counts["flagged"] += 1
        self._problem = why.problem
        return self._standing_in(part, why)

    def _in_a_batch(self, part: Part) -> Summary:
        self._counts["in a batch"] += 1
        return self._standing_in(part, NoAnswer(IN_A_BATCH, self._clock() + LOOK_AGAIN))

    def _standing_in(self, part: Part, why: NoAnswer) -> Summary:
        attempts, retry_at = self._attempts(part), why.retry_at
        if retry_at is None:  # the chunk's own failure
            retry_at = self._clock() + _pause(attempts, is_judged=why.is_judged)
            attempts += 1
        existing = self._of_llm(part)
        if existing is not None:
            return replace(existing, retry_at=retry_at, attempts=attempts)
        tags = (UNSUMMARIZED,) if value_of(part, self._rules.weights).score >= MUCH else ()
        return Summary(
            part.part_id,
            part.content_hash,
            extractive.summarize(part),
            extractive.MODEL,
            tags,
            problem=why.problem,
            retry_at=retry_at,
            attempts=attempts,
        )

    def _attempts(self, part: Part) -> int:
        """Return the number of failures with this text."""
        before = self._store.summaries.summary(part.part_id)
        return before.attempts if before is not None and before.content_hash == part.content_hash else self._failed

    def _of_llm(self, part: Part) -> Summary | None:
        """Return the LLM's stored summary of this text, if any."""
        summary = self._store.summaries.summary(part.part_id)
        is_current = summary is not None and summary.content_hash == part.content_hash
        return summary if is_current and summary is not None and not extractive.is_extractive(summary.model) else None


def _pause(attempts: int, *, is_judged: bool) -> timedelta:
    """Return the retry delay after `attempts` failures; it doubles each time."""
    if is_judged and attempts + 1 >= MAX_ATTEMPTS:
        return GIVEN_UP
    return min(FIRST_RETRY * (1 << min(attempts, 16)), LONGEST_RETRY)


def _asked(part: Part, backend: Provider) -> _Asked:
    prompt = build_prompt(part)
    return _Asked(part, request_for(prompt, backend.name, backend.model), prompt.message_ids)


def _is_as_asked_for(reply: str) -> None:
    """:raises LlmAnswerInvalid: it is not the requested JSON."""
    parse_reply(reply, (), strict=True)


def _is_readable(reply: str) -> None:
    """:raises LlmAnswerInvalid: it is empty. Prose is accepted if the second reply is no JSON either."""
    parse_reply(reply, ())
