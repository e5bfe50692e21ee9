"""The page of the map: what it draws, what it leaves out, and what it says of the map's age."""

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from httpx2 import Response
from numpy.typing import NDArray
from starlette.testclient import TestClient

from anamnesis_pipeline.model import EpisodeFilter, Source, Variant
from anamnesis_pipeline.pipeline.memory_map import MIN_EPISODES, MemoryMap, make_map, map_path, save_map
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.services.dagster.runs import JobRun
from anamnesis_pipeline.sidecar.map_view import JOB, points_of
from anamnesis_pipeline.sidecar.web.memory_map import PATH
from anamnesis_tests.sidecar.conftest import SPACE, TestServices, problem
from anamnesis_tests.support.page_reading import SCRIPT, read
from anamnesis_tests.support.samples import episode, passages, random_units, space


def fill(services: TestServices, count: int = 40, projects: Sequence[str] = ("acme", "acme", "acme", SCRIPT)) -> None:
    store, vectors = services.store, random_units(count, SPACE.dim, seed=2)
    for n in range(count):
        made = episode(f"e{n}", n, project=projects[n % 4], summary=f"Episode {n} {SCRIPT}")
        store.episodes.put([(made, passages(f"word{n} {n}"))])
        (stored,) = store.episodes.passages_of(f"e{n}")
        for variant in (Variant.TEXT, Variant.CONTEXT):
            store.vectors.put(SPACE.key, variant, [stored.passage_id], vectors[n : n + 1])


def draw(services: TestServices) -> MemoryMap:
    """The map of what is stored, kept as the asset keeps it."""
    active = services.store.spaces.active()
    assert active is not None
    made = make_map(services.store, active)
    save_map(map_path(services.settings.home), made)
    return made


@pytest.fixture
def made(services: TestServices) -> MemoryMap:
    """The map of forty episodes."""
    fill(services)
    return draw(services)


def told(client: TestClient, made: MemoryMap, part: str, **query: Any) -> Response:
    return client.get(f"{PATH}/{part}", params={"map": made.mark, **query})


def points(client: TestClient, made: MemoryMap, **query: Any) -> tuple[list[dict[str, Any]], NDArray[np.uint16]]:
    reply = told(client, made, "points", **query)
    assert reply.status_code == 200, reply.text
    (length,) = struct.unpack("<I", reply.content[:4])
    head = json.loads(reply.content[4 : 4 + length])
    assert head["mark"] == made.mark
    return head["groups"], np.frombuffer(reply.content[4 + length :], "<u2").reshape(-1, 2)


def test_page_without_a_map_says_what_is_missing(client: TestClient, services: TestServices, tmp_path: Path):
    fill(services, 12)
    page = read(client, PATH)
    (empty,) = page.select(".empty")
    assert f"{MIN_EPISODES - 12} to go" in empty.text
    assert empty.select('a[href="/dashboard/logs"]')
    assert not page.select("canvas, #draw")
    fill(services)
    page = read(client, PATH)
    assert "Draw the map" in page.select(".empty")[0].text
    assert page.select_one("#draw")["hx-post"] == f"{PATH}/draw"
    map_path(tmp_path).parent.mkdir()
    map_path(tmp_path).write_bytes(b"nonsense")
    page = read(client, PATH)
    assert "damaged" in page.text
    assert page.select("#draw")


def test_page_names_projects_with_a_central_episode(client: TestClient, made: MemoryMap):
    page = read(client, PATH)
    assert page.select_one("canvas")["data-mark"] == made.mark
    assert [name.text for name in page.select(".legend .name")] == ["acme", SCRIPT]
    rows = page.select("details tbody tr")
    assert [(row.select_one("th").text, row.select_one("td").text) for row in rows] == [("acme", "30"), (SCRIPT, "10")]
    link = str(rows[1].a["href"])
    assert int(link.removeprefix("/dashboard/episodes/e")) % 4 == 3
    groups, places = points(client, made)
    assert groups == [{"name": "acme", "start": 0, "count": 30}, {"name": SCRIPT, "start": 30, "count": 10}]
    np.testing.assert_array_equal(places, made.places)


def test_point_tells_its_episode(client: TestClient, services: TestServices, made: MemoryMap):
    stored = services.store.episodes.passages([int(made.passages[35])])[int(made.passages[35])]
    body = told(client, made, "point", at=35).json()
    assert (body["link"], body["project"]) == (f"/dashboard/episodes/{stored.episode_id}", SCRIPT)
    assert body["summary"].startswith("Episode ")
    for at in (40, 10**12):
        problem(told(client, made, "point", at=at), 404)
    services.store.episodes.delete(stored.episode_id)
    assert "removed" in problem(told(client, made, "point", at=35), 404)["detail"]
    assert "1 episode came or went since" in read(client, f"{PATH}/state").text


