"""Small real processes to supervise, and the certainty that none outlives its test."""

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from anamnesis_pipeline.runtime.process_group import end_life
from anamnesis_pipeline.runtime.supervision import ChildSpec

SLEEPER = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
)
PARENT = (
    "import subprocess, sys, time; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True); "
    "print('on', flush=True); time.sleep(600)"
)
"""Starts a grandchild in a session of its own, as Dagster's code server does with run workers."""


@pytest.fixture
def life() -> Iterator[str]:
    """A life's id; whatever still carries it at the end of the test is ended."""
    life = uuid.uuid4().hex
    yield life
    end_life(life, grace_s=0)


@pytest.fixture
def child(tmp_path: Path) -> Callable[..., ChildSpec]:
    """Makes the spec of a Python child from its code."""

    def make(name: str, code: str, **options: object) -> ChildSpec:
        command = (sys.executable, "-c", code)
        return ChildSpec(name, command, dict(os.environ), tmp_path / f"{name}.log", **options)  # type: ignore[arg-type]

    return make


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Poll until `condition` holds; a test fails when it never does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
