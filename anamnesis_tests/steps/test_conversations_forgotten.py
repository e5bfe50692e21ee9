"""Imported conversations are sessions: named by hits, forgotten and kept away as a whole."""

import json
from typing import Any

import pytest
import zstandard

from anamnesis_pipeline.model import Source
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind
from anamnesis_pipeline.steps.blocklist import add_rule, lift
from anamnesis_pipeline.steps.forget_target import ForgetRequest
from anamnesis_tests.steps.crawled_documents import T0, DocumentHome, write

WALRUS, OTHER = "5f0c2a6e-0b7d-4c1f-9a51-0e4c5d2b7a11", "9d1b3c55-7a42-4be0-8f0e-6c1d2e3f4a22"
TALK = [
    ("Where does the walrus sleep in winter?", "On the ice, the walrus told me."),
    ("And which animals sleep beside it there?", "Two pelicans, as far as anybody knows."),
    ("How long is the night up in the north?", "Three months, and then the walrus wakes."),
]
MORE = ("What do they eat in spring, all of them?", "Clams, and nothing that swims.")
OTHER_TALK = [("Which color has a warning on the dashboard?", "Orange, since red is what errors have.")]


def claude(talk: list[tuple[str, str]], *, session: str = WALRUS, name: str = "Walrus in winter") -> dict[str, Any]:
    messages = [
        {"uuid": f"{session[:4]}-{who}{n}", "text": text, "sender": who, "created_at": f"2026-03-04T05:0{n}:07Z",
         "content": [{"type": "text", "text": text}], "attachments": [], "files": []}
        for n, turn in enumerate(talk)
        for who, text in zip(("human", "assistant"), turn, strict=True)
    ]  # fmt: skip
    return {"uuid": session, "name": name, "summary": f"They spoke of {name}.", "chat_messages": messages,
            "created_at": "2026-03-04T05:00:00Z", "account": {"uuid": "a1"}}  # fmt: skip


def chatgpt(talk: list[tuple[str, str]], *, session: str = WALRUS, name: str = "Walrus in winter") -> dict[str, Any]:
    """With what the user said of himself at its top, and a former answer to each question."""
    rules = {"content_type": "user_editable_context", "user_profile": f"I dream of {name}."}
    nodes: dict[str, Any] = {
        "root": {"id": "root", "parent": None, "message": None},
        "own": {"id": "own", "parent": "root", "message": {"id": "own", "author": {"role": "user"}, "content": rules}},
    }
    above, n = "own", 0
    for question, answer in talk:
        told = [("u", "user", question), ("old", "assistant", f"First thought: {answer}"), ("a", "assistant", answer)]
        for kind, role, text in told:
            n += 1
            key = f"{session[:4]}-{kind}{n}"
            content = {"content_type": "text", "parts": [text]}
            message = {"id": key, "author": {"role": role}, "content": content, "create_time": 1.77e9 + n}
            nodes[key] = {"id": key, "parent": above, "message": message, "children": []}
            above = above if kind == "old" else key
    return {"title": name, "mapping": nodes, "current_node": above, "conversation_id": session, "id": session,
            "create_time": 1.77e9, "safe_urls": [f"https://example.com/{name}"]}  # fmt: skip


def slack_day(talk: list[tuple[str, str]], day: int = 0) -> list[dict[str, Any]]:
    return [
        {"type": "message", "user": who, "text": text, "ts": f"{1_770_000_000 + day * 86_400 + n * 7200}.00010{number}"}
        for n, turn in enumerate(talk)
        for number, (who, text) in enumerate(zip(("U1", "U2"), turn, strict=True))
    ]


def write_export(kind: str, source: Source, talk: list[tuple[str, str]], at: int = T0) -> str:
    """An export with `talk` and another conversation; returns the session of `talk`."""
    if kind == "slack":
        people = [{"id": "U1", "name": "ann", "profile": {"real_name": "Ann Lee"}}, {"id": "U2", "name": "bob"}]
        write(source, "users.json", json.dumps(people), at)
        write(source, "winter/2026-02-02.json", json.dumps(slack_day(talk), indent=1), at)
        write(source, "general/2026-02-02.json", json.dumps(slack_day(OTHER_TALK, 1), indent=1), at)
        return "slack:winter"
    make = claude if kind == "claude" else chatgpt
    write(source, "conversations.json", json.dumps([make(talk), make(OTHER_TALK, session=OTHER, name="Colors")]), at)
    return WALRUS


def everything(home: DocumentHome) -> str:
    """All that lies in the files of the home, archives and packed texts unpacked, but for the exports themselves."""
    files = [file for file in home.place.rglob("*") if file.is_file() and "notes" not in file.parts]
    data = b"".join(file.read_bytes() for file in files)
    for file in files:
        if file.suffix == ".zst":
            with file.open("rb") as stream:
                data += zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True).read()
    parts = home.store.forgetting.parts_after("", 1_000)
    return data.decode("utf-8", "replace") + "".join(s.text for part in parts for s in part.segments)


