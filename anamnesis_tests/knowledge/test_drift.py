"""What a project's files prove wrong, what they cannot, and what it costs in points."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline.knowledge.claims import claims_of
from anamnesis_pipeline.knowledge.drift import STALE, DriftReport, Severity, check_project, holds, score_of
from anamnesis_pipeline.knowledge.project_files import ProjectFolders, Tree, disk_tree, tree_of
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.services.posted import note_of
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.wiring import open_pieces
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

FILES = {
    "CLAUDE.md": "",
    "package.json": '{"scripts": {"dev": "vite"}, "dependencies": {"left-pad": "1"}}',
    "Makefile": "lint test:\n\truff check\nCC := gcc\n",
    "src/shop/api.py": "import os\n\ndef get_price():\n    return os.environ['SHOP_TOKEN']\n",
    "src/shop/prices/rounding.py": "class PriceList:\n    pass\n",
    ".gitignore": "/var/\n*.sqlite\n",
}
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project's folder."""
    root = tmp_path / "shop"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def verdict(text: str, tree: Tree, *, is_curated: bool = True) -> bool | None:
    (claim,) = claims_of(text)
    return holds(claim, tree, is_curated=is_curated)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is in `src/shop/api.py`.", True),
        ("It is in `shop/api.py`.", True),
        ("It is in `rounding.py`.", True),
        ("It is in `src/shop/prices/`.", True),
        ("It is in `src/shop/orders.py`.", False),
        ("It is in `src/orders/`.", False),
        ("It is in `orders.py`.", False),
        ("It is in `dist/app.js`.", None),
        ("It is in `var/state.json`.", None),
        ("It is in `/srv/other/api.py`.", None),
        ("Call `get_price()`.", True),
        ("Call `get_prices()`.", False),
        ("Call `api.get_prices()`.", False),
        ("Call `numpy.get_prices()`.", None),
        ("Start with `npm run dev`.", True),
        ("Start with `npm run serve`.", False),
        ("Run `make lint`.", True),
        ("Run `make deploy`.", False),
        ("It depends on `left-pad`.", True),
        ("It depends on `right-pad`.", False),
        ("Set `SHOP_TOKEN` first.", True),
        ("Set `SHOP_SENDER` first.", False),
    ],
)
def test_claim_is_checked_on_disk(shop: Path, text: str, expected: bool | None) -> None:
    assert verdict(text, disk_tree(str(shop))) is expected


def test_disk_is_read_again_after_a_change(shop: Path) -> None:
    assert verdict("Call `get_prices()`.", disk_tree(str(shop))) is False
    (shop / "src/shop/api.py").write_text("def get_prices():\n    pass\n")
    assert verdict("Call `get_prices()`.", disk_tree(str(shop))) is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is in `src/shop/api.py`.", True),
        ("It is in `src/shop/orders.py`.", False),
        ("It is in `src/shop/orders.sql`.", None),
        ("It is in `lib/orders.py`.", None),
        ("It is in `lib/gone.py`.", False),
        ("Run `make deploy`.", None),
        ("Call `get_prices()`.", None),
    ],
)
def test_crawled_files_say_only_what_they_know(text: str, expected: bool | None) -> None:
    tree = tree_of("far", "/srv/shop", ["src/shop/api.py"], (), gone=["lib/gone.py"], is_whole=False)
    assert verdict(text, tree) is expected


def test_makefile_with_patterns_or_includes_is_unknown() -> None:
    for text in ("%.o: %.c\n\tcc\n", "include common.mk\nlint:\n"):
        assert (
            verdict("Run `make deploy`.", tree_of("", "/x", ["Makefile"], [("Makefile", text)], is_whole=True)) is None
        )


def test_note_may_mean_other_places(shop: Path) -> None:
    tree = disk_tree(str(shop))
    assert verdict("It is in `web/app.ts`.", tree, is_curated=False) is None
    assert verdict("It is in `src/web/app.ts`.", tree, is_curated=False) is False


def test_score_counts_severities_down_to_zero() -> None:
    assert score_of([]) == 100
    assert score_of([Severity.ERROR, Severity.WARNING, Severity.INFO]) == 86
    assert score_of([Severity.ERROR] * 11) == 0


def posted(store: Store, text: str, project: str, at: datetime) -> str:
    draft = note_of(text, project=project, instance="box", type="fact").model_copy(update={"timestamp": at}).draft()
    writer = EpisodeWriter(store, open_redactor(Settings()).mask_text, open_pieces(), None)
    return writer.create(draft)[0].episode_id


def report_of(store: Store, project: str) -> DriftReport:
    where = EpisodeFilter()
    return check_project(store, ProjectFolders(store, where), project, NOW, where)


def test_note_is_checked_against_its_projects_folder(shop: Path, store: Store) -> None:
    dead = posted(store, "Prices come from `src/shop/prices.py`.", str(shop), NOW)
    posted(store, "Rounding is in `src/shop/prices/rounding.py`.", str(shop), NOW)
    report = report_of(store, str(shop))
    (found,) = report.findings
    assert (found.severity, found.value, found.episode_id) == (Severity.ERROR, "src/shop/prices.py", dead)
    assert (report.score, report.claims, report.texts) == (90, 2, 2)


def test_moved_file_is_suggested(shop: Path, store: Store) -> None:
    posted(store, "Rounding is in `src/shop/core/rounding.py`.", str(shop), NOW)
    (found,) = report_of(store, str(shop)).findings
    assert found.suggestion == "src/shop/prices/rounding.py"


@pytest.mark.parametrize(("days", "severity"), [(59, None), (60, "info"), (179, "info"), (180, "warning")])
def test_old_text_never_retrieved_is_stale(shop: Path, store: Store, days: int, severity: str | None) -> None:
    episode_id = posted(store, "We deploy on Monday.", str(shop), NOW - timedelta(days=days))
    found = report_of(store, str(shop)).findings
    assert [(each.kind, each.severity) for each in found] == ([(STALE, severity)] if severity else [])
    store.episodes.track([episode_id], NOW)
    assert not report_of(store, str(shop)).findings


def test_unknown_project_folder_reports_nothing(store: Store) -> None:
    posted(store, "Prices come from `src/shop/prices.py`.", "acme/shop", NOW)
    report = report_of(store, "acme/shop")
    assert (report.findings, report.unknown, report.score) == ((), 1, 100)
