"""`anamnesis model` and `anamnesis reembed`, through a running sidecar and in words."""

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from anamnesis_pipeline.cli import config, model, reembed
from anamnesis_pipeline.cli.doctor import render as render_findings
from anamnesis_pipeline.cli.status import memory_status
from anamnesis_pipeline.cli.status import render as render_status
from anamnesis_pipeline.errors import GiveUp, RetryLater, UnknownModel
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.pipeline.embed import embed_sources
from anamnesis_pipeline.services.posting import EpisodeDraft
from anamnesis_pipeline.services.store_checks import reembedding, space_models
from anamnesis_pipeline.services.wiring import open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.__main__ import listen
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_tests.sidecar import conftest as of_the_sidecar
from anamnesis_tests.sidecar.conftest import SPACE, TestServices, model_folder, wait_for
from anamnesis_tests.support.hashing_embedder import HashingEmbedder
from anamnesis_tests.support.samples import put
from anamnesis_tests.support.weight_files import safetensors

environment, services = of_the_sidecar.environment, of_the_sidecar.services
"""The sidecar's fixtures, which pytest finds by these names."""

RUNNING: dict[str, Any] = {
    "state": "running",
    "space": "tiny-1",
    "model_id": "tiny",
    "done": 1234,
    "total": 3269,
    "episodes_done": 100,
    "episodes_total": 415,
    "errors": 0,
    "last_error": None,
    "rate_per_s": 41.5,
    "eta_s": 49.0,
    "started_at": "2026-03-14T09:26:53Z",
    "active_space": "old-1",
    "active_model_id": "old",
    "waiting_for_use": False,
    "checkpoint": {"last_id": "e", "done": 1234, "total": 3269, "model_id": "tiny", "at": "2026-03-14T09:27:00Z"},
    "backfill": {
        "backfill_id": "b",
        "link": "http://127.0.0.1:3000/runs/b/b",
        "status": "REQUESTED",
        "sources": 8,
        "sources_done": 3,
        "sources_failed": 0,
    },
}


@pytest.fixture
def settings(tmp_path: Path, services: TestServices) -> Iterator[Settings]:
    """Of a command beside a running sidecar, which holds one episode."""
    server = uvicorn.Server(uvicorn.Config(create_app(services), log_config=None, access_log=False))
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_for(lambda: services.pool.ready)
        services.poster.create(EpisodeDraft("The zeppelin hangar", "mac", "acme"))
        yield Settings(home=tmp_path, port=listener.getsockname()[1])
        server.should_exit = True
        thread.join()


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    return model_folder(tmp_path / "tiny")


# --- through the sidecar


def test_model_is_added_used_paused_and_dropped(settings: Settings, services: TestServices, tiny: str) -> None:
    key = model.add(settings, tiny).key
    assert f"  {key}" in model.render(model.describe(settings)[0])
    assert reembed.status(settings)[0]["state"] == "idle"
    assert reembed.count(settings, tiny) == f"1 passage would be embedded with {tiny}."
    assert services.dagster.launched == []
    started, remark = model.use(settings, key)
    assert remark is None
    text = model.render_started(started)
    assert "1 of 1 passage to be embedded" in text
    assert "http://127.0.0.1:3000/runs/b/backfill1" in text
    assert "running: 0 of 1 passage" in reembed.render(reembed.status(settings)[0])
    assert "anamnesis reembed resume" in reembed.render(reembed.pause(settings)[0])
    assert reembed.resume(settings)[0]["state"] == "running"
    assert f"> {key}" in model.render(model.describe(settings)[0])
    model.drop(settings, key)
    assert [space.key for space in services.store.spaces.all()] == [SPACE.key]
    assert services.dagster.cancelled == ["backfill2"]


