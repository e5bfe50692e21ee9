"""What hosts over SSH cost: small files, unchanged trees, ten hosts at once, huge files. Real sshd, over loopback.

A folder for temporary files in which many were deleted in the last minutes makes new ones slow on ext4; name another
one by TMPDIR.

python benchmarks/remote_crawl.py [FILES]
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

import paramiko
from proc import resident_mib

from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.crawl import crawl_source
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.base import Survey, Wanted
from anamnesis_pipeline.sources.discovery import discover
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.sources.ssh.connection import connected
from anamnesis_pipeline.sources.ssh.machine import SshHost
from anamnesis_pipeline.sources.ssh.questions import documents_question, script_of
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.support.crawled_documents import DocumentHome
from anamnesis_tests.support.proxies import Proxy, proxy
from anamnesis_tests.support.ssh_servers import SshServer, openssh_server

HOSTS = 10
LATENCY_S = 0.1
NEAR_S, FAR_S, SLOWEST_S = 0.05, 0.3, 0.5
"""Of ten hosts nine are between the first two away, and one is the third."""
LOGS = 50
SPARSE_BYTES = 2 << 30


def main(files: int) -> None:
    with tempfile.TemporaryDirectory() as base, ExitStack() as stack:
        tree = Path(base, "tree")
        make_tree(tree, files)
        key = as_user(Path(base, "user"))
        server = stack.enter_context(openssh_server(Path(base, "sshd"), key))
        counted = stack.enter_context(proxy(server.port))
        know(server, counted)
        host = stack.enter_context(opened(counted.place))
        listing = unchanged(host, counted, tree)
        slow = fetched(host, server, listing)
        crawled(host, Path(base, "memory"), tree, slow)
        at_once(stack, server, tree)
        slowest_of_ten(stack, Path(base), key, tree / "0")
        grown(stack, server, Path(base, "logs"))
        huge(host, Path(base))
        many(host, Path(base), 10 * files)


def unchanged(host: SshHost, counted: Proxy, tree: Path) -> Survey:
    """An unchanged tick: wall time and bytes over the wire."""
    first = survey(host, tree)
    print(f"{len(first.files or ()):,} files, first survey: {counted.sent:,} bytes out, {counted.received:,} in")
    for _ in range(3):
        before = counted.sent, counted.received
        wall = timed(lambda: survey(host, tree, first.state))
        out, back = counted.sent - before[0], counted.received - before[1]
        print(f"unchanged survey: {wall * 1000:.0f} ms, {out:,} bytes out, {back:,} in")
    return first


def fetched(host: SshHost, server: SshServer, listing: Survey) -> float:
    """All files in streams, and one after the other as paramiko's SFTP reads them: the seconds that this takes."""
    files = [(f"{listing.root}/{file.path}", file.size) for file in listing.files or ()]

    def together() -> None:
        with host.fetching(files) as read:
            assert sum(len(read(path, 0, size)) for path, size in files) == sum(size for _, size in files)

    def one_by_one() -> None:
        with connected(server.place) as client, client.open_sftp() as sftp:
            for path, _ in files:
                with sftp.open(path, "rb") as file:
                    file.read()

    fast, slow = [timed(together)], timed(one_by_one)
    fast += [timed(together), timed(together)]
    shown = ", ".join(f"{each:.2f}" for each in fast)
    print(f"fetch {len(files):,} files: {shown} s together, {slow:.2f} s one by one by SFTP")
    print(f"  {slow / statistics.median(fast):.1f} times as fast by the median, {slow / max(fast):.1f} by the slowest")
    return slow


def crawled(host: SshHost, base: Path, tree: Path, slow: float) -> None:
    """The whole first crawl: listed, fetched, converted, masked, archived and committed, all of it durably."""
    walls, cpus = [], []
    for number in range(3):
        place = base / f"{number}"
        store = open_sqlite(place / "memory.db", place / "index")
        home = DocumentHome(store, place, mask=open_redactor(Settings(home=place)).mask_line)
        home.hosts["far"] = host
        source = home.source("notes", machine="far", root=tree)
        cpu = time.process_time()
        walls.append(timed(lambda home=home, source=source: home.pipeline.crawl(source)))
        cpus.append(time.process_time() - cpu)
        files = store.overview.counts().files
        store.close()
    shown = ", ".join(f"{each:.2f}" for each in walls)
    print(f"whole crawl of {files:,} files: {shown} s ({statistics.median(cpus):.2f} s of CPU here), ", end="")
    print(f"{slow / statistics.median(walls):.1f} times as fast as only fetching them one by one by SFTP")


