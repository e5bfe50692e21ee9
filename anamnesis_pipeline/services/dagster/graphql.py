"""Dagster client: GraphQL over HTTP or by its command line, and error handling."""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.runtime.dagster_home import dagster_command

REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "anamnesis"}
"""The location name of workspace.yaml."""
STATE_TIMEOUT_S = 5.0
"""Limit for state queries: the caller waits, and can do without the answer."""

COMMAND_TIMEOUT_S = 120.0
"""Limit for the command `dagster-graphql`, which takes some seconds; `anamnesis up` waits 180 s for its caller."""

_CONNECT_TIMEOUT_S = 2.0
_TIMEOUT_S = 30.0
_MAX_REASON = 300


class GraphQl:
    """One Dagster webserver. Every call raises ServiceUnreachable, with the reason, when it fails."""

    def __init__(self, url: str, link: str | None = None, token: SecretStr | None = None) -> None:
        """:param url: base address, without a trailing slash.
        :param link: base address for links, if different.
        :param token: for the guard before the webserver (`sidecar/dagster_ui.py`).
        """
        self._url = url
        self._link = link or url
        self._headers = {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}

    def ask(
        self, query: str, variables: Mapping[str, Any] | None = None, timeout_s: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        """Return the `data` of one GraphQL query.

        :raises ServiceUnreachable: there is no answer, or Dagster answers with errors.
        """
        body = {"query": query, "variables": dict(variables or {})}
        request = httpx.Request("POST", f"{self._url}/graphql", json=body, headers=self._headers)
        status, answer = call_json("Dagster", request, timeout_s)
        if status != 200 or not isinstance(answer, dict) or answer.get("errors"):
            raise ServiceUnreachable(f"Dagster on {self._url} answers with an error: {_reason(status, answer)}")
        data = answer.get("data")
        return data if isinstance(data, dict) else {}

    def _expect(self, result: Mapping[str, Any], *wanted: str) -> None:
        kind = result.get("__typename")
        if kind not in wanted:
            reason = first_line(str(result.get("message") or kind or "no answer"))
            raise ServiceUnreachable(f"Dagster on {self._url} refuses: {reason}")


def ask_by_command(query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `data` of a GraphQL query about the instance of DAGSTER_HOME, by the command `dagster-graphql`:
    neither a webserver nor a code location is needed.

    :raises ServiceUnreachable: the command fails, takes longer than COMMAND_TIMEOUT_S, or answers with errors.
    """
    with tempfile.TemporaryDirectory() as scratch:
        workspace, answer = Path(scratch, "workspace.yaml"), Path(scratch, "answer.json")
        workspace.write_text("load_from: []\n", encoding="utf-8")
        command = [dagster_command("dagster-graphql"), "-w", str(workspace), "-o", str(answer)]
        command += ["-t", query, "-v", json.dumps(variables)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S)
        except subprocess.TimeoutExpired as exc:
            raise ServiceUnreachable(f"dagster-graphql does not answer within {COMMAND_TIMEOUT_S:.0f} s") from exc
        if done.returncode or not answer.is_file():
            reason = next(iter(reversed(done.stderr.strip().splitlines())), f"status {done.returncode}")
            raise ServiceUnreachable(f"dagster-graphql fails: {reason[:_MAX_REASON]}")
        found = json.loads(answer.read_text(encoding="utf-8"))
    if found.get("errors") or not isinstance(found.get("data"), dict):
        raise ServiceUnreachable(f"dagster-graphql answers with an error: {_reason(200, found)}")
    data: dict[str, Any] = found["data"]
    return data


def call_json(who: str, request: httpx.Request, timeout_s: float = _TIMEOUT_S) -> tuple[int, Any]:
    """Return status and decoded JSON body (None if empty) of one call to a local service.

    :param who: the service's name in errors.
    :raises ServiceUnreachable: there is no answer in time, or it is not JSON.
    """
    where = request.url.copy_with(path="/", query=None)
    timeout = httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S)
    try:
        # `trust_env=False`: no proxy of the environment for loopback.
        with httpx.Client(timeout=timeout, trust_env=False) as client:
            response = client.send(request)
            return response.status_code, response.json() if response.content else None
    except httpx.HTTPError as exc:
        raise ServiceUnreachable(f"{who} does not answer on {where} ({type(exc).__name__})") from exc
    except ValueError as exc:
        raise ServiceUnreachable(f"what answers on {where} is not {who}: its reply is not JSON") from exc


def _reason(status: int, answer: Any) -> str:
    """Return a refusal's detail, else the first GraphQL error, else the HTTP status."""
    if isinstance(answer, dict) and answer.get("detail"):  # of the guard, which sends problem+json
        return first_line(str(answer["detail"]))
    return next((first_line(message) for message in _messages(answer)), f"status {status}")


def _messages(answer: Any) -> Iterator[str]:
    """Yield the errors of a query, then those of its fields, which Dagster sends with status 500."""
    if not isinstance(answer, dict):
        return
    data = answer.get("data")
    for error in [*(answer.get("errors") or []), *(data.values() if isinstance(data, dict) else [])]:
        if isinstance(error, dict) and error.get("message"):
            yield str(error["message"])


def first_line(text: str) -> str:
    """Return the first line of a Dagster message, which may be a stack trace; truncated."""
    return next(iter(text.strip().splitlines()), "")[:_MAX_REASON]
