"""Common code of HTTP chat services: requests, and streams of JSON lines or server-sent events with JSON."""

import json
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx

from anamnesis_pipeline.errors import AnamnesisError, LlmAnswerInvalid, LlmUnavailable
from anamnesis_pipeline.llm.chat.base import MOST_OUTPUT_TOKENS, STALL_S, Said, check_whole, most_tokens
from anamnesis_pipeline.llm.endpoints import is_loopback
from anamnesis_pipeline.llm.prices import Model
from anamnesis_pipeline.llm.refusals import error_of_status
from anamnesis_pipeline.model import LlmUse

CONNECT_TIMEOUT_S = 5.0
PROBE_S = 4.0
"""Timeout in seconds for listing a service's models."""
MOST_LINE_BYTES = 1_000_000
MOST_ERROR_BYTES = 20_000


@cache
def _trusted() -> ssl.SSLContext:
    """Return the TLS context, cached: loading certificates takes some 20 ms, and every answer has a separate client."""
    return httpx.create_ssl_context()


def client(url: str, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    """Return a client of a service that follows no redirects: a prompt goes only to its configured host."""
    timeout = httpx.Timeout(STALL_S, connect=CONNECT_TIMEOUT_S)
    return httpx.AsyncClient(
        base_url=url,
        headers=dict(headers or {}),
        timeout=timeout,
        trust_env=not is_loopback(url),
        follow_redirects=False,
        verify=_trusted(),
    )


@asynccontextmanager
async def lines_of(
    service: httpx.AsyncClient, path: str, body: Mapping[str, Any], who: str
) -> AsyncIterator[AsyncIterator[str]]:
    """Yield the lines of the answer to a POST. Leaving the block closes the connection, which ends the work.

    :param who: the service's name for errors.
    :raises AnamnesisError: as `ChatBackend.stream` says.
    """
    try:
        async with service.stream("POST", path, json=body) as reply:
            if reply.status_code != 200:
                raise _refused(who, reply, await _beginning(reply))
            yield _bounded(reply, who)
    except (httpx.ConnectError, httpx.ConnectTimeout):
        raise unreachable(who) from None
    except httpx.TimeoutException:
        raise LlmUnavailable(f"{who} sent nothing for {STALL_S:.0f} s and was given up; try again") from None
    except httpx.HTTPError as exc:
        raise LlmUnavailable(f"{who} broke off in mid-answer ({type(exc).__name__}); try again") from None


async def rows_of(
    url: str, path: str, headers: Mapping[str, str], who: str, *, key: str = "data", missing: Collection[int] = ()
) -> list[dict[str, Any]]:
    """Return the objects in a service's answer to a GET, within `PROBE_S`: a list, or a list under `key`.

    :param missing: statuses of a service without such a list, which give an empty one.
    :raises LlmUnavailable, LlmRefused, LlmBusy: no answer, or an unexpected one.
    """
    async with client(url, headers) as service:
        try:
            reply = await service.get(path, timeout=PROBE_S)
            found = reply.json() if reply.status_code == 200 else None
        except httpx.HTTPError:
            raise unreachable(who) from None
        except ValueError:
            raise LlmUnavailable(f"{who} answers with something else than JSON; check its URL") from None
    if reply.status_code in missing:
        return []
    if reply.status_code != 200:
        raise error_of_status(who, reply.status_code)
    rows = (found.get(key) or []) if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise LlmUnavailable(f"{who} answers with something else than a list; check its URL")
    return [row for row in rows if isinstance(row, dict)]


def unreachable(who: str) -> LlmUnavailable:
    """Return the error for an unreachable service."""
    return LlmUnavailable(f"{who} cannot be reached; is it running?")


Reader = Callable[[AsyncIterator[str], str], AsyncIterator[dict[str, Any]]]
"""Converts the lines of a stream to events; the second argument is the service's name for errors."""


async def objects_of(lines: AsyncIterator[str], who: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON objects of a stream with one per line."""
    async for line in lines:
        yield read(line, who)


async def events_of(lines: AsyncIterator[str], who: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON objects of server-sent events, until `[DONE]` or the end."""
    async for line in lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        yield read(data, who)


def read(text: str, who: str) -> dict[str, Any]:
    """Return one JSON object.

    :raises LlmAnswerInvalid: the text is none.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise LlmAnswerInvalid(f"{who} sent something else than a chat answer; check its URL")
    return found


class HttpChat:
    """The common part of HTTP chat backends.

    :param known: the model, with its prices.
    :param who: the service's name for errors.
    :param reader: converts the lines to events.
    """

    def __init__(
        self, known: Model, who: str, url: str, headers: Mapping[str, str] | None = None, reader: Reader = events_of
    ) -> None:
        self.model = known.name
        self._known, self._who, self._reader = known, who, reader
        self._client = client(url, headers)

    def expected(self, system: str, said: Sequence[Said]) -> LlmUse:
        """Return an upper bound of an answer's use, at the model's prices."""
        return self._used(most_tokens(system, said), MOST_OUTPUT_TOKENS)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    @asynccontextmanager
    async def _events(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Yield the events of an answer. Leaving the block ends the work. Raises as `ChatBackend.stream` says."""
        async with lines_of(self._client, path, body, self._who) as lines:
            yield _good(self._reader(lines, self._who), self._who)

    def _check_end(self, reason: object, *, ended: bool) -> None:
        """:raises LlmUnavailable, LlmAnswerInvalid: the answer is incomplete."""
        if not ended:
            raise LlmUnavailable(f"{self._who} broke off in mid-answer; try again")
        check_whole(self._who, reason)

    def _used(self, tokens_in: int, tokens_out: int) -> LlmUse:
        return LlmUse(1, tokens_in, tokens_out, self._known.dollars(tokens_in, 0, 0, tokens_out))


async def _good(events: AsyncIterator[dict[str, Any]], who: str) -> AsyncIterator[dict[str, Any]]:
    """Yield events; raise at one that reports an error, without repeating its message."""
    async for event in events:
        if error := event.get("error"):
            said = error if isinstance(error, dict) else {}
            codes = (said.get("type"), said.get("code"))
            raise error_of_status(who, 500, codes, {}, str(said.get("message", error)))
        yield event


async def _bounded(reply: httpx.Response, who: str) -> AsyncIterator[str]:
    async for line in reply.aiter_lines():
        if len(line) > MOST_LINE_BYTES:
            raise LlmAnswerInvalid(f"{who} sent a line of more than {MOST_LINE_BYTES:,} characters")
        if line.strip():
            yield line


async def _beginning(reply: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in reply.aiter_bytes():
        body += piece
        if len(body) > MOST_ERROR_BYTES:
            break
    return bytes(body)


def _refused(who: str, reply: httpx.Response, body: bytes) -> AnamnesisError:
    try:
        error = json.loads(body).get("error")
    except (ValueError, AttributeError):
        error = None
    said = error if isinstance(error, dict) else {"message": error or ""}
    codes = (said.get("type"), said.get("code"))
    return error_of_status(who, reply.status_code, codes, reply.headers, str(said.get("message", "")))
