"""Logs of another machine take the way of local ones, whatever their names are."""

import os
import uuid
from collections import Counter
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import paramiko
import pytest

from anamnesis_pipeline.parsing.claude_logs.projects import project_label
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.archived import archived_lines
from anamnesis_pipeline.pipeline.crawl import crawl_source
from anamnesis_pipeline.pipeline.source_specs import put_specs
from anamnesis_pipeline.pipeline.survey import look
from anamnesis_pipeline.runtime.crawler_wiring import open_crawler, remote_host
from anamnesis_pipeline.services.ingest import ingest_source
from anamnesis_pipeline.services.wiring import open_pipeline, open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.discovery import discover
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.sources.specs import LOGS, SourceSpec
from anamnesis_pipeline.sources.ssh.machine import SshHost
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.support.crawled_logs import SESSION, line, source_changed
from anamnesis_tests.support.log_lines import Log
from anamnesis_tests.support.proxies import proxy
from anamnesis_tests.support.ssh_servers import SSHD, openssh_server

NAMES = [SESSION.encode(), b"agent-caf\xe9.jsonl", b"agent-two\nlines.jsonl", b"agent- .jsonl"]


@pytest.fixture(params=["local", pytest.param("ssh", marks=pytest.mark.skipif(SSHD is None, reason="no sshd"))])
def host(request, tmp_path, monkeypatch):
    if request.param == "local":
        yield LocalHost("box")
        return
    with far_server(tmp_path, monkeypatch) as server:
        far = SshHost("box", server.place)
        yield far
        far.close()


@contextmanager
def far_server(tmp_path, monkeypatch):
    """A server that this process's user reaches, with a key and a home of its own."""
    key = paramiko.ECDSAKey.generate()
    user = tmp_path / "user"
    (user / ".ssh").mkdir(parents=True)
    key.write_private_key_file(os.fspath(user / ".ssh" / "id_ecdsa"))
    monkeypatch.setenv("HOME", os.fspath(user))
    with openssh_server(tmp_path / "sshd", key) as server:
        (user / ".ssh" / "known_hosts").write_text(server.known_host)
        yield server


def test_logs_with_odd_names_are_archived_once_and_grow(host, tmp_path):
    root = tmp_path / "projects"
    folder = os.fsencode(root) + b"/-home-b\xfcro"
    os.makedirs(folder)
    for number, name in enumerate(NAMES):
        with open(folder + b"/" + name, "w") as file:
            file.write(f"{line(number)}\n")
    (tmp_path / "history.jsonl").write_text('{"display":"hi"}\n')
    store = open_sqlite(tmp_path / "memory.db", tmp_path / "index")
    archive = Archive(tmp_path / "archive")

    def crawl():
        found = discover(host, [os.fspath(root)])
        assert found.problems == ()
        store.files.put_sources(found.sources)
        return [crawl_source(store, host, archive, source, lambda text: (text, Counter())) for source in found.sources]

    try:
        reports = crawl()
        assert [report.problems for report in reports] == [[], []]
        assert sorted(report.lines for report in reports) == [1, len(NAMES)]
        assert sum(report.lines for report in crawl()) == 0
        source = next(s for s in discover(host, [os.fspath(root)]).sources if s.kind == "claude_logs")
        assert not source_changed(store, host, source)
        with open(folder + b"/" + NAMES[1], "a") as file:
            file.write(f"{line(99)}\n")
        assert source_changed(store, host, source)
        assert sum(report.lines for report in crawl()) == 1
        lines = [
            text
            for path, cursor in store.files.cursors(source.key).items()
            for text in archived_lines(store, archive, source.key, path, cursor.generation)
        ]
        assert sorted(lines) == sorted([*(line(n) for n in range(len(NAMES))), line(99)])
    finally:
        store.close()


@pytest.mark.skipif(SSHD is None, reason="no sshd")
def test_new_logs_of_a_far_machine_are_not_asked_for_one_by_one(tmp_path, monkeypatch):
    folder = tmp_path / "projects" / "-home-dev-acme"
    folder.mkdir(parents=True)
    for number in range(100):
        (folder / f"{uuid.UUID(int=number)}.jsonl").write_text(f"{line(number)}\n")
    store = open_sqlite(tmp_path / "memory.db", tmp_path / "index")
    try:
        with far_server(tmp_path, monkeypatch) as server, proxy(server.port) as between:
            known = server.known_host.replace(f":{server.port} ", f":{between.port} ")
            (tmp_path / "user" / ".ssh" / "known_hosts").write_text(known)
            far = SshHost("box", between.place)
            (source,) = discover(far, [os.fspath(folder.parent)]).sources
            store.files.put_sources([source])
            before = between.pieces
            report = crawl_source(store, far, Archive(tmp_path / "archive"), source, lambda text: (text, Counter()))
            assert (report.new, report.lines, report.problems) == (100, 100, [])
            assert between.pieces - before < 30
            far.close()
    finally:
        store.close()


@pytest.mark.skipif(SSHD is None, reason="no sshd")
def test_logs_of_a_machine_that_was_away_get_their_project_later(tmp_path, monkeypatch):
    shop = tmp_path / "srv" / "shop"
    (shop / ".git").mkdir(parents=True)
    (shop / ".git" / "config").write_text('[remote "origin"]\nurl = git@github.com:acme/shop.git\n')
    log = Log(cwd=os.fspath(shop))
    log.user("why does the shop close at noon")
    path = tmp_path / "far" / "projects" / "-srv-shop" / SESSION
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{text}\n" for text in log.lines))
    monkeypatch.setenv("ANAMNESIS_HOME", os.fspath(tmp_path / "home"))
    settings = Settings(machine="mac", log_roots=[])
    with far_server(tmp_path, monkeypatch) as server, closing(open_store(settings)) as store:
        spec = SourceSpec("far-logs", LOGS, os.fspath(path.parents[1]), server.place, "far")
        put_specs(store.settings, [spec], [], "mac")

        def changed():
            return look(open_crawler(settings, store, lasting=False), datetime.now(UTC), everything=True).changed

        assert len(changed()) == 1
        (source,) = (source for source in store.files.sources() if source.machine == "far")
        assert open_pipeline(settings, store).crawl(source).problems == []
        assert changed() == ()
        known_hosts = tmp_path / "user" / ".ssh" / "known_hosts"
        kept = known_hosts.read_text()
        known_hosts.write_text("")
        remote_host("far", server.place).close()
        ingest_source(open_pipeline(settings, store), source)
        assert store.projects.all() == [project_label(os.fspath(shop))]
        known_hosts.write_text(kept)
        assert changed() == (source.key,)
        ingest_source(open_pipeline(settings, store), source)
        assert store.projects.all() == ["acme/shop"]
        assert changed() == ()
        remote_host("far", server.place).close()
