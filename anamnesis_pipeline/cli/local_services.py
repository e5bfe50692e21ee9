"""Calls to the running sidecar of this home, and whether a command opens the store that it searches."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import httpx
import typer

from anamnesis_pipeline.errors import GiveUp, RetryLater, ServiceUnreachable
from anamnesis_pipeline.parsing.text.wording import describe_problem
from anamnesis_pipeline.runtime.advice import start_it
from anamnesis_pipeline.runtime.up_lock import is_held, sidecar_in_use
from anamnesis_pipeline.services.dagster.graphql import call_json
from anamnesis_pipeline.services.wiring import open_store, store_place
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

_TIMEOUT_S = 30.0


def ask_sidecar(
    settings: Settings, method: str, path: str, body: Any = None, timeout_s: float = _TIMEOUT_S
) -> tuple[int, Any]:
    """Return status and decoded JSON body of one call.

    :raises ServiceUnreachable: there is no answer in time, or it is not JSON.
    """
    headers = {"Authorization": f"Bearer {settings.api_token.get_secret_value()}"} if settings.api_token else {}
    request = httpx.Request(method, sidecar_in_use(settings) + path, json=body, headers=headers)
    return call_json("the sidecar", request, timeout_s)


def search_sidecar(settings: Settings, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the API's answer to one search.

    :raises ServiceUnreachable: there is no answer.
    :raises RetryLater: it is too busy or not ready.
    :raises GiveUp: it refuses the question, or the token.
    """
    status, answer = ask_sidecar(settings, "POST", "/api/episodes/search", body)
    if status == 200 and isinstance(answer, dict):
        return answer
    raise refusal(status, answer, "the search")


def refusal(status: int, answer: Any, what: str) -> RetryLater | GiveUp:
    """Return the error for an answer other than 2xx, with advice.

    :param what: was asked, e.g. ``the search``.
    """
    problem = describe_problem(status, answer)
    if status == 401:
        return GiveUp(f"the sidecar wants another token ({problem}); set ANAMNESIS_API_TOKEN to the one it runs with")
    if status in {429, 503}:
        return RetryLater(f"the sidecar cannot answer now ({problem}); try again shortly")
    return GiveUp(f"the sidecar refused {what}: {problem}")


SAME_STORE = "set the store in config.toml of the home, which every process reads (docs/guides/mongodb.md)"


def require_stored(settings: Settings) -> None:
    """:raises GiveUp: nothing was ever stored in this home."""
    if not settings.has_store:
        raise GiveUp(f"nothing is stored in {settings.home} yet; {start_it(settings)}")


def sidecar_status(settings: Settings) -> dict[str, Any]:
    """Return whether it answers and is ready; `missing`: what it lacks; `store`: what it searches, None if unknown."""
    url = sidecar_in_use(settings)
    try:
        status, answer = ask_sidecar(settings, "GET", "/ready")
    except ServiceUnreachable as exc:
        return {"url": url, "reachable": False, "ready": False, "missing": [str(exc)], "store": None}
    if status == 401:
        missing = ["the token: set ANAMNESIS_API_TOKEN to the one it runs with"]
    else:
        missing = list(answer.get("missing") or []) if isinstance(answer, dict) else []
    searched = answer.get("store") if isinstance(answer, dict) else None
    return {"url": url, "reachable": True, "ready": status == 200, "missing": missing, "store": searched}


def other_store(settings: Settings, sidecar: Mapping[str, Any]) -> str | None:
    """Return the problem if the sidecar searches another store than this command opens; else None. One MongoDB may be
    called by several names, so of it the database is compared.
    """
    own, searched = store_place(settings), sidecar["store"]
    if searched is None or _without_hosts(searched) == _without_hosts(own):
        return None
    return f"the sidecar at {sidecar['url']} searches {searched}, and this command opens {own}"


@contextmanager
def store_to_write(settings: Settings) -> Iterator[Store]:
    """Yield the store for writing; refuse one that the sidecar does not search.

    :raises GiveUp: the sidecar of this home searches another one.
    """
    require_searched(settings)
    with closing(open_store(settings)) as store:
        yield store


def require_searched(settings: Settings) -> None:
    """Require that the sidecar searches this store. If it may belong to another home, only print a warning.

    :raises GiveUp: the sidecar of this home searches another store.
    """
    if (problem := other_store(settings, sidecar_status(settings))) is None:
        return
    if is_held(settings.home / "up.lock"):
        raise GiveUp(f"{problem}; {SAME_STORE}, or stop what runs there. Nothing was changed")
    _mention(problem)


def mention_other_store(settings: Settings) -> None:
    """Print a warning on stderr if the sidecar searches another store than the one read here."""
    if (problem := other_store(settings, sidecar_status(settings))) is not None:
        _mention(problem)


def _mention(problem: str) -> None:
    typer.echo(f"anamnesis: {problem}; if both are to be one memory, {SAME_STORE}", err=True)


def _without_hosts(place: str) -> str:
    return place.rpartition("/")[2] if place.startswith("MongoDB ") else place
