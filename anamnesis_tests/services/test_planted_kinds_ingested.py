"""Hundreds of kinds of secrets in prompts, tool results, documents and posts: none can be read in any file."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.parsing.redaction.masking import Redactor, load_salt
from anamnesis_pipeline.services.posting import EpisodeDraft, EpisodeWriter
from anamnesis_pipeline.services.wiring import open_pieces
from anamnesis_tests.support.archived_logs import Home, record
from anamnesis_tests.support.planted_kinds import PROSE, planted_kinds, readable_kinds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PLANTED = planted_kinds(11)
TOGETHER = 8
"""Kinds in one exchange, document or post."""


def anamnesis(home: Path, logs: Path, *arguments: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ANAMNESIS_")}
    own = {"ANAMNESIS_HOME": str(home), "ANAMNESIS_LOG_ROOTS": str(logs), "ANAMNESIS_PORT": "1"}
    command = [sys.executable, "-m", "anamnesis_pipeline", *arguments]
    done = subprocess.run(command, env=inherited | own, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr


def post_id(number: int) -> str:
    return f"post-{number:03}"


def exchange(number: int, before: str, text: str, after: str) -> list[dict[str, Any]]:
    """A prompt, a reply and a tool's result."""
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"$ cat it\n{text}\n$"}
    return [
        record("user", f"{before}\n{text}\n{after}", 3 * number),
        record("assistant", f"{before}\n{text}\n{after}", 3 * number + 1),
        record(
            "user", "", 3 * number + 2, message={"role": "user", "content": [result]}, toolUseResult={"stdout": text}
        ),
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Logs and documents read by `anamnesis ingest`, and posts beside them."""
    home = Home(tmp_path_factory.mktemp("kinds"))
    prose = list(PROSE.values())
    documents = home.base / "notes"
    documents.mkdir()
    texts = [text for text, _ in PLANTED.values()]
    groups = ["\n\n".join(texts[first : first + TOGETHER]) for first in range(0, len(texts), TOGETHER)]
    for number, text in enumerate(groups):
        before, after = prose[number % len(prose)]
        home.write(exchange(number, before, text, after))
        (documents / f"{number}.{('md', 'txt')[number % 2]}").write_text(f"# Note\n\n{before}\n\n{text}\n\n{after}\n")
    anamnesis(home.settings.home, home.logs, "sources", "add", str(documents), "--kind", "documents", "--name", "notes")
    anamnesis(home.settings.home, home.logs, "ingest")
    redactor = Redactor(load_salt(home.settings.home / "redaction.salt"))
    poster = EpisodeWriter(home.store, redactor.mask_text, open_pieces(), None)
    for number, text in enumerate(groups):
        poster.create(
            EpisodeDraft(f"{text}\n{number}", raw_exchange=text, instance="i", project="p", episode_id=post_id(number))
        )
    return home


def test_every_kind_was_planted(home: Home) -> None:
    log = next(home.logs.rglob("*.jsonl")).read_text()
    assert readable_kinds(PLANTED, log) == {kind: pieces for kind, (_, pieces) in PLANTED.items() if pieces}


def test_no_planted_kind_is_readable_in_any_file_of_the_home(home: Home) -> None:
    data = home.bytes().decode("utf-8", "replace")
    assert all(data.count(after) > 5 for _, after in PROSE.values())
    assert readable_kinds(PLANTED, data) == {}


def test_no_planted_kind_is_readable_in_any_post(home: Home) -> None:
    posts = home.store.episodes.get([post_id(number) for number in range(-(-len(PLANTED) // TOGETHER))])
    assert len(posts) == -(-len(PLANTED) // TOGETHER)
    data = "\n".join(f"{post.summary}\n{post.raw_exchange}" for post in posts.values())
    assert readable_kinds(PLANTED, data) == {}
