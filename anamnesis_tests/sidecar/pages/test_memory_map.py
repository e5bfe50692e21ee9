"""The page of the map: what it draws, what it leaves out, and what it says of the map's age."""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from anamnesis_pipeline.dagster_api.runs import JobRun
from anamnesis_pipeline.model import Source, Variant, Where
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.sidecar.map_view import JOB, points_of
from anamnesis_pipeline.sidecar.pages.memory_map import PATH
from anamnesis_pipeline.steps.map_file import MemoryMap, map_path, save_map
from anamnesis_pipeline.steps.memory_map import LEAST_EPISODES, make_map
from anamnesis_tests.sidecar.conftest import SPACE, TestServices
from anamnesis_tests.sidecar.pages.reading import SCRIPT, read
from anamnesis_tests.store.samples import episode, passages, random_units, space

Make = Callable[[], MemoryMap]


def fill(services: TestServices, count: int, projects: Sequence[str] = ("acme", "acme", "acme", SCRIPT)) -> None:
    store = services.store
    vectors = random_units(count, SPACE.dim, seed=2)
    for n in range(count):
        summary = f"Episode {n} {SCRIPT}"
        store.episodes.put([(episode(f"e{n}", n, project=projects[n % 4], summary=summary), passages(f"word{n} {n}"))])
        (stored,) = store.episodes.passages_of(f"e{n}")
        store.vectors.put(SPACE.key, Variant.TEXT, [stored.passage_id], vectors[n : n + 1])
        store.vectors.put(SPACE.key, Variant.CONTEXT, [stored.passage_id], vectors[n : n + 1])


@pytest.fixture
def make(services: TestServices, tmp_path: Path) -> Make:
    """Draws the map of what is stored, as the asset does."""

    def make() -> MemoryMap:
        active = services.store.spaces.active()
        assert active is not None
        made = make_map(services.store, active)
        save_map(map_path(tmp_path), made)
        return made

    return make


def points(client: TestClient, made: MemoryMap, **query: Any) -> tuple[list[dict[str, Any]], NDArray[np.uint16]]:
    reply = client.get(f"{PATH}/points", params={"map": made.mark, **query})
    assert reply.status_code == 200, reply.text
    (length,) = struct.unpack("<I", reply.content[:4])
    head = json.loads(reply.content[4 : 4 + length])
    assert head["mark"] == made.mark
    places = np.frombuffer(reply.content[4 + length :], "<u2").reshape(-1, 2)
    return head["groups"], places


def test_of_too_few_episodes_the_page_says_how_many_are_missing_and_where_they_come_from(
    client: TestClient, services: TestServices
):
    fill(services, 12)
    page = read(client, PATH)
    (empty,) = page.select(".empty")
    assert f"{LEAST_EPISODES - 12} to go" in empty.text
    assert empty.select('a[href="/dashboard/logs"]')
    assert not page.select("canvas")
    assert not page.select("#draw")


def test_without_a_map_the_page_offers_to_draw_one(client: TestClient, services: TestServices):
    fill(services, 40)
    page = read(client, PATH)
    assert "Draw the map" in page.select(".empty")[0].text
    (button,) = page.select("#draw")
    assert button["hx-post"] == f"{PATH}/draw"


def test_the_page_names_projects_with_the_episode_in_their_middle(
    client: TestClient, services: TestServices, make: Make
):
    fill(services, 40)
    made = make()
    page = read(client, PATH)
    (canvas,) = page.select("canvas")
    assert canvas["data-mark"] == made.mark
    assert [name.text for name in page.select(".legend .name")] == ["acme", SCRIPT]
    rows = page.select("details tbody tr")
    assert [row.select("th")[0].text for row in rows] == ["acme", SCRIPT]
    assert [row.select("td")[0].text for row in rows] == ["30", "10"]
    link = str(rows[1].select("a")[0]["href"])
    assert int(link.removeprefix("/dashboard/episodes/e")) % 4 == 3
    assert not [script for script in page.select("script") if "alert" in script.text]


def test_every_point_comes_with_its_place_and_project(client: TestClient, services: TestServices, make: Make):
    fill(services, 40)
    made = make()
    groups, places = points(client, made)
    assert groups == [
        {"name": "acme", "start": 0, "count": 30}, {"name": SCRIPT, "start": 30, "count": 10},
    ]  # fmt: skip
    np.testing.assert_array_equal(places, made.places)


def test_a_point_tells_its_episode(client: TestClient, services: TestServices, make: Make):
    fill(services, 40)
    made = make()
    stored = services.store.episodes.passages([int(made.passages[35])])[int(made.passages[35])]
    body = client.get(f"{PATH}/point", params={"map": made.mark, "at": 35}).json()
    assert body["link"] == f"/dashboard/episodes/{stored.episode_id}"
    assert body["project"] == SCRIPT
    assert body["summary"].startswith("Episode ")
    for at in (40, 10**12):
        reply = client.get(f"{PATH}/point", params={"map": made.mark, "at": at})
        assert reply.status_code == 404
    services.store.episodes.delete(stored.episode_id)
    reply = client.get(f"{PATH}/point", params={"map": made.mark, "at": 35})
    assert reply.status_code == 404
    assert "removed" in reply.json()["detail"]


