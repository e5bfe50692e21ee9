"""The GraphQL calls against a real Dagster webserver behind its guard; its `embeddings` has the partitions of ours and
no work.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import httpx
import pytest
from pydantic import ValidationError

from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.runtime.dagster_home import dagster_url
from anamnesis_pipeline.services.dagster.api import DagsterApi, open_dagster
from anamnesis_pipeline.services.dagster.backfills import MAX_DIRECT_RUNS
from anamnesis_pipeline.services.dagster.graphql import REPOSITORY
from anamnesis_pipeline.services.dagster.runs import EPISODES_WRITTEN, Automation, mark_canceled
from anamnesis_pipeline.settings import Settings
from anamnesis_tests.support.dagster_parts import created_run, dagster_webserver, free_port
from anamnesis_tests.support.loopback import Answer, LoopbackServer

DEFINITIONS = """
import pathlib

import dagster as dg
from anamnesis_pipeline.defs.partitions import SOURCES, SPACE_BY_SOURCE

@dg.asset(partitions_def=SPACE_BY_SOURCE, backfill_policy=dg.BackfillPolicy.multi_run(100))
def embeddings() -> None: ...

@dg.asset(partitions_def=SOURCES)
def exchanges() -> None: ...

ingest = dg.define_asset_job("ingest", dg.AssetSelection.assets("exchanges"), partitions_def=SOURCES)


@dg.asset(partitions_def=SPACE_BY_SOURCE)
def unrelated() -> None: ...

@dg.asset
def whole() -> None: ...


plain = dg.define_asset_job("plain", dg.AssetSelection.assets("whole"))

@dg.sensor(job=plain, default_status=dg.DefaultSensorStatus.RUNNING)
def watching(): ...

@dg.sensor(job=plain)
def optional(): ...

hour = pathlib.Path("hour")

@dg.schedule(
    job=plain,
    cron_schedule=f"0 {hour.read_text() if hour.exists() else 5} * * *",
    execution_timezone="Europe/Berlin",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)
def nightly(): ...

assets, sensors = [embeddings, exchanges, unrelated, whole], [watching, optional]
defs = dg.Definitions(assets=assets, jobs=[ingest, plain], sensors=sensors, schedules=[nightly])
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dagster")


@pytest.fixture(scope="module")
def api(home: Path) -> Iterator[DagsterApi]:
    """A webserver on an empty Dagster home; no daemon, so what is launched stays requested."""
    (home / "definitions.py").write_text(DEFINITIONS)
    with dagster_webserver(home, "python_file: {relative_path: definitions.py, location_name: anamnesis}") as api:
        yield api


def known(api: DagsterApi, dimension: str) -> list[str]:
    query = """{ assetNodeOrError(assetKey: {path: ["embeddings"]}) {
        ... on AssetNode { partitionKeysByDimension { name partitionKeys } } } }"""
    found = api.ask(query)["assetNodeOrError"]["partitionKeysByDimension"]
    return next(list(each["partitionKeys"]) for each in found if each["name"] == dimension)


def is_page(link: str) -> bool:
    return httpx.get(link, trust_env=False, timeout=60).status_code == 200


