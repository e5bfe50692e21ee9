"""Ollama, by its own library, on several servers: https://docs.ollama.com/api/chat.

A summary goes to the first server that answers, a chat to the first that is up and has the model.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Self

import httpx
import ollama

from anamnesis_pipeline.errors import (
    AnamnesisError,
    BadSetting,
    LlmAnswerInvalid,
    LlmBusy,
    LlmPromptRefused,
    LlmRefused,
    LlmUnavailable,
)
from anamnesis_pipeline.llm import provider
from anamnesis_pipeline.llm.endpoints import check_url, is_loopback, with_scheme
from anamnesis_pipeline.llm.prices import DEFAULT_MODELS, Model, most_input_tokens
from anamnesis_pipeline.llm.prompts import SCHEMA, SEARCH_FUNCTION, SEARCH_TOOL, Request
from anamnesis_pipeline.llm.provider import (
    MAX_ANSWER_TOKENS,
    PROBE_S,
    Call,
    ChatTurn,
    Delta,
    LlmOptions,
    Provider,
    Reply,
)
from anamnesis_pipeline.llm.refusals import error_of_status
from anamnesis_pipeline.model import LlmUse

CONNECT_TIMEOUT_S = 5.0
DEAD_FOR_S = 60.0
"""Seconds for which a server is skipped after it did not answer."""
CONTEXT_SIZES = (8_192, 16_384)
"""Requested context windows of summaries. Few, since a server reloads the model for each; it caps a size at the
model's maximum. Its default truncates prompts silently."""
CHAT_CONTEXT_SIZES = (16_384, 32_768, 65_536, 131_072)
BYTES_PER_TOKEN = 2
"""Lower than in any language or code, so that the chosen window holds a summary's prompt."""
CHAT_BYTES_PER_TOKEN = 3
"""For texts in most languages; code has fewer."""
PATIENCE_S = 0.25
"""Seconds to wait for a server's list of models before a later one is preferred."""

_FAILURES = (ollama.ResponseError, ConnectionError, httpx.HTTPError, ValueError, TypeError, AttributeError)
"""Exceptions of the library: its own, httpx's in mid-stream, and the last three on lines that are not Ollama's."""


