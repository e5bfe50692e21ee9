"""Where a project stands and what a session is told of it, over logs that were really ingested."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.claude_logs.projects import project_label
from anamnesis_pipeline.pipeline.projects import SEEN, add_alias
from anamnesis_pipeline.search.context_items import Item
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.handoff import SESSIONS, Handoff
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.token_budget import Block
from anamnesis_pipeline.services.context import ContextMaker, ContextRequest
from anamnesis_pipeline.services.folder_project import projects_called, projects_of_folder
from anamnesis_pipeline.services.handoff import TALK, read_handoff
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.session_model import SessionRecord, to_episode
from anamnesis_tests.support.ingested import LATER, OTHER, Ingested
from anamnesis_tests.support.log_lines import SESSION, START, Log
from anamnesis_tests.support.samples import episode, passages, put
from anamnesis_tests.support.topics import put_pinned, put_pointer, put_topic

FOLDER, SHOP = "/home/dev/shop", "~/shop"


@pytest.fixture
def home(store: Store, tmp_path: Path) -> Ingested:
    return Ingested(store, tmp_path, project_label)


def maker(store: Store) -> ContextMaker:
    return ContextMaker(store, Engine(store, None), minilm_pieces(), "box")


def start(store: Store, **fields: str) -> str:
    return maker(store).make(ContextRequest(cwd=FOLDER, **fields), LATER).text


def session_of(name: str, asked: str, *said: str) -> Log:
    log = Log(session=name, cwd=FOLDER)
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
    return read_handoff(home.store, [SHOP])


def test_the_hand_off_is_what_sessions_of_a_project_ended_with(home: Ingested, store: Store) -> None:
    log = session_of(
        SESSION,
        "Why do the webhooks charge twice?",
        "We decided to send an idempotency key.",
        "Done.\n\nNext steps:\n- Rotate the webhook secret\n- Tell the shop owners",
    )
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
        "We decided to poll the boiler every 20 seconds.": "user",
        "We decided to send a key with it.": "assistant",
    }


def test_what_arrives_is_in_the_next_hand_off(store: Store) -> None:
    put(store, "d1", "x", kind="decision", project=SHOP, summary="Keep SQLite.", minute=1)
    assert texts(read_handoff(store, [SHOP]).decisions) == ["Keep SQLite."]
    put(
        store,
        "r1",
        "x",
        kind="record",
        project=SHOP,
        summary="Use Mongo for teams.",
        minute=2,
        metadata={"type": "decision", "why": "They share it."},
    )
    put(store, "p1", "x", kind="preference", project=SHOP, summary="Answer in German.", minute=3)
    put(store, "n1", "x", project=SHOP, summary="TODO: buy a domain", raw_exchange="", minute=4)
    handoff = read_handoff(store, [SHOP])
    assert texts(handoff.decisions) == ["Use Mongo for teams. Why: They share it.", "Keep SQLite."]
    assert texts(handoff.facts) == ["Answer in German."]
    assert texts(handoff.open_loops) == ["TODO: buy a domain"]


def test_hand_off_files_tell_decisions_and_open_loops(store: Store) -> None:
    def section(name: str, title: str, text: str, minute: int) -> None:
        put(
            store,
            name,
            text,
            kind="document",
            project=SHOP,
            path="/code/README_handoff_shop.md",
            minute=minute,
            source="docs",
            tags=("document", "curated"),
            summary=f"{title}: {text}",
            raw_exchange=text,
            metadata={"title": [title], "lines": [1, 9], "trust": "curated"},
        )

    section("h1", "Decisions", "Prices are in cents.", 1)
    section("h2", "Next steps", "- Import the old orders", 2)
    put(
        store,
        "claude",
        "x",
        kind="document",
        project=SHOP,
        path="/code/CLAUDE.md",
        tags=("curated",),
        metadata={"lines": [1, 2], "trust": "curated"},
    )
    handoff = read_handoff(store, [SHOP])
    assert texts(handoff.decisions) == ["Prices are in cents."]
    assert texts(handoff.open_loops) == ["Import the old orders"]
    assert "claude" not in [item.episode.episode_id for item in handoff.facts]  # Claude reads it itself
    assert "source file, trust curated): \u201cImport the old orders\u201d [h2]" in start(store)


def test_notes_after_the_last_session_are_new(home: Ingested, store: Store) -> None:
    read(home, session_of(SESSION, "Why do the webhooks charge twice?", "All is done and well."))
    last = store.context.newest(SHOP, "exchange", 1)[0].timestamp
    for name, days in (("before", -1), ("after", 1)):
        note = episode(name, project=SHOP, summary=f"A note {name}.")
        store.episodes.put([(replace(note, timestamp=last + timedelta(days=days)), passages("x"))])
    assert texts(read_handoff(store, [SHOP]).new) == ["A note after."]


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
    log = Log(session=SESSION, cwd=FOLDER)
    log.record("attachment", attachment={"type": "hook_success", "stdout": block, "hookEvent": "SessionStart"})
    log.record("attachment", attachment={"type": "hook_additional_context", "content": [block]})
    log.user(f"<system-reminder>SessionStart hook additional context: {block}</system-reminder>")
    log.user(f"{block}\nWhat did we do?")
    log.say(f"I was told: {block} And that is all.")
    home.write(log.lines, f"{SESSION}.jsonl")
    home.ingest()
    mine = [e for e in store.context.newest(SHOP, "exchange", 9) if e.session_id == SESSION]
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


# --- what a hand-off is read from -------------------------------------------------------------------------


REPORT = """The importer works end to end. Orders of 2019 to 2026 are in, 41,200 of them.

