"""How busy the machine is, and that what nobody knows is null."""

import os
from pathlib import Path

import psutil
import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar.host_state import gpus_of, host_state

TOLD = "NVIDIA H100 80GB HBM3, 37, 1024, 81559\nTesla T4, [N/A], [Not Supported], 15360\n"


def test_the_machine_is_told_as_the_system_has_it(client: TestClient) -> None:
    body = client.get("/api/host").json()
    assert body["cpus"] == psutil.cpu_count()
    assert body["memory_bytes"] == psutil.virtual_memory().total
    assert 0 < body["memory_available_bytes"] <= body["memory_bytes"]
    assert 0 <= body["cpu_percent"] <= 100
    assert body["load"]["one"] == pytest.approx(os.getloadavg()[0], abs=2)
    assert body["uptime_s"] > 0


def test_what_the_system_does_not_tell_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError("not here")

    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(os, "getloadavg", unknown)
    for name in ("virtual_memory", "boot_time", "cpu_percent"):
        monkeypatch.setattr(psutil, name, unknown)
    found = host_state()
    names = ("load", "memory_bytes", "memory_available_bytes", "uptime_s", "cpu_percent", "gpus")
    assert [found[name] for name in names] == [None] * len(names)  # type: ignore[literal-required]


def test_gpus_are_told_with_what_they_say_of_themselves() -> None:
    first, second = gpus_of(TOLD)
    assert first == {
        "name": "NVIDIA H100 80GB HBM3", "percent": 37.0, "memory_used_bytes": 2**30, "memory_bytes": 81_559 * 2**20,
    }  # fmt: skip
    assert (second["percent"], second["memory_used_bytes"]) == (None, None)
    assert gpus_of("No devices were found\n") == []


@pytest.mark.parametrize(("script", "gpus"), [("printf 'T4, 0, 0, 15360\\n'", 1), ("exit 9", None), ("sleep 5", None)])
def test_a_program_for_gpus_that_fails_or_hangs_tells_nothing(
    script: str, gpus: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("anamnesis_pipeline.sidecar.host_state.GPU_ASKED_S", 0.5 if "sleep" in script else 30)
    found = host_state()["gpus"]
    assert (None if found is None else len(found)) == gpus
