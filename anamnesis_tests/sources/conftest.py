"""Log folders made of real files."""

import json
import os
import uuid

import pytest

from anamnesis_pipeline.model import Source
from anamnesis_pipeline.sources.discovery import source_key


def record(number, text="hello"):
    """One log line without its newline."""
    return json.dumps({"type": "user", "uuid": f"{number}", "message": {"role": "user", "content": text}})


def session_name(number=0):
    """A file name as Claude Code gives sessions."""
    return f"{uuid.UUID(int=number + 1)}.jsonl"


@pytest.fixture
def project(tmp_path):
    """An empty Claude project folder below a log root, and its source."""
    folder = tmp_path / "projects" / "-home-dev-acme"
    folder.mkdir(parents=True)
    root = os.fspath(folder.parent)
    return folder, Source(source_key("box", root, folder.name), "box", root, folder.name)
