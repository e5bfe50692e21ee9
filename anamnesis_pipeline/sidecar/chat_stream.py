"""One chat turn as a stream of events. The task that writes it ends when the client disconnects."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence, Set
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import anyio
from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from anamnesis_pipeline.errors import AnamnesisError, LlmAnswerInvalid
from anamnesis_pipeline.llm.prompts import CHAT_SYSTEM, SEARCH_TOOL
from anamnesis_pipeline.llm.provider import Call, ChatTurn, Provider
from anamnesis_pipeline.model import ChatMessage, ChatSession, LlmBudget, LlmUse
from anamnesis_pipeline.pipeline.llm_guard import Guard
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.query import Hit, SearchQuery
from anamnesis_pipeline.search.quoting import id_label
from anamnesis_pipeline.services.chat import (
    MAX_HITS,
    PER_QUERY,
    QUERY_CHARS,
    ROUNDS,
    UNASKED,
    Attachment,
    Found,
    asked_ahead,
    block_of,
    citations_of,
    found_by,
    last_reply,
    not_told,
    queries_of,
    question,
    shown_to,
    standing_of,
    told,
    within,
)
from anamnesis_pipeline.services.recording import Pair
from anamnesis_pipeline.services.searching import count_opened
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.chat_background import ChatRecorder, KnownAnswers
from anamnesis_pipeline.sidecar.chat_running import Running
from anamnesis_pipeline.sidecar.chat_schemas import citation_body, session_head
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.store.values import clean

HEARTBEAT_S = 1.0
QUEUE_EVENTS = 200
UNREAD_S = 30.0
"""A client that takes no event for this long is treated as disconnected."""
MAX_S = 1_800.0
"""Limit for a whole answer, in seconds."""
MAX_ANSWER_CHARS = 200_000
UNEXPECTED = "something went wrong that should not; the log names the place"

log = logging.getLogger(__name__)
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """The masked question with its history, and the backend that answers it."""

    session: ChatSession
    history: Sequence[ChatMessage]
    question: ChatMessage
    attachments: Sequence[Attachment]
    backend: Provider
    settings: Settings
    private: Private
    is_private: bool
    """Whether the earlier conversation is based on private episodes."""
    answer_id: str
    """Id of the answer's message."""


@dataclass(slots=True)
class _Answer:
    """The answer so far. `is_private` as in `Turn`."""

    began: float
    is_private: bool
    found: Found = field(default_factory=lambda: Found([]))
    texts: list[str] = field(default_factory=list)
    used: LlmUse = field(default_factory=LlmUse)
    tokens: int = 0
    chars: int = 0
    state: str = "connected"
    problem: str = ""
    stopped: bool = False
    kept: str = ""
    """The masked text that was stored."""

    def take(self, text: str) -> None:
        """Append a piece; raise LlmAnswerInvalid if the answer is too long."""
        self.tokens, self.chars = self.tokens + 1, self.chars + len(text)
        if self.chars > MAX_ANSWER_CHARS:
            raise LlmAnswerInvalid(f"the answer has more than {MAX_ANSWER_CHARS:,} characters and was ended")
        self.texts.append(text)

    def text(self, begins: int = 0) -> str:
        """Return the text from piece `begins` on. Characters split over two pieces are joined."""
        return clean("".join(self.texts[begins:]))

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 3)


class _Unread(Exception):  # noqa: N818 - no error: the client disconnected
    """The client takes no more events."""


