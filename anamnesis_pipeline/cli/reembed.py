"""`anamnesis reembed`: re-embedding and its progress."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from anamnesis_pipeline.cli.local_services import ask_sidecar, refusal
from anamnesis_pipeline.embeddings.api_models import api_model
from anamnesis_pipeline.embeddings.models import named
from anamnesis_pipeline.embeddings.passages import TOTAL_PIECES
from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.parsing.text.wording import counted, duration
from anamnesis_pipeline.services.embedding_control import EmbeddingControl
from anamnesis_pipeline.services.model_health import reembed_advice
from anamnesis_pipeline.services.wiring import open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

# --- embedding calls -------------------------------------------------------------------------------------

# What `anamnesis model` and `anamnesis reembed` ask for: of the running sidecar, else of the store itself.

_DOWNLOAD_TIMEOUT_S = 3600.0
"""A model that is not on this disk yet is downloaded before the sidecar answers."""

Answer = tuple[Any, str | None]
"""The body, and a remark for the user when it came from somewhere else than the sidecar."""


def ask(settings: Settings, method: str, path: str, body: Any, alone: Callable[[EmbeddingControl], Any]) -> Answer:
    """Return the sidecar's answer, or the result of `alone` on the store if no sidecar runs.

    :raises RetryLater: the sidecar, or the Dagster behind it, cannot do it now.
    :raises GiveUp: it was refused; the text says why.
    """
    try:
        status, answer = ask_sidecar(settings, method, path, body, _DOWNLOAD_TIMEOUT_S)
    except ServiceUnreachable as exc:
        with _store(settings, only_reading=method == "GET") as store:
            return alone(EmbeddingControl(store)), str(exc)
    if status >= 300:
        raise refusal(status, answer, "it")
    return answer, None


@contextmanager
def _store(settings: Settings, *, only_reading: bool) -> Iterator[Store]:
    """Yield the store of this home; for reading a home without one, a temporary empty store."""
    with tempfile.TemporaryDirectory() as empty:
        absent = only_reading and not settings.has_store
        place = settings.model_copy(update={"home": Path(empty)}) if absent else settings
        with closing(open_store(place)) as store:
            yield store


_ROUTE = "/api/episodes/reembed"


def start(settings: Settings, model_id: str | None) -> Answer:
    """Start embedding with a model, or again with the active one.

    :raises GiveUp: no such model, or another re-embed is under way.
    """
    model = named(model_id) if model_id else None
    return ask(settings, "POST", _ROUTE, {"model_id": model}, lambda control: control.start_reembed(model))


def count(settings: Settings, model_id: str | None) -> str:
    """Describe what `start` would embed; change nothing."""
    config, _ = ask(settings, "GET", "/api/embedding/config", None, lambda control: control.config())
    stored = max((space["stored"] for space in config["spaces"]), default=0)
    wanted = (named(model_id) if model_id else None) or config["model_id"] or config["model"]
    lacking = [space["stored"] - space["embedded"] for space in config["spaces"] if space["model_id"] == wanted]
    again = not lacking or wanted == config["model_id"]
    passages = stored if again else lacking[-1]
    cost = ""
    if known := api_model(wanted):
        tokens = passages * len(Variant) * TOTAL_PIECES
        dollars = tokens * known.dollars / 1e6
        cost = f": they are sent to {known.service}, at most {counted(tokens, 'token')}, some ${dollars:,.2f}"
    return f"{counted(passages, 'passage')} would be embedded with {wanted}{cost}."


def pause(settings: Settings) -> Answer:
    """Stop within one checkpoint."""
    return ask(settings, "POST", f"{_ROUTE}/pause", None, lambda control: control.pause())


def resume(settings: Settings) -> Answer:
    """Go on with what is left."""
    return ask(settings, "POST", f"{_ROUTE}/resume", None, lambda control: control.resume())


def status(settings: Settings) -> Answer:
    """Return the progress."""
    return ask(settings, "GET", f"{_ROUTE}/status", None, lambda control: control.reembed_status())


def render(state: Mapping[str, Any], zone: tzinfo | None = None) -> str:
    """Render the progress, with advice. Pure.

    :param zone: of the times; None: the local one.
    """
    if state["state"] == "idle":
        return f"No re-embed is running. Searches use {state['active_model_id'] or 'no model yet'}."
    share = state["done"] / state["total"] if state["total"] else 1.0
    lines = [
        f"Re-embed  {state['state']}: {state['done']:,} of {counted(state['total'], 'passage')} ({share:.1%}), "
        f"{state['episodes_done']:,} of {counted(state['episodes_total'], 'episode')}",
        f"Model     {state['model_id']} into {state['space']}",
    ]
    if state["state"] == "running" and state["rate_per_s"]:
        left = f", about {duration(state['eta_s'])} left" if state["eta_s"] is not None else ""
        lines.append(f"Pace      {state['rate_per_s']:,.1f} passages a second{left}")
    elif state["state"] == "running":
        lines.append("Pace      not known yet: a run starts within a minute while `anamnesis up` runs")
    if checkpoint := state["checkpoint"]:
        at = datetime.fromisoformat(checkpoint["at"]).astimezone(zone)
        lines.append(f"Written   {at:%Y-%m-%d %H:%M:%S}, {counted(checkpoint['done'], 'passage')}")
    if backfill := state["backfill"]:
        told = "(Dagster does not answer)"
        if backfill["status"] is not None:
            is_canceled = backfill["status"] in ("CANCELING", "CANCELED")  # what a pause left counts as failed, too
            has_failed = backfill["sources_failed"] and not is_canceled
            failed = f", {backfill['sources_failed']:,} failed" if has_failed else ""
            of = counted(backfill["sources"], "partition")
            told = f"{backfill['status']}, {backfill['sources_done']:,} of {of}{failed}"
        lines.append(f"Backfill  {told}  {backfill['link']}")
    if state["state"] == "complete" and state["space"] != state["active_space"] and not state["waiting_for_use"]:
        lines.append("Next      its index is built and checked, then it answers the searches")
    if state["errors"]:
        lines.append(f"Errors    {state['errors']:,} in a row, the last: {state['last_error']}")
    return "\n".join([*lines, *(f"-> {text}" for text in reembed_advice(state))])
