"""Health of the services behind the sidecar: store, model, Dagster and the configured LLMs. All are probed in parallel,
by calls without cost, within five seconds. A pending probe is not repeated.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from anamnesis_pipeline.errors import AnamnesisError, LlmUnavailable, ServiceUnreachable
from anamnesis_pipeline.llm.endpoints import is_loopback, with_scheme
from anamnesis_pipeline.llm.factory import NEVER_LOCAL, offer_of, open_provider
from anamnesis_pipeline.llm.provider import LlmOptions
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.in_flight import Flight, Flights
from anamnesis_pipeline.runtime.advice import START_STOPPED, start_it
from anamnesis_pipeline.runtime.dagster_home import dagster_link
from anamnesis_pipeline.runtime.llm_wiring import backend_options
from anamnesis_pipeline.services.dagster.state import stopped_text
from anamnesis_pipeline.services.embedding_control import coverage
from anamnesis_pipeline.services.wiring import effective_settings, store_place
from anamnesis_pipeline.settings import Settings, claude_api_key
from anamnesis_pipeline.sidecar.admission import DiskSpace
from anamnesis_pipeline.sidecar.services import Services

log = logging.getLogger(__name__)

PROBED_WITHIN_S = 4.5
KEPT_S = 25.0
"""A client that polls every 30 seconds triggers a new probe each time; more clients add none."""
STALE_FAILURES = 2
"""Consecutive failures tolerated in a service that answered before; one more, and it counts as down."""

AUTOMATIONS = "Sensors and schedules"
"""Name of the resource that reports whether they run."""

State = Literal["up", "loading", "stale", "down", "off"]
Kind = Literal["store", "model", "dagster", "llm"]


@dataclass(frozen=True, slots=True)
class Place:
    """A service to probe. `where` is its address, `key` its masked key; `is_used` says that work depends on it. `ask`
    returns its state or raises an AnamnesisError.
    """

    name: str
    kind: Kind
    where: str
    ask: Callable[[], "Answer"]
    key: str | None = None
    is_used: bool = True
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a successful probe."""

    detail: str
    state: State = "up"
    took_ms: float = 0.0


_NOT_ASKED = Answer("not asked: local_only keeps everything on this machine", "off")


@dataclass(frozen=True, slots=True)
class Resource:
    """State of a service. `failures` counts consecutive ones; `last_ok` is its last answer since startup."""

    name: str
    kind: Kind
    where: str
    state: State
    detail: str
    advice: str
    key: str | None
    is_used: bool
    failures: int
    last_ok: datetime | None
    checked_at: datetime
    took_ms: float | None


class Resources:
    """Probes services and caches the results. Thread-safe."""

    def __init__(self, services: Services, room: DiskSpace, clock: Callable[[], float] = time.monotonic) -> None:
        self._services, self._room, self._clock = services, room, clock
        self._flights: Flights[Answer] = Flights()
        self._asking = threading.Lock()
        self._known: dict[str, Resource] = {}
        self._asked_at: float | None = None

    def last(self) -> list[Resource]:
        """Return the results of the last probe; empty before the first."""
        return list(self._known.values())

    def status(self, *, now: bool = False) -> list[Resource]:
        """Return the results, at most `KEPT_S` old.

        :param now: probe in any case.
        """
        began = self._clock()
        with self._asking:
            known = self._asked_at
            fresh_since = began if now else began - KEPT_S  # concurrent callers share one probe
            if known is None or known <= fresh_since:
                self._ask_all()
                self._asked_at = self._clock()
            return self.last()

    def _ask_all(self) -> None:
        places = {f"{place.kind} {place.name} {place.where}": place for place in places_of(self._services, self._room)}
        self._flights.launch({key: _timed(place.ask) for key, place in places.items()})
        landed = dict(self._flights.landing(time.monotonic() + PROBED_WITHIN_S))
        at = datetime.now(UTC)
        self._known = {key: judged(place, landed.get(key), self._known.get(key), at) for key, place in places.items()}


def judged(place: Place, flight: Flight[Answer] | None, before: Resource | None, at: datetime) -> Resource:
    """Return the state after a probe: a service that answered before is `stale` first. Pure.

    :param flight: None: no answer yet.
    """
    last_ok = before.last_ok if before else None
    found = Resource(place.name, place.kind, place.where, "up", "", "", place.key, place.is_used, 0, last_ok, at, None)
    answer = flight.answer if flight else None
    if answer is not None:
        advice = place.advice if answer.state == "down" else ""
        return replace(
            found, state=answer.state, detail=answer.detail, advice=advice, last_ok=at, took_ms=answer.took_ms
        )
    failures = (before.failures if before else 0) + 1
    is_late = last_ok is not None and failures <= STALE_FAILURES
    return replace(
        found, state="stale" if is_late else "down", detail=_reason(flight), advice=place.advice, failures=failures
    )


