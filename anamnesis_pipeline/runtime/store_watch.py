"""Messages of `anamnesis up` about a store server: waiting for it, losing it, and reconnecting."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anamnesis_pipeline.errors import AnamnesisError, StoreBusy
from anamnesis_pipeline.runtime.supervision import StopRequest
from anamnesis_pipeline.runtime.wiring import impatient, open_store, store_place, stored_settings
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

ADVICE = "start MongoDB, or let ANAMNESIS_MONGO_URI say where it is"
ASKED_EVERY_S = 5.0
PAUSE_S = 0.5

Say = Callable[[str], None]


def open_when_there(settings: Settings, stop: StopRequest, say: Say) -> Store | None:
    """Return the store once its server answers; None if the user stops the wait.

    :raises StoreBusy: no answer within `mongo_wait_s`.
    """
    if settings.store != "mongo":
        return open_store(settings)
    place, until, is_told = store_place(settings), time.monotonic() + settings.mongo_wait_s, False
    while not stop.asked:
        try:
            store = open_store(impatient(settings, 0))
        except StoreBusy as exc:
            if time.monotonic() >= until:
                raise StoreBusy(f"{place} did not answer within {settings.mongo_wait_s} s; {ADVICE}") from exc
            if not is_told:
                say(f"{exc}. Waiting {settings.mongo_wait_s} s at most: {ADVICE}")
            is_told = True
            time.sleep(PAUSE_S)
        else:
            if is_told:
                say(f"{place} answers")
            return store
    return None


@contextmanager
def watched(settings: Settings, store: Store, say: Say, every_s: float = ASKED_EVERY_S) -> Iterator[None]:
    """During the block, report once when the server is lost, and once when it is back; files are not watched."""
    if settings.store != "mongo":
        yield
        return
    stop = threading.Event()
    asked = (lambda: stored_settings(store), store_place(settings), say, stop, every_s)
    # A daemon thread: a call to a dead server blocks, and the exit must not wait for it.
    threading.Thread(target=_watch, args=asked, name="store-watch", daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def _watch(ask: Callable[[], object], place: str, say: Say, stop: threading.Event, every_s: float) -> None:
    is_away = False
    while not stop.wait(every_s):
        try:
            ask()
        except AnamnesisError as exc:
            if not is_away and not stop.is_set():
                say(f"{exc}. What runs goes on by itself once it does: {ADVICE}")
            is_away = True
        else:
            if is_away:
                say(f"{place} answers again")
            is_away = False
