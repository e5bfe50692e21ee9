"""Ending all processes of a life, and only those."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from anamnesis_pipeline.runtime.process_group import LIFE_VARIABLE, end_life, members
from anamnesis_tests.runtime.conftest import PARENT, SLEEPER, STUBBORN, is_running, wait_for


@contextmanager
def started(code: str, life: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, LIFE_VARIABLE: life}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_on(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.stdout.readline()


def test_grandchildren_that_left_their_group_are_members_and_end(life: str) -> None:
    with started(PARENT, life) as process:
        wait_until_on(process)
        wait_for(lambda: len(members(life)) == 2)
        grandchild = next(member.pid for member in members(life) if member.pid != process.pid)
        assert end_life(life, between_scans=process.poll) == []
        wait_for(lambda: not is_running(grandchild))  # a signal takes a moment to end it


@pytest.mark.parametrize("in_haste", [False, True])
def test_process_that_ignores_sigterm_is_killed_after_the_grace(life: str, in_haste: bool) -> None:
    with started(STUBBORN, life) as process:
        wait_until_on(process)
        began = time.monotonic()
        grace_s = 60 if in_haste else 0.5
        assert end_life(life, grace_s=grace_s, hurry=lambda: in_haste, between_scans=process.poll) == []
        assert in_haste or time.monotonic() - began > 0.4
        assert time.monotonic() - began < 50
        assert process.wait() == -signal.SIGKILL


def test_processes_of_another_life_are_left_alone(life: str) -> None:
    with started(SLEEPER, life + "-other") as other, started(SLEEPER, life) as mine:
        wait_for(lambda: members(life) and members(life + "-other"))
        end_life(life, between_scans=mine.poll)
        assert other.poll() is None


def test_a_life_without_members_is_ended_at_once(life: str) -> None:
    scans: list[int] = []
    assert end_life(life, grace_s=600, between_scans=lambda: scans.append(1)) == []
    assert len(scans) <= 3, "it waits for nobody"
