"""Ollama, by its own library: several servers with the model, tried in order."""

import time
from collections.abc import Sequence
from typing import Any

import httpx
import ollama

from anamnesis_pipeline.errors import (
    AnamnesisError,
    LlmAnswerInvalid,
    LlmBusy,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
)
from anamnesis_pipeline.llm.endpoints import is_loopback
from anamnesis_pipeline.llm.prices import Model, most_input_tokens, most_use
from anamnesis_pipeline.llm.refusals import error_of_status
from anamnesis_pipeline.llm.summaries.base import Reply, Request
from anamnesis_pipeline.llm.summaries.prompt import SCHEMA
from anamnesis_pipeline.model import LlmUse

CONNECT_TIMEOUT_S = 5.0
DEAD_FOR_S = 60.0
"""Seconds for which a server is skipped after it did not answer."""
CONTEXT_SIZES = (8_192, 16_384)
"""Requested context windows. Few, since a server reloads the model for each; its default truncates prompts silently."""
BYTES_PER_TOKEN = 2
"""Lower than in any language or code, so that the chosen window holds the prompt."""

_FAILURES = (ollama.ResponseError, ConnectionError, httpx.HTTPError, ValueError, TypeError, AttributeError)
"""Exceptions of the library: its own, httpx's in mid-stream, and the last three on lines that are not Ollama's."""


class OllamaBackend:
    """Ollama with one model, on the first of several servers that answers.

    :param urls: the servers; at least one.
    :param threads: CPU threads per call of a server on this machine; None leaves it to the server.
    """

    name = "ollama"
    is_paid = False
    concurrency = 1

    def __init__(self, model: Model, urls: Sequence[str], timeout_s: float, threads: int | None = None) -> None:
        self.model = model.name
        # Suffixes of Ollama's cloud models; a local server forwards their prompts.
        self.is_local = all(map(is_loopback, urls)) and not model.name.endswith(("-cloud", ":cloud"))
        self._known = model
        self._threads = threads
        self._clients = {url: _client(url, timeout_s) for url in urls}
        self._dead_until: dict[str, float] = {}

    def expected(self, request: Request) -> LlmUse:
        """Return an upper bound of the use of `ask`."""
        return most_use(self._known, request)

    def ask(self, request: Request) -> Reply:
        """Make one streamed call to the first server that answers. Raises as `SummaryBackend.ask` says."""
        now = time.monotonic()
        dead = [url for url in self._clients if self._dead_until.get(url, 0.0) > now]
        passed_over = dead if len(dead) < len(self._clients) else []
        problems: list[AnamnesisError] = [
            LlmUnavailable(f"ollama at {url} did not answer just now; is it running?") for url in passed_over
        ]
        for url in (url for url in self._clients if url not in passed_over):
            try:
                return self._ask_one(url, request)
            except LlmUnavailable as problem:
                self._dead_until[url] = time.monotonic() + DEAD_FOR_S
                problems.append(problem)
            except (LlmBusy, LlmRefused, LlmPromptRefused) as problem:
                problems.append(problem)
        raise _most_telling(problems)

    def probe(self, timeout_s: float) -> None:
        """Check that a running server has the model. Raises as `SummaryBackend.probe` says."""
        problems: list[AnamnesisError] = []
        for url in self._clients:
            try:
                return self._look(url, timeout_s)
            except (LlmUnavailable, LlmBusy, LlmRefused) as problem:
                problems.append(problem)
        raise _most_telling(problems)

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()  # type: ignore[no-untyped-call]

    def _look(self, url: str, timeout_s: float) -> None:
        client = _client(url, timeout_s)
        try:
            names = {found.model for found in client.list().models}
        except _FAILURES as exc:
            raise _translated(exc, url, self.model) from None
        finally:
            client.close()  # type: ignore[no-untyped-call]
        if not names & {self.model, f"{self.model}:latest"}:
            raise _no_model(url, self.model)

    def _ask_one(self, url: str, request: Request) -> Reply:
        texts: list[str] = []
        last: ollama.ChatResponse | None = None
        try:
            for last in self._chat(url, request):
                texts.append(last.message.content or "")
        except _FAILURES as exc:
            raise _translated(exc, url, self.model) from None  # an error may quote the prompt
        if last is None or not last.done:
            raise LlmUnavailable(f"ollama at {url} broke off in mid-answer; try again later")
        if last.done_reason == "length":
            raise LlmAnswerInvalid(f"{self.model} at {url} was cut off by the limit of its answer")
        return Reply("".join(texts), LlmUse(1, last.prompt_eval_count or 0, last.eval_count or 0))

    def _chat(self, url: str, request: Request) -> Any:
        return self._clients[url].chat(
            self.model,
            [{"role": "system", "content": request.system}, {"role": "user", "content": request.text}],
            stream=True,
            think=False,
            format=SCHEMA,
            options=self._options(url, request),
        )

    def _options(self, url: str, request: Request) -> dict[str, Any]:
        needed = most_input_tokens(request) // BYTES_PER_TOKEN + request.max_output_tokens
        context = next((size for size in CONTEXT_SIZES if size >= needed), CONTEXT_SIZES[-1])
        options: dict[str, Any] = {"temperature": 0, "num_ctx": context, "num_predict": request.max_output_tokens}
        limits = {"num_thread": self._threads} if self._threads is not None and is_loopback(url) else {}
        return options | limits


def _client(url: str, timeout_s: float) -> ollama.Client:
    """Return a client for this server only: no redirects, and no proxy for this machine."""
    return ollama.Client(
        url,
        timeout=httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
        trust_env=not is_loopback(url),
        follow_redirects=False,
        event_hooks={"response": [_redirect_refused]},
    )


def _redirect_refused(response: httpx.Response) -> None:
    """:raises LlmRefused: it is a redirect. The library's own error does not name the target."""
    if response.is_redirect:
        service = f"ollama at {response.url.scheme}://{response.url.netloc.decode()}"
        raise error_of_status(service, response.status_code, headers=response.headers)


def _most_telling(problems: Sequence[AnamnesisError]) -> AnamnesisError:
    """Return the error when no server answered: busy if one is busy; a refusal for all prompts only if every server
    refused; a refusal of this prompt only if all were reachable and one could not take it.
    """
    if busy := next((problem for problem in problems if isinstance(problem, LlmBusy)), None):
        return busy
    kind = next(k for k in (LlmUnavailable, LlmPromptRefused, LlmRefused) if any(isinstance(p, k) for p in problems))
    return kind("; ".join(map(str, problems)))


def _no_model(url: str, model: str) -> LlmRefused:
    return LlmRefused(f"ollama at {url} has no model {model!r}; run `ollama pull {model}` there")


def _translated(exc: Exception, url: str, model: str) -> AnamnesisError:
    match exc:
        case ollama.ResponseError(status_code=404):
            return _no_model(url, model)
        case ollama.ResponseError(status_code=503):
            return LlmBusy(f"ollama at {url} has too many calls waiting")
        case ollama.ResponseError(status_code=status) if status > 0:
            return error_of_status(f"ollama at {url}", status, message=str(exc.error))
        case httpx.ConnectError() | httpx.ConnectTimeout() | ConnectionError():
            return LlmUnavailable(f"ollama at {url} cannot be reached; is it running?")
        case httpx.TimeoutException():
            return LlmUnavailable(f"ollama at {url} was silent for too long; raise summary_timeout_s if it is slow")
        case _:
            return LlmUnavailable(f"ollama at {url} broke off in mid-answer ({type(exc).__name__}); try again later")
