"""One turn of a conversation as a stream of events, written by a task that ends when nobody listens any more."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import anyio
from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool

from anamnesis_pipeline.chat.base import SEARCH_TOOL, Call, ChatBackend, Said
from anamnesis_pipeline.chat_model import ChatMessage, ChatSession
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.search.query import Hit
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.chat_schemas import citation_body, session_head
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.steps.chat import (
    MOST_HITS,
    PER_QUERY,
    ROUNDS,
    SYSTEM,
    Attachment,
    Booking,
    block_of,
    citations_of,
    merged,
    queries_of,
    question,
    shown_to,
    told,
)
from anamnesis_pipeline.steps.recording import Pair
from anamnesis_pipeline.summary_model import LlmUse

HEARTBEAT_S = 1.0
QUEUE_EVENTS = 200
UNEXPECTED = "something went wrong that should not; the log names the place"

log = logging.getLogger(__name__)
Event = dict[str, Any]
Search = Callable[[Sequence[str], int], "asyncio.Future[list[Hit]]"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be answered, masked, and by whom."""

    session: ChatSession
    history: Sequence[ChatMessage]
    question: ChatMessage
    attachments: Sequence[Attachment]
    backend: ChatBackend
    settings: Settings
    private_sources: frozenset[str]


@dataclass(slots=True)
class _Answer:
    """What came so far."""

    began: float
    hits: list[Hit] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    used: LlmUse = field(default_factory=LlmUse)
    tokens: int = 0
    state: str = "connected"
    problem: str = ""
    stopped: bool = False

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 3)


class Chats:
    """The answers that are being written: so many at once, each of which can be stopped."""

    def __init__(self, at_once: int = 8) -> None:
        self._at_once = at_once
        self._running: dict[str, asyncio.Task[None]] = {}

    @property
    def is_full(self) -> bool:
        """Whether no further answer may begin now."""
        return len(self._running) >= self._at_once

    def is_running(self, session_id: str) -> bool:
        """Whether an answer of this session is being written."""
        return session_id in self._running

    def begin(self, session_id: str, task: "asyncio.Task[None]") -> None:
        """Keep a task as that of a session until it ends."""
        self._running[session_id] = task
        task.add_done_callback(lambda _: self._running.pop(session_id, None))

    def stop(self, session_id: str) -> bool:
        """End the answer of a session; False: none is being written."""
        task = self._running.get(session_id)
        return task is not None and task.cancel()


