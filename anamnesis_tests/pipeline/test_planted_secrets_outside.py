"""Planted credentials get no further than the mask: not to an LLM, a model, Dagster's own storage, or any log."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg
import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.pipeline.embed import embed_sources
from anamnesis_pipeline.pipeline.index import ensure_space
from anamnesis_pipeline.services.wiring import discover_sources
from anamnesis_tests.pipeline.planted_logs import PLANTED, plant, readable
from anamnesis_tests.sidecar.conftest import wait_for
from anamnesis_tests.support.hashing_embedder import HashingEmbedder
from anamnesis_tests.support.live_system import free_ports
from anamnesis_tests.support.llm_services import HERE, HttpService, LlmHome, Service
from anamnesis_tests.support.llms import REPLY
from anamnesis_tests.support.loopback import json_answer
from anamnesis_tests.support.spaces import DIM, files_of

TOGETHER = 6
"""Credentials in one exchange: all of them in few calls."""


@pytest.fixture
def planted_home(llm_home: LlmHome) -> LlmHome:
    """Logs full of credentials, of which all is sent to the LLM."""
    plant(llm_home, TOGETHER)
    llm_home.set(summary_min_value=0, private_projects=[])
    return llm_home


# --- LLMs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", HERE, indirect=True)
def test_no_llm_is_sent_a_credential_and_no_step_logs_one(
    planted_home: LlmHome, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service.respond(service.says(REPLY))
    report = planted_home.run()
    assert report.counts["flagged"] == 0
    assert len(service.prompts) == report.looked_at >= len(PLANTED) // TOGETHER
    assert all("[REDACTED:" in prompt for prompt in service.prompts)
    sent = [received.json for received in service.server.received] if isinstance(service, HttpService) else ()
    assert readable(json.dumps([service.prompts, *sent], ensure_ascii=False)) == []
    assert readable(caplog.text) == []


@pytest.mark.parametrize("service", ["anthropic"], indirect=True)
def test_no_batch_holds_a_credential(planted_home: LlmHome, service: HttpService) -> None:
    planted_home.set(llm_batch_min=2)
    assert planted_home.run().counts["in a batch"] >= len(PLANTED) // TOGETHER
    assert readable(json.dumps(service.server.received[0].json, ensure_ascii=False)) == []


# --- models ----------------------------------------------------------------------------------------------


class Recording(HashingEmbedder):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__(DIM)
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        self.texts += texts
        return super().embed(texts, role)


def test_no_embedding_model_is_given_a_credential(planted_home: LlmHome) -> None:
    planted_home.run()
    space, model = ensure_space(planted_home.store, files_of("recording"), "fp32"), Recording()
    embed_sources(planted_home.store, space.key, [planted_home.source().key], model, 25)
    assert sum("[REDACTED:" in text for text in model.texts) > len(PLANTED)
    assert readable("\n".join(model.texts)) == []


# --- Dagster ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("service", ["anthropic"], indirect=True)
def test_dagsters_storage_holds_no_credential(planted_home: LlmHome, service: HttpService, tmp_path: Path) -> None:
    said = "\n".join(text for text, _ in PLANTED.values())
    service.respond(json_answer({"type": "error", "error": {"type": "authentication_error", "message": said}}, 401))
    (source,) = (s for s in discover_sources(planted_home.settings).sources if s.kind == "claude_logs")
    planted_home.store.files.put_sources([source])
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        instance.add_dynamic_partitions(str(SOURCES.name), [source.key])
        ran = defs.resolve_job_def("ingest").execute_in_process(
            instance=instance, partition_key=source.key, tags={"dagster/sensor_name": "crawl_sensor"}
        )
    assert ran.success
    files = [file for file in (tmp_path / "dagster").rglob("*") if file.is_file()]
    stored = b"".join(file.read_bytes() for file in files).decode("utf-8", "replace")
    assert source.key in stored
    assert "answered 401" in stored, "the run's log tells that the LLM refused"
    assert any("compute_logs" in str(file) for file in files)
    assert readable(stored) == []


# --- the sidecar -----------------------------------------------------------------------------------------


@pytest.fixture
def sidecar(planted_home: LlmHome, tmp_path: Path) -> Iterator[tuple[httpx.Client, Path]]:
    """A running sidecar, and what it writes."""
    (port,) = free_ports(1)
    environment = {**os.environ, "ANAMNESIS_PORT": str(port), "ANAMNESIS_LOCAL_ONLY": "1"}
    command, output = [sys.executable, "-m", "anamnesis_pipeline.sidecar"], tmp_path / "sidecar.log"
    with output.open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    with process, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
        try:
            wait_for(lambda: is_up(client), 60)
            yield client, output
        finally:
            process.kill()


def is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def test_the_sidecar_keeps_and_logs_no_credential(planted_home: LlmHome, sidecar: tuple[httpx.Client, Path]) -> None:
    client, output = sidecar
    planted = list(PLANTED.values())
    groups = [planted[first : first + TOGETHER] for first in range(0, len(planted), TOGETHER)]
    texts = ["\n".join(text for text, _ in group) for group in groups]
    drafts = [
        {"summary": text, "raw_exchange": f"use\n{text}\nnow", "instance": "i", "project": "p", "metadata": {"x": text}}
        for text in texts
    ]
    assert client.post("/api/episodes/bulk", json={"episodes": drafts}).json()["failed"] == []
    for text, group in zip(texts, groups, strict=True):
        assert client.post("/api/episodes/search", json={"query": text, "mode": "exact"}).status_code == 200
        client.get("/api/episodes", params={"project": [pieces[0] for _, pieces in group]})
        assert client.post("/api/episodes", json={"summary": 7, "raw_exchange": text}).status_code == 422
    wait_for(lambda: output.read_text().count("/api/episodes/search") == len(groups))  # written when all is done
    assert readable(output.read_text()) == []
    assert len(planted_home.episodes()) == len(groups)
    assert readable(planted_home.bytes().decode("utf-8", "replace")) == []