def test_refusal_of_the_sidecar_has_its_reason(settings: Settings, services: TestServices, tiny: str) -> None:
    with pytest.raises(GiveUp, match="nobody/no-such-model"):
        model.use(settings, "nobody/no-such-model")
    with pytest.raises(GiveUp, match="no space 'nope-1'"):
        model.drop(settings, "nope-1")
    with pytest.raises(GiveUp, match=SPACE.key):
        model.drop(settings, SPACE.key)
    services.dagster.up = False
    with pytest.raises(RetryLater, match="Dagster does not answer"):
        reembed.start(settings, tiny)
    services.dagster.up = True
    model.use(settings, tiny)
    with pytest.raises(GiveUp, match="is being"):
        reembed.start(settings, tiny)


def test_using_the_active_space_says_what_is_given_up(settings: Settings, services: TestServices, tiny: str) -> None:
    used = model.render_started(model.use(settings, SPACE.key)[0])
    assert used == f"Searches are answered from {SPACE.key} ({SPACE.model_id}) now."
    building = model.use(settings, tiny)[0]["space"]
    text = model.render_started(model.use(settings, SPACE.key)[0])
    assert f"Searches stay with {SPACE.key}" in text
    assert f"{building} is no longer being built" in text
    assert f"anamnesis model use {building}" in text
    assert services.dagster.cancelled == ["backfill1"]


def test_model_in_words(settings: Settings) -> None:
    config, _ = model.describe(settings)
    text = model.render({**config, "model": "new", "problem": "its folder is gone"})
    assert "searches are answered by hashing-64" in text
    assert "Problem   its folder is gone" in text
    assert "fp32, on cpu\n" in model.render(config)
    of_vectors = {**config, "precision": "bf16", "fidelity": 0.9995}
    assert "bf16 (cosine to fp32: 0.9995), on cpu; computes in fp32 now\n" in model.render(of_vectors)
    assert "token vectors" not in model.render(config)
    spaces = [{**space, "token_dims": 256, "token_bytes": 12_300_000} for space in config["spaces"]]
    assert ", 12.3 MB of token vectors" in model.render({**config, "spaces": spaces})


# --- without a sidecar


@pytest.fixture
def alone(tmp_path: Path) -> Settings:
    """Of a command on a home whose sidecar does not run."""
    with listen("127.0.0.1", 0) as listener:
        return Settings(home=tmp_path / "home", port=listener.getsockname()[1])


def test_without_a_sidecar_the_same_is_left_to_the_sensors(alone: Settings, tiny: str) -> None:
    assert model.describe(alone)[0]["spaces"] == []
    assert reembed.status(alone)[0]["state"] == "idle"
    assert not alone.home.exists(), "who looks makes none"
    added = model.add(alone, tiny)
    used, remark = model.use(alone, added.key)
    assert used["active"]  # the first space of a store lacks nothing
    assert "the sidecar does not answer" in str(remark)
    with closing(open_store(alone)) as store:
        put(store, "e", "t")
    assert reembed.count(alone, None) == f"1 passage would be embedded with {tiny}."
    started, _ = reembed.start(alone, None)
    assert (started["space"], started["backfill_id"]) == (f"{added.key}-g2", None)
    assert "It starts within 30 seconds while `anamnesis up` runs" in model.render_started(started)
    assert reembed.pause(alone)[0]["state"] == "paused"
    assert reembed.resume(alone)[0]["state"] == "running"
    model.drop(alone, started["space"])
    assert [space["key"] for space in model.describe(alone)[0]["spaces"]] == [added.key]
    assert reembed.status(alone)[0]["state"] == "idle"


# --- in words


def test_running_reembed_shows_pace_and_where_to_watch_it() -> None:
    assert reembed.render(RUNNING, UTC).splitlines() == [
        "Re-embed  running: 1,234 of 3,269 passages (37.7%), 100 of 415 episodes",
        "Model     tiny into tiny-1",
        "Pace      41.5 passages a second, about 49 s left",
        "Written   2026-03-14 09:27:00, 1,234 passages",
        "Backfill  REQUESTED, 3 of 8 partitions  http://127.0.0.1:3000/runs/b/b",
    ]


