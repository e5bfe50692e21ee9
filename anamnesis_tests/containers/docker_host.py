"""A Docker daemon for the tests alone, with images that are made of Debian's packages: none is pulled.

Its data stay in the user's cache, so that layers are built once. Needs root, and of Debian: docker.io, docker-compose,
debootstrap.
"""

import http.server
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
BASE = "anamnesis-test-base:bookworm"
POSTGRES = "anamnesis-test-postgres:bookworm"
WHEELS_PORT = 18099
"""Fixed, since it is written into the base image, whose layers are kept."""
_NEEDED = ("dockerd", "docker-compose", "debootstrap")


def why_not() -> str | None:
    """What keeps the daemon from being started here; None: nothing."""
    if os.geteuid() != 0:
        return "a Docker daemon of the tests' own is started by root only"
    if missing := [name for name in _NEEDED if shutil.which(name) is None]:
        return f"{', '.join(missing)} missing (Debian: apt install docker.io docker-compose debootstrap)"
    if Path("/var/run/docker.pid").exists():
        return "a Docker daemon runs here already, and two would share the firewall's rules"
    return None


@contextmanager
def docker_daemon() -> Iterator[dict[str, str]]:
    """Run it while the block does; the environment in which `docker` and `docker-compose` reach it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anamnesis-test-docker"
    with tempfile.TemporaryDirectory(prefix="docker-", ignore_cleanup_errors=True) as folder:
        socket, log = f"{folder}/docker.sock", Path(folder, "log")
        command = [
            "dockerd",
            "--data-root",
            str(cache),
            "--exec-root",
            f"{folder}/exec",
            "--bridge",
            "none",
            "--pidfile",
            f"{folder}/pid",
            "--host",
            f"unix://{socket}",
        ]
        environment = os.environ | {"DOCKER_HOST": f"unix://{socket}", "DOCKER_SOCKET": socket}
        # Debian's client belongs to Debian's daemon; another may lie before it.
        environment["PATH"] = f"/usr/bin:{environment['PATH']}"
        with log.open("wb") as output:
            daemon = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            _wait(environment, daemon, log)
            _remove_what_is_left(environment)
            yield environment
        finally:
            daemon.terminate()
            daemon.wait(timeout=60)
            subprocess.run(["umount", f"{folder}/exec/netns/default"], capture_output=True, check=False)


def _wait(environment: dict[str, str], daemon: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run(["docker", "version"], env=environment, capture_output=True, check=False).returncode:
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"dockerd does not start:\n{log.read_text()[-3000:]}")
        time.sleep(0.2)


def _remove_what_is_left(environment: dict[str, str]) -> None:
    """Containers and volumes of tests that were killed; the images stay."""
    for find, remove in ((["ps", "-aq"], ["rm", "--force"]), (["volume", "ls", "-q"], ["volume", "rm"])):
        found = subprocess.run(["docker", *find], env=environment, capture_output=True, text=True, check=True)
        if left := found.stdout.split():
            subprocess.run(["docker", *remove, *left], env=environment, capture_output=True, check=True)


def make_images(environment: dict[str, str]) -> None:
    """The base of all images, unless it is there, and PostgreSQL, whose layers are kept."""
    if not _has(environment, BASE):
        with tempfile.TemporaryDirectory(prefix="base-") as folder:
            _import(environment, _debian(Path(folder)))
    subprocess.run(
        [
            "docker",
            "build",
            "--network",
            "host",
            "--build-arg",
            f"BASE={BASE}",
            "--tag",
            POSTGRES,
            "--file",
            str(HERE / "postgres.Dockerfile"),
            str(HERE),
        ],
        env=environment,
        check=True,
    )


def _has(environment: dict[str, str], image: str) -> bool:
    found = subprocess.run(["docker", "image", "inspect", image], env=environment, capture_output=True, check=False)
    return found.returncode == 0


def _debian(folder: Path) -> Path:
    """A minimal Debian that trusts whom this machine trusts, and whose pip looks at this machine's wheels first."""
    subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(folder)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for unused in ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(folder / unused, ignore_errors=True)
    for own in Path("/usr/local/share/ca-certificates").glob("*.crt"):
        shutil.copy(own, folder / "usr/local/share/ca-certificates")
    subprocess.run(["chroot", str(folder), "update-ca-certificates"], check=True, capture_output=True)
    (folder / "etc/pip.conf").write_text(
        f"[global]\ncert = /etc/ssl/certs/ca-certificates.crt\nfind-links = http://127.0.0.1:{WHEELS_PORT}/\n"
    )
    sources = "".join(
        f"deb http://deb.debian.org/{archive} {suite} main\n"
        for archive, suite in (("debian", "bookworm"), ("debian-security", "bookworm-security"))
    )
    (folder / "etc/apt/sources.list").write_text(sources)
    return folder


def _import(environment: dict[str, str], root: Path) -> None:
    with subprocess.Popen(
        ["docker", "import", "--change", 'CMD ["bash"]', "-", BASE], env=environment, stdin=subprocess.PIPE
    ) as importing:
        assert importing.stdin is not None
        with tarfile.open(fileobj=importing.stdin, mode="w|") as archive:
            archive.add(root, arcname=".")
        importing.stdin.close()
    if importing.returncode:
        raise RuntimeError("docker import has failed")


@contextmanager
def serving_wheels() -> Iterator[None]:
    """Serve the wheels that this machine's pip looks at, where a build finds them; an empty folder without any."""
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.find-links"], capture_output=True, text=True, check=False
    )
    places = f"{os.environ.get('PIP_FIND_LINKS', '')} {asked.stdout}".split()
    folders = [Path(place) for place in places if Path(place).is_dir()]
    with tempfile.TemporaryDirectory() as empty:
        handler = partial(_Quiet, directory=str(folders[0] if folders else empty))
        with http.server.ThreadingHTTPServer(("127.0.0.1", WHEELS_PORT), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield
            server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nobody reads it."""
