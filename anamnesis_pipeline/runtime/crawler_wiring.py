"""Builds the crawler from settings and configured sources. Imports SSH only when a remote host is opened."""

import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from anamnesis_pipeline.errors import HostUnreachable
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.parsing.claude_logs.projects import resolved_project
from anamnesis_pipeline.pipeline.crawl_documents import DocumentSelection
from anamnesis_pipeline.pipeline.exclusion import Exclusions
from anamnesis_pipeline.pipeline.in_flight import Flights
from anamnesis_pipeline.pipeline.projects import Label, machine_labels, project_labels
from anamnesis_pipeline.pipeline.source_specs import agent_memories, all_specs
from anamnesis_pipeline.pipeline.survey import Answer, Crawler, Hosts
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.discovery import PROJECTS, log_root
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec, agent_memory_specs, built_in_specs, topic_spec
from anamnesis_pipeline.store.base import Store

if TYPE_CHECKING:
    from anamnesis_pipeline.sources.ssh.machine import SshHost

RemoteHosts = Callable[[str, str], "SshHost"]
"""(machine, place) -> the SSH host, not connected yet."""

_OPENING = threading.Lock()
_REMOTE: dict[tuple[object, ...], "SshHost"] = {}
"""Hosts of this process by machine, place and timeouts; each keeps one connection between polls."""
_FLIGHTS: dict[Path, Flights[Answer]] = {}
"""In-flight requests of this process by home, kept between polls."""


def built_in(settings: Settings) -> list[SourceSpec]:
    """Return the built-in sources."""
    host = LocalHost(settings.machine)
    roots = [root if root.name == PROJECTS else Path(log_root(host, str(root))) for root in settings.log_roots]
    return built_in_specs(roots, settings.machine)


def configured_specs(settings: Settings, store: Store) -> list[SourceSpec]:
    """Return all crawled sources, the built-in ones first."""
    roots = [Path(spec.root) for spec in built_in(settings) if spec.kind != DOCUMENTS]
    specs = all_specs(store.settings, roots, settings.machine)
    if settings.topics_dir.is_dir():
        specs.append(topic_spec(settings.topics_dir, settings.machine))
    return [*specs, *agent_memory_specs(agent_memories(store, settings.machine), specs, settings.machine)]


def remote_host(machine: str, place: str, **timeouts: float) -> "SshHost":
    """Return a machine over SSH: one object, with one connection, per place and timeouts in a process.

    :param timeouts: as `SshHost` takes them.
    """
    from anamnesis_pipeline.sources.ssh.machine import SshHost

    key = (machine, place, *sorted(timeouts.items()))
    with _OPENING:
        if key not in _REMOTE:
            _REMOTE[key] = SshHost(machine, place, **timeouts)
        return _REMOTE[key]


def open_hosts(settings: Settings, store: Store, remote: RemoteHosts = remote_host) -> Hosts:
    """Return the machines of all sources, which connect on first use."""
    return Hosts(configured_specs(settings, store), LocalHost(settings.machine), remote, settings.local_only)


class ProjectLabels:
    """The projects of directories, on this machine and others. An unreachable machine is tried once, and its documents
    are not read under a provisional project.
    """

    def __init__(
        self, hosts: Hosts, store: Store, open_remote: RemoteHosts = remote_host, *, must_answer: bool = False
    ) -> None:
        """:param must_answer: allow no provisional projects, for logs either."""
        self._hosts, self._settings, self._open_remote = hosts, store.settings, open_remote
        self._must_answer = must_answer
        self._local = project_labels(store.settings)
        self._remote: dict[tuple[str, str, bool], Label] = {}

    def of(self, source: Source) -> Label:
        """Return a function: directory on the machine of a source -> project."""
        spec = self._hosts.spec_of(source)
        if spec is not None and spec.kind == DOCUMENTS and spec.project:
            return lambda cwd: spec.project
        if source.machine in {"", self._hosts.local.machine}:
            return self._local
        if spec is None or self._hosts.local_only:
            resolve = _refuse if self._must_answer else lambda cwd: None
            return machine_labels(self._settings, source.machine, resolve, must_answer=self._must_answer)
        must_answer = self._must_answer or spec.kind == DOCUMENTS
        key = (spec.machine, spec.host, must_answer)
        if key not in self._remote:
            host = self._open_remote(spec.machine, spec.host)
            self._remote[key] = machine_labels(
                self._settings, spec.machine, lambda cwd: resolved_project(cwd, host.disk()), must_answer=must_answer
            )
        return self._remote[key]


def _refuse(cwd: str) -> str | None:
    raise HostUnreachable(f"the machine of {cwd} is not asked: its source was removed, or local_only is set")


def open_crawler(settings: Settings, store: Store, *, lasting: bool = True) -> Crawler:
    """Return the crawler, which polls all machines.

    :param lasting: keep unfinished requests for later polls of this process.
    """
    with _OPENING:
        flights = _FLIGHTS.setdefault(settings.home, Flights()) if lasting else Flights[Answer]()
    return Crawler(
        store,
        open_hosts(settings, store),
        DocumentSelection(settings),
        flights,
        settings.crawl_interval_s,
        Exclusions(store),
        settings.crawl_skip,
        version("anamnesis"),
    )
