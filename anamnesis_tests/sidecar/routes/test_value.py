"""Importance and retention over HTTP and on their pages."""

import pytest
from starlette.testclient import TestClient

from anamnesis_tests.sidecar.conftest import Post, problem
from anamnesis_tests.support.page_reading import read


def test_importance_is_explained_with_its_confirmations(client: TestClient, post: Post) -> None:
    same = "The zeppelin hangar must always have a red roof"
    post(same, episode_id="a", instance="mac")
    post(same, episode_id="b", instance="mac")
    body = client.get("/api/value", params={"episode_id": "a"}).json()
    assert (body["confirmations"], body["confirmed_by"]) == (0, []), "the same instance twice"
    post(same, episode_id="c", instance="desk")
    after = client.get("/api/value", params={"episode_id": "a"}).json()
    assert (after["confirmations"], after["confirmed_by"]) == (1, ["c"])
    assert after["score"] > body["score"]
    assert after["score"] == pytest.approx(sum(each["contribution"] for each in after["factors"]))
    soup = read(client, "/dashboard/episode/importance?episode_id=a")
    assert len(soup.select("meter")) == 9
    assert soup.select_one("p a")["href"] == "/dashboard/episodes/c"
    problem(client.get("/api/value", params={"episode_id": "none"}), 404)


def test_curves_follow_half_life_and_trust(client: TestClient) -> None:
    body = client.get("/api/retention", params={"trust": 0.5, "half_life_days": 60, "days": 60}).json()
    assert body["half_life_days"] == 30
    at_30 = next(point for point in body["points"] if point["days"] == 30)
    assert (at_30["l2"], at_30["elastic"]) == (0.5, 0.5)
    assert at_30["huber"] > 0.5


def test_page_draws_three_curves_with_sliders(client: TestClient) -> None:
    soup = read(client, "/dashboard/retention?trust=0.5")
    assert len(soup.select("svg polyline")) == 3
    assert {each["name"] for each in soup.select("input[type=range]")} == {"half_life_days", "trust", "accesses"}
    drawn = read(client, "/dashboard/retention/curves?trust=1").select_one("polyline")["points"]
    assert drawn != soup.select_one("polyline")["points"]
    assert read(client, "/dashboard/health").select_one("a[href='/dashboard/retention']")