def at_once(stack: ExitStack, server: SshServer, tree: Path) -> None:
    """Ten hosts in threads against the slowest of them, alone and beside the nine others. Other than real ones they
    share these cores, and so take longer at the same time: as long as ten shells that only answer, without SSH and
    crawler.
    """
    for root, latency in product((tree / "0", tree / "0" / "1"), (0.0, LATENCY_S)):
        ways = [stack.enter_context(proxy(server.port, latency_s=latency)) for _ in range(HOSTS)]
        know(server, *ways)
        hosts = [stack.enter_context(opened(way.place)) for way in ways]
        found = [survey(host, root) for host in hosts]
        away = f"{HOSTS} hosts with {len(found[0].files or ())} files, {latency * 1000:.0f} ms away"
        for is_open in (True, False):
            against_the_slowest(away, hosts, root, [each.state for each in found], is_open)


def against_the_slowest(away: str, hosts: list[SshHost], root: Path, states: list[str], is_open: bool) -> None:
    own_work = []
    alone, together, cpus = [], [], []

    def look(number: int) -> float:
        return timed(lambda: survey(hosts[number], root, states[number]))

    for _ in range(9):
        hang_up(hosts, is_open)
        alone.append(max(look(number) for number in range(HOSTS)))
        hang_up(hosts, is_open)
        cpu = time.process_time()
        with ThreadPoolExecutor(HOSTS) as pool:
            together.append(timed(lambda pool=pool: list(pool.map(look, range(HOSTS)))))
        cpus.append(time.process_time() - cpu)
        own_work.append(answering(root, states[0], HOSTS) - answering(root, states[0], 1))
    slowest, all_of_them, cpu, shared = (statistics.median(each) * 1000 for each in (alone, together, cpus, own_work))
    beside = slowest + shared
    print(
        f"{away}, {'open' if is_open else 'new'} connections: slowest alone {slowest:.0f} ms, while all work "
        f"{beside:.0f}; at once {all_of_them:.0f} ms ({cpu:.0f} ms of CPU here), "
        f"{all_of_them / slowest:.2f} and {all_of_them / beside:.2f} times"
    )


def answering(root: Path, known: str, shells: int) -> float:
    """Seconds that so many shells here take to answer the question for an unchanged folder at the same time."""
    script = script_of([documents_question(wanted(root, known))], "answer", with_clock=False)
    together = b"\n".join([b"(\n" + script + b"\n) &"] * shells) + b"\nwait\n"
    return timed(lambda: subprocess.run(["sh"], input=together, stdout=subprocess.DEVNULL, check=True))


def slowest_of_ten(stack: ExitStack, base: Path, key: paramiko.PKey, tree: Path) -> None:
    """Ten hosts, each with a server of its own and connected, one of them much farther away than the others."""
    hosts, states = [], []
    for number in range(HOSTS):
        away = SLOWEST_S if number == 0 else NEAR_S + (FAR_S - NEAR_S) * (number - 1) / (HOSTS - 2)
        server = stack.enter_context(openssh_server(base / f"sshd-{number}", key))
        way = stack.enter_context(proxy(server.port, latency_s=away))
        know(server, way)
        hosts.append(stack.enter_context(opened(way.place)))
        states.append(survey(hosts[number], tree).state)

    def look(number: int) -> float:
        return timed(lambda: survey(hosts[number], tree, states[number]))

    alone, together = [], []
    for _ in range(5):
        alone.append(max(look(number) for number in range(HOSTS)))
        with ThreadPoolExecutor(HOSTS) as pool:
            together.append(timed(lambda pool=pool: list(pool.map(look, range(HOSTS)))))
    slowest, all_of_them = statistics.median(alone), statistics.median(together)
    print(
        f"{HOSTS} hosts, {NEAR_S * 1000:.0f} to {FAR_S * 1000:.0f} ms away and one {SLOWEST_S * 1000:.0f} ms: slowest "
        f"alone {slowest * 1000:.0f} ms, all at once {all_of_them * 1000:.0f} ms, {all_of_them / slowest:.2f} times"
    )