AWAY = {**RUNNING["backfill"], "status": None, "sources": None, "sources_done": None, "sources_failed": None}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"state": "complete", "done": 3269}, "Next      its index is built"),
        ({"rate_per_s": None, "eta_s": None, "checkpoint": None, "backfill": None}, "Pace      not known yet"),
        ({"state": "paused"}, "anamnesis reembed resume"),
        ({"state": "failed", "errors": 3, "last_error": "NaN"}, "anamnesis model use old-1"),
        ({"state": "failed", "errors": 3, "last_error": "NaN"}, "NaN"),
        ({"state": "complete", "waiting_for_use": True}, "anamnesis model use tiny-1"),
        ({"backfill": AWAY}, "(Dagster does not answer)  http://127.0.0.1:3000/runs/b/b"),
    ],
)
def test_reembed_says_what_comes_next_or_what_to_do(changes: dict[str, Any], told: str) -> None:
    assert told in reembed.render({**RUNNING, **changes}, UTC)
    complete = {"state": "complete", "done": 3269, "active_space": "tiny-1"}
    assert "Next" not in reembed.render({**RUNNING, **complete}, UTC), "it answers"


# --- status and doctor


def test_paused_reembed_is_named_by_status_and_doctor(settings: Settings, services: TestServices, tiny: str) -> None:
    assert reembedding(services.store).ok
    model.use(settings, tiny)
    assert reembedding(services.store).ok
    reembed.pause(settings)
    finding = reembedding(services.store)
    assert not finding.ok
    assert "is paused at 0 of 1 passage" in finding.detail
    assert "anamnesis reembed resume" in finding.advice
    report = {
        "home": "h",
        "home_problem": None,
        "store": {"place": "s", "problem": None},
        "memory": memory_status(services.store),
        "other_store": None,
        "sidecar": {"url": "u", "ready": True, "missing": []},
        "dagster": {"url": "u", "reachable": False, "problem": "off"},
    }
    assert "anamnesis reembed resume" in render_status(report)


def test_complete_space_that_waits_for_a_yes_is_a_note(
    settings: Settings, services: TestServices, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_SWITCH", "ask")
    store = services.store
    key = model.use(settings, tiny)[0]["space"]
    assert reembedding(store).note == ""
    embed_sources(store, key, RESERVED_SOURCES, HashingEmbedder(SPACE.dim, token_dims=64), 25)
    finding = reembedding(store)
    assert finding.ok
    assert f"anamnesis model use {key}" in finding.note
    assert f"      note: {finding.note}\n\nAll is well." in render_findings([finding])
    memory = memory_status(store)
    assert (memory["problems"], len(memory["notes"])) == ([p for p in memory["problems"] if "gone" in p["text"]], 1)


def test_model_whose_files_are_gone_or_changed_is_named(settings: Settings, services: TestServices, tiny: str) -> None:
    store = services.store
    gone = space_models(store)  # `hashing-64` never had any
    assert not gone.ok
    assert "hashing-64" in gone.detail
    assert "anamnesis model use" in gone.advice
    key = model.use(settings, tiny)[0]["space"]
    store.spaces.stop(key)
    store.spaces.drop(key)
    assert key not in space_models(store).detail
    model.use(settings, tiny)
    (Path(tiny) / "model.safetensors").write_bytes(safetensors(b"other weights"))
    changed = space_models(store)
    assert f"other weights than those that made space {key}" in changed.detail
    assert any("other weights" in problem["text"] for problem in memory_status(store)["problems"])


def test_model_that_is_not_there_is_not_stored(settings: Settings) -> None:
    with pytest.raises(UnknownModel, match="no/such"):
        config.store_setting(settings.model_copy(update={"local_only": True}), "model", "no/such")
    assert all(row.origin != "stored" for row in config.setting_rows(settings))
