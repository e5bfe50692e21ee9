"""What episodes say of their sessions, and what is told of records that this version does not know."""

import json
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline import wiring
from anamnesis_pipeline.exchanges.records import KNOWN_TYPES
from anamnesis_pipeline.search.context_items import Item, SourceClass, line_of
from anamnesis_pipeline.sidecar.rendering import episode_body
from anamnesis_pipeline.sidecar.store_checks import record_types
from anamnesis_pipeline.steps.forget_target import ForgetRequest
from anamnesis_pipeline.steps.sessions import MAX_UNKNOWN, continued, latest_session, unknown_records
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.wording import session_text
from anamnesis_tests.exchanges.ingested import Ingested
from anamnesis_tests.exchanges.log_lines import SESSION, Log
from anamnesis_tests.steps.archived_logs import FOLDER, Home, record, unmasked


def session(number: int) -> str:
    return f"{number}{SESSION[1:]}"


def log_of(number: int, later: int | None = None, **fields: Any) -> list[str]:
    """One prompt of a session, and where the session goes on."""
    log = Log(session(number), **fields)
    log.user(f"prompt {number}", uuid=f"u{number}")
    if later is not None:
        link = {"type": "continued-in", "sessionId": session(number), "continuedInSessionId": session(later)}
        log.lines.append(json.dumps(link))
    return log.lines


def said(home: Ingested) -> dict[str, Any]:
    return {episode.raw_exchange[-1]: episode.metadata.get("continued_in") for episode in home.episodes()}


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_session_names_the_one_it_goes_on_in(store: Store, tmp_path: Path, order: tuple[int, ...]) -> None:
    home = Ingested(store, tmp_path)
    for number in order:
        home.write(log_of(number, number + 1 if number < 3 else None), f"{session(number)}.jsonl")
        home.ingest()
    assert said(home) == {"1": session(3), "2": session(3), "3": None}
    first = next(episode for episode in home.episodes() if episode.session_id == session(1))
    assert session_text(episode_body(first, ())["source"]).endswith(f"claude --resume {session(3)}")
    assert "continued in session" in line_of(Item(first, "x", SourceClass.USER), "x")


def test_continuation_that_comes_later_reaches_stored_episodes(store: Store, tmp_path: Path) -> None:
    home = Ingested(store, tmp_path)
    home.write(log_of(1), f"{session(1)}.jsonl")
    home.ingest()
    home.append(log_of(1, 2)[1:], f"{session(1)}.jsonl")
    home.ingest()
    assert said(home) == {"1": session(2)}


def test_links_in_a_circle_end() -> None:
    assert latest_session({"a": "b", "b": "a"}, "a") == "b"
    assert latest_session({}, "a") == "a"


def logs_missing(home: Ingested) -> list[Any]:
    return [episode.metadata.get("session_log") for episode in home.episodes() if episode.kind == "subagent"]


def test_subagent_says_that_its_session_log_is_missing(store: Store, tmp_path: Path) -> None:
    home = Ingested(store, tmp_path)
    home.write(log_of(1, isSidechain=True, agentId="a1"), f"{session(1)}/subagents/agent-a1.jsonl")
    home.ingest()
    assert logs_missing(home) == ["missing"]
    (agent,) = home.episodes()
    assert session_text(episode_body(agent, ())["source"]).endswith("whose own log is missing")
    main = Log(session(1))
    main.user("the main prompt", uuid="main")
    home.write(main.lines, f"{session(1)}.jsonl")
    home.ingest()
    assert logs_missing(home) == [None]


@pytest.mark.parametrize("name", ["continued-in", "relocated", "bridge-session", "ended-by-model", "started", "failed"])
def test_record_types_of_today_are_known(name: str) -> None:
    assert name in KNOWN_TYPES


def test_unknown_record_types_are_counted_with_their_version(store: Store, tmp_path: Path) -> None:
    home = Ingested(store, tmp_path)
    assert (record_types(store).detail, record_types(store).note) == ("every type of record is known", "")
    unknown = [json.dumps({"type": "zz-future", "payload": 1, "sessionId": SESSION}) for _ in range(3)]
    home.write([*log_of(1, version="2.1.999"), *unknown], f"{session(1)}.jsonl")
    home.ingest()
    home.write([json.dumps({"type": f"of-{n}"}) for n in range(MAX_UNKNOWN + 5)])
    home.ingest()
    found = unknown_records(store.settings)
    assert found["zz-future"] == (3, "2.1.999")
    assert len(found) == MAX_UNKNOWN
    finding = record_types(store)
    assert finding.ok
    assert "'zz-future' (3, last written by Claude Code 2.1.999)" in finding.detail
    assert finding.note
    assert len(home.archived(f"{session(1)}.jsonl")) == 4, "the archive keeps them"


def test_unknown_content_of_records_is_counted_with_its_version(store: Store, tmp_path: Path) -> None:
    home, log = Ingested(store, tmp_path), Log(session(1), version="2.1.998")
    log.user("the question")
    log.record("system", subtype="turn_duration", durationMs=1)
    log.record("attachment", attachment={"type": "hook_success"})
    home.write(log.lines, f"{session(1)}.jsonl")
    home.ingest()
    assert unknown_records(store.settings) == {}
    log.record("system", subtype="zz-note", content="x")
    log.record("attachment", attachment={"type": "zz-file"})
    log.assistant({"type": "zz-block"}, {"type": "zz-block"})
    log.user("later", version="2.1.999")
    home.write(log.lines, f"{session(1)}.jsonl")
    home.ingest()
    wrote = "2.1.998"
    expected = {"system:zz-note": (1, wrote), "attachment:zz-file": (1, wrote), "block:zz-block": (2, wrote)}
    assert unknown_records(store.settings) == expected
    assert "'block:zz-block' (2, last written by Claude Code 2.1.998)" in record_types(store).detail


def test_forgotten_session_leaves_no_id_in_the_settings(tmp_path: Path) -> None:
    home, ids = Home(tmp_path), [session(number) for number in range(4)]
    for number, one in enumerate(ids):
        link = {"type": "continued-in", "sessionId": one, "continuedInSessionId": ids[(number + 1) % 4]}
        odd = record("user", "said at no time", number, one) | {
            "timestamp": "0001-01-01T00:00:00Z",
            "uuid": f"odd-{one}",
        }
        lines = [record("user", f"prompt {number}", number, one), odd, *([link] if number < 3 else [])]
        home.write(lines, f"{FOLDER}/{one}.jsonl")
    agent = record("user", "task", 9, ids[2], isSidechain=True, agentId="a1")
    home.write([agent], f"-home-dev-other/{ids[2]}/subagents/agent-a1.jsonl")
    home.ingest(unmasked)
    forgetter = wiring.open_forgetter(home.settings, home.store)
    (first, *_) = [episode.episode_id for episode in home.episodes() if episode.session_id == ids[2]]
    forgetter.forget(ForgetRequest(ids=(first,)))
    assert latest_session(continued(home.store.settings), ids[0]) == ids[3], "some of the session stays"
    forgetter.forget(ForgetRequest(session_id=ids[2]))
    assert continued(home.store.settings) == {ids[0]: ids[1], ids[1]: ids[3]}
    forgetter.forget(ForgetRequest(session_id=ids[3]))
    assert continued(home.store.settings) == {ids[0]: ids[1]}
    left = {episode.session_id: episode.metadata.get("continued_in") for episode in home.episodes()}
    assert left == {ids[0]: ids[1], ids[1]: None}
    stored = json.dumps(home.store.settings.all())
    assert [one in stored for one in ids] == [True, True, False, False]
    home.close()
