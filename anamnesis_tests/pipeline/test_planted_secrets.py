"""Credentials planted in logs, wherever they may stand, are readable nowhere: not in any file, not in what an LLM
would be asked."""

from pathlib import Path

import pytest

from anamnesis_pipeline.llm.prompts import build_prompt
from anamnesis_pipeline.parsing.redaction.rules import MASK
from anamnesis_tests.pipeline.planted_logs import PLANTED, plant, readable
from anamnesis_tests.support.archived_logs import FOLDER, SESSION, Home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("planted"))
    plant(home, together=2)
    home.ingest()
    return home


def test_at_least_forty_kinds_are_planted_and_really_in_the_logs(home: Home) -> None:
    log = (home.logs / FOLDER / f"{SESSION}.jsonl").read_text()
    assert len(PLANTED) >= 40
    assert sorted(readable(log)) == sorted(PLANTED)


def test_no_credential_is_readable_in_any_file_of_the_home(home: Home) -> None:
    assert readable(home.bytes().decode("utf-8", "replace")) == []


def test_no_credential_is_found_by_searching_for_it(home: Home) -> None:
    assert [kind for kind, (_, pieces) in PLANTED.items() if home.finds(pieces[0])] == []


def test_no_credential_is_in_what_an_llm_is_asked(home: Home) -> None:
    parts = home.store.forgetting.parts_after("", 10_000)
    assert len(parts) >= len(PLANTED) // 2
    assert readable("\n".join(build_prompt(part).text for part in parts)) == []


def test_an_episode_counts_the_masks_it_holds(home: Home) -> None:
    counted = [e for e in home.episodes() if MASK.search(e.raw_exchange)]
    assert counted
    for episode in counted:
        assert sum(episode.metadata["masked"].values()) == len(MASK.findall(episode.raw_exchange))


def test_restored_logs_hold_none(home: Home, tmp_path: Path) -> None:
    assert readable("\n".join(home.archived())) == []