def test_private_projects_are_left_out_unless_asked_for(client: TestClient, services: TestServices, make: Make):
    fill(services, 40, ("open", "open", "open", "team/secret"))
    made = make()
    services.store.settings.set("config.private_projects", ["secret"])
    page = read(client, PATH)
    assert "secret" not in page.text
    assert page.select('a[href="/dashboard/map?private=1"]')
    groups, places = points(client, made)
    assert ([group["name"] for group in groups], len(places)) == (["open"], 30)
    hidden = {"map": made.mark, "at": 35}
    assert client.get(f"{PATH}/point", params=hidden).status_code == 404
    assert client.get(f"{PATH}/point", params={**hidden, "private": 1}).json()["project"] == "team/secret"
    assert len(points(client, made, private=1)[1]) == 40
    assert "team/secret" in read(client, PATH, private=1).text


def test_private_sources_are_left_out_of_the_map_too(
    client: TestClient, services: TestServices, make: Make, monkeypatch: pytest.MonkeyPatch
):
    fill(services, 40)
    made = make()
    source = services.store.episodes.page(Where(), 1).items[0].source
    monkeypatch.setattr(services.engine, "private", lambda: Private((Source(source),)))
    assert points(client, made)[0] == []
    assert client.get(f"{PATH}/point", params={"map": made.mark, "at": 35}).status_code == 404
    assert len(points(client, made, private=1)[1]) == 40


def test_a_project_is_called_what_it_is_called_now_and_gone_when_it_is_gone(
    client: TestClient, services: TestServices, make: Make
):
    fill(services, 40, ("big", "big", "big", "small"))
    made = make()
    services.store.projects.call("small", "tiny")
    assert [group["name"] for group in points(client, made)[0]] == ["big", "tiny"]
    central = services.store.episodes.passages([int(key) for key in made.centres[1]])
    first, *others = [central[int(key)].episode_id for key in made.centres[1]]
    services.store.episodes.delete(first)
    assert [group["name"] for group in points(client, made)[0]] == ["big", "tiny"]
    for name in others:
        services.store.episodes.delete(name)
    assert [group["name"] for group in points(client, made)[0]] == ["big"]


def test_what_a_search_finds_is_shown_on_the_map_and_counts_for_nothing(
    client: TestClient, services: TestServices, make: Make
):
    fill(services, 40)
    made = make()
    body = client.get(f"{PATH}/found", params={"map": made.mark, "q": "word7"}).json()
    stored = services.store.episodes.passages([int(made.passages[at]) for at in body["points"]])
    assert "e7" in {each.episode_id for each in stored.values()}
    assert body["told"].startswith(f"{len(body['points'])} episode")
    assert "/dashboard/episodes/e7" in [each["link"] for each in body["best"]]
    assert services.store.episodes.heads(["e7"])["e7"].retrieval_count == 0


def test_a_page_of_an_older_map_is_told_to_load_again(client: TestClient, services: TestServices, make: Make):
    fill(services, 40)
    older = make()
    newer = make()
    assert older.mark != newer.mark
    for path, query in (("points", {}), ("point", {"at": 1}), ("found", {"q": "word7"})):
        reply = client.get(f"{PATH}/{path}", params={"map": older.mark, **query})
        assert reply.status_code == 409
        assert "load the page again" in reply.json()["detail"]
    assert read(client, f"{PATH}/state").select("#map-now")[0]["data-mark"] == newer.mark


def test_a_map_of_another_space_says_so(client: TestClient, services: TestServices, make: Make):
    fill(services, 40)
    made = make()
    assert "Up to date" in read(client, f"{PATH}/state").text
    services.store.spaces.put(space("other", SPACE.dim))
    services.store.vectors.put("other", Variant.TEXT, made.passages.tolist(), random_units(40, SPACE.dim))
    services.store.vectors.build("other")
    assert services.store.spaces.activate("other")
    assert "not searched any more" in read(client, f"{PATH}/state").text
    assert "not searched any more" in read(client, PATH).text


def test_episodes_that_came_since_are_counted(client: TestClient, services: TestServices, make: Make):
    fill(services, 40)
    make()
    services.store.episodes.delete("e1")
    assert "1 episode came or went since" in read(client, f"{PATH}/state").text


def test_a_damaged_map_is_told_and_can_be_drawn_anew(client: TestClient, services: TestServices, tmp_path: Path):
    fill(services, 40)
    map_path(tmp_path).parent.mkdir()
    map_path(tmp_path).write_bytes(b"nonsense")
    page = read(client, PATH)
    assert "damaged" in page.text
    assert page.select("#draw")


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


def test_while_dagster_is_away_the_page_says_what_starts_it(client: TestClient, services: TestServices, make: Make):
    fill(services, 40)
    make()
    services.dagster.up = False
    assert read(client, PATH).select("canvas")
    assert "anamnesis up" in read(client, f"{PATH}/state").text
    reply = client.post(f"{PATH}/draw")
    assert "Not started: Dagster does not answer" in reply.text
    assert "hx-trigger" not in reply.headers


def test_a_state_that_stays_the_same_is_not_sent_again(client: TestClient):
    mark = read(client, f"{PATH}/state").select("[name=seen]")[0]["value"]
    assert client.get(f"{PATH}/state", params={"seen": mark}).status_code == 204


def test_passages_are_found_among_the_points_whatever_their_order():
    held = np.array([9, 3, 7, 1])
    order = np.argsort(held)
    assert points_of(held, order, [7, 2, 100, 9, 0]) == [2, 0]
    assert points_of(held, order, []) == []