class Ollama(Provider):
    """Ollama with one model.

    :param urls: the servers; at least one.
    :param threads: CPU threads per summary of a server on this machine; None leaves it to the server.
    """

    name = "ollama"

    def __init__(self, known: Model, urls: Sequence[str], timeout_s: float, threads: int | None = None) -> None:
        super().__init__(known, _who(urls[0]))
        # Suffixes of Ollama's cloud models; a local server forwards their prompts.
        self.is_local = all(map(is_loopback, urls)) and not known.name.endswith(("-cloud", ":cloud"))
        self._threads = threads
        self._urls = self._chat_urls = tuple(urls)
        self._timeout_s = timeout_s
        self._dead_until: dict[str, float] = {}

    @classmethod
    def opened(cls, options: LlmOptions) -> Self:
        """Check URLs and model."""
        known = options.model_of(cls.name, is_paid=False)
        return cls(known, _urls_of(options), options.timeout_s, options.ollama_threads)

    @classmethod
    async def models(cls, options: LlmOptions) -> tuple[str, ...]:
        """Return the models of the only server."""
        (url,) = _urls_of(options)
        names = await models_of(url)
        if not names:
            raise LlmUnavailable(f"ollama at {url} has no model; get one with: ollama pull {DEFAULT_MODELS[cls.name]}")
        return names

    @classmethod
    def cost(cls, options: LlmOptions) -> str:
        """Return `local`: no server is paid."""
        del options
        return "local"

    def ask(self, request: Request) -> Reply:
        """Make one streamed call to the first server that answers."""
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
        """Check that a running server has the model."""
        problems: list[AnamnesisError] = []
        for url in self._urls:
            client = ollama.Client(url, **_settings(url, timeout_s), event_hooks={"response": [_refuse_redirect]})
            try:
                with _translated(url, self.model):
                    names = {found.model for found in client.list().models}
                if names & {self.model, f"{self.model}:latest"}:
                    return
                problems.append(_no_model(url, self.model))
            except (LlmUnavailable, LlmBusy, LlmRefused) as problem:
                problems.append(problem)
            finally:
                client.close()  # type: ignore[no-untyped-call]
        raise _most_telling(problems)

    async def stream(self, system: str, turns: Sequence[ChatTurn], *, tools: bool) -> AsyncIterator[Delta]:
        """Stream an answer from the selected server."""
        context = _chat_context(system, turns)
        await self._choose()
        url, reason, done = self._chat_urls[0], None, False
        silent = f"sent nothing for {provider.STALL_S:.0f} s and was given up; try again"
        with _translated(url, self.model, silent):
            pieces = await self._chat_client.chat(
                self.model,
                [{"role": "system", "content": system}, *map(_message, turns)],
                tools=[SEARCH_FUNCTION] if tools else None,
                stream=True,
                options={"num_ctx": context, "num_predict": MAX_ANSWER_TOKENS},
            )
            async for piece in pieces:
                text = piece.message.content or ""
                calls = tuple(
                    Call(f"call-{number}", call.function.name, call.function.arguments)
                    for number, call in enumerate(piece.message.tool_calls or ())
                )
                if text or calls:
                    yield Delta(text, calls)
                if piece.done:
                    done, reason = True, piece.done_reason
                    yield Delta(used=LlmUse(1, piece.prompt_eval_count or 0, piece.eval_count or 0))
        if not done:
            raise LlmUnavailable(f"{self._who} broke off in mid-answer; try again")
        self._check_whole(reason)

    def close(self) -> None:
        """Close the connections of `ask`."""
        for client in vars(self).get("_clients", {}).values():
            client.close()

    async def close_chat(self) -> None:
        """Close the connections of `stream`."""
        if "_chat_client" in vars(self):
            await self._chat_client.close()  # type: ignore[no-untyped-call]

    @cached_property
    def _clients(self) -> dict[str, ollama.Client]:
        hooks = {"response": [_refuse_redirect]}
        return {url: ollama.Client(url, **_settings(url, self._timeout_s), event_hooks=hooks) for url in self._urls}

    @cached_property
    def _chat_client(self) -> ollama.AsyncClient:
        return _async_client(self._chat_urls[0], provider.STALL_S)

    def _ask_one(self, url: str, request: Request) -> Reply:
        needed = most_input_tokens(request) // BYTES_PER_TOKEN + request.max_output_tokens
        context = next((size for size in CONTEXT_SIZES if size >= needed), CONTEXT_SIZES[-1])
        options: dict[str, Any] = {"temperature": 0, "num_ctx": context, "num_predict": request.max_output_tokens}
        if self._threads is not None and is_loopback(url):
            options["num_thread"] = self._threads
        texts: list[str] = []
        last: ollama.ChatResponse | None = None
        with _translated(url, self.model):
            for last in self._clients[url].chat(
                self.model,
                [{"role": "system", "content": request.system}, {"role": "user", "content": request.text}],
                stream=True,
                think=False,
                format=SCHEMA,
                options=options,
            ):
                texts.append(last.message.content or "")
        if last is None or not last.done:
            raise LlmUnavailable(f"ollama at {url} broke off in mid-answer; try again later")
        if last.done_reason == "length":
            raise LlmAnswerInvalid(f"{self.model} at {url} was cut off by the limit of its answer")
        return Reply("".join(texts), LlmUse(1, last.prompt_eval_count or 0, last.eval_count or 0))

    async def _choose(self) -> None:
        """Of several servers, select the first that is up and has the model, for all further answers. All are checked
        concurrently; a slow one is skipped if a later one answers.

        :raises LlmUnavailable, LlmRefused: none has it; LlmRefused if all are up.
        """
        if len(self._chat_urls) == 1:
            return
        looks = {url: asyncio.create_task(_look(url, self.model)) for url in self._chat_urls}
        try:
            url = await _first_with_model(looks)
        finally:
            for look in looks.values():
                look.cancel()
            await asyncio.gather(*looks.values(), return_exceptions=True)
        if url is None:
            problems = [problem for look in looks.values() if (problem := look.result())]
            kind = LlmRefused if all(isinstance(each, LlmRefused) for each in problems) else LlmUnavailable
            raise kind("; ".join(map(str, problems)))
        self._chat_urls, self._who = (url,), _who(url)


async def models_of(url: str) -> tuple[str, ...]:
    """Return the names of the models that a server has.

    :raises LlmUnavailable, LlmRefused, LlmBusy: no answer, or an unexpected one.
    """
    client = _async_client(url, PROBE_S)
    try:
        with _translated(url, ""):
            return tuple(found.model for found in (await client.list()).models if found.model)
    finally:
        await client.close()  # type: ignore[no-untyped-call]


