"""Imported conversations are sessions: named by hits, forgotten and kept away as a whole."""

import json
from typing import Any

import pytest
import zstandard

from anamnesis_pipeline.model import Source
from anamnesis_pipeline.services.blocklist import add_rule, lift
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind
from anamnesis_tests.support.crawled_documents import T0, DocumentHome, write

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
        {
            "uuid": f"{session[:4]}-{who}{n}",
            "text": text,
            "sender": who,
            "created_at": f"2026-03-04T05:0{n}:07Z",
            "content": [{"type": "text", "text": text}],
            "attachments": [],
            "files": [],
        }
        for n, turn in enumerate(talk)
        for who, text in zip(("human", "assistant"), turn, strict=True)
    ]
    return {
        "uuid": session,
        "name": name,
        "summary": f"They spoke of {name}.",
        "chat_messages": messages,
        "created_at": "2026-03-04T05:00:00Z",
        "account": {"uuid": "a1"},
    }


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
    return {
        "title": name,
        "mapping": nodes,
        "current_node": above,
        "conversation_id": session,
        "id": session,
        "create_time": 1.77e9,
        "safe_urls": [f"https://example.com/{name}"],
    }


def slack_day(talk: list[tuple[str, str]], day: int = 0) -> list[dict[str, Any]]:
    return [
        {"type": "message", "user": who, "text": text, "ts": f"{1_770_000_000 + day * 86_400 + n * 7200}.00010{number}"}
        for n, turn in enumerate(talk)
        for number, (who, text) in enumerate(zip(("U1", "U2"), turn, strict=True))
    ]


def read_export(kind: str, home: DocumentHome, source: Source, talk: list[tuple[str, str]], at: int = T0) -> str:
    """Read an export with `talk` and another conversation; returns the session of `talk`."""
    if kind == "slack":
        people = [{"id": "U1", "name": "ann", "profile": {"real_name": "Ann Lee"}}, {"id": "U2", "name": "bob"}]
        write(source, "users.json", json.dumps(people), at)
        write(source, "winter/2026-02-02.json", json.dumps(slack_day(talk), indent=1), at)
        home.change(source, "general/2026-02-02.json", json.dumps(slack_day(OTHER_TALK, 1), indent=1), at)
        return "slack:winter"
    make = claude if kind == "claude" else chatgpt
    export = [make(talk), make(OTHER_TALK, session=OTHER, name="Colors")]
    home.change(source, "conversations.json", json.dumps(export), at)
    return WALRUS


def everything(home: DocumentHome) -> str:
    """All that lies in the files of the home, archives and packed texts unpacked, but for the exports themselves."""
    files = [file for file in home.place.rglob("*") if file.is_file() and "notes" not in file.parts]
    data = b"".join(file.read_bytes() for file in files)
    for file in files:
        if file.suffix == ".zst" or file.name == "catalog":
            with file.open("rb") as stream:
                data += zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True).read()
    parts = home.store.forgetting.parts_after("", 1_000)
    return data.decode("utf-8", "replace") + "".join(s.text for part in parts for s in part.segments)


@pytest.mark.parametrize("kind", ["claude", "chatgpt", "slack"])
def test_a_forgotten_conversation_stays_away_from_later_exports(kind: str, home: DocumentHome) -> None:
    notes = home.source("notes")
    read_export(kind, home, notes, TALK[:1])
    session = read_export(kind, home, notes, TALK, T0 + 50)
    of_it = {episode.episode_id for episode in home.episodes(every=True) if episode.session_id == session}
    assert len(of_it) == len(TALK)
    assert "alrus" in everything(home)
    home.forget(session_id=session)
    for words in ("alrus", "elicans", "clams", "anybody knows", "First thought: Two"):
        assert words not in everything(home)
    assert home.one("Orange").session_id == (OTHER if kind != "slack" else "slack:general")
    read_export(kind, home, notes, [*TALK, MORE], T0 + 100)
    for words in ("alrus", "elicans"):
        assert words not in everything(home)
    assert home.one("swims").session_id == session, "what was said since is new"


