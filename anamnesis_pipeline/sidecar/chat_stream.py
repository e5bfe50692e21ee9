"""One turn of a conversation as a stream of events, written by a task that ends when nobody listens any more."""

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

from anamnesis_pipeline.chat.base import SEARCH_TOOL, Call, ChatBackend, Said
from anamnesis_pipeline.chat_model import ChatMessage, ChatSession
from anamnesis_pipeline.errors import AnamnesisError, LlmAnswerInvalid
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.query import Hit, SearchQuery
from anamnesis_pipeline.search.quoting import id_label
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.chat_known import KnownAnswers
from anamnesis_pipeline.sidecar.chat_records import ChatRecorder
from anamnesis_pipeline.sidecar.chat_running import Running
from anamnesis_pipeline.sidecar.chat_schemas import citation_body, session_head
from anamnesis_pipeline.sidecar.query_routes import keep_opened
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.steps.chat import (
    MOST_HITS,
    PER_QUERY,
    QUERY_CHARS,
    ROUNDS,
    SYSTEM,
    UNASKED,
    Attachment,
    Booking,
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
from anamnesis_pipeline.steps.recording import Pair
from anamnesis_pipeline.store.values import clean
from anamnesis_pipeline.summary_model import LlmUse

HEARTBEAT_S = 1.0
QUEUE_EVENTS = 200
UNREAD_S = 30.0
"""Whoever takes no event for so long has gone away."""
MOST_S = 1_800.0
"""For a whole answer."""
MOST_ANSWER_CHARS = 200_000
UNEXPECTED = "something went wrong that should not; the log names the place"

log = logging.getLogger(__name__)
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be answered, masked, and by whom."""

    session: ChatSession
    history: Sequence[ChatMessage]
    question: ChatMessage
    attachments: Sequence[Attachment]
    backend: ChatBackend
    settings: Settings
    private: Private
    is_private: bool
    """Whether what was said before leans on what may not leave this machine."""
    answer_id: str
    """Of the message that the answer becomes."""


@dataclass(slots=True)
class _Answer:
    """What came so far. `is_private`: as of a turn."""

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
    """What of it is stored, masked."""

    def take(self, text: str) -> None:
        """:raises LlmAnswerInvalid: it says too much."""
        self.tokens, self.chars = self.tokens + 1, self.chars + len(text)
        if self.chars > MOST_ANSWER_CHARS:
            raise LlmAnswerInvalid(f"the answer has more than {MOST_ANSWER_CHARS:,} characters and was ended")
        self.texts.append(text)

    def text(self, begins: int = 0) -> str:
        """What was said, from a piece on. Characters that came in halves are whole in it."""
        return clean("".join(self.texts[begins:]))

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 3)


class _Unread(Exception):  # noqa: N818 - no error: somebody went away
    """Nobody takes the events any more."""


class TurnStream:
    """The events of one turn. Once it was begun `end` has to be called, whether or not anybody listened."""

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
        """:param failures: counts answers that failed, by backend.
        :param leaving: ids of episodes that are about to be deleted, which nobody is told any more.
        """
        self._turn, self._services, self._admission = turn, services, admission
        self._records, self._failures, self._leaving, self._known = records, failures, leaving, known
        self._answer = _Answer(time.monotonic(), turn.is_private)
        self._events: asyncio.Queue[Event] = asyncio.Queue(QUEUE_EVENTS)
        self._is_left = False
        self._running: Running | None = None

    def begin(self) -> Running:
        """Have the answer written, and stored however its writing ends."""
        writing = asyncio.create_task(self._write_whole())
        self._running = Running(writing, asyncio.create_task(self._store_after(writing)))
        return self._running

    async def events(self) -> AsyncIterator[Event]:
        """The session first, then citations and pieces of text, `done` last; the state at each change, and each second
        whatever else comes.
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
        """Whether nothing more will come."""
        return self._running is not None and self._running.whole.done() and self._events.empty()

    async def end(self) -> None:
        """Nobody listens any more: the backend is stopped, and what was said so far is stored when this returns."""
        self._is_left = True
        while not self._events.empty():  # nothing that waits for room in it is to wait any more
            self._events.get_nowait()
        with anyio.CancelScope(shield=True):  # who went away has cancelled this, too
            if self._running is not None:
                self._running.stop()
                await asyncio.wait([self._running.whole])
            await self._turn.backend.close()

    async def _write_whole(self) -> None:
        """The answer up to its end, whatever that is."""
        answer = self._answer
        try:
            async with asyncio.timeout(MOST_S):
                await self._write()
                await self._enter("complete")
        except _Unread:
            answer.stopped = True
        except TimeoutError:
            answer.problem = f"the answer was not whole after {MOST_S / 60:.0f} minutes and was ended; ask for less"
        except asyncio.CancelledError:
            answer.stopped = True
        except AnamnesisError as exc:
            answer.problem = str(exc)
        except Exception as exc:
            log.exception("an answer failed: %s", type(exc).__name__)
            answer.problem = UNEXPECTED

    async def _store_after(self, writing: "asyncio.Task[None]") -> None:
        """Store what was said once nothing more is, and tell the last events. Nobody cancels this."""
        await asyncio.wait([writing])
        answer = self._answer
        answer.stopped |= writing.cancelled()  # before it began
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
            found = (await self._search(asked, () if found.hits else standing)).with_more(found, MOST_HITS)
        answer.found = found
        await self._cite(found)
        said = told(turn.history, turn.question.text, turn.attachments, found)
        for number in range(ROUNDS + 1):
            before = len(answer.texts)
            calls = await self._round(said, tools=turn.backend.has_tools and number < ROUNDS)
            if not calls:
                break
            asked_for = Said("assistant", answer.text(before), calls)
            said = [*said, asked_for, *[await self._found(call) for call in calls]]
        if not answer.text().strip():
            raise LlmAnswerInvalid(f"{turn.backend.name} answered without a word; try again, or choose another model")

    async def _round(self, said: Sequence[Said], *, tools: bool) -> tuple[Call, ...]:
        """One call of the model; the searches that it asks for. What it says is a paragraph of its own."""
        turn, answer = self._turn, self._answer
        booking = Booking(self._services.store, turn.backend, turn.settings)
        booked = asyncio.ensure_future(run_in_threadpool(booking.book, SYSTEM, said))
        used: LlmUse | None = LlmUse()
        calls: tuple[Call, ...] = ()
        gap = "\n\n" if "".join(answer.texts[-1:]).strip() else ""
        try:
            await asyncio.shield(booked)
            await self._enter("waiting")
            used = None  # from now on nobody knows, until it is told
            async with aclosing(cast(Any, turn.backend.stream(SYSTEM, said, tools=tools))) as deltas:
                async for delta in deltas:
                    if delta.text:
                        answer.take(gap + delta.text)
                        await self._enter("generating")
                        await self._tell({"token": answer.texts[-1]})
                        gap = ""
                    calls += delta.calls
                    used = delta.used or used
        finally:
            answer.used += used or LlmUse()
            await asyncio.wait([booked])
            if booked.exception() is None:
                await run_in_threadpool(booking.settle, booked.result(), used)
        return calls

    async def _found(self, call: Call) -> Said:
        """What the model gets for a call of its."""
        query, top_k = str(call.arguments.get("query", "")).strip(), call.arguments.get("top_k", PER_QUERY)
        if call.name != SEARCH_TOOL or not query:
            return Said("tool", f"There is only {SEARCH_TOOL}, which wants a query.", call_id=call.call_id)
        most = min(max(int(top_k), 1), MOST_HITS) if isinstance(top_k, int) else PER_QUERY
        await self._enter("connected")
        found = await self._search([question(query[:QUERY_CHARS], most)])
        self._answer.found = self._answer.found.with_more(found)
        await self._cite(found)
        return Said("tool", found.problem or block_of(found) or "Nothing was found.", call_id=call.call_id)

    async def _search(self, asked: Sequence[SearchQuery], standing: Sequence[SearchQuery] = ()) -> Found:
        """The memory on all of these, asked at the same time. Where it does not answer there is an answer all the same,
        whose model is told so.
        """
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
            [] if isinstance(each, BaseException)
            else not_told(shown_to(each, turn.backend, turn.private), turn.history, leaving)
            for each in answers
        ]  # fmt: skip
        found = found_by(hits[: len(asked)], hits[len(asked) :])
        self._answer.is_private |= any(map(turn.private.holds, (hit.episode for hit in found.hits)))
        return replace(found, problem=UNASKED if problems and not found.parted()[0] else "")

    def _hits(self, asked: SearchQuery) -> Sequence[Hit]:
        """What counts as a retrieval is searched now; the rest may be known."""
        if asked.track:
            return self._services.engine.search(asked).hits
        return self._known.hits(asked, self._turn.private)

    async def _cite(self, found: Found) -> None:
        event: Event = {"citations": [citation_body(each) for each in citations_of(self._answer.found)]}
        await self._tell({**event, "problem": found.problem} if found.problem else event)

    async def _enter(self, state: str) -> None:
        """:raises _Unread: nobody takes it."""
        if self._answer.state != state:
            self._answer.state = state
            await self._tell(self._status())

    def _status(self) -> Event:
        answer = self._answer
        return {"status": {"state": answer.state, "elapsed_s": answer.seconds, "tokens": answer.tokens}}

    async def _tell(self, event: Event) -> None:
        """:raises _Unread: nobody takes it. Where nobody listens any more it is dropped."""
        if self._is_left:
            return
        try:
            async with asyncio.timeout(UNREAD_S):
                await self._events.put(event)
        except TimeoutError:
            raise _Unread from None

    def _keep_answer(self) -> Event:
        """Store the answer, or why there is none, and of a whole one its round trip as an episode; the last event."""
        answer = self._answer
        done: Event = {"done": True, "message_id": None, "seconds": answer.seconds, "stopped": answer.stopped}
        done["usage"] = {
            "input_tokens": answer.used.input_tokens, "output_tokens": answer.used.output_tokens,
            "dollars": answer.used.dollars,
        }  # fmt: skip
        try:
            message = self._message()
            self._services.store.chat.add(message)
            cited = [each.episode_id for each in message.citations if id_label(each.episode_id) in message.text]
            keep_opened(self._services, cited)
            done["message_id"], answer.kept = message.message_id, message.text
            if not answer.stopped and not answer.problem and not self._is_secret:
                done["episode_id"] = self._remember(message)
        except AnamnesisError as exc:
            log.warning("an answer is not kept: %s", exc)
            done["problem"] = f"the answer is not kept: {exc}"
        except Exception as exc:  # whoever listens waits for the end
            log.exception("an answer is not kept: %s", type(exc).__name__)
            done["problem"] = f"the answer is not kept: {UNEXPECTED}"
        return done

    def _message(self) -> ChatMessage:
        turn, answer, masked = self._turn, self._answer, self._services.poster.masked
        said = answer.text()
        return ChatMessage(
            turn.answer_id, turn.session.session_id, "assistant", masked(said if said.strip() else ""),
            datetime.now(UTC), citations_of(answer.found), turn.backend.name, turn.backend.model, answer.seconds,
            answer.used.input_tokens, answer.used.output_tokens, answer.used.dollars, answer.stopped,
            masked(answer.problem),
        )  # fmt: skip

    @property
    def _is_secret(self) -> bool:
        """Whether the memory must not hold this: an episode of the chat would carry what is private where a model
        elsewhere may see it, unless the conversation is of a private project itself.
        """
        return self._answer.is_private and not self._turn.private.is_of(self._turn.session.project)

    def _remember(self, message: ChatMessage) -> str:
        turn, chat = self._turn, self._services.store.chat
        pair = Pair(
            turn.question.text, message.text, turn.settings.machine, turn.session.project, turn.question.at, "chat",
            message.model,
        )  # fmt: skip
        episode_id = self._records.keep(turn.settings, pair)
        for each in (turn.question, message):
            chat.add(replace(each, episode_id=episode_id))
        self._records.want(turn.settings, message.message_id)
        return episode_id