def grown(stack: ExitStack, server: SshServer, base: Path) -> None:
    """Logs that got new lines, far away."""
    way = stack.enter_context(proxy(server.port, latency_s=LATENCY_S))
    know(server, way)
    host = stack.enter_context(opened(way.place))
    logs = [base / "projects" / "-home-dev" / f"{uuid.UUID(int=number)}.jsonl" for number in range(LOGS)]
    logs[0].parent.mkdir(parents=True)
    store, archive = open_sqlite(base / "memory.db", base / "index"), Archive(base / "archive")
    walls = []
    for _ in range(4):
        for log in logs:
            with log.open("a") as file:
                file.write(json.dumps({"text": "x" * 10_000}) + "\n")
        (source,) = discover(host, [os.fspath(base / "projects")]).sources
        store.files.put_sources([source])
        walls.append(timed(lambda source=source: crawl_source(store, host, archive, source, lambda x: (x, Counter()))))
    lines = store.overview.counts().lines
    assert lines == len(walls) * LOGS, lines
    store.close()
    print(f"{LOGS} logs that grew, {LATENCY_S * 1000:.0f} ms away: {statistics.median(walls[1:]):.1f} s")


def huge(host: SshHost, base: Path) -> None:
    """A sparse file of 2 GB, read in blocks of 1 MB as logs are."""
    path = base / "huge.jsonl"
    with path.open("wb") as file:
        file.truncate(SPARSE_BYTES)

    def read() -> None:
        at = 0
        while block := host.read(os.fspath(path), at, 1 << 20):
            at += len(block)
        assert at == SPARSE_BYTES

    wall = timed(read)
    size = SPARSE_BYTES >> 20
    print(f"{size:,} MiB in {wall:.1f} s, {size / wall:.0f} MiB/s, {resident_mib():.0f} MiB resident")


def many(host: SshHost, base: Path, files: int) -> None:
    """Ten times the files."""
    tree = base / "many"
    make_tree(tree, files, size=0)
    found = survey(host, tree)
    full = timed(lambda: survey(host, tree))
    same = timed(lambda: survey(host, tree, found.state))
    count = len(found.files or ())
    print(f"{count:,} files: {full:.2f} s to list, {same:.2f} s unchanged, {resident_mib():.0f} MiB resident")


def hang_up(hosts: list[SshHost], is_open: bool) -> None:
    for host in hosts:
        if not is_open:
            host.close()


def wanted(root: Path, known: str) -> Wanted:
    return Wanted(DOCUMENTS, os.fspath(root), known, ("*.md",), ("node_modules",))


def survey(host: SshHost, root: Path, known: str = "") -> Survey:
    (found,) = host.survey([wanted(root, known)])
    assert isinstance(found, Survey), found
    return found


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@contextmanager
def opened(place: str) -> Iterator[SshHost]:
    host = SshHost("far", place)
    yield host
    host.close()


def make_tree(tree: Path, files: int, size: int = 1) -> None:
    numbers = random.Random(1)
    for number in range(files):
        folder = tree / f"{number % 10}" / f"{number // 10 % 20}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.md").write_bytes(b"x" * size * numbers.randint(1_000, 4_000))


def as_user(home: Path) -> paramiko.PKey:
    """A home with a key, which is this process's from now on."""
    (home / ".ssh").mkdir(parents=True)
    key = paramiko.ECDSAKey.generate()
    key.write_private_key_file(os.fspath(home / ".ssh" / "id_ecdsa"))
    os.environ["HOME"] = os.fspath(home)
    os.environ.pop("SSH_AUTH_SOCK", None)
    return key


def know(server: SshServer, *ways: Proxy) -> None:
    with Path.home().joinpath(".ssh", "known_hosts").open("a") as file:
        file.writelines(
            server.known_host.replace(f":{server.port} ", f":{port} ")
            for port in (server.port, *(way.port for way in ways))
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
