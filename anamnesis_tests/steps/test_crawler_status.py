"""How machines and sources are doing, asked by every tick of the crawl and by every look at `status`."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from anamnesis_pipeline.crawler_wiring import built_in
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.steps.crawler_status import crawler_status
from anamnesis_pipeline.steps.host_clock import write_problems
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import SettingsRecords

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Counted:
    """The settings of a store, and how often they were asked."""

    def __init__(self, settings: SettingsRecords) -> None:
        self._settings, self.asked = settings, 0

    def __getattr__(self, name: str) -> Any:
        self.asked += 1
        return getattr(self._settings, name)


def status_of(store: Store, tmp_path: Path, sources: int) -> tuple[int, tuple[str, ...]]:
    """How often the settings were asked, and what is told of the one configured source that has so many folders."""
    settings = Settings(home=tmp_path / "home", log_roots=(tmp_path / "logs",), machine="box")
    spec = built_in(settings)[0]
    made = [Source(f"box--{n}--0", "box", spec.root, f"f{n}") for n in range(sources)]
    store.files.put_sources(made)
    write_problems(store.settings, made[-1].key, ["a.jsonl: torn"])
    counted = Counted(store.settings)
    (row,) = crawler_status(replace(store, settings=cast(SettingsRecords, counted)), [spec], 300, NOW).sources
    assert len(row.partitions) == sources
    return counted.asked, row.errors


def test_a_status_asks_no_more_often_the_more_sources_there_are_and_tells_of_each(store: Store, tmp_path: Path) -> None:
    few, _ = status_of(store, tmp_path, 2)
    many, told = status_of(store, tmp_path, 60)
    assert many == few
    assert told == ("a.jsonl: torn",)
