"""`anamnesis blame`, `fix` and `how` on a store without a service."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anamnesis_pipeline.cli.app import app
from anamnesis_tests.sidecar.test_process import free_port
from anamnesis_tests.support.archived_logs import SESSION, Home
from anamnesis_tests.support.worked_sessions import REFUSED, work


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    home = Home(tmp_path)
    work(home)
    for name in [name for name in os.environ if name.startswith("ANAMNESIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_PORT", str(free_port()))
    monkeypatch.chdir(tmp_path)
    yield home
    home.close()


def test_blame_prints_reason_and_resume_command() -> None:
    done = CliRunner().invoke(app, ["blame", "src/prices.py"])
    assert done.exit_code == 0, done.output
    assert "asked: round the prices of an order to cents" in done.stdout
    assert f"claude --resume {SESSION} in /code/shop on box" in done.stdout


def test_fix_reads_an_output_from_stdin() -> None:
    done = CliRunner().invoke(app, ["fix", "--json"], input=f"Traceback\n{REFUSED}\n")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["items"][0]["ended"] == ["docker compose up -d db"]


def test_how_says_in_a_sentence_if_nothing_is_recorded() -> None:
    done = CliRunner().invoke(app, ["how", "launch", "the", "rocket"])
    assert done.exit_code == 1
    assert done.stdout.startswith("Nothing is recorded of this: no run of it succeeded. Search for the task in words")
    assert "or ask in all projects" not in done.stdout
    there = CliRunner().invoke(app, ["how", "launch", "the", "rocket", "--project", "/code/shop"])
    assert there.stdout.endswith("Search for the task in words, or ask in all projects.\n")
    assert CliRunner().invoke(app, ["how", "pytest", "--project", "/code/shop"]).exit_code == 0
    assert CliRunner().invoke(app, ["blame", " "]).exit_code == 1


@pytest.mark.parametrize("more", [(), ("--project", "all"), ("--project", "/code/shop")])
def test_search_with_a_prefix_answers_by_thing(more: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["search", "fix:", REFUSED, *more])
    assert done.exit_code == 0, done.output
    assert "ended it: docker compose up -d db" in done.stdout
    assert CliRunner().invoke(app, ["search", "how: launch the rocket", *more]).exit_code == 1
