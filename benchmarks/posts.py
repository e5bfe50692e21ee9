"""Latency of posts while others post and search, what becomes of their vectors, and the sidecar's memory over time.

    python benchmarks/posts.py [--minutes 2] [--writers 8] [--readers 8] [--pause-s 0] [--sample-s 30] [--home FOLDER]
    python benchmarks/posts.py --notes --home FOLDER [--writers 0]

A sidecar of its own is asked over HTTP; each client sends its next request when the last is answered. Every post is of
its own words and looked for by one of them as soon as it is answered. With `--writers 0` it is steady searching: the
memory lines say whether that levels off.

With `--notes` 40 fresh notes (data/fresh_notes.jsonl) are posted into a copy of the memory in FOLDER, each asked for in
its own words and in others as soon as it is posted, 10 s later, and once everything is embedded; `--writers` others
post meanwhile.
"""

import argparse
import json
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from service import SHARED, sidecar, wait_embedded
from store_speed import words_of_logs

NOTES = Path(__file__).parent / "data/fresh_notes.jsonl"
WORDINGS = ("own", "other", "far")
LATER_S = 10.0
TIMEOUT_S = 120
PAUSE_S = 1.0


class Clients:
    """Posts and searches until they are told to end, and notes how long each took, in seconds."""

    def __init__(self, base: str, words: list[str], pause_s: float = 0.0) -> None:
        self._base, self._words, self._pause_s = base, words, pause_s
        self.posts, self.searches = list[float](), list[float]()
        self.lost, self.refused = list[str](), 0
        self._over = threading.Event()

    @contextmanager
    def at_work(self, writers: int, readers: int) -> Iterator[None]:
        """So many of each."""
        works = [self._write] * writers + [self._read] * readers
        threads = [threading.Thread(target=work, args=(number,)) for number, work in enumerate(works)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _write(self, number: int) -> None:
        rng = random.Random(number)
        with httpx.Client(base_url=self._base, timeout=TIMEOUT_S) as client:
            for count in iter(lambda: len(self.posts), None):
                if self._over.is_set():
                    return
                word = f"zq{number}x{count}x{rng.getrandbits(40):x}"
                text = " ".join([word, *rng.choices(self._words, k=60)])
                started = time.perf_counter()
                episode = {"summary": text, "instance": f"writer-{number}", "project": "load"}
                reply = client.post("/api/episodes", json=episode)
                self.posts.append(time.perf_counter() - started)
                found = client.post("/api/episodes/search", json={"query": word, "mode": "exact", "top_k": 1})
                if reply.status_code != 201 or not found.json().get("results"):
                    self.lost.append(f"{reply.status_code}: {word}")

    def _read(self, number: int) -> None:
        rng = random.Random(-number - 1)
        with httpx.Client(base_url=self._base, timeout=TIMEOUT_S) as client:
            while not self._over.wait(self._pause_s):
                query = " ".join(rng.choices(self._words, k=8))
                started = time.perf_counter()
                try:
                    client.post("/api/episodes/search", json={"query": query}).raise_for_status()
                    self.searches.append(time.perf_counter() - started)
                except (httpx.HTTPStatusError, httpx.TransportError):  # to be asked later, or a connection grew old
                    self.refused += 1
                    self._over.wait(PAUSE_S)


def told(name: str, seconds: list[float]) -> str:
    """Median, p95 and most of what was noted."""
    if len(seconds) < 2:
        return f"{name}: {len(seconds)}"
    cuts = statistics.quantiles(seconds, n=100)
    return f"{name}: {len(seconds):,}, median {cuts[49]:.2f} s, p95 {cuts[94]:.2f} s, most {max(seconds):.2f} s"


def memory_mb(home: Path) -> tuple[float, float]:
    """What the sidecar whose home this is holds, resident and of its own.

    Its own memory counts what the kernel swapped out, and no pages of files, which come and go as the kernel pleases.
    """
    for process in Path("/proc").glob("[0-9]*"):
        try:
            own = f"ANAMNESIS_HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0")
            if own and b"anamnesis_pipeline.sidecar" in (process / "cmdline").read_bytes():
                lines = (line.split() for line in (process / "status").read_text().splitlines())
                kb = {line[0]: int(line[1]) for line in lines if line[-1] == "kB"}
                return kb["VmRSS:"] / 1024, (kb["RssAnon:"] + kb["VmSwap:"]) / 1024
        except OSError:
            continue
    return 0.0, 0.0