class TurnStream:
    """The events of one turn."""

    def __init__(
        self, turn: Turn, services: Services, admission: Admission, chats: Chats, keep: Callable[[Pair], str],
        failures: Counter,
    ) -> None:  # fmt: skip
        """:param keep: makes an episode of a round trip, and has its records found later; the episode's id.
        :param failures: counts answers that failed, by backend.
        """
        self._turn, self._services, self._admission = turn, services, admission
        self._chats, self._keep, self._failures = chats, keep, failures
        self._answer = _Answer(time.monotonic())
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(QUEUE_EVENTS)

    async def events(self) -> AsyncIterator[Event]:
        """The session first, then citations, pieces of text and a heartbeat each second, `done` last."""
        yield {"session": session_head(self._turn.session)}
        task = asyncio.create_task(self._run())
        self._chats.begin(self._turn.session.session_id, task)
        try:
            while True:
                try:
                    event = await asyncio.wait_for(self._events.get(), HEARTBEAT_S)
                except TimeoutError:
                    yield self._status()
                    continue
                if event is None:
                    return
                yield event
        finally:
            with anyio.CancelScope(shield=True):  # who went away has cancelled this, too
                task.cancel()
                await asyncio.wait([task])
                await self._turn.backend.close()

    async def _run(self) -> None:
        """The whole turn; what was said is kept however it ends."""
        answer, done = self._answer, None
        try:
            await self._write()
            answer.state = "complete"
        except asyncio.CancelledError:
            answer.stopped = True
        except AnamnesisError as exc:
            answer.problem = str(exc)
        except Exception as exc:
            log.exception("an answer failed: %s", type(exc).__name__)
            answer.problem = UNEXPECTED
        with anyio.CancelScope(shield=True):
            done = await run_in_threadpool(self._keep_answer)
        if answer.problem:
            self._failures.labels(self._turn.backend.name).inc()
            await self._tell({"error": answer.problem, "backend": self._turn.backend.name})
        await self._tell(done)
        await self._tell(None)

    async def _write(self) -> None:
        turn, answer = self._turn, self._answer
        await self._tell(self._status())
        last = next((each.text for each in reversed(turn.history) if each.role == "assistant"), "")
        asked = queries_of(turn.question.text, last, turn.session.project, is_first=not turn.history)
        answer.hits = await self._search(asked, PER_QUERY)
        await self._cite()
        said = told(turn.history, turn.question.text, turn.attachments, answer.hits)
        answer.state = "waiting"
        for number in range(ROUNDS + 1):
            calls = await self._round(said, tools=turn.backend.has_tools and number < ROUNDS)
            if not calls:
                return
            said = [*said, Said("assistant", "", calls), *[await self._found(call) for call in calls]]

    async def _round(self, said: Sequence[Said], *, tools: bool) -> tuple[Call, ...]:
        """One call of the model; the searches that it asks for."""
        turn, answer = self._turn, self._answer
        booking = Booking(self._services.store, turn.backend, turn.settings)
        call_id = await run_in_threadpool(booking.book, SYSTEM, said)
        used: LlmUse | None = None
        calls: tuple[Call, ...] = ()
        try:
            async with aclosing(cast(Any, turn.backend.stream(SYSTEM, said, tools=tools))) as deltas:
                async for delta in deltas:
                    if delta.text:
                        answer.state, answer.tokens = "generating", answer.tokens + 1
                        answer.texts.append(delta.text)
                        await self._tell({"token": delta.text})
                    calls += delta.calls
                    used = delta.used or used
        finally:
            with anyio.CancelScope(shield=True):
                await run_in_threadpool(booking.settle, call_id, used)
        answer.used += used or LlmUse()
        return calls

    async def _found(self, call: Call) -> Said:
        """What the model gets for a call of its."""
        query, top_k = str(call.arguments.get("query", "")).strip(), call.arguments.get("top_k", PER_QUERY)
        if call.name != SEARCH_TOOL or not query:
            return Said("tool", f"There is only {SEARCH_TOOL}, which wants a query.", call_id=call.call_id)
        most = min(max(int(top_k), 1), MOST_HITS) if isinstance(top_k, int | float) else PER_QUERY
        hits = await self._search([query], most)
        known = {hit.episode.episode_id for hit in self._answer.hits}
        self._answer.hits += [hit for hit in hits if hit.episode.episode_id not in known]
        await self._cite()
        return Said("tool", block_of(hits) or "Nothing was found.", call_id=call.call_id)

    async def _search(self, asked: Sequence[str], top_k: int) -> list[Hit]:
        """The memory on all of these, asked at the same time; what a busy memory does not say is left out."""
        project = self._turn.session.project

        async def one(text: str) -> Sequence[Hit]:
            found = await self._admission.run(lambda: self._services.engine.search(question(text, project, top_k)))
            return found.hits

        answers = await asyncio.gather(*map(one, asked))
        return shown_to(merged(answers), self._turn.backend, self._turn.private_sources)

    async def _cite(self) -> None:
        await self._tell({"citations": [citation_body(each) for each in citations_of(self._answer.hits)]})

    def _status(self) -> Event:
        answer = self._answer
        return {"status": {"state": answer.state, "elapsed_s": answer.seconds, "tokens": answer.tokens}}

    async def _tell(self, event: Event | None) -> None:
        """Nobody may be listening any more: then what there is to tell is dropped."""
        with suppress(asyncio.QueueFull):
            if event is None or "token" not in event:
                self._events.put_nowait(event)
            else:
                await self._events.put(event)

    def _keep_answer(self) -> Event:
        """Store the answer and, where it is whole, its round trip as an episode; the last event."""
        turn, answer = self._turn, self._answer
        text = self._services.poster.masked("".join(answer.texts))
        done: Event = {"done": True, "message_id": None, "seconds": answer.seconds, "stopped": answer.stopped}
        done["usage"] = {
            "input_tokens": answer.used.input_tokens, "output_tokens": answer.used.output_tokens,
            "dollars": answer.used.dollars,
        }  # fmt: skip
        if not text.strip():
            return done
        message = ChatMessage(
            uuid.uuid4().hex, turn.session.session_id, "assistant", text, datetime.now(UTC), citations_of(answer.hits),
            turn.backend.name, turn.backend.model, answer.seconds, answer.used.input_tokens, answer.used.output_tokens,
            answer.used.dollars, answer.stopped, answer.problem,
        )  # fmt: skip
        chat = self._services.store.chat
        try:
            chat.add(message)
            chat.put_session(replace(turn.session, updated_at=message.at))
            done["message_id"] = message.message_id
            if not answer.stopped and not answer.problem:
                done["episode_id"] = self._remember(message)
        except AnamnesisError as exc:
            log.warning("an answer is not kept: %s", exc)
            done["problem"] = f"the answer is not kept: {exc}"
        return done

    def _remember(self, message: ChatMessage) -> str:
        turn, chat = self._turn, self._services.store.chat
        pair = Pair(
            turn.question.text, message.text, turn.settings.machine, turn.session.project, turn.question.at, "chat"
        )  # fmt: skip
        episode_id = self._keep(pair)
        for each in (turn.question, message):
            chat.add(replace(each, episode_id=episode_id))
        return episode_id
