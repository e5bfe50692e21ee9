"""Calls the tools of a running sidecar at its `/mcp`, with plain error messages."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx2

from anamnesis_pipeline.errors import AnamnesisError, GiveUp, RetryLater, ServiceUnreachable
from anamnesis_pipeline.parsing.text.wording import describe_problem

TIMEOUT_S, CONNECT_TIMEOUT_S = 60.0, 2.0
PATH = "/mcp"
HEADERS = {"Accept": "application/json, text/event-stream"}


def refusal_of(status: int, problem: str) -> AnamnesisError:
    """Return the error that a model reads in place of an HTTP problem."""
    if status in {429, 503}:
        return RetryLater(f"the memory server cannot answer now ({problem}); try again in a few seconds")
    if status >= 500:
        return GiveUp(f"the memory server failed ({problem}); its log says more. Go on without it")
    return GiveUp(problem)


class RemoteTools:
    """The six tools of a running sidecar."""

    def __init__(self, http: httpx2.AsyncClient, address: str) -> None:
        """:param http: with base URL and token; its creator closes it.
        :param address: as shown in errors.
        """
        self._http = http
        self._address = address

    async def call(self, name: str, given: Mapping[str, Any] | None, folder: str | None) -> str:
        """Return the text answer of a tool.

        :param folder: the client's working directory, as a path of its machine; None: unknown.
        :raises ServiceUnreachable: there is no answer.
        :raises RetryLater: the service is busy, or not ready.
        :raises GiveUp: the call is refused.
        """
        params = {"name": name, "arguments": dict(given or {})}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        url = f"{PATH}?folder={quote(folder, errors='replace')}" if folder else PATH
        try:
            reply = await self._http.post(url, json=body, headers=HEADERS)
            answer = reply.json()
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            raise ServiceUnreachable(
                f"the memory server does not run at {self._address}; start it with: anamnesis up. "
                "Go on without the memory until then"
            ) from exc
        except httpx2.HTTPError as exc:
            raise ServiceUnreachable(
                f"the memory server at {self._address} gave no answer ({type(exc).__name__}); go on without it"
            ) from exc
        except ValueError as exc:
            raise ServiceUnreachable(
                f"what answers at {self._address} is not the memory server: its reply is no JSON"
            ) from exc
        match answer:
            case {"result": {"content": [{"text": str(text)}], **result}}:
                if result.get("isError"):
                    raise GiveUp(text)
                return text
            case {"error": {"message": str(problem)}}:
                raise GiveUp(problem)
        if reply.status_code == 401:
            raise GiveUp(
                f"the memory server at {self._address} wants another token: ANAMNESIS_API_TOKEN, or `api_token` of the "
                "plugin, must be the one that it runs with"
            )
        raise refusal_of(reply.status_code, describe_problem(reply.status_code, answer))


def open_http(base_url: str, token: str | None) -> httpx2.AsyncClient:
    """Return a client of the service at `base_url`, without the environment's proxies."""
    return httpx2.AsyncClient(
        base_url=base_url,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout=httpx2.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        trust_env=False,
    )
