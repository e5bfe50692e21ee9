"""The chat over HTTP: conversations, what is kept of them, what is refused."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import httpx
import pytest

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.llm.factory import Offer
from anamnesis_pipeline.llm.provider import METERED
from anamnesis_pipeline.model import FORGOTTEN, ChatSession
from anamnesis_pipeline.runtime.llm_wiring import Choice, default_choice, first_choice, offered_choice, wanted_choice
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.routes import chat as chat_routes
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.sidecar.chat.asking import NOTE, OWN_ID, SAID, of, said
from anamnesis_tests.sidecar.conftest import TestServices, problem, wait_for
from anamnesis_tests.support.chat_services import ChatServer

SECRET = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


def test_a_secret_goes_nowhere(client: httpx.Client, server: ChatServer, services: TestServices) -> None:
    server.words = (f"Your key is {SECRET}",)
    events = said(client, f"My key is {SECRET}", backend="ollama", attachments=[{"name": "k", "text": SECRET}])
    assert SECRET not in str(server.prompts)
    stored = client.get(f"/api/chat/sessions/{events[0]['session']['session_id']}").text
    assert SECRET not in stored
    assert '"files": ["k"]' in stored or '"files":["k"]' in stored
    assert SECRET not in client.get(f"/api/episodes/{events[-1]['episode_id']}", params={"include": "raw"}).text


def test_names_are_kept_with_their_times(client: httpx.Client, services: TestServices) -> None:
    session = said(client, backend="ollama")[0]["session"]["session_id"]
    for title in ("Second", "Third"):
        assert client.patch(f"/api/chat/sessions/{session}/title", json={"title": title}).json()["title"] == title
    body = client.get(f"/api/chat/sessions/{session}").json()
    assert [name["title"] for name in body["name_history"]] == ["Where is the crane?", "Second"]
    assert len(services.store.chat.messages(session)) == 2
    assert client.patch("/api/chat/sessions/nope/title", json={"title": "x"}).status_code == 404
    listed = client.get("/api/chat/sessions", params={"q": "third"}).json()["sessions"]
    assert ("messages" in listed[0], listed[0]["message_count"]) == (False, 2)


@pytest.mark.parametrize("route", ["", "/delete"])
@pytest.mark.parametrize("with_episodes", [False, True])
def test_deleted_session_keeps_episodes_as_wanted(client: httpx.Client, route: str, with_episodes: bool) -> None:
    events = said(client, backend="ollama")
    session, episode = events[0]["session"]["session_id"], events[-1]["episode_id"]
    asked = {"episodes": "true"} if with_episodes else {}
    assert client.delete(f"/api/chat/sessions/{session}{route}", params=asked).status_code == 204
    assert client.get(f"/api/chat/sessions/{session}").status_code == 404
    assert client.delete(f"/api/chat/sessions/{session}{route}").status_code == 404
    assert client.get(f"/api/episodes/{episode}").status_code == (404 if with_episodes else 200)


def test_forgotten_round_trip_is_in_no_conversation(client: httpx.Client) -> None:
    events = said(client, backend="ollama")
    assert client.delete(f"/api/episodes/{events[-1]['episode_id']}").status_code == 204
    body = client.get(f"/api/chat/sessions/{events[0]['session']['session_id']}").text
    assert ("crane" in body, FORGOTTEN in body) == (False, True)


def test_a_conversation_and_ratings_are_exported(client: httpx.Client) -> None:
    assert client.post("/api/episodes", json={**NOTE, "episode_id": "crane"}).status_code == 201
    events = said(client, backend="ollama")
    session, message = events[0]["session"]["session_id"], events[-1]["message_id"]
    markdown = client.get(f"/api/chat/sessions/{session}/export").text
    assert markdown.startswith("# Where is the crane?\n")
    assert SAID in markdown
    (cited,) = of(events, "citations")[0]
    assert f"Memories used:\n\n- {cited['timestamp'][:10]} [crane] {cited['summary']}\n" in markdown
    whole = client.get(f"/api/chat/sessions/{session}/export", params={"format": "json"}).json()
    assert whole == client.get(f"/api/chat/sessions/{session}").json()
    assert client.post(f"/api/chat/messages/{message}/feedback", json={"value": -1}).json()["value"] == -1
    assert client.post("/api/chat/messages/nope/feedback", json={"value": 1}).status_code == 404
    assert client.get("/api/chat/feedback").json() == {"up": 0, "down": 1}
    (line,) = client.get("/api/chat/feedback/export").text.splitlines()
    example = json.loads(line)
    assert [each["content"] for each in example["messages"]] == ["Where is the crane?", SAID]
    assert example["value"] == -1


def test_ratings_are_exported_with_their_questions(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_routes, "RATED_AT_ONCE", 2)
    wanted = []
    for number in range(5):
        known = {"session_id": wanted[-1][0]} if number % 2 else {}
        events = said(client, message=f"Question {number}", backend="ollama", **known)
        client.post(f"/api/chat/messages/{events[-1]['message_id']}/feedback", json={"value": 1}).raise_for_status()
        wanted.append((events[0]["session"]["session_id"], f"Question {number}"))
    lines = [json.loads(line) for line in client.get("/api/chat/feedback/export").text.splitlines()]
    assert [line["messages"][0]["content"] for line in lines] == [asked for _, asked in reversed(wanted)]


def test_conversation_stays_until_episodes_are_gone(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = said(client, message="Where is the crane?", backend="ollama")
    session = first[0]["session"]["session_id"]
    second = said(client, message="Who moved it?", backend="ollama", session_id=session)
    delete, left = chat_routes.episodes.delete_episode, [1]

    def busy_once(store: Store, episode_id: str, *, tombstone: bool) -> object:
        if left and left.pop() == 1:
            return delete(store, episode_id, tombstone=tombstone)
        raise StoreBusy("somebody else writes")

    monkeypatch.setattr(chat_routes.episodes, "delete_episode", busy_once)
    assert client.delete(f"/api/chat/sessions/{session}", params={"episodes": True}).status_code == 503
    assert client.get(f"/api/chat/sessions/{session}").status_code == 200
    monkeypatch.setattr(chat_routes.episodes, "delete_episode", delete)
    assert client.delete(f"/api/chat/sessions/{session}", params={"episodes": True}).status_code == 204
    for events in (first, second):
        assert client.get(f"/api/episodes/{events[-1]['episode_id']}").status_code == 404


@pytest.mark.parametrize(("project", "named"), [("secret", "secret"), ("corp/secret", "secret")])
def test_private_goes_to_no_other_machine(
    client: httpx.Client, server: ChatServer, services: TestServices, project: str, named: str
) -> None:
    client.post("/api/episodes", json={**NOTE, "project": project, "summary": "The crane of the secret project"})
    services.store.settings.set("config.private_projects", [project])
    said(client, backend="anthropic")
    assert "secret project" not in str(server.prompts)
    refused = client.post("/api/chat/stream", json={"message": "x", "backend": "anthropic", "project": named})
    assert "private" in problem(refused, 409)["detail"]
    events = said(client, backend="ollama", project=named)
    assert of(events, "citations")[0][0]["project"] == project


def test_use_is_told_and_the_budget_is_kept(client: httpx.Client, server: ChatServer, services: TestServices) -> None:
    services.store.settings.set("config.llm_daily_dollars", 2.5)
    said(client, backend="anthropic")
    body = client.get("/api/chat/balance").json()
    assert (body["used_today"]["calls"], body["used_today"]["output_tokens"]) == (1, 12)
    assert body["budget"] == {"tokens": None, "dollars": 2.5}
    services.store.settings.set("config.llm_daily_tokens", 10)
    del server.received[:]
    assert "budget" in of(said(client, backend="anthropic"), "error")[0]
    assert server.prompts == []


def test_backends_say_what_they_have(client: httpx.Client) -> None:
    for path in ("/api/chat/models", "/api/chat/inference-resources"):
        body = client.get(path).json()
        assert {each["backend"]: each["reachable"] for each in body["backends"]} == dict.fromkeys(
            ("claude_cli", "ollama", "anthropic", "openai"), True
        )
        assert (body["default"], body["default_model"]) == ("ollama", "qwen3:4b")


def test_who_names_no_model_gets_one_that_is_there_now(
    client: httpx.Client, server: ChatServer, services: TestServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = said(client)[0]["session"]
    assert (first["backend"], first["model"]) == ("ollama", "qwen3:4b")
    assert server.prompts[-1]["model"] == "qwen3:4b"
    monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", "http://127.0.0.1:9")
    events = said(client)
    assert (events[0]["session"]["backend"], "".join(of(events, "token"))) == ("claude_cli", SAID)
    events = said(client, session_id=first["session_id"])
    assert "cannot be reached" in of(events, "error")[0], "a conversation keeps to its own"
    services.store.settings.set("config.summarizer", "ollama")
    assert client.get("/api/chat/models").json()["default_model"] == "llama3.2"
    assert said(client)[0]["session"]["model"] == "llama3.2", "what is set is not swapped"
    services.store.settings.set("config.summarizer", "none")
    services.store.settings.set("config.local_only", True)
    monkeypatch.delenv("ANAMNESIS_LOCAL_ONLY")
    assert client.get("/api/chat/models").json()["default"] == "openai", "the only one on this machine"


def test_first_model_to_come_is_used(client: httpx.Client, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "1")
    monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", "http://127.0.0.1:9")
    monkeypatch.delenv("ANAMNESIS_OPENAI_URL")
    begun = said(client)
    name = begun[0]["session"]["session_id"]
    assert begun[0]["session"]["backend"] == "ollama", "who failed is told"
    assert "cannot be reached" in of(begun, "error")[0]
    kept = client.get(f"/api/chat/sessions/{name}").json()
    assert (kept["backend"], kept["model"]) == ("", "")
    assert "Default: Ollama" in client.get(f"/chat/{name}").text
    monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", server.url)
    assert "Default: Ollama · qwen3:4b" in client.get("/chat/parts/models", params={"open": name}).text
    assert "".join(of(said(client, session_id=name), "token")) == SAID

    def kept_model() -> tuple[str, str]:
        answer = client.get(f"/api/chat/sessions/{name}").json()
        return answer["backend"], answer["model"]

    wait_for(lambda: kept_model() == ("ollama", "qwen3:4b"))  # it is stored once the stream has ended


def test_deleted_chat_is_gone(client: httpx.Client, services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    services.store.chat.put_session(ChatSession("s1", "The crane", "", "", "", now, now))

    async def looking(_: object) -> list[Offer]:
        services.store.chat.delete("s1")
        return []

    monkeypatch.setattr(chat_routes, "offers", looking)
    assert client.post("/api/chat/stream", json={"message": "And now?", "session_id": "s1"}).status_code == 404
    assert client.get("/api/chat/sessions").json()["sessions"] == []


def test_what_cannot_be_answered_is_refused(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for status, body in (
        (422, {"message": " "}),
        (422, {"message": "x", "backend": "nobody"}),
        (422, {}),
        (404, {"message": "x", "session_id": "nope"}),
        (404, {"message": "x", "backend": "ollama", "session_id": OWN_ID, "goes_on": True}),
        (409, {"message": "x", "backend": "openai"}),
        (422, {"message": "x" * 40_000}),
        (422, {"message": "x", "attachments": [{"name": "a", "text": ""}] * 6}),
    ):
        problem(client.post("/api/chat/stream", json=body), status)
    assert client.get("/api/chat/sessions").json()["sessions"] == []
    monkeypatch.setattr(chat_routes, "MAX_MESSAGES", 2)
    said(client, backend="ollama", session_id=OWN_ID)
    refused = client.post("/api/chat/stream", json={"message": "More", "session_id": OWN_ID})
    assert "begin a new one" in problem(refused, 409)["detail"], "a conversation holds so many messages"


def test_failed_records_are_counted(client: httpx.Client, services: TestServices) -> None:
    services.store.settings.set("config.summarizer", "ollama")
    said(client, backend="ollama")
    wait_for(lambda: "anamnesis_chat_records_failed_total 1.0" in client.get("/metrics").text, 60)


def test_client_may_name_its_conversations_by_uuid(client: httpx.Client) -> None:
    assert said(client, backend="ollama", session_id=OWN_ID)[0]["session"]["session_id"] == OWN_ID
    said(client, "And then?", session_id=OWN_ID)
    assert client.delete(f"/api/chat/session/{OWN_ID}").status_code == 204
    body = client.get(f"/api/chat/sessions/{OWN_ID}").json()
    assert (body["message_count"], body["title"]) == (4, "Where is the crane?"), "the title is set once"
    assert body["created_at"].endswith("Z")
    assert client.delete("/api/chat/session/nope").status_code == 404


def test_subscription_counts_in_no_budget(client: httpx.Client, services: TestServices) -> None:
    services.store.settings.set("config.llm_daily_dollars", 0.001)
    events = said(client, backend="claude_cli")
    assert events[-1]["usage"]["dollars"] == 0.0125
    answer = client.get(f"/api/chat/sessions/{events[0]['session']['session_id']}").json()["messages"][1]
    assert answer["dollars"] == 0.0125
    shown = client.get(f"/chat/messages/{answer['message_id']}", headers={"Accept": "text/html"}).text
    assert "$0.0125 by the token, paid by the subscription" in shown
    used = client.get("/api/chat/balance").json()["used_today"]
    assert (used["calls"], used["dollars"]) == (1, 0)


def test_chat_keeps_to_its_server(client: httpx.Client, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer().running() as other:
        monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", f"{server.url},{other.url}")
        offered = [each for each in client.get("/api/chat/models").json()["backends"] if each["backend"] == "ollama"]
        assert [each["worker_url"] for each in offered] == [server.url, other.url]
        chosen = {"backend": "ollama", "model": "qwen3:4b", "worker_url": other.url}
        first = said(client, session_id=OWN_ID, **chosen)
        assert first[0]["session"]["worker_url"] == other.url
        said(client, "And then?", session_id=OWN_ID)
        assert (len(server.prompts), len(other.prompts)) == (0, 2)
    events = said(client, "And now?", session_id=OWN_ID)
    assert other.url in of(events, "error")[0], "it is dead, and nobody else answers in its place"
    assert server.prompts == []
    said(client, "And you?", session_id=OWN_ID, model="qwen3:4b", worker_url="")
    assert len(server.prompts) == 1
    assert client.get(f"/api/chat/sessions/{OWN_ID}").json()["worker_url"] == ""
    refused = client.post("/api/chat/stream", json={"message": "x", "backend": "ollama", "worker_url": "http://x"})
    assert (refused.status_code, "not one of ollama_urls" in refused.json()["detail"]) == (409, True)


WANTED = Choice("ollama", "llama3.2")
CLAUDE = Offer("claude_cli", True, ("haiku", "sonnet"), "subscription")
PAID = Offer("anthropic", True, ("claude-haiku-5-5",), METERED)
AWAY = Offer("ollama", False, (), "local", "it is not there")


def ollama(*models: str) -> Offer:
    return Offer("ollama", True, models, "local")


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ([CLAUDE, ollama("qwen3:4b", "llama3.2:latest")], Choice("ollama", "llama3.2:latest")),
        ([CLAUDE, ollama("nomic-embed-text", "qwen3:4b")], Choice("ollama", "qwen3:4b")),
        ([PAID, CLAUDE, AWAY], Choice("claude_cli", "haiku")),
        ([PAID, AWAY], Choice("anthropic", "claude-haiku-5-5")),
        ([AWAY], None),
        ([], None),
    ],
)
def test_wanted_model_comes_first_and_paid_ones_last(found: Sequence[Offer], chosen: Choice | None) -> None:
    assert first_choice(found, WANTED, lambda _: True) == chosen


def test_what_may_not_answer_is_passed_over() -> None:
    assert first_choice([CLAUDE, PAID], WANTED, lambda choice: choice.model != "haiku") == Choice(
        "claude_cli", "sonnet"
    )
    here_only = Settings(local_only=True)
    assert offered_choice(here_only, [CLAUDE, ollama("gpt-oss:120b-cloud", "qwen3:4b")]) == Choice("ollama", "qwen3:4b")
    assert offered_choice(here_only, [CLAUDE]) is None
    assert default_choice(here_only, [CLAUDE]) == WANTED


def test_what_writes_the_summaries_is_not_swapped() -> None:
    settings = Settings(summarizer="claude_cli", summary_model="opus")
    assert wanted_choice(settings) == Choice("claude_cli", "opus")
    assert default_choice(settings, [ollama("llama3.2")]) == Choice("claude_cli", "opus")
    assert offered_choice(settings, [ollama("llama3.2")]) == Choice("ollama", "llama3.2"), (
        "the page shows what is there"
    )