async def _first_with_model(looks: dict[str, "asyncio.Task[AnamnesisError | None]"]) -> str | None:
    for url, look in looks.items():
        await asyncio.wait([look], timeout=PATIENCE_S)
        if look.done() and look.result() is None:
            return url
    pending = set(looks.values())
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for url, look in looks.items():
            if look in done and look.result() is None:
                return url
    return None


async def _look(url: str, model: str) -> AnamnesisError | None:
    """Return why a server cannot answer with a model; None: it can."""
    try:
        async with asyncio.timeout(PROBE_S):
            names = await models_of(url)
    except TimeoutError:
        return LlmUnavailable(f"ollama at {url} did not answer within {PROBE_S:.0f} s")
    except AnamnesisError as exc:
        return exc
    return None if {model, f"{model}:latest"} & {*names} else _no_model(url, model)


def _urls_of(options: LlmOptions) -> tuple[str, ...]:
    if not options.ollama_urls:
        raise BadSetting("ollama_urls must hold at least one URL, e.g. http://127.0.0.1:11434")
    return tuple(check_url("ollama_urls", with_scheme(url)) for url in options.ollama_urls)


def _who(url: str) -> str:
    return f"ollama at {url}"


def _chat_context(system: str, turns: Sequence[ChatTurn]) -> int:
    """Return the smallest context size that holds the conversation and an answer.

    :raises LlmRefused: none does; the server would cut off the beginning silently.
    """
    wanted = provider.max_tokens(system, turns) // CHAT_BYTES_PER_TOKEN + MAX_ANSWER_TOKENS
    for size in CHAT_CONTEXT_SIZES:
        if size >= wanted:
            return size
    raise LlmRefused(
        f"the conversation with its files is some {wanted:,} tokens long, and Ollama is asked for "
        f"{CHAT_CONTEXT_SIZES[-1]:,} at most; leave files out, or begin a new conversation"
    )


def _message(turn: ChatTurn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": turn.text}
    if turn.calls:
        message["tool_calls"] = [
            {"function": {"name": call.name, "arguments": dict(call.arguments)}} for call in turn.calls
        ]
    if turn.role == "tool":
        message["tool_name"] = SEARCH_TOOL
    return message


def _settings(url: str, timeout_s: float) -> dict[str, Any]:
    """Return the settings of a client for this server only: no redirects, and no proxy for this machine."""
    return {
        "timeout": httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
        "trust_env": not is_loopback(url),
        "follow_redirects": False,
    }


def _async_client(url: str, timeout_s: float) -> ollama.AsyncClient:
    async def refuse_redirect(response: httpx.Response) -> None:
        _refuse_redirect(response)

    return ollama.AsyncClient(url, **_settings(url, timeout_s), event_hooks={"response": [refuse_redirect]})


def _refuse_redirect(response: httpx.Response) -> None:
    """:raises LlmRefused: it is a redirect. The library's own error does not name the target."""
    if response.is_redirect:
        service = _who(f"{response.url.scheme}://{response.url.netloc.decode()}")
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


@contextmanager
def _translated(
    url: str, model: str, silent: str = "was silent for too long; raise summary_timeout_s if it is slow"
) -> Iterator[None]:
    """Translate errors of the library, which may quote the prompt; `silent` says what a timeout means.

    :param model: of the call; empty: it names none.
    """
    try:
        yield
    except _FAILURES as exc:
        match exc:
            case ollama.ResponseError(status_code=404) if model:
                problem: AnamnesisError = _no_model(url, model)
            case ollama.ResponseError(status_code=503):
                problem = LlmBusy(f"ollama at {url} has too many calls waiting")
            case ollama.ResponseError(status_code=status) if status > 0:
                problem = error_of_status(_who(url), status, message=str(exc.error))
            case httpx.ConnectError() | httpx.ConnectTimeout() | ConnectionError():
                problem = LlmUnavailable(f"ollama at {url} cannot be reached; is it running?")
            case httpx.TimeoutException():
                problem = LlmUnavailable(f"ollama at {url} {silent}")
            case _:
                problem = LlmUnavailable(
                    f"ollama at {url} broke off in mid-answer ({type(exc).__name__}); try again later"
                )
        raise problem from None
