"""The page about logs: state, runs, settings with their origin, and the log of the service."""

import logging
from dataclasses import replace

import pytest
from bs4 import BeautifulSoup
from httpx2 import Response
from starlette.testclient import TestClient

from anamnesis_pipeline.model import DeadLetter, Source
from anamnesis_pipeline.pipeline.summarize import NO_BUDGET
from anamnesis_pipeline.services.dagster.runs import IngestRun, IngestRuns
from anamnesis_pipeline.sidecar.web.logs import FIELDS, PATH
from anamnesis_pipeline.store.records.messages import ParsedChunk
from anamnesis_tests.sidecar.conftest import TestServices, stored
from anamnesis_tests.support.page_reading import SCRIPT, page_of, problem_of, read, send
from anamnesis_tests.support.samples import crawled

pytestmark = pytest.mark.usefixtures("no_logs")


@pytest.fixture
def source(services: TestServices) -> str:
    services.store.files.put_sources([Source("mac--a--00000001", "mac", "/logs", "a")])
    return "mac--a--00000001"


def typed(page: BeautifulSoup, **values: str) -> dict[str, str]:
    """What a browser would send of the form of settings, with some fields changed."""
    form = page.select_one("#settings")
    fields = {str(each["name"]): str(each.get("value", "")) for each in form.select("input[name]")}
    fields |= {str(each["name"]): str(each.select_one("[selected]")["value"]) for each in form.select("select")}
    fields |= {str(each["name"]): each.text for each in form.select("textarea")}
    return fields | values


def save(client: TestClient, **values: str) -> Response:
    """Settings sent with these fields changed."""
    return client.post(PATH + "/settings", data=typed(read(client, PATH), **values))


def test_empty_memory_says_what_to_do(client: TestClient, services: TestServices) -> None:
    text = read(client, PATH).text
    assert "None yet: read the logs first." in text
    assert "every line of every log could be read" in text
    assert "no log to read" in send(client, PATH + "/run").text
    assert services.dagster.ingests == []


def test_runs_are_shown_once_dagster_has_answered(client: TestClient, services: TestServices) -> None:
    mark = str(read(client, PATH + "/doing").select_one("[name=seen]")["value"])
    assert client.get(f"{PATH}/doing?seen={mark}").status_code == 204, "what stays the same is not sent again"
    last = IngestRun("r0", "mac--b", "SUCCESS", 1.0, 3.5, 7)
    services.dagster.runs = IngestRuns((IngestRun("r1", "mac--a", "STARTED", 10.0, None),), last)
    assert "Asking Dagster" in read(client, PATH).text
    doing = read(client, PATH + "/doing", seen=mark)
    assert doing.select_one(".badge").text == "Reading"
    assert [a["href"] for a in doing.select("tbody a")] == ["http://127.0.0.1:3000/runs/r1"]
    assert "7 episodes" in doing.text


def test_dagster_that_is_away_is_told(client: TestClient, services: TestServices, source: str) -> None:
    services.dagster.up = False
    doing = read(client, PATH + "/doing").text
    assert "Dagster is away" in doing
    assert "does not answer" in doing
    for action in ("/run", "/stop"):
        assert "does not answer" in problem_of(send(client, PATH + action))


def test_reading_is_started_and_watched_in_dagster(client: TestClient, services: TestServices, source: str) -> None:
    answer = send(client, PATH + "/run")
    assert services.dagster.ingests == [((source,), "Ingest, asked for by hand")]
    assert answer.a["href"] == "http://127.0.0.1:3000/runs/b/ingest1"


