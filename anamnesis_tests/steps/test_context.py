"""Where a project stands and what a session is told of it, over logs that were really ingested."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.exchanges.projects import project_label
from anamnesis_pipeline.search.context_items import Item
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.handoff import Handoff
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.steps.context import ContextMaker, ContextRequest
from anamnesis_pipeline.steps.folder_project import projects_called, projects_of_folder
from anamnesis_pipeline.steps.handoff import read_handoff
from anamnesis_pipeline.steps.projects import SEEN, add_alias
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.exchanges.ingested import LATER, OTHER, Ingested
from anamnesis_tests.exchanges.log_lines import SESSION, Log
from anamnesis_tests.store.samples import episode, passages, put

SHOP = "/home/dev/shop"


@pytest.fixture
def home(store: Store, tmp_path: Path) -> Ingested:
    return Ingested(store, tmp_path, project_label)


def maker(store: Store) -> ContextMaker:
    return ContextMaker(store, Engine(store, None), minilm_pieces(), "box")


def start(store: Store, **fields: str) -> str:
    return maker(store).make(ContextRequest(cwd=SHOP, **fields), LATER).text


def session_of(name: str, asked: str, *said: str) -> Log:
    log = Log(session=name, cwd=SHOP)
    log.user(asked)
    log.call("Bash", f"toolu_{name[:4]}", command="make")
    log.result(f"toolu_{name[:4]}", "TODO: a comment in a file is nobody's open loop\nDecision: nor a decision")
    for text in said:
        log.say(text)
    return log


def texts(items: Sequence[Item]) -> list[str]:
    return [item.text for item in items]


def read(home: Ingested, log: Log) -> Handoff:
    home.write(log.lines)
    home.ingest()
    return read_handoff(home.store, ["~/shop"])


def test_the_hand_off_is_what_sessions_of_a_project_ended_with(home: Ingested, store: Store) -> None:
    log = session_of(
        SESSION, "Why do the webhooks charge twice?", "We decided to send an idempotency key.",
        "Done.\n\nNext steps:\n- Rotate the webhook secret\n- Tell the shop owners",
    )  # fmt: skip
    handoff = read(home, log)
    assert texts(handoff.decisions) == ["We decided to send an idempotency key."]
    assert texts(handoff.open_loops) == ["Next steps: Rotate the webhook secret; Tell the shop owners"]
    (recent,) = texts(handoff.recent)
    assert recent.startswith("Asked: Why do the webhooks charge twice? | Claude said last: Done. Next steps:")
    assert "comment in a file" not in " ".join((*texts(handoff.decisions), *texts(handoff.open_loops), recent))
    block = start(store)
    assert block.index("Latest decisions:") < block.index("Open loops:") < block.index("Recent work, newest first:")
    assert f"(exchange, session {SESSION[:8]}, source assistant, trust transcript)" in block
    assert "on machine box:" in block


def test_a_decision_is_told_as_the_words_of_whoever_said_it(home: Ingested, store: Store) -> None:
    log = session_of(SESSION, "We decided to poll the boiler every 20 seconds.", "We decided to send a key with it.")
    said = {item.text: item.said_by.value for item in read(home, log).decisions}
    assert said == {
        "We decided to poll the boiler every 20 seconds.": "user", "We decided to send a key with it.": "assistant",
    }  # fmt: skip


def test_what_arrives_is_in_the_next_hand_off(store: Store) -> None:
    put(store, "d1", "x", kind="decision", project="~/shop", summary="Keep SQLite.", minute=1)
    assert texts(read_handoff(store, ["~/shop"]).decisions) == ["Keep SQLite."]
    put(store, "r1", "x", kind="record", project="~/shop", summary="Use Mongo for teams.", minute=2,
        metadata={"type": "decision", "why": "They share it."})  # fmt: skip
    put(store, "p1", "x", kind="preference", project="~/shop", summary="Answer in German.", minute=3)
    put(store, "n1", "x", project="~/shop", summary="TODO: buy a domain", raw_exchange="", minute=4)
    handoff = read_handoff(store, ["~/shop"])
    assert texts(handoff.decisions) == ["Use Mongo for teams. Why: They share it.", "Keep SQLite."]
    assert texts(handoff.facts) == ["Answer in German."]
    assert texts(handoff.open_loops) == ["TODO: buy a domain"]


def test_hand_off_files_tell_decisions_and_open_loops(store: Store) -> None:
    def section(name: str, title: str, text: str, minute: int) -> None:
        put(store, name, text, kind="document", project="~/shop", path="/code/README_handoff_shop.md", minute=minute,
            source="docs", tags=("document", "curated"), summary=f"{title}: {text}", raw_exchange=text,
            metadata={"title": [title], "lines": [1, 9], "trust": "curated"})  # fmt: skip

    section("h1", "Decisions", "Prices are in cents.", 1)
    section("h2", "Next steps", "- Import the old orders", 2)
    put(store, "claude", "x", kind="document", project="~/shop", path="/code/CLAUDE.md", tags=("curated",),
        metadata={"lines": [1, 2], "trust": "curated"})  # fmt: skip
    handoff = read_handoff(store, ["~/shop"])
    assert texts(handoff.decisions) == ["Prices are in cents."]
    assert texts(handoff.open_loops) == ["Import the old orders"]
    assert "claude" not in [item.episode.episode_id for item in handoff.facts]  # Claude reads it itself
    assert "source file, trust curated): \u201cImport the old orders\u201d [h2]" in start(store)


def test_notes_after_the_last_session_are_new(home: Ingested, store: Store) -> None:
    read(home, session_of(SESSION, "Why do the webhooks charge twice?", "All is done and well."))
    last = store.context.newest("~/shop", "exchange", 1)[0].timestamp
    for name, days in (("before", -1), ("after", 1)):
        note = episode(name, project="~/shop", summary=f"A note {name}.")
        store.episodes.put([(replace(note, timestamp=last + timedelta(days=days)), passages("x"))])
    assert texts(read_handoff(store, ["~/shop"]).new) == ["A note after."]


def test_a_session_start_is_told_once_and_after_a_compaction(home: Ingested, store: Store) -> None:
    read(home, session_of(OTHER, "Why do the webhooks charge twice?", "We decided to send a key for it."))
    assert start(store, session_id="new") != ""
    assert start(store, session_id="new") == ""
    assert start(store, session_id="new", source="resume") == ""
    assert start(store, session_id="new", source="compact") != ""
    assert start(store, session_id=OTHER, source="resume") == ""  # it knows what it said itself
    assert start(store, session_id=OTHER, source="compact") != ""


def test_the_block_of_a_session_start_is_dropped_from_its_log(home: Ingested, store: Store) -> None:
    read(home, session_of(OTHER, "Why do the zeppelins charge twice?", "We decided to send a key for it."))
    block = start(store)
    assert "zeppelins" in block
    log = Log(session=SESSION, cwd=SHOP)
    log.record("attachment", attachment={"type": "hook_success", "stdout": block, "hookEvent": "SessionStart"})
    log.record("attachment", attachment={"type": "hook_additional_context", "content": [block]})
    log.user(f"<system-reminder>SessionStart hook additional context: {block}</system-reminder>")
    log.user(f"{block}\nWhat did we do?")
    log.say(f"I was told: {block} And that is all.")
    home.write(log.lines, f"{SESSION}.jsonl")
    home.ingest()
    mine = [e for e in store.context.newest("~/shop", "exchange", 9) if e.session_id == SESSION]
    said = "".join(e.raw_exchange + e.summary for e in mine)
    assert "What did we do?" in said
    assert "And that is all." in said
    assert "zeppelins" not in said
    assert "memory of past sessions" not in said


def test_a_folder_is_the_project_that_ingest_calls_it(store: Store, tmp_path: Path) -> None:
    repository = tmp_path / "code" / "api"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git" / "config").write_text('[remote "origin"]\n\turl = git@github.com:acme/api.git\n')
    (repository / "src").mkdir()
    here = lambda cwd: projects_of_folder(store, cwd, "box", is_here=True, private=Private())  # noqa: E731
    assert here(str(repository)) == ()  # nothing is stored of it
    put(store, "e1", "x", project="acme/api")
    assert here(str(repository)) == here(str(repository / "src")) == ("acme/api",)
    add_alias(store, "acme/api", "the api")
    assert here(str(repository)) == ("the api",)


def test_of_another_machine_only_what_was_seen_counts(store: Store, tmp_path: Path) -> None:
    (tmp_path / "x" / ".git").mkdir(parents=True)
    (tmp_path / "x" / ".git" / "config").write_text('[remote "origin"]\n\turl = git@github.com:acme/wrong.git\n')
    put(store, "e1", "x", project="acme/wrong")
    put(store, "e2", "x", project="acme/right")

    def there(cwd: str) -> tuple[str, ...]:
        return projects_of_folder(store, cwd, "far", is_here=False, private=Private())

    assert there(str(tmp_path / "x")) == ()
    store.settings.set(f"{SEEN}far:{tmp_path / 'x'}", "acme/right")
    assert there(str(tmp_path / "x")) == there(str(tmp_path / "x" / "deep" / "down")) == ("acme/right",)


def test_a_folder_of_no_project_takes_the_only_one_of_its_name(store: Store) -> None:
    def here(cwd: str) -> tuple[str, ...]:
        return projects_of_folder(store, cwd, "box", is_here=True, private=Private())

    put(store, "e1", "x", project="acme/api")
    assert here("/elsewhere/api") == ("acme/api",)
    put(store, "e2", "x", project="~/api")
    assert (here("/elsewhere/api"), here("/home/ann/api")) == ((), ("~/api",))
    assert projects_called(store, "api") == ("acme/api", "~/api")
    assert projects_called(store, "none") == ()