def test_mutations_by_get_or_of_foreign_pages_are_refused(api: DagsterApi) -> None:
    url, add = api.link("").removesuffix("/runs/b/"), 'partitionsDefName: "source", partitionKey: "by-a-page"'
    selector = 'repositorySelector: {repositoryName: "__repository__", repositoryLocationName: "anamnesis"}'
    mutation = {"query": f"mutation {{ addDynamicPartition({selector}, {add}) {{ __typename }} }}"}
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        assert client.get("/graphql", params=mutation).status_code == 405
        assert client.post("/graphql", json=mutation, headers={"Host": "evil.example"}).status_code == 421
        assert client.post("/graphql", json=mutation, headers={"Origin": "http://evil.example"}).status_code == 403
        assert client.post("/graphql", json=mutation, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        assert "by-a-page" not in known(api, "source")
        assert client.post("/graphql", json=mutation, headers={"Origin": url}).status_code == 200
    assert "by-a-page" in known(api, "source")


STOP = """mutation($sensor: SensorSelector!, $schedule: ScheduleSelector!) {
  start: startSensor(sensorSelector: $sensor) { ... on Sensor { sensorState { id } } }
  again: startSchedule(scheduleSelector: $schedule) { ... on ScheduleStateResult { scheduleState { id } } }
}"""


def test_stopped_sensors_and_schedules_are_named_and_started(api: DagsterApi) -> None:
    assert api.stopped_automations() == []
    sensor_, schedule_ = {**REPOSITORY, "sensorName": "watching"}, {**REPOSITORY, "scheduleName": "nightly"}
    ids = api.ask(STOP, {"sensor": sensor_, "schedule": schedule_})
    sensor, schedule = ids["start"]["sensorState"]["id"], ids["again"]["scheduleState"]["id"]
    api.ask("mutation($id: String) { stopSensor(id: $id) { __typename } }", {"id": sensor})
    api.ask("mutation($id: String) { stopRunningSchedule(id: $id) { __typename } }", {"id": schedule})
    stopped = [Automation("sensor", "watching"), Automation("schedule", "nightly")]
    assert api.stopped_automations() == stopped
    assert api.start_automations() == stopped
    assert api.stopped_automations() == []
    assert api.start_automations() == []


FUTURE_TICKS = """query($schedule: ScheduleSelector!, $since: Float!) {
  scheduleOrError(scheduleSelector: $schedule) { ... on Schedule {
    futureTicks(cursor: $since, limit: 4) { results { timestamp } }
  } }
}"""


def test_reload_reads_the_times_again(api: DagsterApi, home: Path) -> None:
    (before,) = api.schedules()
    assert (before.name, before.cron, before.zone) == ("nightly", "0 5 * * *", "Europe/Berlin")
    assert before.is_running
    assert before.next_at is not None
    assert before.next_at.astimezone(ZoneInfo("Europe/Berlin")).hour == 5
    (home / "hour").write_text("2")
    assert api.schedules() == [before]
    api.reload_definitions()
    assert [each.cron for each in api.schedules()] == ["0 2 * * *"]
    clocks_change = datetime(2026, 3, 27, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    selector = {**REPOSITORY, "scheduleName": "nightly"}
    found = api.ask(FUTURE_TICKS, {"schedule": selector, "since": clocks_change.timestamp()})["scheduleOrError"]
    ticks = [datetime.fromtimestamp(tick["timestamp"], UTC) for tick in found["futureTicks"]["results"]]
    assert [f"{tick:%d %H:%M}" for tick in ticks] == ["28 01:00", "29 01:00", "30 00:00", "31 00:00"]


def test_reload_of_broken_definitions_says_why(api: DagsterApi, home: Path) -> None:
    (home / "hour").write_text("25")
    with pytest.raises(ServiceUnreachable, match="refuses"):
        api.reload_definitions()
    (home / "hour").write_text("5")
    api.reload_definitions()
    assert [each.cron for each in api.schedules()] == ["0 5 * * *"]


def test_partitions_are_added_once_however_often_asked_for(api: DagsterApi) -> None:
    sources = [f"source-{n}" for n in range(110)]
    api.add_partitions("space-a", sources)
    api.add_partitions("space-a", [*sources[:3], "one-more"])
    assert known(api, "space").count("space-a") == 1
    found = known(api, "source")
    assert {each: found.count(each) for each in (*sources, "one-more")} == dict.fromkeys((*sources, "one-more"), 1)


BACKFILL = """query($id: String!) { partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill { title partitionNames tags { key value } partitionSetName } } }"""


def test_backfill_is_launched_followed_and_cancelled(api: DagsterApi) -> None:
    title = 'Embed "all" of it, 100 %: ' + "x" * 200
    backfill = api.launch_embedding_backfill("space-b", ["left", "right"], title, {"anamnesis/embed": "space-b"})
    state = api.backfill_state(backfill)
    assert state is not None
    assert (state.status, state.targeted, state.materialized, state.failed) == ("REQUESTED", 2, 0, 0)
    assert not state.ended
    found = api.ask(BACKFILL, {"id": backfill})["partitionBackfillOrError"]
    assert found["title"].startswith("Embed all of it, 100 :")
    assert sorted(found["partitionNames"]) == ["left|space-b", "right|space-b"]
    assert {"key": "anamnesis/embed", "value": "space-b"} in found["tags"]
    api.cancel_backfill(backfill)
    cancelled = api.backfill_state(backfill)
    assert cancelled is not None
    assert cancelled.status in ("CANCELING", "CANCELED")
    assert api.backfill_state("nonesuch") is None
    with pytest.raises(ServiceUnreachable, match="nonesuch"):
        api.cancel_backfill("nonesuch")


def test_ingest_is_one_backfill_of_the_job_over_new_sources(api: DagsterApi) -> None:
    backfill = api.launch_ingest_backfill(["fresh", "fresher", "fresh"], "Ingest 100%", {"anamnesis/ingest": "x"})
    found = api.ask(BACKFILL, {"id": backfill})["partitionBackfillOrError"]
    assert sorted(found["partitionNames"]) == ["fresh", "fresher"]
    assert found["partitionSetName"] == "ingest_partition_set"
    assert {"key": "anamnesis/ingest", "value": "x"} in found["tags"]
    crawled = api.ask('{ assetNodeOrError(assetKey: {path: ["exchanges"]}) { ... on AssetNode { partitionKeys } } }')
    assert {"fresh", "fresher"} <= set(crawled["assetNodeOrError"]["partitionKeys"])
    assert api.link(backfill).endswith(f"/runs/b/{backfill}")
    assert is_page(api.link(backfill))


def ingest_of_seven_episodes() -> dg.JobDefinition:
    @dg.asset
    def episodes() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata={"latest": "none", EPISODES_WRITTEN: 7})

    job = dg.define_asset_job("ingest", dg.AssetSelection.assets(episodes))
    return dg.Definitions(assets=[episodes], jobs=[job]).resolve_job_def("ingest")


def test_run_that_was_cut_off_is_told_apart(api: DagsterApi, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    runs = api.ingest_runs()
    assert (runs.unfinished, runs.last, runs.interrupted) == ((), None, None)
    api.stop_runs(["11111111-2222-4333-8444-555555555555"])
    assert is_page(api.run_link("11111111"))
    tags = {"dagster/partition": "left"}
    with dg.DagsterInstance.from_config(str(home)) as instance:
        cut_off = created_run(instance, tags=tags)
        mark_canceled([cut_off.run_id])
        later = ingest_of_seven_episodes().execute_in_process(instance=instance, tags=tags)
    runs = api.ingest_runs(cut_off.run_id)
    assert runs.last is not None
    assert runs.interrupted is not None
    assert (runs.last.run_id, runs.last.ingested, runs.last.source) == (later.run_id, 7, "left")
    assert (runs.interrupted.run_id, runs.interrupted.status) == (cut_off.run_id, "CANCELED")


def test_job_is_launched_by_its_name_and_its_latest_run_told(api: DagsterApi) -> None:
    assert api.latest_run("plain") is None
    run_id = api.launch_job("plain")
    latest = api.latest_run("plain")
    assert latest is not None
    assert (latest.run_id, latest.ended) == (run_id, False)
    with pytest.raises(ServiceUnreachable, match="nowhere"):
        api.launch_job("nowhere")


LAUNCH = """mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) {
    ... on LaunchBackfillSuccess { backfillId } ... on Error { message } } }"""


def unfinished(api: DagsterApi) -> set[str]:
    return {backfill.backfill_id for backfill in api.unfinished_backfills()}


def test_backfills_are_listed_with_their_spaces_until_they_end(api: DagsterApi, home: Path) -> None:
    api.add_partitions("space-c", ["left", "right"])
    api.add_partitions("space-d", ["left"])
    names = ["left|space-c", "right|space-c", "left|space-d"]
    params = {"assetSelection": [{"path": ["embeddings"]}], "partitionNames": names, "tags": []}
    by_hand = api.ask(LAUNCH, {"p": params})["launchPartitionBackfill"]["backfillId"]
    ours = api.launch_embedding_backfill("space-e", ["left"], "t", {})
    other = api.ask(LAUNCH, {"p": {**params, "assetSelection": [{"path": ["unrelated"]}]}})
    assert "backfillId" in other["launchPartitionBackfill"], other
    listed = {backfill.backfill_id: backfill.spaces for backfill in api.unfinished_backfills()}
    assert listed[by_hand] == {"space-c", "space-d"}
    assert listed[ours] == {"space-e"}
    assert other["launchPartitionBackfill"]["backfillId"] not in listed
    api.cancel_backfill(by_hand)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run = created_run(instance, tags={"dagster/backfill": ours})
        assert listed.keys() - unfinished(api) == {by_hand}
        instance.report_run_failed(run)
    assert ours not in unfinished(api), "all of its runs have ended"


def test_links_are_for_a_browser_and_questions_for_this_process() -> None:
    here = Settings(home=Path("/nowhere"), dagster_port=4000)
    assert dagster_url(here) == "http://127.0.0.1:4000"
    assert open_dagster(here).run_link("r") == "http://127.0.0.1:4000/runs/r"
    apart = here.model_copy(update={"dagster_url": "http://webserver:3000"})
    assert dagster_url(apart) == "http://webserver:3000"
    assert open_dagster(apart).link("b") == "http://webserver:3000/runs/b/b"
    shown = apart.model_copy(update={"dagster_link": "https://dagster.example"})
    assert dagster_url(shown) == "http://webserver:3000"
    assert open_dagster(shown).link("b") == "https://dagster.example/runs/b/b"


@pytest.mark.parametrize("url", ["webserver:3000", "http://webserver:3000/", "ftp://webserver", "http:// "])
def test_address_of_dagster_is_a_base_url_without_a_slash(url: str) -> None:
    with pytest.raises(ValidationError, match="dagster_url"):
        Settings(home=Path("/nowhere"), dagster_url=url)


def test_what_dagster_refuses_and_its_absence_are_told(api: DagsterApi) -> None:
    with pytest.raises(ServiceUnreachable, match="nonesuch"):
        api.ask("{ nonesuch }")
    port = free_port()
    with pytest.raises(ServiceUnreachable, match=rf"Dagster does not answer on http://127.0.0.1:{port}/ \(Connect"):
        DagsterApi(f"http://127.0.0.1:{port}").launch_embedding_backfill("space", ["source"], "t", {})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>", "is not Dagster"),
        (b"", "answers with an error: status 200"),
        (b'{"data": {"assetNodeOrError": {"__typename": "AssetNotFoundError"}}}', "does not know the asset embeddings"),
    ],
)
def test_what_answers_but_cannot_do_it_is_named(body: bytes, reason: str) -> None:
    answering = LoopbackServer().respond(Answer(pieces=(body,) if body else ()))
    with answering.running(), pytest.raises(ServiceUnreachable, match=reason):
        DagsterApi(answering.url).add_partitions("space", ["source"])


def test_few_ingests_are_in_line_and_the_rest_is_a_backfill(api: DagsterApi) -> None:
    one = api.launch_ingest(["quick"], "t", {"anamnesis/ingest": "x"})
    assert one.link == api.run_link(one.launch_id)
    assert is_page(one.link)
    assert "quick" in {run.source for run in api.ingest_runs().unfinished}
    sources = [f"many-{n:02}" for n in range(MAX_DIRECT_RUNS + 3)]
    rest = api.launch_ingest(sources, "t", {})
    assert rest.link == api.link(rest.launch_id)
    waiting = {run.source: run.run_id for run in api.ingest_runs().unfinished}
    assert waiting.keys() >= set(sources[:MAX_DIRECT_RUNS])
    state = api.backfill_state(rest.launch_id)
    assert state is not None
    assert state.targeted == 3
    query = "query($id: ID!) { runOrError(runId: $id) { ... on Run { tags { key value } } } }"
    tags = {tag["key"]: tag["value"] for tag in api.ask(query, {"id": one.launch_id})["runOrError"]["tags"]}
    assert (tags["dagster/partition"], tags["anamnesis/ingest"]) == ("quick", "x")
    api.cancel_backfill(rest.launch_id)
