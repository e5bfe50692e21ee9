"""`anamnesis summarize`, `backfill` and `value`, on a real home with real logs; Ollama's address answers nobody."""

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli import config, status
from anamnesis_pipeline.cli.summaries import explain_value, recompute_values, render_value, run_backfill, run_summarize
from anamnesis_pipeline.errors import BadSetting, EpisodeNotFound, GiveUp
from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.llm.prices import ANSWER_TOKENS
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.pipeline.projects import add_alias
from anamnesis_pipeline.services import store_checks
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.model_health import llm_problems
from anamnesis_pipeline.services.wiring import discover_sources, open_pipeline, open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.session_model import SESSION_KIND
from anamnesis_tests.support.live_system import EXAMPLES


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    ours = {"HOME": tmp_path / "home", "LOG_ROOTS": EXAMPLES, "DAGSTER_PORT": 1}
    llm = {"OLLAMA_URLS": "http://127.0.0.1:1", "LLM_REQUESTS_PER_MINUTE": 10_000, "SUMMARY_MIN_CHARS": 0}
    for name, value in (ours | llm).items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    return settings_file.load()


def configure(home: Settings, **settings: str) -> None:
    for name, value in settings.items():
        config.store_setting(home, name, value)


def backfill(
    home: Settings, project: str | None = None, limit: int | None = None, *, dry_run: bool = True
) -> list[str]:
    """What it says."""
    said: list[str] = []
    run_backfill(home, said.append, project=project, limit=limit, dry_run=dry_run)
    return said


@pytest.fixture
def store(home: Settings) -> Iterator[Store]:
    """The examples, ingested."""
    with closing(open_store(home)) as store:
        ingest_all(open_pipeline(home, store), discover_sources(home).sources)
        yield store


def test_nothing_waits_or_a_key_lacks(home: Settings, store: Store) -> None:
    said: list[str] = []
    run_summarize(home, said.append)
    assert said == ["No part waits for a summary."]
    configure(home, summarizer="anthropic")
    with pytest.raises(BadSetting, match="anthropic_api_key"):
        run_summarize(home, print)
    (problem,) = llm_problems(store)
    assert "anthropic_api_key" in problem.text


def test_backfill_asks_for_what_another_model_summarized(home: Settings, store: Store) -> None:
    configure(home, summarizer="ollama", summary_min_value="0")
    parts = store.summaries.summary_counts()[extractive.MODEL]
    *_, many, cost = backfill(home)
    assert many == f"{parts} parts of 2 sources would be summarized again by llama3.2."
    assert re.match(rf"About \d+ turns: {parts} calls, [\d,]+ tokens in and {parts * ANSWER_TOKENS:,} out\.", cost)
    assert "claude-haiku-5-5 $0.0" in cost
    assert cost.endswith("The model that is set runs on this machine and costs nothing.")
    assert "Dagster does it with its next tick" in backfill(home, limit=2, dry_run=False)[-1]
    assert len(store.summaries.sources_to_summarize(store.episodes.page(EpisodeFilter(), 1).items[0].timestamp)) >= 1


def test_what_no_llm_would_be_asked_about_is_not_backfilled(home: Settings, store: Store) -> None:
    configure(home, summarizer="ollama", summary_min_value="3")
    parts = store.summaries.summary_counts()[extractive.MODEL]
    values = [e.metadata["value"] for e in store.episodes.page(EpisodeFilter(), 200).items if "value" in e.metadata]
    low = sum(value < 3 for value in values)
    assert (len(values), 0 < low < parts) == (parts, True)
    told = backfill(home, dry_run=False)[0]
    sources = len(store.summaries.sources_to_summarize(datetime.now(UTC)))
    assert told == (
        f"{parts - low} parts of {sources} sources are to be summarized again by llama3.2. "
        f"{low} more are below the threshold (summary_min_value)."
    )
    configure(home, summary_min_value="20")
    assert backfill(home, dry_run=False)[-1].startswith("0 parts of 0 sources")
    configure(home, summarizer="none")
    with pytest.raises(BadSetting, match="there is no LLM"):
        backfill(home)


def test_project_is_named_by_each_of_its_names_alone(home: Settings, store: Store) -> None:
    label = next(label for label in store.projects.all() if label.endswith("parcel-api"))
    assert config.store_setting(home, "private_projects", f"{label},parcel-api") == []
    (doubt,) = config.store_setting(home, "private_projects", f"{label},parcel-apy")
    assert "'parcel-apy'" in doubt
    configure(home, summarizer="ollama")
    told = backfill(home, label)
    assert not told[0].startswith("0 parts")
    add_alias(store, label, "merged/api")
    assert [backfill(home, name) for name in (label, "merged/api", "api")] == [told] * 3
    with pytest.raises(BadSetting, match="there are: "):
        backfill(home, "nonesuch")


def test_absent_llm_leaves_flagged_summaries(home: Settings, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anamnesis_pipeline.pipeline.llm_choice.time.sleep", lambda seconds: None)
    configure(home, summarizer="ollama", summary_min_value="0")
    backfill(home, limit=1, dry_run=False)
    said: list[str] = []
    with pytest.raises(GiveUp, match="1 chunk has no summary"):
        run_summarize(home, said.append)
    assert any("1 flagged" in line for line in said)
    finding = store_checks.llm(store)
    assert not finding.ok
    assert "1 extractive summary stands in for an LLM's" in finding.detail
    shown = status.render(status.gather_status(home))
    assert "1 standing in for an LLM's" in shown
    assert "is left alone until" in shown


def test_value_of_an_exchange_is_explained(home: Settings, store: Store) -> None:
    said = store.episodes.page(EpisodeFilter(hidden_kinds=(SESSION_KIND,)), 100).items
    episode = max(said, key=lambda e: e.metadata["value"])
    body = explain_value(home, episode.episode_id)
    assert body["value"] == sum(body["signals"].values()) > 1
    text = render_value(body)
    assert "worth an LLM's summary" in text
    assert all(name in text for name in body["signals"])
    configure(home, summary_min_chars="10000")
    assert "so short that it is its own" in render_value(explain_value(home, episode.episode_id))
    with pytest.raises(EpisodeNotFound, match="does not exist"):
        explain_value(home, "nonesuch")


def test_changed_points_change_stored_values_once(home: Settings, store: Store) -> None:
    said = store.episodes.page(EpisodeFilter(hidden_kinds=(SESSION_KIND,)), 100).items
    edits = {e.episode_id for e in said if "edits" in e.metadata["value_signals"]}
    assert edits
    assert recompute_values(home) == 0
    configure(home, value_weights="edits=7")
    assert recompute_values(home) == len(edits)
    after = store.episodes.get(sorted(edits)).values()
    assert {e.metadata["value_signals"]["edits"] for e in after} == {7}
    assert recompute_values(home) == 0
