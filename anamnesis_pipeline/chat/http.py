"""How the services' streams are read: lines of JSON, or server-sent events that hold JSON."""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx

from anamnesis_pipeline.chat.base import STALL_S
from anamnesis_pipeline.errors import AnamnesisError, LlmAnswerInvalid, LlmUnavailable
from anamnesis_pipeline.summaries.endpoints import is_loopback
from anamnesis_pipeline.summaries.refusals import error_of_status

CONNECT_TIMEOUT_S = 5.0
MOST_LINE_BYTES = 1_000_000
MOST_ERROR_BYTES = 20_000


@cache
def _trusted() -> ssl.SSLContext:
    """Read once: the certificates take some 20 ms, and every answer has a client of its own."""
    return httpx.create_ssl_context()


def client(url: str, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    """Connections to a service; a prompt goes to the host that was chosen, and to no other."""
    timeout = httpx.Timeout(STALL_S, connect=CONNECT_TIMEOUT_S)
    return httpx.AsyncClient(
        base_url=url, headers=dict(headers or {}), timeout=timeout, trust_env=not is_loopback(url),
        follow_redirects=False, verify=_trusted(),
    )  # fmt: skip


@asynccontextmanager
async def lines_of(
    service: httpx.AsyncClient, path: str, body: Mapping[str, Any], who: str
) -> AsyncIterator[AsyncIterator[str]]:
    """The lines that a service answers a POST with. Leaving the block closes the connection, which ends its work.

    :param who: the service's name for errors.
    :raises AnamnesisError: as `ChatBackend.stream` says.
    """
    try:
        async with service.stream("POST", path, json=body) as reply:
            if reply.status_code != 200:
                raise _refused(who, reply, await _beginning(reply))
            yield _bounded(reply, who)
    except (httpx.ConnectError, httpx.ConnectTimeout):
        raise LlmUnavailable(f"{who} cannot be reached; is it running?") from None
    except httpx.TimeoutException:
        raise LlmUnavailable(f"{who} sent nothing for {STALL_S:.0f} s and was given up; try again") from None
    except httpx.HTTPError as exc:
        raise LlmUnavailable(f"{who} broke off in mid-answer ({type(exc).__name__}); try again") from None


async def events_of(lines: AsyncIterator[str], who: str) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of server-sent events, until `[DONE]` or the end."""
    async for line in lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        yield read(data, who)


def read(text: str, who: str) -> dict[str, Any]:
    """One JSON object.

    :raises LlmAnswerInvalid: it is none.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise LlmAnswerInvalid(f"{who} sent something else than a chat answer; check its URL")
    return found


def told(who: str, error: object, status: int = 500) -> AnamnesisError:
    """The error that an event within a stream tells; nothing of its message is repeated."""
    said = error if isinstance(error, dict) else {}
    return error_of_status(who, status, (said.get("type"), said.get("code")), {}, str(said.get("message", error)))


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