**Done**
- Parser for `orders.csv`, with its 14 tests
- Retries with a backoff

**Filed:**
1. #41 The start is slow on cold disks

## Decisions
- Amounts are integers in cents, because floats lost a cent in 3 of 900 orders

| Left | State |
|---|---|
| Alerts | todo |
| Docs | done |

### Next
1. Rotate the webhook secret
2. Ask the shop owners for the missing week

The branch is pushed as `importer`."""
NOTICE = "<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n</task-notification>"


def mended(home: Ingested) -> None:
    read(home, asked("Why do the webhooks charge twice?", "No idempotency key was sent. It is sent now."))


def asked(prompt: str, *said: str) -> Log:
    """A session that begins so."""
    log = Log()
    log.user(prompt)
    for text in said:
        log.say(text)
    return log


def block_of(store: Store, tokens: int = 2_000) -> Block:
    return maker(store).handoff(ContextRequest(project=SHOP, max_tokens=tokens))[2]


def worked(log: Log, steps: int) -> None:
    for step in range(steps):
        log.say(f"Now let me change the module number {step} of the importer.")
        log.tool("Edit", f"toolu_{log.minute}", "The file was changed. " * 60, file_path=f"/home/dev/shop/m{step}.py")


def test_handoff_of_a_long_session_tells_its_final_report(home: Ingested, store: Store) -> None:
    log = asked("Write the importer for the old orders, please.")
    worked(log, 40)
    log.say(REPORT)
    log.user("ok, go on")
    log.say("Nothing to do.")
    handoff = read(home, log)
    (state,) = texts(handoff.state)
    assert state.startswith(
        "The importer works end to end. Orders of 2019 to 2026 are in, 41,200 of them. Done: Parser"
    )
    assert "Filed: #41 The start is slow on cold disks." in state
    assert state.endswith("Docs \u2013 done. The branch is pushed as `importer`.")
    assert texts(handoff.open_loops) == [
        "Decisions: Alerts \u2013 todo. Next: Rotate the webhook secret; Ask the shop owners for the missing week"
    ]
    (decision,) = texts(handoff.decisions)
    assert decision == "Amounts are integers in cents, because floats lost a cent in 3 of 900 orders"
    assert texts(handoff.recent) == ["Asked: Write the importer for the old orders, please."]


def test_handoff_fills_its_budget_with_whole_sentences(home: Ingested, store: Store) -> None:
    log = asked("Explain the billing of the shop to me, please.")
    said = [f"Fact number {n} is that invoices of group {n} are sent on day {n} of each month." for n in range(90)]
    log.say(" ".join(said))
    read(home, log)
    for tokens in (300, 800, 2_000):
        block = block_of(store, tokens)
        quote = block.text.split("\u201c")[1].split("\u201d")[0]
        head, tail = (half.replace(". ", ".\n").splitlines() for half in quote.split(" \u2026 "))
        assert head == said[: len(head)]
        assert tail == said[-len(tail) :]
        assert tokens - 40 <= block.tokens <= tokens


def test_answer_to_a_notification_is_not_the_state(home: Ingested, store: Store) -> None:
    log = asked("Why do the webhooks charge twice?")
    log.tool("Bash", "toolu_1", "queued", command="make import")
    log.say("They charge twice since no idempotency key was sent. It is sent now, and the tests cover it.")
    log.user(NOTICE)
    log.tool("Read", "toolu_2", "gone", file_path="/tmp/b1.output")
    log.say("That was a stale background task of earlier, its output is not relevant anymore.")
    handoff = read(home, log)
    (state,) = texts(handoff.state)
    assert state == "They charge twice since no idempotency key was sent. It is sent now, and the tests cover it."
    assert "stale" not in block_of(store).text


def test_report_that_follows_a_notification_is_the_state(home: Ingested, store: Store) -> None:
    log = asked("Have the three agents port the modules.")
    log.say("The agents work in the background now, I report when they are done.")
    log.user(NOTICE)
    log.say("All three modules are ported.\n\n## Done\n- cart\n- orders\n\n## Remaining\n- invoices need a review")
    handoff = read(home, log)
    assert texts(handoff.state)[0] == "All three modules are ported. Done: cart; orders"
    assert texts(handoff.open_loops) == ["Remaining: invoices need a review"]


def test_tests_that_failed_last_are_told(home: Ingested, store: Store) -> None:
    log = asked("Make the cart round prices.")
    log.tool("Bash", "toolu_1", "===== 40 passed in 2.1s =====", command="pytest -q")
    printed = "F..\nFAILED tests/test_cart.py::test_rounds - assert 1 == 2\n== 1 failed, 39 passed in 2s =="
    log.tool("Bash", "toolu_2", printed, is_error=True, command="pytest -q")
    log.say("One test fails, since the rounding of half a cent differs. I looked at the rest of the cart.")
    handoff = read(home, log)
    (failing,) = handoff.failing
    assert failing.text == "`pytest -q`: 1 failed, 39 passed in 2s: tests/test_cart.py::test_rounds"
    assert failing.said_by.value == "tool"
    assert "Failing tests:\n- On " in block_of(store).text


def test_handoff_of_a_project_without_words_says_so(store: Store) -> None:
    assert "Nothing is known of this project yet." in block_of(store).text
    assert maker(store).make(ContextRequest(project=SHOP), START).text == ""


def test_prompts_of_machines_and_go_on_are_not_asked(home: Ingested, store: Store) -> None:
    log = asked("Why do the webhooks charge twice?")
    log.say("They charge twice since no idempotency key was sent with the first attempt.")
    log.user("continue")
    log.say("I looked further and the second attempt has no key either, so both are charged.")
    log.user("Continue from where you left off.", isMeta=True)
    log.say("No response requested.")
    handoff = read(home, log)
    assert texts(handoff.recent) == ["Asked: Why do the webhooks charge twice?"]
    assert [text.split(" ")[0] for text in texts(handoff.state)] == ["I", "They"]


def test_broken_off_turn_tells_plan_progress_and_prompt(home: Ingested, store: Store) -> None:
    log = asked("Move the cart to the new tables.")
    log.say("Let me do it in this order:\n1. Schema of the cart\n2. Copy the rows\n3. Drop the old table")
    log.tool("Bash", "toolu_1", "ok", command="make schema")
    log.say("All 12 tests of the schema pass.")
    worked(log, 4)
    log.user("[Request interrupted by user for tool use]")
    handoff = read(home, log)
    (state,) = texts(handoff.state)
    assert "Schema of the cart; Copy the rows; Drop the old table" in state
    assert "So far: All 12 tests of the schema pass." in state
    assert state.endswith("Now let me change the module number 3 of the importer.")
    assert texts(handoff.open_loops) == ["Asked, not finished: Move the cart to the new tables."]


def test_question_at_the_end_is_open_and_an_answer_decides(home: Ingested, store: Store) -> None:
    log = asked("Commit the cart, please.")
    log.call("AskUserQuestion", "toolu_1", questions=[{"question": "Which branch takes it?", "options": []}])
    log.result("toolu_1", 'User has answered your questions: "Which branch takes it?"="release, not main". Go on.')
    options = "I have two options:\n- Skip the hook\n- Mend the linter"
    log.say(f"The hook refuses the commit.\n\n{options}\n\nWhich one do you want?")
    handoff = read(home, log)
    assert texts(handoff.open_loops) == [
        "Asked the user: I have two options: Skip the hook; Mend the linter; Which one do you want?"
    ]
    assert texts(handoff.decisions) == ["Which branch takes it? release, not main"]


def test_todos_that_are_not_done_are_open(home: Ingested, store: Store) -> None:
    log = asked("Import the orders of all years, please.")
    states = ["completed", "in_progress", "pending"]
    todos = [{"content": f"Import {2020 + n}", "status": state, "activeForm": "x"} for n, state in enumerate(states)]
    log.tool("TodoWrite", "toolu_1", "ok", todos=todos)
    log.say("The orders of the year 2020 are imported, the next year is running.")
    assert texts(read(home, log).open_loops) == ["To-do list: Import 2021; Import 2022"]


def test_record_of_a_session_adds_commits_tests_and_first_prompt(home: Ingested, store: Store) -> None:
    mended(home)
    record = SessionRecord(
        SESSION,
        (SESSION,),
        "box",
        SHOP,
        "main",
        "Webhooks",
        "Mend the double charges of the shop",
        "Mended.",
        START,
        START,
        2,
        0,
        tests=("`pytest`: 9 passed",),
        commits=("abc1234 Send a key",),
        decisions=("Keys are per order.",),
    )
    store.episodes.put([(to_episode(record, "direct"), [])])
    handoff = read_handoff(store, [SHOP])
    assert texts(handoff.recent) == [
        "Asked: Mend the double charges of the shop; Why do the webhooks charge twice? | Commits: abc1234 Send a key | "
        "Tests: `pytest`: 9 passed"
    ]
    assert texts(handoff.decisions) == ["Keys are per order."]


def test_sessions_further_back_are_told_by_their_records(home: Ingested, store: Store) -> None:
    mended(home)
    record = SessionRecord(
        "old",
        ("old", "older"),
        "box",
        SHOP,
        "main",
        "Cart",
        "Round the prices of the cart",
        "Prices are rounded.",
        START,
        START,
        2,
        0,
        open_items=("Round the taxes, too",),
    )
    store.episodes.put([(to_episode(record, "mac--shop--1"), [])])
    handoff = read_handoff(store, [SHOP])
    assert texts(handoff.recent)[1] == "Asked: Round the prices of the cart | Claude said last: Prices are rounded."
    assert texts(handoff.open_loops) == ["Round the taxes, too"]


def test_state_is_read_in_the_order_of_the_log(home: Ingested, store: Store) -> None:
    """Logs exist whose answers all bear the time at which the session was resumed."""
    log = Log()
    for n in range(3):
        log.user(f"Explain the part number {n} of the shop.")
        log.say(f"Part {n} of the shop sells things to people of group {n}.")
    records = [json.loads(line) for line in log.lines]
    late = records[-1]["timestamp"]
    lines = [json.dumps(r | {"timestamp": late} if r["type"] == "assistant" else r) for r in records]
    home.write(lines)
    home.ingest()
    state = texts(read_handoff(store, [SHOP]).state)
    assert [text[:6] for text in state] == ["Part 2", "Part 1", "Part 0"]


def test_a_busy_project_beside_a_quiet_one_is_read_without_gaps(store: Store) -> None:
    def turn(name: str, minute: float, project: str, session: str):  # type: ignore[no-untyped-def]
        return (
            episode(name, minute, project=project, session_id=session, kind="exchange", summary=f"turn {name}"),
            passages(f"turn {name}"),
        )

    busy = [turn(f"b{n}", 10_000 + n, "busy", f"s{n // TALK}") for n in range(3 * TALK)]
    store.episodes.put([*busy, turn("old", 0, "quiet", "quiet")])
    recent = [item.episode.session_id for item in read_handoff(store, ["quiet", "busy"]).recent]
    assert recent == ["s2", "s1", "s0", "quiet"][:SESSIONS]


def test_start_begins_with_what_holds(store: Store) -> None:
    put_topic(store, "/c/memory/topics/deploys.md", "# Deploys\n\nHow the shop goes live.", project=SHOP)
    put_topic(store, "/c/memory/topics/lessons.md", "# Lessons\n\n- Port in use\n- Slow tests", project=SHOP)
    put_pinned(store, "german", "Answer in German.", project=SHOP)
    put_pointer(store, "backups", project=SHOP)
    put(store, "said", "We decided to deploy on Mondays.", kind="decision", project=SHOP, summary="Deploy on Mondays.")
    text = start(store, session_id="s")
    order = ["topics win", "Deploys: How the shop goes live.", "2 lessons", "Answer in German.", "Deploy on Mondays."]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "nas:/srv/backups" in text
    assert not start(store, session_id="s", source="resume")
    assert "topics win" in start(store, session_id="s", source="compact")


def test_start_shows_the_latest_entries_of_topics(store: Store) -> None:
    old, new = "- Carts are kept for a week. <!-- sources: a 2026-01-02 -->", "- We deploy on Thursdays."
    new += " <!-- sources: b 2026-03-04 -->"
    put_topic(store, "/c/memory/topics/deploys.md", f"# Deploys\n\nHow the shop goes live.\n\n{new}", project=SHOP)
    put_topic(store, "/c/memory/topics/carts.md", f"# Carts\n\nWhat is in them.\n\n{old}", project=SHOP)
    text = start(store, session_id="s")
    order = ["Deploys: How the shop goes live.", "What the topics say", "We deploy on Thursdays.", "kept for a week."]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "sources:" not in text


def test_index_at_the_start_does_not_stand_for_the_topic(store: Store) -> None:
    put_topic(store, "/c/memory/topics/deploys.md", "# Deploys\n\nHow the shop goes live.", project=SHOP)
    assert "Deploys" in start(store, session_id="s")
    (topic,) = store.episodes.page(EpisodeFilter(tags=("topic",)), 2).items
    assert (topic.retrieval_count, [each.episode_id for each in store.context.session("s").shown]) == (
        0,
        [f"index {topic.episode_id}"],
    )


def test_start_shows_no_topic_of_a_hidden_source(store: Store) -> None:
    put_topic(store, "/c/memory/topics/deploys.md", "# Deploys\n\nSecret.", project=SHOP, source="hidden")
    assert not read_handoff(store, [SHOP], hidden=["hidden"]).topics
    assert read_handoff(store, [SHOP]).topics
