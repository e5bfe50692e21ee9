import json
from datetime import date

import pytest
from bs4 import BeautifulSoup, Tag
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import StoreBusy, StoreFull
from anamnesis_pipeline.services.dagster.runs import Automation
from anamnesis_pipeline.sidecar.web.timeline import ranges_of
from anamnesis_pipeline.store.contracts import TextProblem
from anamnesis_tests.sidecar.conftest import BASE, Post, TestServices, raising
from anamnesis_tests.support.page_reading import SCRIPT, page_of, problem_of, read

FORM = {"Origin": BASE}


def one(soup: BeautifulSoup, selector: str) -> Tag:
    found = soup.select_one(selector)
    assert found is not None, selector
    return found


def card(soup: BeautifulSoup, heading: str) -> Tag:
    return one(soup, f"section:has(> h2#{heading}, > .row > h2#{heading})")


def test_empty_memory_says_what_to_do(client: TestClient, post: Post) -> None:
    soup = read(client, "/dashboard")
    assert "anamnesis up" in one(soup, ".empty").text
    assert soup.select(".chart") == []
    assert "anamnesis up" in one(read(client, "/dashboard/timeline"), ".empty").text
    post("The lighthouse", timestamp="2026-03-02T12:00:00Z")
    assert "Show all" in one(read(client, "/dashboard/timeline?since=2026-04-01"), ".empty").text
    assert "since" in one(read(client, "/dashboard/timeline?since=tomorrow", 422), ".problem").text


