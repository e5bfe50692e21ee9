"""Questions to the running sidecar, over HTTP on this machine."""

from collections.abc import Mapping
from typing import Any

import httpx

from anamnesis_pipeline.errors import GiveUp, RetryLater
from anamnesis_pipeline.parsing.text.wording import describe_problem
from anamnesis_pipeline.runtime.up_lock import sidecar_in_use
from anamnesis_pipeline.services.dagster.graphql import call_json
from anamnesis_pipeline.settings import Settings

_TIMEOUT_S = 30.0


def ask_sidecar(
    settings: Settings, method: str, path: str, body: Any = None, timeout_s: float = _TIMEOUT_S
) -> tuple[int, Any]:
    """Status and decoded JSON body of one call.

    :raises ServiceUnreachable: there is no answer in time, or it is not JSON.
    """
    headers = {"Authorization": f"Bearer {settings.api_token.get_secret_value()}"} if settings.api_token else {}
    request = httpx.Request(method, sidecar_in_use(settings) + path, json=body, headers=headers)
    return call_json("the sidecar", request, timeout_s)


def search_sidecar(settings: Settings, body: Mapping[str, Any]) -> dict[str, Any]:
    """The API's answer to one search.

    :raises ServiceUnreachable: there is no answer.
    :raises RetryLater: it is too busy or not ready.
    :raises GiveUp: it refuses the question, or the token.
    """
    status, answer = ask_sidecar(settings, "POST", "/api/episodes/search", body)
    if status == 200 and isinstance(answer, dict):
        return answer
    raise refusal(status, answer, "the search")


def refusal(status: int, answer: Any, what: str) -> RetryLater | GiveUp:
    """The error that an answer other than 2xx means: whether waiting helps, and what to do.

    :param what: was asked, e.g. ``the search``.
    """
    problem = describe_problem(status, answer)
    if status == 401:
        return GiveUp(f"the sidecar wants another token ({problem}); set ANAMNESIS_API_TOKEN to the one it runs with")
    if status in {429, 503}:
        return RetryLater(f"the sidecar cannot answer now ({problem}); try again shortly")
    return GiveUp(f"the sidecar refused {what}: {problem}")
