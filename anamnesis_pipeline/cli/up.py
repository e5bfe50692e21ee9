"""`anamnesis up`: the sidecar and Dagster as one supervised process group, and the first ingest's progress."""

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.text import Text

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.embeddings.api_models import api_model
from anamnesis_pipeline.embeddings.models import find_model
from anamnesis_pipeline.errors import AlreadyRunning, AnamnesisError, StoreBusy, UnknownModel
from anamnesis_pipeline.pipeline.host_clock import looked_since
from anamnesis_pipeline.runtime.crawler_wiring import configured_specs
from anamnesis_pipeline.runtime.dagster_home import LOOPBACK, bundled, dagster_command, dagster_url, write_dagster_home
from anamnesis_pipeline.runtime.home_wiring import make_private
from anamnesis_pipeline.runtime.log_roots import EXAMPLE_LOGS, advice_without_logs, retention_advice, survey
from anamnesis_pipeline.runtime.ports import WantedPort, accepts, answers, require_free
from anamnesis_pipeline.runtime.process_group import end_life
from anamnesis_pipeline.runtime.progress import Snapshot, show_progress, take_snapshot
from anamnesis_pipeline.runtime.supervision import ChildSpec, StopRequest, Supervisor, stop_on_signals
from anamnesis_pipeline.runtime.up_lock import Running, hold_lock
from anamnesis_pipeline.services.wiring import effective_settings, impatient, open_store, store_place, stored_settings
from anamnesis_pipeline.settings import ENV_PREFIX, Settings, claude_projects_dir, reachable_host, sidecar_url
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


WAITED_FOR_S = 600
"""Sources with a longer interval are not awaited before the memory counts as up to date."""


def run_up(settings: Settings, console: Console, on_ready: Callable[[], None] = lambda: None) -> int:
    """Run until Ctrl-C, SIGTERM or SIGHUP; return the exit status.

    0 also when it is already running on this home, so that `make up` twice is no failure.
    :param on_ready: called once, when both addresses answer.
    :raises PortInUse: a port is taken; nothing was started.
    :raises GiveUp: the home or the store is not usable; nothing was started.
    """

    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    make_private(settings.home)
    make_private(settings.logs_dir)
    roots = [str(root) for root in settings.log_roots]
    record = Running(os.getpid(), uuid.uuid4().hex, sidecar_url(settings), dagster_url(settings), roots)
    try:
        with stop_on_signals() as stop, hold_lock(settings.home / "up.lock", record) as earlier:
            if earlier:  # its watcher may still be running, or was killed too
                end_life(earlier.life, grace_s=5.0)
            require_free(wanted_ports(settings))
            write_dagster_home(settings.dagster_home)
            if (store := open_when_there(settings, stop, say)) is None:
                return 0
            with closing(store), watched(settings, store, say):
                say(f"Starting on {settings.home} (Ctrl-C ends it; logs of its processes: {settings.logs_dir})")
                _mention_absent_model(effective_settings(store), say)
                supervisor = Supervisor(child_specs(settings), record.life, say)
                with _progress(effective_settings(store), store, console, say):
                    announced = False

                    def announce() -> None:
                        nonlocal announced
                        if announced or not supervisor.is_ready("sidecar", "webserver"):
                            return
                        announced = True
                        say(f"Memory: {sidecar_url(settings)}   Dagster: {dagster_url(settings)}")
                        on_ready()

                    status = supervisor.run(stop, announce)
            if stop.asked:
                say("Stopped; nothing of it runs any more")
            return status
    except AlreadyRunning as exc:
        say(str(exc))
        return 0


def _mention_absent_model(settings: Settings, say: Callable[[str], None]) -> None:
    """Report a model that is not on this disk: it may be downloading, or its name may be wrong."""
    if api_model(settings.model):
        return
    try:
        find_model(settings.model, local_only=True)
    except UnknownModel:
        say(
            f"The embedding model {settings.model!r} is not on this disk. Until it is downloaded, what is new is found "
            "by its words only. Should that not end, `anamnesis doctor` says why, and which names are known"
        )


def wanted_ports(settings: Settings) -> list[WantedPort]:
    """Return the three ports, with their variables."""
    return [
        WantedPort("the sidecar", settings.bind, settings.port, "ANAMNESIS_PORT"),
        WantedPort("the Dagster UI", LOOPBACK, settings.dagster_port, "ANAMNESIS_DAGSTER_PORT"),
        WantedPort("the Dagster code server", LOOPBACK, settings.code_port, "ANAMNESIS_CODE_PORT"),
    ]


