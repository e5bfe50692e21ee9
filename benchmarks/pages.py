"""The pages over a large memory: how long the service takes for each, how large it is, how soon something is painted.

    python benchmarks/pages.py [--episodes 100000] [--home FOLDER]

Texts are words of the logs, as in `store_speed.py`; each episode has one passage of 100 words. Beside them there are as
many messages and parts, of files of ten messages each, as an ingest leaves them. Vectors are clustered
random ones in the space of the built-in model, whose index is built, so that searches cost what they cost. Each page is
asked for seven times over HTTP by one client; the first time counts apart, since much is kept after it. What is
searched is two words of a stored text, others each time. Paint is Chromium's own first contentful paint, headless, with
nothing in its cache; pages are opened before the Overview that counts, since the first one waits for the browser. The
map is drawn before; then it is zoomed into and out of for 120 frames.
"""

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import numpy as np
from growth import vectors
from playwright.sync_api import sync_playwright
from service import SHARED, sidecar
from store_speed import START, Corpus, words_of_logs

from anamnesis_pipeline.embeddings.models import MINILM, find_model
from anamnesis_pipeline.model import (
    Episode,
    FileCursor,
    Part,
    Passage,
    Segment,
    SegmentKind,
    Source,
    Variant,
    part_id_of,
)
from anamnesis_pipeline.pipeline.memory_map import make_map, map_path, save_map
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.sidecar.web.html import NAVIGATION
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.episodes import Publication
from anamnesis_pipeline.store.records.messages import ParsedChunk
from anamnesis_pipeline.store.sqlite.opening import open_sqlite

ASKED = 7
BATCH = 500
MESSAGES_A_FILE = 10


def fill(store: Store, episodes: int) -> None:
    """Write episodes over two years with their vectors, and build the index."""
    space = replace(find_model(MINILM, local_only=True).space(), token_dims=0)
    if not store.spaces.all():
        store.spaces.put(space)
        store.spaces.activate(space.key)
    corpus = Corpus(words_of_logs(SHARED / "data"), seed=5)
    rows = vectors(np.random.default_rng(5), episodes)
    for first in range(store.overview.counts().episodes, episodes, BATCH):
        batch = [made(number, corpus.text(), episodes) for number in range(first, min(first + BATCH, episodes))]
        store.episodes.put(batch)
        keys = [
            each.passage_id
            for number in range(len(batch))
            for each in store.episodes.passages_of(batch[number][0].episode_id)
        ]
        made_now = next(rows)[: len(keys)]
        store.vectors.put_all(space.key, keys, {Variant.TEXT: made_now, Variant.CONTEXT: made_now})
    store.vectors.build(space.key)


