"""Which store the running sidecar searches, and whether a command opens the same one."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import typer

from anamnesis_pipeline.cli.local_services import ask_sidecar
from anamnesis_pipeline.errors import GiveUp, ServiceUnreachable
from anamnesis_pipeline.runtime.advice import start_it
from anamnesis_pipeline.runtime.up_lock import is_held, sidecar_in_use
from anamnesis_pipeline.services.wiring import open_store, store_place
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

SAME_STORE = "set the store in config.toml of the home, which every process reads (docs/guides/mongodb.md)"


def require_stored(settings: Settings) -> None:
    """:raises GiveUp: nothing was ever stored in this home."""
    if not settings.has_store:
        raise GiveUp(f"nothing is stored in {settings.home} yet; {start_it(settings)}")


def sidecar_status(settings: Settings) -> dict[str, Any]:
    """Whether it answers and is ready; `missing` says what it lacks, `store` what it searches, None when unknown."""
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
    """What is wrong when the sidecar searches another store than the one that this command opens. One MongoDB may be
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
    """Before what writes to the store. A sidecar that may be of another home is only mentioned.

    :raises GiveUp: the sidecar of this home searches another store.
    """
    if (problem := other_store(settings, sidecar_status(settings))) is None:
        return
    if is_held(settings.home / "up.lock"):
        raise GiveUp(f"{problem}; {SAME_STORE}, or stop what runs there. Nothing was changed")
    _mention(problem)


def mention_other_store(settings: Settings) -> None:
    """Before what only reads the store: say on stderr which one that is, where the sidecar searches another."""
    if (problem := other_store(settings, sidecar_status(settings))) is not None:
        _mention(problem)


def _mention(problem: str) -> None:
    typer.echo(f"anamnesis: {problem}; if both are to be one memory, {SAME_STORE}", err=True)


def _without_hosts(place: str) -> str:
    return place.rpartition("/")[2] if place.startswith("MongoDB ") else place