class TurnStream:
    """The events of one turn. After `begin`, `end` must be called, with or without a listener."""

    def __init__(
        self,
        turn: Turn,
        services: Services,
        admission: Admission,
        records: ChatRecorder,
        failures: Counter,
        leaving: Callable[[], Set[str]],
        known: KnownAnswers,
    ) -> None:
        """:param failures: counts failed answers, by backend.
        :param leaving: returns ids of episodes about to be deleted, which are no longer shown.
        """
        self._turn, self._services, self._admission = turn, services, admission
        self._records, self._failures, self._leaving, self._known = records, failures, leaving, known
        self._answer = _Answer(time.monotonic(), turn.is_private)
        self._events: asyncio.Queue[Event] = asyncio.Queue(QUEUE_EVENTS)
        self._is_left = False
        self._running: Running | None = None

    def begin(self) -> Running:
        """Start writing the answer. It is stored however the writing ends."""
        writing = asyncio.create_task(self._write_whole())
        self._running = Running(writing, asyncio.create_task(self._store_after(writing)))
        return self._running

    async def events(self) -> AsyncIterator[Event]:
        """Yield the session first, then citations and text, `done` last; the status at each change, and at least every
        second.
        """
        yield {"session": session_head(self._turn.session)}
        beat = time.monotonic() + HEARTBEAT_S
        while True:
            try:
                left = beat - time.monotonic()
                event = await asyncio.wait_for(self._events.get(), left) if left > 0 else self._status()
            except TimeoutError:
                if self._is_over():
                    return
                event = self._status()
            if "status" in event:
                beat = time.monotonic() + HEARTBEAT_S
            yield event
            if "done" in event:
                return

    def _is_over(self) -> bool:
        """Return whether no more events will come."""
        return self._running is not None and self._running.whole.done() and self._events.empty()

    async def end(self) -> None:
        """Stop the backend after the client disconnects; return once the text so far is stored."""
        self._is_left = True
        while not self._events.empty():  # free the queue: nothing may still block on it
            self._events.get_nowait()
        with anyio.CancelScope(shield=True):  # the disconnect has cancelled this task too
            if self._running is not None:
                self._running.stop()
                await asyncio.wait([self._running.whole])
            await self._turn.backend.close_chat()

    async def _write_whole(self) -> None:
        """Write the answer until it completes, fails or is stopped."""
        answer = self._answer
        try:
            async with asyncio.timeout(MAX_S):
                await self._write()
                await self._enter("complete")
        except _Unread:
            answer.stopped = True
        except TimeoutError:
            answer.problem = f"the answer was not whole after {MAX_S / 60:.0f} minutes and was ended; ask for less"
        except asyncio.CancelledError:
            answer.stopped = True
        except AnamnesisError as exc:
            answer.problem = str(exc)
        except Exception as exc:
            log.exception("an answer failed: %s", type(exc).__name__)
            answer.problem = UNEXPECTED

    async def _store_after(self, writing: "asyncio.Task[None]") -> None:
        """Store the answer after writing ends, then send the last events. Never cancelled."""
        await asyncio.wait([writing])
        answer = self._answer
        answer.stopped |= writing.cancelled()  # cancelled before it began
        done = await run_in_threadpool(self._keep_answer)
        self._records.note()
        with suppress(_Unread):
            if answer.problem:
                self._failures.labels(self._turn.backend.name).inc()
                await self._tell({"error": answer.problem, "backend": self._turn.backend.name})
            await self._tell(done)
        if answer.kept and not answer.stopped and not answer.problem:
            self._known.look_ahead(asked_ahead(self._turn.session.project, answer.kept))

    async def _write(self) -> None:
        turn, answer = self._turn, self._answer
        await self._tell(self._status())
        last = last_reply(turn.history)
        project = turn.session.project
        asked, standing = queries_of(turn.question.text, last), standing_of(project)
        found = Found([])
        if project:
            found = await self._search(
                [within(each, project) for each in asked], [within(each, project) for each in standing]
            )
        if not found.parted()[0]:
            found = (await self._search(asked, () if found.hits else standing)).with_more(found, MAX_HITS)
        answer.found = found
        await self._cite(found)
        said = told(turn.history, turn.question.text, turn.attachments, found)
        for number in range(ROUNDS + 1):
            before = len(answer.texts)
            calls = await self._round(said, tools=turn.backend.has_tools and number < ROUNDS)
            if not calls:
                break
            asked_for = ChatTurn("assistant", answer.text(before), calls)
            said = [*said, asked_for, *[await self._found(call) for call in calls]]
        if not answer.text().strip():
            raise LlmAnswerInvalid(f"{turn.backend.name} answered without a word; try again, or choose another model")

    async def _round(self, said: Sequence[ChatTurn], *, tools: bool) -> tuple[Call, ...]:
        """Call the model once and return its requested searches. Its text becomes a separate paragraph."""
        turn, answer = self._turn, self._answer
        budget = LlmBudget(turn.settings.llm_daily_tokens, turn.settings.llm_daily_dollars)
        guard = Guard(self._services.store, turn.backend, budget)
        expected = turn.backend.expected_answer(CHAT_SYSTEM, said)
        booked = asyncio.ensure_future(run_in_threadpool(guard.book_answer, expected))
        used: LlmUse | None = LlmUse()
        calls: tuple[Call, ...] = ()
        gap = "\n\n" if "".join(answer.texts[-1:]).strip() else ""
        try:
            await asyncio.shield(booked)
            await self._enter("waiting")
            used = None  # unknown until the backend reports it
            async with aclosing(cast(Any, turn.backend.stream(CHAT_SYSTEM, said, tools=tools))) as deltas:
                async for delta in deltas:
                    if delta.text:
                        answer.take(gap + delta.text)
                        await self._enter("generating")
                        await self._tell({"token": answer.texts[-1]})
                        gap = ""
                    calls += delta.calls
                    used = delta.used or used
            # summaries may be asked for again; a failure may be of this conversation's model or server alone
            await run_in_threadpool(guard.breaker.went_well)
        finally:
            answer.used += used or LlmUse()
            await asyncio.wait([booked])
            if booked.exception() is None:
                await run_in_threadpool(guard.settle_answer, booked.result(), used)
        return calls

    async def _found(self, call: Call) -> ChatTurn:
        """Return the result of a model's tool call."""
        query, top_k = str(call.arguments.get("query", "")).strip(), call.arguments.get("top_k", PER_QUERY)
        if call.name != SEARCH_TOOL or not query:
            return ChatTurn("tool", f"There is only {SEARCH_TOOL}, which wants a query.", call_id=call.call_id)
        most = min(max(int(top_k), 1), MAX_HITS) if isinstance(top_k, int) else PER_QUERY
        await self._enter("connected")
        found = await self._search([question(query[:QUERY_CHARS], most)])
        self._answer.found = self._answer.found.with_more(found)
        await self._cite(found)
        return ChatTurn("tool", found.problem or block_of(found) or "Nothing was found.", call_id=call.call_id)

    async def _search(self, asked: Sequence[SearchQuery], standing: Sequence[SearchQuery] = ()) -> Found:
        """Run all queries concurrently. If searches fail, the answer goes on and the model is informed."""
        turn, run = self._turn, self._admission.run
        works = [partial(self._hits, each) for each in (*asked, *standing)]
        answers = await asyncio.gather(*map(run, works), return_exceptions=True)
        problems = [each for each in answers if isinstance(each, BaseException)]
        for each in problems:
            if not isinstance(each, HTTPException | AnamnesisError):
                raise each
            log.warning("an answer goes without a part of the memory: %s", type(each).__name__)
        leaving = self._leaving()
        hits = [
            []
            if isinstance(each, BaseException)
            else not_told(shown_to(each, turn.backend, turn.private), turn.history, leaving)
            for each in answers
        ]
        found = found_by(hits[: len(asked)], hits[len(asked) :])
        self._answer.is_private |= any(map(turn.private.holds, (hit.episode for hit in found.hits)))
        return replace(found, problem=UNASKED if problems and not found.parted()[0] else "")

    def _hits(self, asked: SearchQuery) -> Sequence[Hit]:
        """Search now if the query counts as a retrieval; otherwise use the cache."""
        if asked.track:
            return self._services.engine.search(asked).hits
        return self._known.hits(asked, self._turn.private)

    async def _cite(self, found: Found) -> None:
        event: Event = {"citations": [citation_body(each) for each in citations_of(self._answer.found)]}
        await self._tell({**event, "problem": found.problem} if found.problem else event)

    async def _enter(self, state: str) -> None:
        """Send the status if the state changes; raise _Unread if the client takes no events."""
        if self._answer.state != state:
            self._answer.state = state
            await self._tell(self._status())

    def _status(self) -> Event:
        answer = self._answer
        return {"status": {"state": answer.state, "elapsed_s": answer.seconds, "tokens": answer.tokens}}

    async def _tell(self, event: Event) -> None:
        """Queue an event, or drop it after a disconnect; raise _Unread if the client takes no events."""
        if self._is_left:
            return
        try:
            async with asyncio.timeout(UNREAD_S):
                await self._events.put(event)
        except TimeoutError:
            raise _Unread from None

    def _keep_answer(self) -> Event:
        """Store the answer or its error, and a complete exchange as an episode; return the last event."""
        answer = self._answer
        done: Event = {"done": True, "message_id": None, "seconds": answer.seconds, "stopped": answer.stopped}
        done["usage"] = {
            "input_tokens": answer.used.input_tokens,
            "output_tokens": answer.used.output_tokens,
            "dollars": answer.used.dollars,
        }
        try:
            message = self._message()
            self._services.store.chat.add(message)
            cited = [each.episode_id for each in message.citations if id_label(each.episode_id) in message.text]
            count_opened(self._services.store, cited)
            done["message_id"], answer.kept = message.message_id, message.text
            if not answer.stopped and not answer.problem and not self._is_secret:
                done["episode_id"] = self._remember(message)
        except AnamnesisError as exc:
            log.warning("an answer is not kept: %s", exc)
            done["problem"] = f"the answer is not kept: {exc}"
        except Exception as exc:  # the client waits for the last event
            log.exception("an answer is not kept: %s", type(exc).__name__)
            done["problem"] = f"the answer is not kept: {UNEXPECTED}"
        return done

    def _message(self) -> ChatMessage:
        turn, answer, masked = self._turn, self._answer, self._services.poster.masked
        said = answer.text()
        return ChatMessage(
            turn.answer_id,
            turn.session.session_id,
            "assistant",
            masked(said if said.strip() else ""),
            datetime.now(UTC),
            citations_of(answer.found),
            turn.backend.name,
            turn.backend.model,
            answer.seconds,
            answer.used.input_tokens,
            answer.used.output_tokens,
            answer.used.dollars,
            answer.stopped,
            masked(answer.problem),
        )

    @property
    def _is_secret(self) -> bool:
        """Return whether the exchange must not become an episode: it would carry private content to models elsewhere,
        unless the conversation belongs to a private project itself.
        """
        return self._answer.is_private and not self._turn.private.is_of(self._turn.session.project)

    def _remember(self, message: ChatMessage) -> str:
        turn, chat = self._turn, self._services.store.chat
        pair = Pair(
            turn.question.text,
            message.text,
            turn.settings.machine,
            turn.session.project,
            turn.question.at,
            "chat",
            message.model,
        )
        episode_id = self._records.keep(turn.settings, pair)
        for each in (turn.question, message):
            chat.add(replace(each, episode_id=episode_id))
        self._records.want(turn.settings, message.message_id)
        return episode_id