def test_the_overview_shows_totals_bars_growth_and_lists(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", episode_id="a/1", project="zoo & co", timestamp="2026-03-01T12:00:00Z")
    post(SCRIPT, episode_id="b", project="zoo & co", timestamp="2026-03-01T18:00:00Z")
    post("The lighthouse", episode_id="c", project=SCRIPT, timestamp="2026-03-03T12:00:00Z")
    client.post("/api/episodes/search", json={"query": "zeppelin hangar", "top_k": 1})
    client.get("/api/episodes/a/1")
    soup = read(client, "/dashboard")
    figures = [figure.b.text for figure in soup.select(".figure")]
    assert figures == ["3", "2", "1", "1", "100%"]
    bars = card(soup, "projects-title").select(".bars > div")
    assert [(bar.a.text, bar.meter["value"]) for bar in bars] == [("zoo & co", "2"), (SCRIPT, "1")]
    assert bars[0].a["href"] == "/dashboard/episodes?project=zoo%20%26%20co&status=all"
    assert len(read(client, bars[0].a["href"]).select("li.episode")) == 2
    assert json.loads(str(one(soup, ".chart")["data-points"])) == [[20513, 2], [20515, 1]]
    assert [a["href"] for a in card(soup, "recent-title").select(".lines a")] == [
        "/dashboard/episodes/c",
        "/dashboard/episodes/b",
        "/dashboard/episodes/a/1",
    ]
    (often,) = card(soup, "often-title").select("li")
    assert "read 1×" in often.text
    assert "The zeppelin hangar" in often.text
    direct = [cell.text for cell in card(soup, "direct-title").select("tbody td.number")]
    assert direct == ["3", "0", "0"]


def test_stopped_sensors_are_named_and_started_by_a_button(client: TestClient, services: TestServices) -> None:
    services.dagster.automations += [Automation("sensor", "crawl_sensor"), Automation("schedule", "daily_ingest")]
    soup = read(client, "/dashboard/now")
    assert "crawl_sensor, daily_ingest are stopped" in one(soup, ".findings").text
    assert "anamnesis doctor --start" in one(soup, ".findings").text
    button = one(soup, "#start-stopped")
    assert client.get("/api/status/summary").json()["wrong"] >= 1
    reply = client.post(str(button["hx-post"]), headers=FORM)
    assert "Started: crawl_sensor, daily_ingest." in reply.text + str(reply.headers)
    assert "crawl_sensor" not in read(client, "/dashboard/now").text
    services.dagster.up = False
    assert client.post(str(button["hx-post"]), headers=FORM).status_code == 200


def test_dagster_that_is_away_is_told_once_it_was_asked(client: TestClient, services: TestServices) -> None:
    services.dagster.up = False
    assert "Dagster does not answer" not in read(client, "/dashboard").text, "nobody waits for it"
    part = read(client, "/dashboard/now?seen=")
    assert "Dagster does not answer" in part.text
    assert "anamnesis up" in part.text
    mark = str(one(part, "[name=seen]")["value"])
    assert client.get("/dashboard/now", params={"seen": mark}).status_code == 204
    assert "Dagster does not answer" in read(client, "/dashboard").text


def test_full_store_is_told(client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    full = raising(StoreFull("the disk has no room"))
    client.app.state.room.refused()
    monkeypatch.setattr(type(services.store.settings), "set", full)
    assert "the disk has no room" in one(read(client, "/dashboard"), ".findings").text


def test_the_timeline_groups_by_day_and_keeps_to_its_range(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar", timestamp="2026-03-01T23:59:00Z")
    post(SCRIPT, timestamp="2026-03-02T00:01:00Z")
    post("The lighthouse", timestamp="2026-03-02T12:00:00Z", project="zoo")
    soup = read(client, "/dashboard/timeline")
    headings = [" ".join(day.text.split()) for day in soup.select("h3")]
    assert headings == ["Monday, 2 March 2026 2 that day (UTC)", "Sunday, 1 March 2026 1 that day (UTC)"]
    assert json.loads(str(one(soup, ".chart")["data-points"])) == [[20513, 1], [20514, 2]]
    ranged = read(client, "/dashboard/timeline?since=2026-03-02&until=2026-03-03&project=acme")
    assert [a.text for a in ranged.select(".lines a")] == ["alert(1)"]
    assert json.loads(str(one(ranged, ".chart")["data-points"])) == [[20513, 1], [20514, 1]], "the strip keeps all days"


def test_the_timeline_pages_back(client: TestClient, post: Post) -> None:
    for number in range(53):
        post(f"Episode number {number}", timestamp=f"2026-03-01T12:{number:02}:00Z")
    soup = read(client, "/dashboard/timeline?kind=&project=acme")
    assert len(soup.select(".lines li")) == 50
    older = read(client, str(one(soup, "a[rel=next]")["href"]))
    assert [a.text for a in older.select(".lines a")] == [f"Episode number {n}" for n in (2, 1, 0)]
    assert one(older, ".pager a").text == "Newest"


def test_ranges_end_today_and_keep_the_other_filters() -> None:
    found = ranges_of({"project": "zoo", "since": "2026-03-01"}, date(2026, 3, 7))
    assert found[0] == ("Last 7 days", "/dashboard/timeline?project=zoo&since=2026-03-01", True)
    assert found[-1] == ("All", "/dashboard/timeline?project=zoo", False)


def test_health_shows_what_is_slow_later(client: TestClient, services: TestServices, post: Post) -> None:
    post("The zeppelin hangar")
    services.dagster.up = False
    soup = read(client, "/dashboard/health")
    assert "Asking" in one(soup, "#resources").text
    assert "1 of 1 passages" in card(soup, "model-title").text
    part = read(client, "/dashboard/health/resources")
    rows = {str(row.th.contents[0]): one(row, ".badge").text for row in part.select("tbody tr")}
    assert rows == {"Store": "Up", "Embedding": "Up", "Dagster": "Down", "Sensors and schedules": "Not asked"}
    services.dagster.up = True
    again = client.post("/dashboard/health/resources", headers=FORM)
    assert ("Asked again." in again.headers["hx-trigger"], "Down" in again.text) == (True, False)


def test_health_without_the_store(client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    away = raising(StoreBusy("MongoDB there does not answer"))
    for records in (services.store.settings, services.store.overview, services.store.spaces, services.store.episodes):
        for name in ("get", "all", "counts", "active", "page"):
            if hasattr(type(records), name):
                monkeypatch.setattr(type(records), name, away)
    soup = read(client, "/dashboard/health")
    assert "MongoDB there does not answer" in problem_of(soup)
    assert soup.select_one("#resources")


def test_health_tells_what_doctor_finds_and_what_takes_room(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar")
    soup = read(client, "/dashboard/health/checks")
    well = [row.text for row in soup.select(".checks th[scope=row]")]
    assert {"python", "disk", "store", "coverage", "dead letters"} <= set(well)
    assert "dagster" in [b.text for b in soup.select(".findings b")], "none runs here"
    assert "anamnesis.db" in card(soup, "disk-title").text
    assert "1 of 1" in card(soup, "quality-title").text


@pytest.mark.parametrize(("problems", "times"), [([], 1), ([TextProblem("broken")], 2)])
def test_slow_comparison_is_kept_while_it_is_well(
    client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch, problems: list[TextProblem], times: int
) -> None:
    compared: list[None] = []
    monkeypatch.setattr(type(services.store.text), "check", lambda _: compared.append(None) or problems)
    for _ in range(2):
        client.get("/dashboard/health/checks")
        client.app.state.examination.forget()  # as after a minute
    assert len(compared) == times
    client.post("/dashboard/health/checks", headers=FORM)
    assert len(compared) == times + 1


def test_checks_are_kept_until_they_are_wanted_anew(client: TestClient, post: Post) -> None:
    client.get("/dashboard/health/checks")
    post("Of the future", timestamp="2199-01-01T00:00:00Z")
    assert "clock" not in [b.text for b in read(client, "/dashboard/health/checks").select("b")]
    anew = client.post("/dashboard/health/checks", headers=FORM)
    assert "clock" in [b.text for b in page_of(anew).select("b")]
    assert "Checked again." in anew.headers["hx-trigger"]


def test_overview_counts_by_layer_kind_type_and_month(client: TestClient, post: Post) -> None:
    post("The zeppelin", episode_id="a", kind="decision", timestamp="2026-03-01T12:00:00Z")
    post("The crane", episode_id="b", kind="odd", timestamp="2026-02-28T12:00:00Z")
    client.get("/api/episodes/b")
    soup = read(client, "/dashboard")
    shown = {
        name: {bar.span.text.strip(): bar.meter["value"] for bar in card(soup, f"{name}-title").select(".bars > div")}
        for name in ("layers", "kinds", "types", "months")
    }
    assert shown["layers"] == {"semantic": "1", "episodic": "1"}
    assert shown["kinds"] == {"decision": "1", "odd": "1"}
    assert shown["types"] == {"decision": "1", "(none)": "1"}
    assert list(shown["months"]) == ["2026-03", "2026-02"]
    for name in ("layers", "kinds", "types", "months"):
        link = card(soup, f"{name}-title").select_one(".bars a")
        assert len(read(client, str(link["href"])).select("li.episode")) == 1, name
    (hot,) = card(soup, "hot-title").select(".lines a")
    assert hot.text == "The crane"