@pytest.mark.parametrize("kind", ["claude", "chatgpt"])
def test_the_title_of_a_conversation_goes_with_any_of_its_turns(kind: str, home: DocumentHome) -> None:
    notes = home.source("notes")
    read_export(kind, home, notes, TALK)
    home.forget(query="walrus")
    assert "alrus" not in everything(home)
    assert home.one("pelicans").metadata["title"] == ["conversations.json", "(untitled)"]
    read_export(kind, home, notes, [*TALK, MORE], T0 + 50)
    assert "alrus" not in everything(home)
    assert home.one("Orange").metadata["title"] == ["conversations.json", "Colors"]


@pytest.mark.parametrize("kind", ["claude", "chatgpt", "slack"])
def test_a_turn_is_forgotten_with_former_and_later_answers(kind: str, home: DocumentHome) -> None:
    notes = home.source("notes")
    for number, answer in enumerate(["None that I know.", "Two pelicans, as far as anybody knows."]):
        read_export(kind, home, notes, [TALK[0], (TALK[1][0], answer)], T0 + number)
    home.forget("elicans")
    read_export(kind, home, notes, [TALK[0], (TALK[1][0], "A seal, on Sundays.")], T0 + 50)
    for words in ("beside it there", "None that", "elicans", "Sundays"):
        assert words not in everything(home)
    assert home.one("On the ice")


def test_a_question_does_not_come_back_by_the_branch_left_for_it(home: DocumentHome) -> None:
    talk = chatgpt(TALK[:2])
    notes = home.holding("c.json", json.dumps(talk))
    home.forget("elicans")
    asked = talk["mapping"]["5f0c-u4"]
    other = {**asked, "id": "u9", "message": {**asked["message"], "id": "u9", "content": {"parts": ["Who is there?"]}}}
    talk["mapping"]["u9"], talk["current_node"] = other, "u9"
    home.change(notes, "c.json", json.dumps(talk))
    assert "beside it there" not in everything(home)
    assert "elicans" not in everything(home)


def test_people_and_channels_of_slack_are_called_by_their_names(home: DocumentHome) -> None:
    talk = [("<@U2> where is the key to the shed?", "In my drawer."), *TALK[:1]]
    read_export("slack", home, home.source("notes"), talk)
    found = home.one("drawer")
    assert "Ann Lee: @bob where is" in found.raw_exchange
    assert "bob: In my drawer." in found.raw_exchange
    assert found.metadata["title"] == ["2026-02-02.json", "winter"]
    assert found.message_ids[0] == "1770000000.000100"


@pytest.mark.parametrize(("kind", "session"), [("claude", WALRUS), ("slack", "slack:winter")])
def test_an_excluded_conversation_comes_when_the_rule_is_lifted(kind: str, session: str, home: DocumentHome) -> None:
    notes = home.source("notes")
    rule, _ = add_rule(home.store, Rule(RuleKind.SESSION, session))
    read_export(kind, home, notes, TALK)
    assert {episode.kind for episode in home.episodes() if episode.session_id} == {"exchange"}
    assert session not in {episode.session_id for episode in home.episodes(every=True)}
    lift(home.store, rule.rule_id)
    home.ingest(notes)
    assert home.one("pelicans").session_id == session


def test_removing_an_upload_keeps_what_a_later_export_says(home: DocumentHome) -> None:
    def add(name: str, talk: list[tuple[str, str]]) -> list[str]:
        return home.pipeline.add_document("uploads", name, json.dumps([claude(talk)]).encode())

    first = add("a/conversations.json", [TALK[0], (TALK[1][0], "None that I know.")])
    add("b/conversations.json", TALK[:2])
    home.forget(ids=tuple(first), keeps_copies=True)
    assert "None that" not in everything(home)
    add("c/conversations.json", TALK[:2])
    (again,) = {e.path for e in home.episodes() if "elicans" in e.raw_exchange} - {"b/conversations.json"}
    assert again == "c/conversations.json"
