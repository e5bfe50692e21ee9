"""What a MongoDB server refuses for good is told over HTTP in the words of the store, and over with its cause."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo.opening import open_mongo
from anamnesis_tests.sidecar import conftest
from anamnesis_tests.sidecar.conftest import BASE, open_services, problem, wait_for
from anamnesis_tests.support.mongo_server.faults import TOO_LARGE
from anamnesis_tests.support.mongo_server.server import LoopbackServer

UNAUTHORIZED = 13
MAX_DOCUMENT_BYTES = 300_000
POSTED = {"summary": "the port is 3010", "instance": "mac", "project": "acme"}
REQUESTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a list": ("GET", "/api/episodes", {}),
    "a search": ("POST", "/api/episodes/search", {"json": {"query": "which port"}}),
    "a post": ("POST", "/api/episodes", {"json": POSTED}),
    "the dashboard": ("GET", "/api/dashboard/stats", {}),
    "a page": ("GET", "/dashboard", {"headers": {"Accept": "text/html"}}),
    "the conversations": ("GET", "/api/chat/sessions", {}),
    "readiness": ("GET", "/ready", {}),
}


@pytest.fixture
def client(server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The application of these tests with its store in MongoDB."""

    def opened(*_: Path) -> Store:
        return open_mongo(server.uri, "refusals", wait_s=20)

    monkeypatch.setattr(conftest, "open_sqlite", opened)
    services = open_services(tmp_path)
    with TestClient(create_app(services), base_url=BASE) as client:
        wait_for(lambda: services.pool.ready)
        yield client


@pytest.mark.parametrize("asked", sorted(REQUESTS))
def test_refused_user_is_told_so_by_every_route(client: TestClient, server: LoopbackServer, asked: str) -> None:
    method, address, more = REQUESTS[asked]
    server.faults.add("find", "aggregate", "insert", "update", "findAndModify", error=UNAUTHORIZED, times=None)
    refused = client.request(method, address, **more)
    assert refused.status_code == 503, refused.text
    assert "check ANAMNESIS_MONGO_URI" in refused.text
    server.faults.clear()
    assert client.request(method, address, **more).is_success


def test_episode_too_large_for_a_document_leaves_nothing(client: TestClient, server: LoopbackServer) -> None:
    server.faults.add("insert", "update", error=TOO_LARGE, times=None, over_bytes=MAX_DOCUMENT_BYTES)
    large = {**POSTED, "raw_exchange": "walrus " * (2 * MAX_DOCUMENT_BYTES // 7)}
    told = problem(client.post("/api/episodes", json=large), 413)["detail"]
    assert "one document for episodes has more than the 16 MB it may" in told
    assert client.get("/api/episodes").json()["items"] == []
    assert client.post("/api/episodes", json=POSTED).status_code == 201
