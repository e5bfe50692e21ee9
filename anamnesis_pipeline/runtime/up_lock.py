"""One `anamnesis up` per home: a lock file that also holds the addresses of the running one."""

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from anamnesis_pipeline.errors import AlreadyRunning, GiveUp
from anamnesis_pipeline.settings import Settings, in_environment, sidecar_url


@dataclass(frozen=True, slots=True)
class Running:
    """Contents of the lock file; `log_roots` as given at the start."""

    pid: int
    life: str
    sidecar: str
    dagster: str
    log_roots: Sequence[str]


def read_lock(path: Path) -> Running | None:
    """Return the last writer's record, running or not; None after an orderly end."""
    try:
        return Running(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None  # absent, emptied at an orderly end, or half written


def log_roots_in_use(settings: Settings) -> tuple[Path, ...]:
    """Return the log roots of the running `anamnesis up`, which may differ from this process's."""
    running = read_lock(settings.home / "up.lock")
    return tuple(map(Path, running.log_roots)) if running else settings.log_roots


def settings_in_use(settings: Settings) -> Settings:
    """Return the settings with the ports of this home's running `anamnesis up`; a port set in the environment stays."""
    running = read_lock(settings.home / "up.lock") if is_held(settings.home / "up.lock") else None
    if running is None:
        return settings
    named = in_environment(("port", "dagster_port"))
    sidecar, dagster = urlsplit(running.sidecar), urlsplit(running.dagster)
    found: dict[str, str | int | None] = {}
    if "port" not in named:
        found |= {"bind": sidecar.hostname, "port": sidecar.port}
    if "dagster_port" not in named:
        found |= {"dagster_port": dagster.port}
    return settings.model_copy(update={name: value for name, value in found.items() if value})


def sidecar_in_use(settings: Settings) -> str:
    """Return the address of this home's sidecar, as `settings_in_use`."""
    return sidecar_url(settings_in_use(settings))


def is_held(path: Path) -> bool:
    """Return whether an `anamnesis up` runs on the home of this lock. One that is still starting is not detected: the
    test takes the lock for a moment, so it must skip an empty file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_size:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def hold_lock(path: Path, running: Running) -> Iterator[Running | None]:
    """Hold the lock during the block; yield the record of a previous run that did not end in order.

    The kernel releases the lock when its process ends, so a stale file never blocks a start.
    :raises AlreadyRunning: another process holds it; the text has its addresses.
    :raises GiveUp: the file cannot be opened for writing.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise GiveUp(f"{path} cannot be written ({exc.strerror}); mend that, or set ANAMNESIS_HOME") from exc
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            if (other := read_lock(path)) is None:
                raise AlreadyRunning(f"Anamnesis is already starting or ending on {path.parent}.") from exc
            raise AlreadyRunning(
                f"Anamnesis is already running on {path.parent} (process {other.pid}).\n"
                f"Memory: {other.sidecar}   Dagster: {other.dagster}"
            ) from exc
        earlier = read_lock(path)
        _write(descriptor, json.dumps(asdict(running)))
        try:
            yield earlier
        finally:
            _write(descriptor, "")
    finally:
        os.close(descriptor)


def _write(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
