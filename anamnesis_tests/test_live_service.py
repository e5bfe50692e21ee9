"""A service that runs already, looked at without changing it.

`ANAMNESIS_TEST_URL=http://127.0.0.1:3010 .venv/bin/pytest -m e2e anamnesis_tests/test_live_service.py`

The token, if it wants one, is ANAMNESIS_API_TOKEN.
"""

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("ANAMNESIS_TEST_URL" not in os.environ, reason="ANAMNESIS_TEST_URL names no service to look at"),
]


@pytest.fixture
def live() -> Iterator[httpx.Client]:
    token = os.environ.get("ANAMNESIS_API_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=os.environ["ANAMNESIS_TEST_URL"], headers=headers, timeout=30) as client:
        yield client


def counted(live: httpx.Client) -> tuple[int, int]:
    """What a change would move: episodes, and how often they were found."""
    body = live.get("/api/quality").raise_for_status().json()
    return body["episodes"], body["retrievals"]


def test_a_live_service_is_ready(live: httpx.Client) -> None:
    assert live.get("/health").json()["status"] == "ok"
    ready = live.get("/ready")
    assert ready.status_code == 200, ready.text


@pytest.mark.parametrize(
    "path",
    [
        "/api/quality",
        "/api/events",
        "/api/settings/sources/last-ingest",
        "/api/sources",
        "/api/crawler/status",
        "/api/jsonl/status",
        "/api/embedding/config",
        "/api/episodes",
        "/api/episodes/reembed/status",
        "/api/consolidation/status",
        "/api/queries",
        "/metrics",
    ],
)
def test_a_live_service_answers_whoever_only_looks(live: httpx.Client, path: str) -> None:
    answer = live.get(path)
    assert answer.status_code == 200, f"{path}: {answer.text[:300]}"


def test_a_search_that_is_not_counted_changes_nothing(live: httpx.Client) -> None:
    before = counted(live)
    asked: dict[str, Any] = {"query": "what was decided lately", "track": False, "min_score": 0}
    body = live.post("/api/episodes/search", json=asked).raise_for_status().json()
    assert body["degraded"] == []
    assert bool(body["results"]) == bool(before[0])
    assert counted(live) == before
