"""What `embed_sensor` decides, on a real store and a real Dagster instance; no run is executed here."""

import json
import time

import dagster as dg
import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from anamnesis_pipeline.defs import embed_sensor as module
from anamnesis_pipeline.defs.embed_sensor import embed_sensor
from anamnesis_pipeline.defs.partitions import EMBEDDED_SOURCES, SPACES
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.errors import StoreFull
from anamnesis_pipeline.model import RESERVED_SOURCES, Source, Space
from anamnesis_pipeline.pipeline.index import begin
from anamnesis_pipeline.pipeline.reembed_state import FAILURE, noting_failure
from anamnesis_pipeline.services import reembedding
from anamnesis_pipeline.services.dagster.backfills import EMBED_TAG
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import IndexState
from anamnesis_pipeline.store.records.overview import SourceState
from anamnesis_tests.defs.conftest import Backfills, Daemon
from anamnesis_tests.support.dagster_parts import created_run
from anamnesis_tests.support.samples import put
from anamnesis_tests.support.spaces import embed_all, write

OLD, NEW = Space("old", "model-old", 32), Space("new", "model-new", 16)
TO_OLD, TO_NEW = ("embed", "direct|old"), ("embed", "direct|new")
EMBEDDINGS = dg.AssetKey("embeddings")