@pytest.mark.parametrize("kind", ["claude", "chatgpt", "slack"])
def test_a_forgotten_conversation_leaves_no_word_and_stays_away_when_the_export_is_read_again(
    kind: str, home: DocumentHome
) -> None:
    notes = home.source("notes")
    write_export(kind, notes, TALK[:1])
    home.ingest(notes)
    session = write_export(kind, notes, TALK, T0 + 50)
    home.ingest(notes)
    of_it = {episode.episode_id for episode in home.episodes(every=True) if episode.session_id == session}
    assert len(of_it) == len(TALK)
    assert "alrus" in everything(home)
    home.pipeline.forgetter().forget(ForgetRequest(session_id=session))
    for words in ("alrus", "elicans", "clams", "anybody knows", "First thought: Two"):
        assert words not in everything(home)
    assert home.one("Orange").session_id == (OTHER if kind != "slack" else "slack:general")
    write_export(kind, notes, [*TALK, MORE], T0 + 100)
    home.ingest(notes)
    for words in ("alrus", "elicans"):
        assert words not in everything(home)
    assert home.one("swims").session_id == session, "what was said since is new"


@pytest.mark.parametrize("kind", ["claude", "chatgpt"])
def test_the_title_of_a_conversation_goes_with_any_of_its_turns(kind: str, home: DocumentHome) -> None:
    notes = home.source("notes")
    write_export(kind, notes, TALK)
    home.ingest(notes)
    home.pipeline.forgetter().forget(ForgetRequest(query="walrus"))
    assert "alrus" not in everything(home)
    assert home.one("pelicans").metadata["title"] == ["conversations.json", "(untitled)"]
    write_export(kind, notes, [*TALK, MORE], T0 + 50)
    home.ingest(notes)
    assert "alrus" not in everything(home)
    assert home.one("Orange").metadata["title"] == ["conversations.json", "Colors"]


@pytest.mark.parametrize("kind", ["claude", "chatgpt", "slack"])
def test_a_turn_is_forgotten_with_its_former_version_and_with_the_answers_it_gets_later(
    kind: str, home: DocumentHome
) -> None:
    notes = home.source("notes")
    for number, answer in enumerate(["None that I know.", "Two pelicans, as far as anybody knows."]):
        write_export(kind, notes, [TALK[0], (TALK[1][0], answer)], T0 + number)
        home.ingest(notes)
    home.pipeline.forgetter().forget(ForgetRequest(ids=(home.one("elicans").episode_id,)))
    write_export(kind, notes, [TALK[0], (TALK[1][0], "A seal, on Sundays.")], T0 + 50)
    home.ingest(notes)
    for words in ("beside it there", "None that", "elicans", "Sundays"):
        assert words not in everything(home)
    assert home.one("On the ice")


def test_a_question_that_was_put_in_other_words_does_not_come_back_by_the_branch_that_was_left(
    home: DocumentHome,
) -> None:
    notes = home.source("notes")
    talk = chatgpt(TALK[:2])
    write(notes, "c.json", json.dumps(talk))
    home.ingest(notes)
    home.pipeline.forgetter().forget(ForgetRequest(ids=(home.one("elicans").episode_id,)))
    asked = talk["mapping"]["5f0c-u4"]
    other = {**asked, "id": "u9", "message": {**asked["message"], "id": "u9", "content": {"parts": ["Who is there?"]}}}
    talk["mapping"]["u9"], talk["current_node"] = other, "u9"
    write(notes, "c.json", json.dumps(talk), T0 + 50)
    home.ingest(notes)
    assert "beside it there" not in everything(home)
    assert "elicans" not in everything(home)


def test_people_and_channels_of_slack_are_called_by_their_names(home: DocumentHome) -> None:
    notes = home.source("notes")
    write_export("slack", notes, [("<@U2> where is the key to the shed?", "In my drawer."), *TALK[:1]])
    home.ingest(notes)
    found = home.one("drawer")
    assert "Ann Lee: @bob where is" in found.raw_exchange
    assert "bob: In my drawer." in found.raw_exchange
    assert found.metadata["title"] == ["2026-02-02.json", "winter"]
    assert found.message_ids[0] == "1770000000.000100"


@pytest.mark.parametrize("kind", ["claude", "slack"])
def test_an_excluded_conversation_is_found_by_nobody_until_the_rule_is_lifted(kind: str, home: DocumentHome) -> None:
    notes = home.source("notes")
    session = "slack:winter" if kind == "slack" else WALRUS
    rule, _ = add_rule(home.store, Rule(RuleKind.SESSION, session))
    write_export(kind, notes, TALK)
    home.ingest(notes)
    assert {episode.kind for episode in home.episodes() if episode.session_id} == {"exchange"}
    assert session not in {episode.session_id for episode in home.episodes(every=True)}
    lift(home.store, rule.rule_id)
    home.ingest(notes)
    assert home.one("pelicans").session_id == session


def test_removing_an_upload_keeps_what_a_later_export_of_the_conversation_says(home: DocumentHome) -> None:
    def add(name: str, talk: list[tuple[str, str]]) -> list[str]:
        return home.pipeline.add_document("uploads", name, json.dumps([claude(talk)]).encode())

    first = add("a/conversations.json", [TALK[0], (TALK[1][0], "None that I know.")])
    add("b/conversations.json", TALK[:2])
    home.pipeline.forgetter().forget(ForgetRequest(ids=tuple(first), keeps_copies=True))
    assert "None that" not in everything(home)
    add("c/conversations.json", TALK[:2])
    (again,) = {e.path for e in home.episodes() if "elicans" in e.raw_exchange} - {"b/conversations.json"}
    assert again == "c/conversations.json"
