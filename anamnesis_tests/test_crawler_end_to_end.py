"""One memory of three machines, as a user sets it up: two over real SSH, and one that is down all the time."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paramiko
import pytest

from anamnesis_tests.support.live_system import EXAMPLES, System, free_ports
from anamnesis_tests.support.ssh_servers import SSHD, openssh_server

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not SSHD, reason="OpenSSH's sshd is not installed"),
]

CLAUDE_MD = """# Shop
The shop sells garden gnomes.

## Deployment
Deploys go out on Tuesdays through the blue pipeline.

## Database
The catalogue lives in PostgreSQL 15 on port 5444.
"""
CODE = '''"""Prices of gnomes."""


def gnome_price(height_cm: int) -> int:
    """What a gnome costs in cents; tall ones are dearer."""
    return 100 + 7 * height_cm
'''


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with ExitStack() as stack:
        ssh = tmp_path / "user" / ".ssh"
        ssh.mkdir(parents=True)
        key = paramiko.ECDSAKey.generate()
        key.write_private_key_file(str(ssh / "id_ecdsa"))
        servers = {name: stack.enter_context(openssh_server(tmp_path / f"sshd-{name}", key)) for name in ("ash", "elm")}
        ports = {name: server.port for name, server in servers.items()} | {"oak": free_ports(1)[0]}
        (ssh / "known_hosts").write_text("".join(server.known_host for server in servers.values()))
        (ssh / "config").write_text(
            "".join(f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n" for name, port in ports.items())
        )
        system = System(
            tmp_path,
            ANAMNESIS_LOG_ROOTS=str(tmp_path / "here"),
            ANAMNESIS_CRAWL_INTERVAL_S="30",
            ANAMNESIS_MACHINE="desk",
            ANAMNESIS_MODEL="all-MiniLM-L6-v2",
        )
        stack.callback(system.end)
        yield system


def repository(folder: Path) -> Path:
    """A clone of one repository, with what is worth remembering in it."""
    shop = folder / "shop"
    shop.mkdir(parents=True)
    (shop / "CLAUDE.md").write_text(CLAUDE_MD)
    (shop / "prices.py").write_text(CODE)
    git = ["git", "-C", str(shop)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "remote", "add", "origin", "git@github.com:gnomes/shop.git"], check=True)
    return shop


def test_one_memory_follows_three_machines(system: System, tmp_path: Path) -> None:
    ash, elm = repository(tmp_path / "ash"), repository(tmp_path / "elm")
    (elm / "NOTES.md").write_text("# Notes\n\n## Winter\nThe greenhouse heater trips the breaker below nine degrees.\n")
    shutil.copytree(EXAMPLES, tmp_path / "elm" / ".claude" / "projects")
    shutil.copytree(EXAMPLES / "-home-mira-code-tide-board-web", tmp_path / "here" / "-home-mira-code-tide-board-web")
    for place in (f"ash:{ash.parent}", f"elm:{elm.parent}"):
        added = system.run("sources", "add", place)
        assert added.returncode == 0, added.stderr
    assert system.run("sources", "add", f"elm:{tmp_path}/elm/.claude").returncode == 0
    assert system.run("sources", "add", "oak:/srv/code", "--no-test").returncode == 0

    system.start()
    system.wait_until("the sidecar is ready", system.is_ready)
    system.wait_until("a document of ash is found", lambda: found(system, "deploys on Tuesdays blue pipeline"))
    system.wait_until("a document of elm alone is found", lambda: found(system, "greenhouse heater breaker"))
    system.wait_until("a log of elm is found", lambda: found(system, "customers charged twice webhook retried"))
    heater = found(system, "greenhouse heater breaker")[0]
    assert (heater["source"]["machine"], heater["project"]) == ("elm", "gnomes/shop")
    assert heater["source"]["path"] == str(elm / "NOTES.md")
    price = found(system, "gnome_price")[0]
    assert (price["kind"], price["project"]) == ("code", "gnomes/shop")

    before = found(system, "deploys on Tuesdays blue pipeline")[0]["episode_id"]
    for shop in (ash, elm):
        changed = (shop / "CLAUDE.md").read_text().replace("Tuesdays through the blue", "Fridays through the green")
        (shop / "CLAUDE.md").write_text(changed)
    system.wait_until("the new section is found", lambda: found(system, "deploys on Fridays green pipeline"))
    system.wait_until("the old one is superseded", lambda: episode(system, before)["status"] == "superseded")
    assert before not in [hit["episode_id"] for hit in found(system, "deploys blue pipeline")]

    machines = {host["machine"]: host for host in system.http.get("/api/crawler/status").json()["hosts"]}
    assert machines["ash"]["failures"] == machines["elm"]["failures"] == 0
    assert machines["oak"]["failures"] > 0
    assert "oak" in machines["oak"]["error"]
    assert "oak" in system.run("status").stdout

    heater_id = heater["episode_id"]
    assert system.http.delete(f"/api/episodes/{heater_id}").status_code == 204
    os.utime(elm / "NOTES.md")
    (elm / "NOTES.md").write_text((elm / "NOTES.md").read_text() + "\n## Spring\nThe water butt leaks at the tap.\n")
    system.wait_until("what was added is found", lambda: found(system, "water butt leaks tap"))
    assert not found(system, "greenhouse heater breaker nine degrees", mode="exact")
    system.terminate()


def test_source_added_while_all_runs_is_read_at_once(system: System, tmp_path: Path) -> None:
    system.environment["ANAMNESIS_CRAWL_INTERVAL_S"] = "300"
    notes = repository(tmp_path / "ash")
    system.start()
    system.wait_until("the sidecar is ready", system.is_ready)
    system.wait_until("the first tick is over", lambda: ticks(system, "crawl_sensor"))
    added = system.run("sources", "add", f"ash:{notes}", "--name", "notes", "--interval", "30")
    assert "notes: read now: http://127.0.0.1" in added.stdout, added.stdout + added.stderr
    system.wait_until("it is found", lambda: found(system, "deploys on Tuesdays blue pipeline"), timeout_s=90)
    (notes / "NEWS.md").write_text("# News\nThe fountain freezes in a hard winter.\n")
    system.wait_until("what is new is found", lambda: found(system, "fountain freezes hard winter"), timeout_s=90)
    assert ticks(system, "crawl_sensor") == 1
    system.terminate()


def ticks(system: System, sensor: str) -> int:
    """How often a sensor has ticked."""
    selector = {"repositoryLocationName": "anamnesis", "repositoryName": "__repository__", "sensorName": sensor}
    query = (
        "query($sensor: SensorSelector!) { sensorOrError(sensorSelector: $sensor) "
        "{ ... on Sensor { sensorState { ticks { status } } } } }"
    )
    state = system.graphql(query, {"sensor": selector}).get("sensorOrError", {}).get("sensorState", {"ticks": []})
    return sum(tick["status"] != "STARTED" for tick in state["ticks"])


def found(system: System, query: str, **options: Any) -> list[dict[str, Any]]:
    """Hits that hold the query's last word."""
    word = query.rsplit(maxsplit=1)[-1].lower()
    return [hit for hit in system.search(query, **options) if word in hit["excerpt"].lower()]


def episode(system: System, episode_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = system.http.get(f"/api/episodes/{episode_id}").json()
    return answer
