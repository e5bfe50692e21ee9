"""Observability of the sidecar: Prometheus metrics, one log line per request, and unexpected errors."""

import logging
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import accumulate
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.pipeline.llm_guard import breakers
from anamnesis_pipeline.search.stage_times import BOUNDS
from anamnesis_pipeline.services import reembedding as reembed
from anamnesis_pipeline.sidecar.problems import problem
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.store.base import Store

access_log = logging.getLogger("anamnesis.access")
log = logging.getLogger(__name__)

UNROUTED = "unrouted"
"""Label for every path without a route, so that strangers cannot add metrics."""
CLIENT_GONE = 499
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counters of one application, in a separate registry."""

    def __init__(self, services: Services) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "anamnesis_http_requests", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "anamnesis_http_request_seconds", "Time to answer", ["route"], registry=self.registry, buckets=_BUCKETS
        )
        self.chat_failures = Counter(
            "anamnesis_chat_failures", "Chat answers that failed", ["backend"], registry=self.registry
        )
        self.chat_records_failed = Counter(
            "anamnesis_chat_records_failed",
            "Attempts to find the records of a round trip of the chat that failed",
            registry=self.registry,
        )
        self.background_failures = Counter(
            "anamnesis_background_failures",
            "Times that work beside the requests failed unforeseen and began again",
            ["work"],
            registry=self.registry,
        )
        self.registry.register(_StoreGauges(services))
        self.registry.register(_SearchStages(services))


class _StoreGauges(Collector):
    """Gauges read from the store at each scrape; omitted while the store does not answer."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield nothing: the registry need not read the store to learn the names."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read all gauges."""
        pool = self._services.pool
        yield GaugeMetricFamily("anamnesis_embedding_queue_depth", "Batches waiting for the model", value=pool.depth)
        yield GaugeMetricFamily("anamnesis_model_ready", "1 when the embedding model is in memory", value=pool.ready)
        try:
            yield from _of_store(self._services.store)
        except AnamnesisError as exc:
            log.warning("metrics without the store: %s", exc)


class _SearchStages(Collector):
    """Durations of search stages, over HTTP, MCP and for contexts."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: the registry need not open the store to learn the names."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield a histogram of every stage that ran."""
        try:
            stages = self._services.engine.times.all()
        except AnamnesisError:  # the store's gauges have logged it
            return
        family = HistogramMetricFamily(
            "anamnesis_search_stage_seconds", "Time of a stage of a search; lists run side by side", labels=["stage"]
        )
        edges = [*map(str, BOUNDS), "+Inf"]
        for stage, known in stages.items():
            buckets = list(zip(edges, accumulate(known.counts), strict=True))
            family.add_metric([stage], buckets=buckets, sum_value=known.total_s)
        yield family


def _of_store(store: Store) -> list[GaugeMetricFamily]:
    counts, state = store.overview.counts(), reembed.status(store)
    used = store.llm.used(f"{datetime.now(UTC):%Y-%m-%d}")
    return [
        GaugeMetricFamily("anamnesis_episodes", "Episodes stored", value=counts.episodes),
        GaugeMetricFamily("anamnesis_passages", "Passages stored", value=counts.passages),
        GaugeMetricFamily("anamnesis_dead_letters", "Lines that could not be read", value=counts.dead_letters),
        GaugeMetricFamily("anamnesis_llm_calls_today", "LLM calls of this day (UTC)", value=used.calls),
        GaugeMetricFamily(
            "anamnesis_llm_tokens_today",
            "Tokens in and out, open calls as booked",
            value=used.input_tokens + used.output_tokens,
        ),
        GaugeMetricFamily("anamnesis_llm_dollars_today", "Dollars, open calls as booked", value=used.dollars),
        GaugeMetricFamily(
            "anamnesis_reembed_passages_per_second",
            "Pace of the re-embed; 0 when none runs",
            value=state.rate_per_s or 0.0,
        ),
        *_labeled(store, state.state),
    ]


def _labeled(store: Store, reembed_state: str) -> list[GaugeMetricFamily]:
    """Return the gauges with several labelled values."""
    summaries = GaugeMetricFamily(
        "anamnesis_summaries", "Summaries by what wrote them; problem: stand in for an LLM's", labels=["model"]
    )
    for model, count in store.summaries.summary_counts().items():
        summaries.add_metric([model], count)
    breaker = GaugeMetricFamily(
        "anamnesis_llm_breaker_open", "1 while calls to this LLM are paused", labels=["backend"]
    )
    for each in breakers(store.settings):
        breaker.add_metric([each.backend], each.is_open(datetime.now(UTC)))
    embedded = GaugeMetricFamily(
        "anamnesis_embedded_passages", "Passages with all vectors of a space", labels=["space", "status"]
    )
    for space in store.spaces.all():
        embedded.add_metric([space.key, space.status], store.vectors.progress(space.key).passages_done)
    reembedding = GaugeMetricFamily("anamnesis_reembed_state", "1 for the state the re-embed is in", labels=["state"])
    for name in get_args(reembed.State):
        reembedding.add_metric([name], name == reembed_state)
    return [summaries, breaker, embedded, reembedding]


class Observation:
    """Outermost middleware: times, counts and logs each request, and turns uncaught errors into a plain 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), CLIENT_GONE

        async def send_observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_observed)
        except Exception as exc:
            log_unexpected(exc)
            if status != CLIENT_GONE:
                raise  # the response has begun: only a closed connection tells the client
            await problem(500, "this should not happen; the log names the place")(scope, receive, send_observed)
        finally:
            self._record(scope, status, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", None) or getattr(scope.get("route"), "path", UNROUTED)
        method = scope["method"] if route != UNROUTED else ""
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        # the route, not the path: an id may be a secret by mistake
        access_log.info("%s %s %d %.1f ms", scope["method"], route, status, seconds * 1000)


def log_unexpected(exc: BaseException) -> None:
    """Log where an error was raised, without its message: messages of libraries may quote their input."""
    place = "".join(traceback.format_tb(exc.__traceback__))
    log.error("unexpected %s\n%s", type(exc).__qualname__, place)
