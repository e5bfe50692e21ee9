"""What `anamnesis model` and `anamnesis reembed` ask for: of the running sidecar, else of the store itself."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from anamnesis_pipeline.cli.local_services import ask_sidecar, refusal
from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.runtime.wiring import open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.embedding_control import EmbeddingControl
from anamnesis_pipeline.store.base import Store

_DOWNLOAD_TIMEOUT_S = 3600.0
"""A model that is not on this disk yet is downloaded before the sidecar answers."""

Answer = tuple[Any, str | None]
"""The body, and a remark for the user when it came from somewhere else than the sidecar."""


def ask(settings: Settings, method: str, path: str, body: Any, alone: Callable[[EmbeddingControl], Any]) -> Answer:
    """The sidecar's answer, or what `alone` does on the store when no sidecar runs.

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
    """The store of this home. A home without one is not given one by looking: it looks like an empty one."""
    with tempfile.TemporaryDirectory() as empty:
        absent = only_reading and not settings.has_store
        place = settings.model_copy(update={"home": Path(empty)}) if absent else settings
        with closing(open_store(place)) as store:
            yield store
