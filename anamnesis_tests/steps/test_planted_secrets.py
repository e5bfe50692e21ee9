"""Credentials planted in logs, wherever they may stand, are readable nowhere: not in any file, not in what an LLM
would be asked."""

import json
from pathlib import Path

import pytest

from anamnesis_pipeline.exchanges.redaction_rules import MASK
from anamnesis_pipeline.summaries.prompt import build_prompt
from anamnesis_tests.exchanges.planted import credentials
from anamnesis_tests.steps.archived_logs import FOLDER, OTHER, SESSION, Home, record

PLANTED = credentials(7)


def _log(number: int, text: str) -> list[dict]:
    """A prompt, a reply, a tool call and its result that all hold the text, also as JSON in JSON."""
    nested = json.dumps({"config": json.dumps({"note": f"first\n{text}\nlast"})})
    name = text if len(text.split()) == 1 else "some file"
    tool = {
        "type": "tool_use",
        "id": f"t{number}",
        "name": "Bash",
        "input": {"command": f"cat <<X\n{text}\nX", "n": nested},
    }
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"out\n{text}\n{nested}"}
    return [
        record("user", f"please use this:\n{text}\nand go on", 4 * number),
        record("assistant", f"I see\n{text}\nthere", 4 * number + 1),
        record("assistant", "", 4 * number + 2, message={"role": "assistant", "id": f"c{number}", "content": [tool]}),
        record(
            "user", "", 4 * number + 3, message={"role": "user", "content": [result]},
            toolUseResult={"stdout": text, "file": {"filePath": f"/tmp/{name}", "content": text}},
        ),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("planted"))
    for number, (text, _) in enumerate(PLANTED.values()):
        home.write(_log(number, text))
    pasted = {"1": {"id": 1, "type": "text", "content": "\n".join(text for text, _ in PLANTED.values())}}
    entry = {"display": "[Pasted text #1 +9 lines]", "pastedContents": pasted, "timestamp": 1_772_000_000_000,
             "project": "/code/shop", "sessionId": OTHER}  # fmt: skip
    (home.base / "history.jsonl").write_text(json.dumps(entry) + "\n")
    home.ingest()
    return home


def _readable(data: str) -> list[str]:
    plain = data + data.replace("\\n", "\n").replace('\\"', '"').replace("\\", "")
    return [kind for kind, (_, pieces) in PLANTED.items() if any(piece in plain for piece in pieces)]


def test_at_least_forty_kinds_are_planted_and_really_in_the_logs(home: Home) -> None:
    log = (home.logs / FOLDER / f"{SESSION}.jsonl").read_text()
    assert len(PLANTED) >= 40
    assert sorted(_readable(log)) == sorted(PLANTED)


def test_no_credential_is_readable_in_any_file_of_the_home(home: Home) -> None:
    assert _readable(home.bytes().decode("utf-8", "replace")) == []


def test_no_credential_is_found_by_searching_for_it(home: Home) -> None:
    assert [kind for kind, (_, pieces) in PLANTED.items() if home.finds(pieces[0])] == []


def test_no_credential_is_in_what_an_llm_is_asked(home: Home) -> None:
    parts = home.store.forgetting.parts_after("", 10_000)
    assert len(parts) > 40
    assert _readable("\n".join(build_prompt(part).text for part in parts)) == []


def test_an_episode_counts_the_masks_it_holds(home: Home) -> None:
    counted = [e for e in home.episodes() if MASK.search(e.raw_exchange)]
    assert counted
    for episode in counted:
        assert sum(episode.metadata["masked"].values()) == len(MASK.findall(episode.raw_exchange))


def test_restored_logs_hold_none(home: Home, tmp_path: Path) -> None:
    assert _readable("\n".join(home.archived())) == []