def test_private_projects_are_left_out_unless_asked_for(client: TestClient, services: TestServices):
    fill(services, projects=("open", "open", "open", "team/secret"))
    made = draw(services)
    services.store.settings.set("config.private_projects", ["secret"])
    page = read(client, PATH)
    assert "secret" not in page.text
    assert page.select('a[href="/dashboard/map?private=1"]')
    groups, places = points(client, made)
    assert ([group["name"] for group in groups], len(places)) == (["open"], 30)
    problem(told(client, made, "point", at=35), 404)
    assert told(client, made, "point", at=35, private=1).json()["project"] == "team/secret"
    assert len(points(client, made, private=1)[1]) == 40
    assert "team/secret" in read(client, PATH, private=1).text


def test_private_sources_are_left_out_too(client: TestClient, services: TestServices, made: MemoryMap):
    source = services.store.episodes.page(EpisodeFilter(), 1).items[0].source
    services.engine.private = lambda: Private((Source(source),))  # type: ignore[method-assign]
    assert points(client, made)[0] == []
    problem(told(client, made, "point", at=35), 404)
    assert len(points(client, made, private=1)[1]) == 40


def test_project_is_called_as_now_until_it_is_gone(client: TestClient, services: TestServices):
    fill(services, projects=("big", "big", "big", "small"))
    made = draw(services)
    services.store.projects.call("small", "tiny")
    assert [group["name"] for group in points(client, made)[0]] == ["big", "tiny"]
    central = services.store.episodes.passages([int(key) for key in made.centres[1]])
    first, *others = [central[int(key)].episode_id for key in made.centres[1]]
    services.store.episodes.delete(first)
    assert [group["name"] for group in points(client, made)[0]] == ["big", "tiny"]
    for name in others:
        services.store.episodes.delete(name)
    assert [group["name"] for group in points(client, made)[0]] == ["big"]


def test_what_a_search_finds_counts_for_nothing(client: TestClient, services: TestServices, made: MemoryMap):
    body = told(client, made, "found", q="word7").json()
    stored = services.store.episodes.passages([int(made.passages[at]) for at in body["points"]])
    assert "e7" in {each.episode_id for each in stored.values()}
    assert body["told"].startswith(f"{len(body['points'])} episode")
    assert "/dashboard/episodes/e7" in [each["link"] for each in body["best"]]
    assert services.store.episodes.heads(["e7"])["e7"].retrieval_count == 0


def test_page_of_an_older_map_is_told_to_load_again(client: TestClient, services: TestServices, made: MemoryMap):
    newer = draw(services)
    assert made.mark != newer.mark
    for path, query in (("points", {}), ("point", {"at": 1}), ("found", {"q": "word7"})):
        assert "reload the page" in problem(told(client, made, path, **query), 409)["detail"]
    assert read(client, f"{PATH}/state").select("#map-now")[0]["data-mark"] == newer.mark


def test_map_of_another_space_says_so(client: TestClient, services: TestServices, made: MemoryMap):
    assert "Up to date" in read(client, f"{PATH}/state").text
    services.store.spaces.put(space("other", SPACE.dim))
    services.store.vectors.put("other", Variant.TEXT, made.passages.tolist(), random_units(40, SPACE.dim))
    services.store.vectors.build("other")
    assert services.store.spaces.activate("other")
    for path in (f"{PATH}/state", PATH):
        assert "no longer searched" in read(client, path).text


def test_drawing_runs_the_job_once_at_a_time(client: TestClient, services: TestServices):
    reply = client.post(f"{PATH}/draw")
    assert [(name, run.status) for name, run in services.dagster.jobs] == [(JOB, "QUEUED")]
    assert "http://127.0.0.1:3000/runs/run1" in reply.text
    assert "toast" in reply.headers["hx-trigger"]
    assert "already" in client.post(f"{PATH}/draw").text
    assert len(services.dagster.jobs) == 1
    services.dagster.jobs[0] = (JOB, replace(services.dagster.jobs[0][1], status="SUCCESS"))
    client.post(f"{PATH}/draw")
    assert len(services.dagster.jobs) == 2


@pytest.mark.parametrize(
    ("status", "told"),
    [("QUEUED", "About to be drawn"), ("STARTED", "Being drawn"), ("FAILURE", "failed"), ("CANCELED", "None yet")],
)
def test_the_state_says_what_dagster_does(client: TestClient, services: TestServices, status: str, told: str):
    services.dagster.jobs.append((JOB, JobRun("run9", status)))
    page = read(client, f"{PATH}/state")
    assert told in page.text
    assert bool(page.select('a[href="http://127.0.0.1:3000/runs/run9"]')) == (status != "CANCELED")


def test_page_says_what_starts_dagster(client: TestClient, services: TestServices, made: MemoryMap):
    services.dagster.up = False
    assert read(client, PATH).select("canvas")
    state = read(client, f"{PATH}/state")
    assert "anamnesis up" in state.text
    mark = state.select_one("[name=seen]")["value"]
    assert client.get(f"{PATH}/state", params={"seen": mark}).status_code == 204
    reply = client.post(f"{PATH}/draw")
    assert ("Not started: Dagster does not answer" in reply.text, "hx-trigger" in reply.headers) == (True, False)


def test_passages_are_found_among_the_points_whatever_their_order():
    held = np.array([9, 3, 7, 1])
    order = np.argsort(held)
    assert points_of(held, order, [7, 2, 100, 9, 0]) == [2, 0]
    assert points_of(held, order, []) == []