def place_of(client: httpx.Client, query: str, episode_id: str) -> tuple[int, bool]:
    """The rank of an episode among the first ten, 99: none of them; and whether its vector counted."""
    hits = client.post("/api/episodes/search", json={"query": query, "top_k": 10, "track": False}).json()["results"]
    for rank, hit in enumerate(hits, 1):
        if episode_id in (hit["episode_id"], *hit["also"]):
            return rank, hit["similarity_score"] is not None
    return 99, False


def ask_for_notes(base: str, words: list[str], writers: int) -> None:
    """Post the notes, ask for each, and print how often it came first."""
    notes = [json.loads(line) for line in NOTES.read_text(encoding="utf-8").splitlines()]
    found: dict[tuple[str, str], list[tuple[int, bool, str]]] = {}

    def ask(when: str, client: httpx.Client, note: dict[str, str]) -> None:
        for wording in WORDINGS:
            place, near = place_of(client, note[wording], note["id"])
            found.setdefault((when, wording), []).append((place, near, note[wording]))

    with httpx.Client(base_url=base, timeout=TIMEOUT_S) as client:
        client.post("/api/episodes/search", json={"query": "warm up", "track": False})
        spent = []
        with Clients(base, words).at_work(writers, 0):
            for number, note in enumerate(notes):
                project = f"acme/{('shop', 'infra', 'home')[number % 3]}"
                body = {"summary": note["note"], "instance": "notes", "project": project}
                started = time.perf_counter()
                note["id"] = client.post("/api/episodes", json=body).json()["episode_id"]
                spent.append(time.perf_counter() - started)
                ask("at once", client, note)
            time.sleep(LATER_S)
            for note in notes:
                ask(f"after {LATER_S:.0f} s", client, note)
        wait_embedded(base, TIMEOUT_S)
        for note in notes:
            ask("embedded", client, note)
    print(told("posts of notes", spent))
    for (when, wording), rows in found.items():
        first, near = sum(place == 1 for place, *_ in rows), sum(near for _, near, _ in rows)
        missed = [f"{place}: {query}" for place, _, query in rows if place > 1]
        print(f"{when:<10} {wording:<6} first {first / len(rows):.1%}, by its vector, too, {near / len(rows):.1%}")
        print(*(f"    {each}" for each in missed), sep="\n")


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--pause-s", type=float, default=0, help="between two searches of one reader")
    parser.add_argument("--sample-s", type=float, default=30)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--notes", action="store_true")
    given = parser.parse_args()
    words = words_of_logs(SHARED / "data/claude_logs/projects")
    with tempfile.TemporaryDirectory() as folder:
        home = given.home or Path(folder)
        if given.notes:
            home = shutil.copytree(given.home, Path(folder) / "home")
            with sidecar(home) as base:
                ask_for_notes(base, words, given.writers)
            return
        with sidecar(home) as base:
            clients = Clients(base, words, given.pause_s)
            started = time.monotonic()
            with clients.at_work(given.writers, given.readers):
                while (so_far := time.monotonic() - started) < given.minutes * 60:
                    resident, own = memory_mb(home)
                    memory = f"{resident:8.1f} MiB resident  {own:8.1f} MiB of its own"
                    print(f"{so_far:6.0f} s  {memory}  {len(clients.searches):,} searches", flush=True)
                    time.sleep(min(given.sample_s, given.minutes * 60 - so_far + 0.1))
            print(told("posts", clients.posts), told("searches", clients.searches), sep="\n")
            print(f"searches refused: {clients.refused:,}")
            print(f"not found by their word at once, or refused: {len(clients.lost)} {clients.lost[:3]}")
            print(f"everything embedded {wait_embedded(base, TIMEOUT_S):.0f} s later")


if __name__ == "__main__":
    main()