def child_specs(settings: Settings) -> list[ChildSpec]:
    """Return the sidecar, which starts at once, and Dagster: recovery, code server, then webserver and daemon."""
    environment = child_environment(settings, os.environ)
    workspace = str(settings.dagster_home / "workspace.yaml")
    sidecar_host, port = reachable_host(settings.bind), settings.port

    def spec(
        name: str,
        *command: str,
        after: str | None = None,
        ready: Callable[[], bool] = lambda: True,
        once: bool = False,
    ) -> ChildSpec:
        log = settings.logs_dir / f"{name}.log"
        return ChildSpec(name, (sys.executable, *command), environment, log, after=after, ready=ready, once=once)

    return [
        spec("sidecar", "-m", "anamnesis_pipeline.sidecar", ready=lambda: answers(sidecar_host, port, "/health")),
        spec("recovery", "-m", "anamnesis_pipeline.defs.recovery", once=True),
        spec(
            "code-server",
            *("-m", "dagster", "code-server", "start", "-h", LOOPBACK, "-p", str(settings.code_port)),
            *("-m", "anamnesis_pipeline.definitions", "--use-python-environment-entry-point"),
            after="recovery",
            ready=lambda: accepts(LOOPBACK, settings.code_port),
        ),
        spec(
            "webserver",
            *("-m", "anamnesis_pipeline.sidecar.dagster_ui", "-h", LOOPBACK),
            *("-p", str(settings.dagster_port), "-w", workspace),
            after="code-server",
            ready=lambda: answers(LOOPBACK, settings.dagster_port, "/server_info"),
        ),
        spec("daemon", *(dagster_command("dagster-daemon"), "run", "-w", workspace), after="code-server"),
    ]


def child_environment(settings: Settings, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the children's environment: settings that no store can hold, from any origin."""
    environment = {
        **inherited,
        "ANAMNESIS_HOME": str(settings.home),
        "ANAMNESIS_PORT": str(settings.port),
        "ANAMNESIS_DAGSTER_PORT": str(settings.dagster_port),
        "ANAMNESIS_CODE_PORT": str(settings.code_port),
        "ANAMNESIS_BIND": settings.bind,
        "DAGSTER_HOME": str(settings.dagster_home),
        "PYTHONUNBUFFERED": "1",
    }
    if roots := inherited.get("ANAMNESIS_LOG_ROOTS"):  # relative to the user's directory
        absolute = (str(Path(root).expanduser().absolute()) for root in roots.split(os.pathsep) if root)
        environment["ANAMNESIS_LOG_ROOTS"] = os.pathsep.join(absolute)
    return environment


def waited_for(settings: Settings, store: Store) -> dict[str, str]:
    """Return the sources to scan before the memory counts as up to date, with their hosts. Read again at each call,
    since a removed source is no longer scanned.
    """
    specs = configured_specs(settings, store)
    return {spec.name: spec.host for spec in specs if (spec.interval_s or settings.crawl_interval_s) <= WAITED_FOR_S}


@contextmanager
def _progress(settings: Settings, store: Store, console: Console, say: Callable[[str], None]) -> Iterator[None]:
    """Print hints about the logs; then show the first ingest from a separate thread during the block."""
    found = survey(settings.log_roots)
    if hint := retention_advice(claude_projects_dir().parent / "settings.json"):
        say(hint)
    if not found.files:
        say(advice_without_logs(settings.log_roots, found))
        yield
        return
    stop, since = threading.Event(), datetime.now(UTC)

    def read() -> Snapshot:
        return take_snapshot(store, looked_since(store.settings, waited_for(settings, store), since))

    thread = threading.Thread(target=show_progress, args=(read, found.files, console, stop), name="progress")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


PORTS = ("port", "dagster_port", "code_port")
EXAMPLE_QUERY = "why were customers charged twice"


def run_demo(console: Console) -> int:
    """Run until Ctrl-C, then remove the home; the exit status of `up`."""
    home = Path(tempfile.mkdtemp(prefix="anamnesis-demo-"))
    try:
        # The children read their settings from the environment, as they always do.
        os.environ |= demo_environment(settings_file.load(), home)
        settings = settings_file.load()

        def invite() -> None:
            place = f"{ENV_PREFIX}HOME={quote(str(home))} {ENV_PREFIX}PORT={settings.port}"
            command = f"{place} anamnesis search {EXAMPLE_QUERY!r}"
            console.print(Text(f"In another terminal, try: {command}"), soft_wrap=True)

        return run_up(settings, console, invite)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def demo_environment(settings: Settings, home: Path) -> dict[str, str]:
    """The variables of a demo: its home, the example logs, and ports that are free now, the configured ones first."""
    ports: dict[str, int] = {}
    for name in PORTS:
        wanted = getattr(settings, name)
        ports[name] = wanted if wanted not in ports.values() and _is_free(wanted) else _any_free_port()
    return {
        f"{ENV_PREFIX}HOME": str(home),
        f"{ENV_PREFIX}LOG_ROOTS": str(bundled(EXAMPLE_LOGS)),
        f"{ENV_PREFIX}BIND": "127.0.0.1",
        **{f"{ENV_PREFIX}{name.upper()}": str(port) for name, port in ports.items()},
    }


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


def _any_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
