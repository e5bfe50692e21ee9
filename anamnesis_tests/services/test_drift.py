"""Drift as a service: projects, private ones, proposals, and what commands and pages print of it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anamnesis_pipeline.cli.drift import lines_of
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Status
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.services.drift import drift_body, drift_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Kind
from anamnesis_tests.services.test_proposals import dreamt, post, proposals_of
from anamnesis_tests.support.archived_logs import Home

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path, store: Store) -> Iterator[Home]:
    """An empty memory on every store."""
    home = Home(tmp_path, store)
    yield home
    home.close()


@pytest.fixture
def shop(home: Home) -> str:
    """A project's folder, with a note that names a file which it has, and one that it has not."""
    root = home.base / "shop"
    (root / "src").mkdir(parents=True)
    (root / "src" / "api.py").write_text("def get_price(): ...\n")
    post(home, "Prices come from `src/api.py`.", 1, str(root), type="fact")
    post(home, "Orders come from `src/orders.py`.", 2, str(root), type="fact")
    return str(root)


def test_drift_is_proposed_and_accepting_can_be_undone(home: Home, shop: str) -> None:
    (found,) = [each for each in dreamt(home) if each.kind is Kind.DRIFT]
    (episode_id,) = found.episode_ids
    proposals = proposals_of(home)
    proposals.accept(found.proposal_id, "ann", "it moved")
    assert home.store.episodes.get([episode_id])[episode_id].status == Status.INVALIDATED
    assert drift_of(home.store, NOTHING_PRIVATE, NOW, shop)[0].findings == ()
    proposals.undo(found.proposal_id, "ann")
    assert home.store.episodes.get([episode_id])[episode_id].status == Status.ACTIVE
    assert [each.kind for each in dreamt(home)].count(Kind.DRIFT) <= 1


def test_report_is_told_with_its_quote(home: Home, shop: str) -> None:
    text = "\n".join(lines_of(drift_body(drift_of(home.store, NOTHING_PRIVATE, NOW, shop))))
    assert "90/100, 1 finding (2 claims in 2 texts)" in text
    assert "Orders come from `src/orders.py`." in text


def test_folder_of_no_stored_project_is_refused(home: Home, shop: str, tmp_path: Path) -> None:
    (tmp_path / "garden").mkdir()
    with pytest.raises(GiveUp, match=r"nothing is stored of .*garden"):
        drift_of(home.store, NOTHING_PRIVATE, NOW, root=str(tmp_path / "garden"))


def test_private_project_is_shown_only_when_named(home: Home, shop: str) -> None:
    private = Private((), (shop,))
    assert drift_of(home.store, private, NOW) == []
    assert [each.project for each in drift_of(home.store, private, NOW, shop)] == [shop]


def test_other_folder_is_checked_on_request(home: Home, shop: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "src").mkdir(parents=True)
    (other / "src" / "orders.py").write_text("")
    (report,) = drift_of(home.store, NOTHING_PRIVATE, NOW, shop, root=str(other))
    assert [each.value for each in report.findings] == ["src/api.py"]
    with pytest.raises(GiveUp, match="is no folder"):
        drift_of(home.store, NOTHING_PRIVATE, NOW, shop, root=str(tmp_path / "none"))
