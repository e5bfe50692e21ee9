"""Builds the crawler from settings and configured sources. Imports SSH only when a remote host is opened."""

import os
import threading
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from anamnesis_pipeline.errors import HostUnreachable
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.parsing.claude_logs.projects import resolved_project
from anamnesis_pipeline.parsing.documents.languages import CONVERTED, format_of
from anamnesis_pipeline.pipeline.crawl_documents import DocumentRules
from anamnesis_pipeline.pipeline.exclusion import Exclusions
from anamnesis_pipeline.pipeline.in_flight import Flights
from anamnesis_pipeline.pipeline.projects import machine_labels, project_labels
from anamnesis_pipeline.pipeline.source_specs import agent_memories, all_specs
from anamnesis_pipeline.pipeline.survey import Answer, Crawler, Hosts
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.base import Survey
from anamnesis_pipeline.sources.discovery import PROJECTS, log_root
from anamnesis_pipeline.sources.document_selection import Chosen, Rules, chosen
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec, agent_memory_specs, built_in_specs
from anamnesis_pipeline.sources.survey_split import wanted_of
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


def open_labels(
    hosts: Hosts, store: Store, remote_host: RemoteHosts = remote_host, *, must_answer: bool = False
) -> Callable[[Source], Callable[[str], str]]:
    """Return a function: source -> (directory on its machine -> project). An unreachable machine is tried once, and its
    documents are not read under a provisional project.

    :param must_answer: allow no provisional projects, for logs either.
    """
    local = project_labels(store.settings)

    @cache
    def remote(machine: str, place: str, must_answer: bool) -> Callable[[str], str]:
        host = remote_host(machine, place)

        def resolve(cwd: str) -> str | None:
            return resolved_project(cwd, host.disk())

        return machine_labels(store.settings, machine, resolve, must_answer=must_answer)

    def label_of(source: Source) -> Callable[[str], str]:
        spec = hosts.spec_of(source)
        if spec is not None and spec.kind == DOCUMENTS and spec.project:
            return lambda cwd: spec.project
        if source.machine in {"", hosts.local.machine}:
            return local
        if spec is None or hosts.local_only:
            return machine_labels(
                store.settings,
                source.machine,
                _asked_by_nobody if must_answer else lambda cwd: None,
                must_answer=must_answer,
            )
        return remote(spec.machine, spec.host, must_answer or spec.kind == DOCUMENTS)

    return label_of


def _asked_by_nobody(cwd: str) -> str | None:
    raise HostUnreachable(f"the machine of {cwd} is not asked: its source was removed, or local_only is set")


def selection_rules(settings: Settings) -> Callable[[SourceSpec], Rules]:
    """Return a function: document source -> rules that select its files."""

    def of(spec: SourceSpec) -> Rules:
        root, home = os.path.expanduser(spec.root).rstrip("/"), f"{settings.home}/"

        def excluded(path: str) -> str | None:
            is_ours = not spec.host and f"{root}/{path}".startswith(home)
            return "what Anamnesis itself keeps" if is_ours else None

        return Rules(format_of, frozenset(CONVERTED), settings.crawl_skip, excluded)

    return of


def open_document_rules(hosts: Hosts, settings: Settings) -> Callable[[Source], DocumentRules | None]:
    """Return a function: stored source -> its document rules; None: it is no longer configured."""
    rules_of = selection_rules(settings)

    def of(source: Source) -> DocumentRules | None:
        spec = hosts.spec_of(source)
        if spec is None:
            return None
        rules = rules_of(spec)

        def choose(survey: Survey) -> Chosen:
            return chosen(survey, spec, rules)

        return DocumentRules(spec, wanted_of(spec, settings.crawl_skip), choose)

    return of


def open_crawler(settings: Settings, store: Store, *, lasting: bool = True) -> Crawler:
    """Return the crawler, which polls all machines.

    :param lasting: keep unfinished requests for later polls of this process.
    """
    with _OPENING:
        flights = _FLIGHTS.setdefault(settings.home, Flights()) if lasting else Flights[Answer]()
    return Crawler(
        store,
        open_hosts(settings, store),
        selection_rules(settings),
        flights,
        settings.crawl_interval_s,
        Exclusions(store),
        settings.crawl_skip,
        version("anamnesis"),
    )