def test_stopping_ends_the_runs(client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anamnesis_pipeline.services.log_ingest.STOP_PAUSE_S", 0.0)
    assert "No run was under way" in send(client, PATH + "/stop").text
    services.dagster.runs = IngestRuns((IngestRun("r1", "mac--a", "STARTED", 10.0, None),), None)
    assert "1 run stopped" in send(client, PATH + "/stop").text
    assert services.dagster.stopped == ["r1"]
    assert "hx-confirm" in read(client, PATH).select_one("#stop").attrs


def test_every_setting_has_a_field_and_its_origin(client: TestClient) -> None:
    form = read(client, PATH).select_one("#settings")
    api = client.get("/api/jsonl/settings").json()
    assert {each.name for each in FIELDS} == set(api) - {"origin", "warnings"}
    for each in FIELDS:
        control = form.select_one(f"[name={each.name}]")
        assert form.select_one(f"label[for={control['id']}]") is not None
        told = str(control["aria-describedby"]).split()
        assert all(form.find(id=name) for name in told)
        assert "default" in form.find(id=told[0]).text


def test_only_what_was_changed_is_stored(client: TestClient, services: TestServices) -> None:
    reply = save(client, ingest_hour="3", private_projects="acme\r\n b-corp \r\n", llm_daily_dollars="1.5")
    assert stored(services) == {
        "config.ingest_hour": 3,
        "config.private_projects": ["acme", "b-corp"],
        "config.llm_daily_dollars": 1.5,
    }
    assert "Saved" in reply.headers["hx-trigger"]
    after = page_of(reply)
    assert after.find(id="set-ingest_hour-from").text == "set here"
    assert after.find(id="set-timezone-from").text == "default"
    client.post(PATH + "/settings", data=typed(after))
    assert len(stored(services)) == 3, "a form that changes nothing stores nothing"


def test_bad_value_is_refused_and_what_was_typed_stays(client: TestClient, services: TestServices) -> None:
    for name, value, words in (
        ("ingest_hour", "25", "less than or equal to 23"),
        ("ingest_hour", "five", "integer"),
        ("timezone", "Mars/Olympus", "not a time zone"),
        ("summarizer", "anthropic", "anthropic_api_key"),
        ("llm_daily_dollars", "-1", "greater than or equal to 0"),
        ("llm_daily_dollars", "inf", "number"),
        ("summarizer", "oracle", "claude_cli"),
    ):
        form = page_of(save(client, **{name: value, "summary_min_value": "3"}))
        assert words in form.select_one(f"#set-{name}-problem").text, (name, value)
        control = form.select_one(f"[name={name}]")
        assert control["aria-invalid"] == "true"
        assert f"set-{name}-problem" in str(control["aria-describedby"])
        assert form.select_one("[name=summary_min_value]")["value"] == "3"
    assert stored(services) == {}, "one that is refused changes nothing"


def test_value_can_be_let_go(client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_INGEST_HOUR", "4")
    save(client, ingest_hour="3")
    button = read(client, PATH).find(id="set-ingest_hour-revert")
    assert " ".join(button.text.split()) == "Revert to 4 (from the environment)"
    reply = client.post(str(button["hx-post"]))
    assert "Hour is 4 again" in reply.headers["hx-trigger"]
    assert stored(services) == {}
    assert page_of(reply).find(id="set-ingest_hour-revert") is None
    assert client.post(PATH + "/revert/bind").status_code == 404
    monkeypatch.setenv("ANAMNESIS_LOCK_ENV", "1")
    assert "disabled" in read(client, PATH).find(id="set-ingest_hour").attrs


def test_what_is_typed_elsewhere_stays_at_a_revert(client: TestClient, services: TestServices) -> None:
    save(client, ingest_hour="3", timezone="Asia/Tokyo")
    sent = typed(read(client, PATH), ingest_hour="5", private_projects="acme", summary_min_value="a lot")
    services.store.settings.set("config.timezone", "Europe/Berlin")
    now = typed(page_of(client.post(PATH + "/revert/ingest_hour", data=sent)))
    assert stored(services) == {"config.timezone": "Europe/Berlin"}
    assert (now["private_projects"].strip(), now["summary_min_value"]) == ("acme", "a lot")
    assert now["ingest_hour"] == now["was.ingest_hour"]
    assert now["timezone"] == "Europe/Berlin", "nobody typed it here"


def test_paid_llm_tells_its_cost(client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    def note(summarizer: str) -> str:
        return client.get(f"{PATH}/llm-note?summarizer={summarizer}").text

    for told in ("This costs money.", "no schedule asks it", "anthropic_api_key"):
        assert told in note("anthropic")
    assert "costs nothing" in note("ollama")
    assert "Nothing is sent anywhere" in note("none")
    services.store.settings.set("config.llm_daily_dollars", 2.0)
    assert "until the day's budget is used up" in note("anthropic")
    assert "config.summarizer" not in stored(services)
    services.store.settings.set("config.llm_daily_dollars", None)
    monkeypatch.setenv("ANAMNESIS_ANTHROPIC_API_KEY", "sk-ant-x")
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "0")
    assert NO_BUDGET in page_of(save(client, summarizer="anthropic")).select_one(".problem").text
    assert "costs money" in read(client, PATH).text


def test_budget_of_the_day_is_a_bar(client: TestClient, services: TestServices) -> None:
    services.store.settings.set("config.llm_daily_tokens", 1_000)
    meter = read(client, PATH).select_one("#doing meter")
    assert (meter["max"], meter["value"]) == ("1000", "0")


def test_lines_that_could_not_be_read_are_listed_and_stay_text(client: TestClient, services: TestServices) -> None:
    before = crawled(services.store, SCRIPT, "mac")
    letter = DeadLetter("mac", SCRIPT, 0, 6, SCRIPT)
    assert services.store.messages.commit_parsed(ParsedChunk(before, replace(before, parsed_lines=10), dead=[letter]))
    page = read(client, PATH)
    cells = [cell.text for cell in page.select("#letters-title ~ details td")]
    assert cells == [f"mac/{SCRIPT}", "7", SCRIPT]
    assert "anamnesis dead-letters retry" in page.text


def test_log_of_the_service_stays_text(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logging.getLogger("anamnesis_pipeline.x").warning(SCRIPT)
    tail = read(client, PATH).select_one("#tail")
    (item,) = [each for each in tail.select("#tail > div") if SCRIPT in each.text]
    assert item["class"] == ["warning"]
    after = client.get(f"/api/logs?since={tail['data-last']}").json()["lines"]
    assert SCRIPT not in [line["text"] for line in after], "what is shown is not asked for again"