def places_of(services: Services, room: DiskSpace) -> list[Place]:
    """Return all services to probe. Uses the stored settings if the store can be read."""
    try:
        settings = effective_settings(services.store)
    except AnamnesisError:
        settings = services.settings
    return [
        Place(
            "Store",
            "store",
            store_place(services.settings),
            lambda: _store(services, room),
            advice="until it is back or has room, nothing new is kept",
        ),
        Place(
            "Embedding",
            "model",
            settings.model,
            lambda: _model(services),
            advice="words are searched meanwhile; choose a model that is there on the page Embedding",
        ),
        Place("Dagster", "dagster", dagster_link(settings), lambda: _dagster(services), advice=start_it(settings)),
        Place(
            AUTOMATIONS,
            "dagster",
            f"{dagster_link(settings)}/automation",
            lambda: _automations(services),
            advice=START_STOPPED,
        ),
        *_llms(settings),
    ]


def masked(key: str) -> str:
    """Mask a key, but leave enough to recognize it. Pure."""
    return f"{key[:3]}…{key[-4:]}" if len(key) >= 20 else "set"


def _llms(settings: Settings) -> list[Place]:
    """Return the configured LLMs: the summary LLM, and those with an address or a key set."""
    options = backend_options(settings)
    places = []
    if settings.summarizer == "claude_cli" or settings.claude_host or _is_chosen(settings, "claude_command"):
        where = f"{settings.claude_command} on {settings.claude_host or 'this machine'}"
        places.append(_llm("claude_cli", "Claude's command line", where, settings, options))
    is_chosen = settings.summarizer == "ollama" or _is_chosen(settings, "ollama_urls")
    for url in settings.ollama_urls if is_chosen else ():
        of_one = replace(options, ollama_urls=(url,))
        places.append(_llm("ollama", "Ollama", url, settings, of_one))
    if settings.openai_url:
        key = options.openai_api_key
        places.append(_llm("openai", "OpenAI-compatible", settings.openai_url, settings, options, key))
    if claude_api_key(settings):
        where = settings.anthropic_url or "Anthropic"
        places.append(_llm("anthropic", "Claude API", where, settings, options, options.anthropic_api_key))
    return places


def _llm(backend: str, name: str, where: str, settings: Settings, options: LlmOptions, key: str | None = None) -> Place:
    is_used = settings.summarizer == backend

    def ask() -> Answer:
        if settings.local_only and backend in NEVER_LOCAL:  # before its library, which takes seconds to load
            return _NOT_ASKED
        if not is_used:
            may_ask = not settings.local_only or is_loopback(with_scheme(where))
            return _for_chats(backend, options) if may_ask else _NOT_ASKED
        with closing(open_provider(backend, options)) as opened:
            if settings.local_only and not opened.is_local:
                return _NOT_ASKED
            opened.probe(PROBED_WITHIN_S)
            return Answer(opened.model)

    advice = "mend what it says; summaries wait meanwhile" if is_used else "only what you choose it for needs it"
    return Place(name, "llm", where, ask, masked(key) if key else None, is_used, advice)


def _for_chats(backend: str, options: LlmOptions) -> Answer:
    """Probe an LLM that writes no summaries: any of its models may serve a chat.

    :raises LlmUnavailable: it cannot be reached, or has no model.
    """
    offer = asyncio.run(offer_of(backend, options))
    if not offer.reachable:
        raise LlmUnavailable(offer.problem)
    return Answer(f"answers; {counted(len(offer.models), 'model')} to chat with" if offer.models else "answers")


def _is_chosen(settings: Settings, name: str) -> bool:
    return bool(getattr(settings, name) != type(settings).model_fields[name].default)


def _store(services: Services, room: DiskSpace) -> Answer:
    covered = coverage(services.store)
    if problem := room.problem(services.store):
        return Answer(f"takes nothing new: {problem}", "down")
    return Answer(counted(covered["stored"], "passage"))


def _model(services: Services) -> Answer:
    pool = services.pool
    if pool.failure:
        return Answer(pool.failure, "down")
    if not pool.ready:
        return Answer(f"{pool.model_id or 'the model'} is loading; words are searched meanwhile", "loading")
    waiting = f", {counted(pool.depth, 'batch', 'batches')} waiting" if pool.depth else ""
    return Answer(f"{pool.model_id} is in memory{waiting}")


def _dagster(services: Services) -> Answer:
    runs = services.dagster.ingest_runs()
    return Answer(f"{counted(len(runs.unfinished), 'ingest run')} under way" if runs.unfinished else "idle")


def _automations(services: Services) -> Answer:
    try:
        stopped = services.dagster.stopped_automations()
    except ServiceUnreachable:  # reported by `Dagster`
        return Answer("not asked: Dagster does not answer", "off")
    return Answer(stopped_text([each.name for each in stopped]), "down") if stopped else Answer("all run")


def _timed(ask: Callable[[], Answer]) -> Callable[[], Answer]:
    def timed() -> Answer:
        began = time.perf_counter()
        return replace(ask(), took_ms=round((time.perf_counter() - began) * 1e3, 1))

    return timed


def _reason(flight: Flight[Answer] | None) -> str:
    if flight is None:
        return f"no answer within {PROBED_WITHIN_S} s"
    if isinstance(flight.error, AnamnesisError):
        return str(flight.error)
    # its text may quote the library's input
    log.error("asking how it is failed: %s", type(flight.error).__qualname__)
    return f"could not be asked ({type(flight.error).__qualname__}); the log of this service says more"