@pytest.fixture
def store(memory: MemoryResource, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An active space that is complete, and another one that is being built, over three episodes of `direct`.

    Their models are not on this disk: what is stored goes on all the same.
    """
    monkeypatch.setenv("ANAMNESIS_MODEL", "/nonexistent/model")
    store = memory.store
    store.spaces.put(OLD)
    store.spaces.activate(OLD.key)
    store.spaces.put(NEW)
    begin(store, NEW)
    write(store, 3)
    embed_all(store, OLD, RESERVED_SOURCES)
    return store


class Embedding(Daemon):
    """Ticks this sensor alone, beside a webserver."""

    def look(self) -> list[dg.RunRequest]:
        return self.requests(embed_sensor)

    def asked(self) -> list[tuple[str, str]]:
        """(job, first partition) of each run that a tick requests."""
        start = "dagster/asset_partition_range_start"
        return [(str(each.job_name), each.partition_key or each.tags[start]) for each in self.look()]

    def run_that(self, job: str, **tags: str) -> dg.DagsterRun:
        """One that goes on."""
        return created_run(self.instance, job, tags=tags)

    @property
    def done(self) -> set[str]:
        """Partitions of `embeddings` that are materialized."""
        return set(self.instance.get_materialized_partitions(EMBEDDINGS))

    @property
    def sources(self) -> list[str]:
        return self.partitions(EMBEDDED_SOURCES)

    def materializations(self, key: dg.AssetKey) -> list[dict[str, object]]:
        """Metadata of each, the newest first."""
        found = self.instance.fetch_materializations(key, limit=10).records
        events = [record.asset_materialization for record in found]
        return [{name: value.value for name, value in event.metadata.items()} for event in events if event]

    def check(self, asset: dg.AssetKey, name: str) -> tuple[int, bool]:
        """The number of the last result of a check, and whether it passed."""
        record = self.instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(asset, name))
        assert record is not None, "else the UI shows the check as not evaluated"
        assert record.evaluation is not None
        return record.id, record.evaluation.passed


@pytest.fixture
def daemon(memory: MemoryResource, instance: dg.DagsterInstance, backfills: Backfills) -> Embedding:
    return Embedding(memory, instance)


def test_active_space_is_embedded_before_the_queue(store: Store, daemon: Embedding) -> None:
    write(store, 1, first=3)
    requests = daemon.look()
    assert [request.tags[EMBED_TAG] for request in requests] == ["old", "new"]
    assert ["dagster/priority" in request.tags for request in requests] == [True, False]
    assert daemon.asked() == [TO_OLD, TO_NEW]


def test_partitions_are_those_of_spaces_in_use(store: Store, daemon: Embedding) -> None:
    store.spaces.put(Space("added", "m", 4))
    daemon.look()
    assert set(daemon.partitions(SPACES)) == {"old", "new", "added"}
    assert daemon.sources == ["direct"], "the only source with episodes"
    reembedding.drop(store, "added")
    daemon.look()
    assert set(daemon.partitions(SPACES)) == {"old", "new"}
    embed_all(store, NEW, dim=NEW.dim)
    store.spaces.activate(NEW.key)
    daemon.look()
    assert daemon.partitions(SPACES) == [NEW.key], "the other one is retired"


def test_space_that_is_not_built_is_left_alone(store: Store, daemon: Embedding) -> None:
    store.spaces.stop(NEW.key)
    assert [asked for asked in daemon.asked() if asked[1].endswith("new")] == []


def test_space_has_one_run_at_a_time(store: Store, daemon: Embedding) -> None:
    write(store, 1, first=3)
    run = daemon.run_that("embed", **{EMBED_TAG: "new"})
    assert daemon.asked() == [TO_OLD], "the other space is none of its business"
    daemon.instance.report_run_failed(run)
    assert daemon.asked()[-1] == TO_NEW, "a run that ended is resumed"


def test_pause_holds_back_the_space_that_is_built_only(store: Store, daemon: Embedding) -> None:
    write(store, 1, first=3)
    reembedding.pause(store)
    assert daemon.asked() == [TO_OLD]
    reembedding.resume(store)
    assert daemon.asked()[-1] == TO_NEW


@pytest.mark.parametrize("status", ["REQUESTED", "CANCELING"])
def test_backfill_is_not_doubled(store: Store, daemon: Embedding, backfills: Backfills, status: str) -> None:
    write(store, 1, first=3)
    backfills.launch(status)
    assert daemon.asked() == [TO_OLD]


def test_space_is_embedded_once_its_backfills_runs_ended(store: Store, daemon: Embedding, backfills: Backfills) -> None:
    launched = backfills.launch()
    backfills.run(launched, dg.DagsterRunStatus.STARTED)
    assert TO_NEW not in daemon.asked()
    backfills.run(launched, dg.DagsterRunStatus.FAILURE)
    assert TO_NEW in daemon.asked(), "after a kill nothing waits until Dagster has noticed"


def test_active_space_needs_no_webserver(store: Store, daemon: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, 1, first=3)
    daemon.instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["gone"])
    daemon.instance.add_dynamic_partitions(str(SPACES.name), ["old", "new"])
    monkeypatch.setenv("ANAMNESIS_DAGSTER_URL", "http://127.0.0.1:9")
    assert daemon.asked() == [TO_OLD], "a backfill may embed into the other space"
    assert "gone" in daemon.sources


@pytest.mark.parametrize(("asset", "key"), [("vector_index", "new"), ("embeddings", "direct|old")])
def test_backfill_of_something_else_holds_nothing_back(
    store: Store, daemon: Embedding, backfills: Backfills, asset: str, key: str
) -> None:
    backfills.launch(asset=asset, keys=[key])
    assert TO_NEW in daemon.asked()


def test_backfill_is_adopted_before_its_first_run(store: Store, daemon: Embedding, backfills: Backfills) -> None:
    store.spaces.stop(NEW.key)
    backfills.launch("CANCELING")
    daemon.look()
    assert reembedding.status(store).state == "idle", "a canceled one is not adopted"
    launched = backfills.launch(keys=["direct|new", "direct|old"])
    assert TO_NEW not in daemon.asked()
    status = reembedding.status(store)
    assert (status.state, status.space, status.backfill_id) == ("running", NEW.key, launched)


def test_backfill_given_up_is_not_adopted_again(store: Store, daemon: Embedding, backfills: Backfills) -> None:
    store.spaces.stop(NEW.key)
    backfills.launch()
    daemon.look()
    assert reembedding.use(store, OLD.key, "fp32").stopped == NEW.key
    daemon.look()
    assert reembedding.status(store).state == "idle"


@pytest.mark.parametrize(
    ("space", "count", "ago_s", "tried"),
    [
        (NEW, 1, 50, False),
        (NEW, 1, 70, True),
        (NEW, 4, 470, False),
        (NEW, 4, 490, True),
        (NEW, 30, 3_500, False),
        (NEW, 30, 3_700, True),
        (OLD, 30, 290, False),
        (OLD, 30, 310, True),
    ],
)
def test_failure_is_tried_again_ever_more_rarely(
    store: Store, daemon: Embedding, space: Space, count: int, ago_s: float, tried: bool
) -> None:
    write(store, 1, first=3)
    with pytest.raises(StoreFull), noting_failure(store, space.key):
        raise StoreFull("no room")
    at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - ago_s))
    store.settings.set(FAILURE + space.key, {**store.settings.get(FAILURE + space.key), "count": count, "at": at})
    assert (("embed", f"direct|{space.key}") in daemon.asked()) is tried


def sources(store: Store, *keys: str) -> None:
    store.files.put_sources([Source(key, "mac", "/l", key) for key in keys])


def test_newest_backlog_goes_first(store: Store, daemon: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOURCES_PER_RUN", 2)
    sources(store, "s1", "s2", "s3", "s4", "s5")
    for number in range(1, 6):
        write(store, 1, source=f"s{number}", first=number)
    embed_all(store, OLD, ["s1", "s2", "s3", "s4", "s5"])
    daemon.look()
    for source, number in [("s1", 10), ("s2", 11), ("s3", 500), ("s5", 90)]:
        write(store, 1, source=source, first=number)
    active = [asked for asked in daemon.asked() if asked[1].endswith("old")]
    assert active == [("embed", "s3|old"), ("embed", "s5|old"), ("embed", "s1|old")]


def test_runs_have_tags_of_the_deployment(store: Store, daemon: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_EMBED_RUN_TAGS", '{"pool": "gpu"}')
    write(store, 1, first=3)
    assert [request.tags["pool"] for request in daemon.look()] == ["gpu", "gpu"]


def test_large_backlog_covers_all_between(store: Store, daemon: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKLOG", 5)
    sources(store, "s1", "s2", "s3")
    daemon.look()
    write(store, 3, source="s1", first=10)
    write(store, 3, source="s3", first=20)
    (request,) = [request for request in daemon.look() if request.tags[EMBED_TAG] == "old"]
    assert request.tags["dagster/asset_partition_range_start"] == f"{daemon.sources[0]}|old"
    assert request.tags["dagster/asset_partition_range_end"] == f"{daemon.sources[-1]}|old"


def test_many_sources_are_cut_into_runs(store: Store, daemon: Embedding) -> None:
    sources(store, *(f"s{number:03}" for number in range(250)))
    daemon.look()
    for number in range(250):
        write(store, 1, source=f"s{number:03}", first=number)
    assert daemon.asked()[:3] == [("embed", "s200|old"), ("embed", "s100|old"), ("embed", "s000|old")]


def test_space_is_indexed_when_much_is_new(store: Store, daemon: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REINDEX_AFTER", 2)
    store.spaces.stop(NEW.key)
    assert daemon.asked() == [("index", "old")]
    for number in (3, 4):
        assert daemon.look() == []
        write(store, 1, first=number)
        embed_all(store, OLD, RESERVED_SOURCES)
    assert daemon.asked() == [("index", "old")]
    assert daemon.look() == []
    monkeypatch.setattr(type(store.vectors), "index_state", lambda *_: IndexState(is_lost=True))
    assert daemon.asked() == [("index", "old")], "one that is lost is built again"


def test_space_is_indexed_amid_a_backlog(store: Store, daemon: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    store.spaces.stop(NEW.key)
    daemon.look()
    monkeypatch.setattr(module, "REINDEX_AFTER", 4)
    write(store, 5, first=3)
    embed_all(store, OLD, RESERVED_SOURCES)
    write(store, 1, first=9)
    assert daemon.asked() == [TO_OLD, ("index", "old")]


def complete(store: Store) -> None:
    embed_all(store, NEW, RESERVED_SOURCES, dim=NEW.dim)


def test_space_is_indexed_until_the_switch(store: Store, daemon: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    complete(store)
    assert ("index", "new") in daemon.asked()
    assert ("index", "new") in daemon.asked(), "the first run may have found that something was missing"
    run = daemon.run_that("index", **{"dagster/partition": "new"})
    assert ("index", "new") not in daemon.asked()
    daemon.instance.report_run_failed(run)
    assert ("index", "new") not in daemon.asked(), "a run that failed is not repeated at once"
    monkeypatch.setattr(module, "INDEX_RETRY_S", 0.0)
    assert ("index", "new") in daemon.asked()
    daemon.run_that("index", **{"dagster/partition": "new"})
    write(store, 1, first=3)
    assert daemon.asked() == [TO_OLD], "its index run embeds the rest"


def test_space_that_waits_for_a_yes_is_indexed_once(store: Store, daemon: Embedding) -> None:
    store.settings.set("config.switch", "ask")
    complete(store)
    assert ("index", "new") in daemon.asked()
    assert daemon.look() == []


def test_space_is_switched_to_when_nothing_is_stored_yet(memory: MemoryResource, daemon: Embedding) -> None:
    daemon.look()
    assert memory.store.spaces.active() is not None, "the first space of a store"
    memory.store.spaces.put(NEW)
    begin(memory.store, NEW)
    assert ("index", "new") in daemon.asked()


def test_unknown_model_begins_no_space_and_keeps_the_active_one(memory: MemoryResource, daemon: Embedding) -> None:
    daemon.look()
    assert [space.status for space in memory.store.spaces.all()] == ["active"]
    memory.store.settings.set("config.model", "/nothing here")
    write(memory.store, 1)
    assert len(daemon.look()) == 1, "the active space goes on growing"
    assert len(memory.store.spaces.all()) == 1


def test_tick_downloads_no_model_and_says_who_does(daemon: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for_files: list[bool] = []

    def absent(model_id: str, *, local_files_only: bool, **_: object) -> str:
        asked_for_files.append(local_files_only)
        raise LocalEntryNotFoundError(model_id)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", absent)
    monkeypatch.setenv("ANAMNESIS_MODEL", "acme/large-en")
    skipped = daemon.tick(embed_sensor).skip_reason
    assert asked_for_files == [True]
    assert isinstance(skipped, dg.SkipReason)
    said = str(skipped.skip_message)
    assert said.startswith(module.NOTHING_TO_EMBED)
    assert "A tick downloads no model; the service does" in said
    assert "'acme/large-en'" in said


NOTES, UPLOADS, CHATS = (dg.AssetKey(name) for name in ("posted_notes", "uploaded_documents", "chat_answers"))


def test_posted_assets_of_an_empty_memory_say_so(memory: MemoryResource, daemon: Embedding) -> None:
    assert memory.store.spaces.active() is None
    for _ in range(2):
        daemon.look()
    empty = {"dagster/row_count": 0, "state": "nothing is stored yet"}
    assert [daemon.materializations(key) for key in (NOTES, UPLOADS, CHATS)] == [[empty], [empty], [empty]]


def test_memory_without_a_space_is_looked_at_once(
    memory: MemoryResource, daemon: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_MODEL", "/nonexistent/model")
    write(memory.store, 3)
    daemon.look()
    seen = {json.loads(str(daemon.tick(embed_sensor).cursor))["seen"] for _ in range(2)}
    assert len(seen) == 1
    assert "" not in seen, "nothing is left to look for"


def test_posts_since_the_last_tick_are_one_materialization(store: Store, daemon: Embedding) -> None:
    for first, tick_count in ((10, 1), (20, 2)):  # the first four came while Dagster was away
        write(store, 4, first=first)
        for _ in range(tick_count):
            daemon.look()
    assert [each["dagster/row_count"] for each in daemon.materializations(NOTES)] == [11, 7]
    assert len(daemon.materializations(UPLOADS)) == 1, "nothing was uploaded since"


def test_checks_of_posted_assets_are_reported_on_a_change(store: Store, daemon: Embedding) -> None:
    daemon.look()
    first, other = daemon.check(NOTES, "all_is_searchable"), daemon.check(UPLOADS, "all_is_searchable")
    write(store, 2, first=10)
    daemon.look()
    second = daemon.check(NOTES, "all_is_searchable")
    embed_all(store, OLD)
    daemon.look()
    third = daemon.check(NOTES, "all_is_searchable")
    assert [passed for _, passed in (first, second, third)] == [True, False, True]
    write(store, 1, source="a source")
    daemon.look()
    assert daemon.check(NOTES, "all_is_searchable") == third
    assert daemon.check(UPLOADS, "all_is_searchable") == other


def test_partition_that_the_service_embedded_is_materialized(store: Store, daemon: Embedding) -> None:
    daemon.look()
    assert daemon.done == {"direct|old"}, "the new space lacks these episodes"
    embed_all(store, NEW, dim=NEW.dim)
    for _ in range(2):
        daemon.look()
    assert daemon.done == {"direct|old", "direct|new"}
    of_it = dg.AssetRecordsFilter(asset_key=EMBEDDINGS, asset_partitions=["direct|new"])
    made = daemon.instance.fetch_materializations(of_it, limit=1).records[0].asset_materialization
    assert made is not None
    assert made.metadata["dagster/row_count"].value == 3
    assert "dagster/data_version" in (made.tags or {}), "as of one that a run made"
    for name in ("every_passage_is_embedded", "vectors_are_sound"):
        assert daemon.check(EMBEDDINGS, name)[1]
    assert len(daemon.materializations(EMBEDDINGS)) == 2


def test_many_partitions_take_several_ticks(store: Store, daemon: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPORTED_PER_TICK", 2)
    sources = [f"source-{number}" for number in range(4)]
    for source in sources:
        write(store, 1, source=source)
    embed_all(store, OLD, sources)
    counts = []
    for _ in range(4):
        daemon.look()
        counts.append(len(daemon.done))
    assert counts == [2, 4, 5, 5]


def test_source_that_came_amid_a_tick_waits(store: Store, daemon: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = store.overview.sources

    def ingest_first() -> dict[str, SourceState]:
        put(store, "late", "stored just now", source="logs")
        return sources()

    monkeypatch.setattr(store.overview, "sources", ingest_first)
    daemon.look()
    assert daemon.done == {"direct|old"}


def test_partition_is_not_reported_while_a_run_embeds(store: Store, daemon: Embedding) -> None:
    run = daemon.run_that("embed", **{EMBED_TAG: OLD.key})
    daemon.look()
    assert daemon.done == set(), "the run says so itself"
    daemon.instance.report_run_failed(run)
    daemon.look()
    assert daemon.done == {"direct|old"}


@pytest.mark.parametrize("is_targeted", [False, True])
def test_partitions_of_gone_sources_go_but_not_amid_a_backfill(
    store: Store, daemon: Embedding, backfills: Backfills, is_targeted: bool
) -> None:
    daemon.instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["chat", "direct", "gone"])
    complete(store)
    if is_targeted:
        backfills.launch()
    daemon.look()
    assert daemon.sources == (["chat", "direct", "gone"] if is_targeted else ["direct"])


def test_no_partition_goes_amid_its_run(store: Store, daemon: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKLOG", 2)
    daemon.instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["chat", "direct", "gone"])
    (request,) = [request for request in daemon.look() if request.job_name == "embed"]
    assert request.tags["dagster/asset_partition_range_end"] == "gone|new"
    run = daemon.run_that("embed", **request.tags)
    complete(store)
    daemon.look()
    assert daemon.sources == ["chat", "direct", "gone"]
    daemon.instance.report_run_failed(run)
    daemon.look()
    assert "gone" in daemon.sources, "the run may be retried"
    monkeypatch.setattr(module, "RETRIED_S", 0)
    daemon.look()
    assert daemon.sources == ["direct"]


def test_first_index_brings_the_first_map_and_consolidation(store: Store, daemon: Embedding) -> None:
    store.spaces.stop(NEW.key)
    jobs = {"memory_map": "draw_map", "consolidation_report": "consolidate"}

    def requested() -> list[str | None]:
        return [request.job_name for request in daemon.look() if request.job_name in jobs.values()]

    assert requested() == []
    daemon.instance.report_runless_asset_event(dg.AssetMaterialization("vector_index", partition=OLD.key))
    assert requested() == ["draw_map", "consolidate"]
    for asset in jobs:
        daemon.instance.report_runless_asset_event(dg.AssetMaterialization(asset))
    write(store, 1, first=50)
    assert requested() == []
