"""Client of the sidecar's HTTP API, from inside or outside the sidecar, with plain error messages."""

from collections.abc import Collection, Mapping
from typing import Any

import httpx2

from anamnesis_pipeline.errors import AnamnesisError, GiveUp, RetryLater, ServiceUnreachable
from anamnesis_pipeline.parsing.text.wording import describe_problem

TIMEOUT_S, CONNECT_TIMEOUT_S = 30.0, 2.0


class Memory:
    """The HTTP API as the tools use it."""

    def __init__(self, http: httpx2.AsyncClient, address: str) -> None:
        """:param http: with base URL and token; its creator closes it.
        :param address: as shown in errors.
        """
        self._http = http
        self._address = address

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        accept: Collection[int] = (),
    ) -> dict[str, Any]:
        """Return the decoded answer of one call.

        :param accept: further status codes that count as success.
        :raises ServiceUnreachable: there is no answer.
        :raises RetryLater: the service is busy, or not ready.
        :raises GiveUp: the call is refused.
        """
        given = {name: value for name, value in (params or {}).items() if value is not None}
        try:
            reply = await self._http.request(method, path, json=body, params=given)
            answer = reply.json() if reply.content else {}
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
        if (reply.is_success or reply.status_code in accept) and isinstance(answer, dict):
            return answer
        raise self._refusal(reply.status_code, answer)

    def _refusal(self, status: int, answer: Any) -> AnamnesisError:
        problem = describe_problem(status, answer)
        if status == 401:
            return GiveUp(
                f"the memory server at {self._address} wants another token: ANAMNESIS_API_TOKEN, or `api_token` of the "
                "plugin, must be the one that it runs with"
            )
        if status in {429, 503}:
            return RetryLater(f"the memory server cannot answer now ({problem}); try again in a few seconds")
        if status >= 500:
            return GiveUp(f"the memory server failed ({problem}); its log says more. Go on without it")
        return GiveUp(problem)


def open_http(
    base_url: str, token: str | None, transport: httpx2.AsyncBaseTransport | None = None
) -> httpx2.AsyncClient:
    """Return a client of the service at `base_url`, without the environment's proxies."""
    return httpx2.AsyncClient(
        base_url=base_url,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout=httpx2.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        transport=transport,
        trust_env=False,
    )
