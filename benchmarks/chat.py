"""What the memory adds to the first token of an answer of the chat.

    python benchmarks/chat.py --home FOLDER [--turns 40]

FOLDER is a filled home, which stays as it is. The model is a server on loopback that speaks Ollama's format and
answers at once, so that all of the time up to its first token is ours: storing the question, three or four searches
side by side, booking. Questions are first sentences of summaries in the memory. A conversation begins every fourth
turn; first turns count apart, since there is no last reply to ask about. An answer is read for half a second.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
from service import sidecar

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.store.sqlite.opening import open_sqlite

TURNS_OF_ONE = 4
QUESTION_CHARS = 200
READS_S = 0.5


class AtOnce(BaseHTTPRequestHandler):
    """Ollama with a model that knows what it says before it is asked."""

    def do_POST(self) -> None:
        """Two pieces and the end."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        for word in ("Noted", "."):
            self.wfile.write(json.dumps({"message": {"content": word}, "done": False}).encode() + b"\n")
        self.wfile.write(json.dumps({"message": {"content": ""}, "done": True}).encode() + b"\n")

    def log_message(self, *_: object) -> None:
        """Nothing."""


def questions(home: Path, most: int) -> list[str]:
    """What somebody asked once."""
    with closing(open_sqlite(home / "anamnesis.db", home / "index")) as store:
        episodes = store.episodes.page(EpisodeFilter(), most * 3, None).items
    asked = [each.summary.split(". ")[0][:QUESTION_CHARS] for each in episodes if each.summary.strip()]
    return list(dict.fromkeys(asked))[:most]


def first_token_ms(client: httpx.Client, message: str, session_id: str | None) -> tuple[float, str]:
    """Milliseconds until the first token came, and the conversation's id."""
    began, found, session = time.perf_counter(), 0.0, ""
    wish = {"message": message, "backend": "ollama", "model": "at-once"}
    with client.stream(
        "POST", "/api/chat/stream", json=wish | ({"session_id": session_id} if session_id else {})
    ) as reply:
        reply.raise_for_status()
        for line in reply.iter_lines():
            if not line.startswith("data: "):
                continue
            event = json.loads(line[6:])
            session = event["session"]["session_id"] if "session" in event else session
            if "token" in event and not found:
                found = (time.perf_counter() - began) * 1000
            if "error" in event:
                raise SystemExit(event["error"])
    return found, session


def main() -> None:
    """Print medians and the 95th percentile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=40)
    options = parser.parse_args()
    model = ThreadingHTTPServer(("127.0.0.1", 0), AtOnce)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    os.environ["ANAMNESIS_OLLAMA_URLS"] = f"http://127.0.0.1:{model.server_address[1]}"
    first, later, session = [], [], None
    with tempfile.TemporaryDirectory() as thrown_away:
        home = Path(shutil.copytree(options.home, Path(thrown_away) / "home"))
        asked = questions(home, options.turns)
        with sidecar(home) as base, httpx.Client(base_url=base, timeout=60, trust_env=False) as client:
            first_token_ms(client, "warm up", None)
            for number, text in enumerate(asked):
                time.sleep(READS_S)
                begins = number % TURNS_OF_ONE == 0
                took, session = first_token_ms(client, text, None if begins else session)
                (first if begins else later).append(took)
    for name, times in (("first turn", first), ("later turn", later)):
        p95 = statistics.quantiles(times, n=20)[-1]
        print(f"{name}: median {statistics.median(times):.0f} ms, p95 {p95:.0f} ms, {len(times)} turns")


if __name__ == "__main__":
    main()