def read_logs(store: Store, messages: int) -> None:
    """Files of 20 sources that were crawled and parsed, and whose parts are published."""
    sources = [Source(f"logs-{number}", "machine-0", "/logs", f"-code-{number}", "claude_logs") for number in range(20)]
    store.files.put_sources(sources)
    for number in range(store.overview.counts().files, messages // MESSAGES_A_FILE):
        source, path = sources[number % len(sources)].key, f"{number:08d}.jsonl"
        before = FileCursor(source, path, size=9_000, offset=9_000, lines=MESSAGES_A_FILE, mtime_ns=number)
        store.files.commit_crawl(None, before, None)
        stored = replace(before, version=1)
        parts = [part(source, path, number * MESSAGES_A_FILE + line) for line in range(MESSAGES_A_FILE)]
        keys = [each.segments[0].message_key for each in parts]
        store.messages.commit_parsed(
            ParsedChunk(stored, replace(stored, parsed_lines=MESSAGES_A_FILE), keys, parts=parts)
        )
        store.episodes.publish([Publication(each, None, []) for each in parts])


def part(source: str, path: str, number: int) -> Part:
    """One message that is a part of its own."""
    said = Segment(f"m{number}", f"u{number}", SegmentKind.STATEMENT, 0, "Said and done.", START)
    return Part(
        part_id=part_id_of(said),
        source=source,
        path=path,
        session_id=path,
        exchange_id=said.uuid,
        ordinal=0,
        kind="exchange",
        project=f"project-{number % 120}",
        cwd="/code",
        prompt="What now?",
        segments=(said,),
        closed=True,
    )


def draw(store: Store, home: Path) -> None:
    """Draw the map of the memory, unless it is there."""
    space = store.spaces.active()
    assert space is not None
    if not map_path(home).exists():
        save_map(map_path(home), make_map(store, space, threads=os.cpu_count() or 1))


def made(number: int, text: str, among: int) -> tuple[Episode, list[Passage]]:
    """One episode of 120 projects on three machines."""
    when = START + timedelta(minutes=number * 1_000_000 // among)
    kind = ("exchange", "note", "decision", "section")[number % 4]
    episode = Episode(
        episode_id=f"e{number:09d}",
        source="direct",
        timestamp=when,
        instance=f"machine-{number % 3}",
        project=f"project-{number % 120}",
        kind=kind,
        summary=text[:200],
        raw_exchange=text,
        tags=(f"tag-{number % 300}",),
        session_id=f"s{number // 20}",
    )
    return episode, [Passage(0, text)]


def pages(store: Store) -> dict[str, list[str]]:
    """Name -> paths that are asked for in turn: every page, one of an episode, results, a context for a prompt."""
    rng = random.Random(5)
    texts = [store.episodes.passages_of(f"e{number * 997:09d}")[0].passage.text for number in range(ASKED)]
    asked = ["+".join(rng.sample(content_words(text), 2)) for text in texts]
    fixed = [
        *(link.path for link in NAVIGATION),
        "/dashboard/episodes/e000000500",
        "/dashboard/episodes?project=project-7",
    ]
    return {
        **{path: [path] * ASKED for path in fixed},
        "/dashboard/search?q=...": [f"/dashboard/search?q={words}" for words in asked],
        "/dashboard/context?query=...": [f"/dashboard/context?project=project-7&query={words}" for words in asked],
    }


def served(client: httpx.Client, paths: list[str]) -> tuple[float, float, int]:
    """Milliseconds of the first answer, the median of the others, and bytes of HTML."""
    times = []
    for path in paths:
        began = time.perf_counter()
        reply = client.get(path, headers={"Accept": "text/html"})
        times.append((time.perf_counter() - began) * 1000)
        reply.raise_for_status()
    return times[0], statistics.median(times[1:]), len(reply.content)


PAINTS = 5
PAINTED = """() => new Promise((done) => new PerformanceObserver((list) => {
  for (const each of list.getEntriesByName("first-contentful-paint")) done(each.startTime);
}).observe({type: "paint", buffered: true}))"""


def painted(base: str, asked: dict[str, list[str]]) -> dict[str, list[float]]:
    """Name -> milliseconds to the first contentful paint, each time in a fresh browser context, sorted."""
    found: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, paths in [*list(asked.items())[:1], *asked.items()]:
            found[name] = []
            for path in paths[-PAINTS:]:
                page = browser.new_context().new_page()
                page.goto(base + path, wait_until="load")
                found[name].append(page.evaluate(PAINTED))
                page.context.close()
        browser.close()
    return {name: sorted(times) for name, times in found.items()}


ZOOMED = """async () => {
  const map = document.getElementById("map"), times = [];
  const middle = {bubbles: true, cancelable: true, clientX: map.clientWidth / 2, clientY: map.clientHeight / 2};
  const frame = () => new Promise(requestAnimationFrame);
  let last = await frame();
  for (let n = 0; n < 120; n++) {
    map.dispatchEvent(new WheelEvent("wheel", {...middle, deltaY: n < 60 ? -20 : 20}));
    const now = await frame();
    times.push(now - last);
    last = now;
  }
  times.sort((a, b) => a - b);
  return [times[60], times[114]];
}"""
"""Frames while the map is zoomed into and out of: milliseconds of the median and of the 95th percentile."""


def frames(base: str) -> tuple[str, float, float]:
    """What the map says of itself, and its frames."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        with page.expect_response("**/dashboard/map/points*") as points:
            page.goto(f"{base}/dashboard/map")
        octets = len(points.value.body())
        median, slow = page.evaluate(ZOOMED)
        browser.close()
    return f"points of {octets / 1000:.0f} KB", median, slow


def main() -> None:
    """Print one row per page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--home", type=Path, help="folder for the filled memory; a second run goes on with it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as thrown_away:
        home = options.home or Path(thrown_away)
        home.mkdir(exist_ok=True)
        with closing(open_sqlite(home / "anamnesis.db", home / "index")) as store:
            fill(store, options.episodes)
            read_logs(store, options.episodes)
            draw(store, home)
            asked = pages(store)
        with sidecar(home) as base, httpx.Client(base_url=base, timeout=60) as client:
            paint = painted(base, asked)
            said, median, slow = frames(base)
            print(f"Map: {said}; a frame {median:.1f} ms, 95th percentile {slow:.1f}\n")
            print("| page | first, ms | then, ms | KB | first paint, ms: median, slowest of 5 |\n|---|---|---|---|---|")
            for name, paths in asked.items():
                first, then, octets = served(client, paths)
                paints = f"{statistics.median(paint[name]):.0f}, {paint[name][-1]:.0f}"
                print(f"| `{name}` | {first:.0f} | {then:.0f} | {octets / 1000:.0f} | {paints} |")


if __name__ == "__main__":
    main()
