"""Questions to the running sidecar and to Dagster, over HTTP on this machine."""

from collections.abc import Mapping
from typing import Any

import httpx

from anamnesis_pipeline.errors import GiveUp, RetryLater, ServiceUnreachable
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.supervisor.up import dagster_url, sidecar_url

_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 2.0


def ask_sidecar(settings: Settings, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and decoded JSON body of one call.

    :raises ServiceUnreachable: nobody answers, or what answers is not JSON.
    """
    headers = {"Authorization": f"Bearer {settings.api_token.get_secret_value()}"} if settings.api_token else {}
    return _call("the sidecar", httpx.Request(method, sidecar_url(settings) + path, json=body, headers=headers))


def search_sidecar(settings: Settings, body: Mapping[str, Any]) -> dict[str, Any]:
    """The API's answer to one search.

    :raises ServiceUnreachable: nobody answers.
    :raises RetryLater: it is too busy or not ready.
    :raises GiveUp: it refuses the question, or the token.
    """
    status, answer = ask_sidecar(settings, "POST", "/api/episodes/search", body)
    if status == 200 and isinstance(answer, dict):
        return answer
    problem = describe_problem(status, answer)
    if status == 401:
        raise GiveUp(f"the sidecar wants another token ({problem}); set ANAMNESIS_API_TOKEN to the one it runs with")
    if status in {429, 503}:
        raise RetryLater(f"the sidecar cannot answer now ({problem}); try again shortly")
    raise GiveUp(f"the sidecar refused the search: {problem}")


def ask_dagster(settings: Settings, query: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The `data` of one GraphQL query.

    :raises ServiceUnreachable: nobody answers, or Dagster answers with errors.
    """
    body = {"query": query, "variables": dict(variables or {})}
    status, answer = _call("Dagster", httpx.Request("POST", dagster_url(settings) + "/graphql", json=body))
    if status != 200 or not isinstance(answer, dict) or answer.get("errors"):
        raise ServiceUnreachable(f"Dagster on {dagster_url(settings)} answers with an error (status {status})")
    data = answer.get("data")
    return data if isinstance(data, dict) else {}


def describe_problem(status: int, answer: Any) -> str:
    """An RFC 9457 problem in one line: its detail and the fields it names."""
    if not isinstance(answer, dict):
        return f"status {status}"
    text = str(answer.get("detail") or answer.get("title") or f"status {status}")
    fields = [
        f"{e.get('path', '?')}: {e.get('message', '')}" for e in answer.get("errors") or [] if isinstance(e, dict)
    ]
    return "; ".join([text, *fields])


def _call(who: str, request: httpx.Request) -> tuple[int, Any]:
    where = request.url.copy_with(path="/")
    try:
        # Without `trust_env` no proxy of the environment is asked to reach loopback.
        with httpx.Client(timeout=httpx.Timeout(_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S), trust_env=False) as client:
            response = client.send(request)
            return response.status_code, response.json()
    except httpx.HTTPError as exc:
        raise ServiceUnreachable(f"{who} does not answer on {where} ({type(exc).__name__})") from exc
    except ValueError as exc:
        raise ServiceUnreachable(f"what answers on {where} is not {who}: its reply is not JSON") from exc
