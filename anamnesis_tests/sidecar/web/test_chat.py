"""The page of the chat, as the server gives it: conversations, messages, what answers lean on, and each button."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from bs4 import BeautifulSoup, Tag
from starlette.testclient import TestClient

from anamnesis_pipeline.model import FORGOTTEN, ChatMessage, ChatSession, Citation, Episode
from anamnesis_pipeline.sidecar.web.chat import SESSIONS_SHOWN
from anamnesis_pipeline.sidecar.web.chat_view import CITATION_CHARS, MAX_CHARS, MAX_TURNS, UNANSWERED, latest
from anamnesis_tests.sidecar.conftest import Post, TestServices
from anamnesis_tests.support.loopback import json_answer
from anamnesis_tests.support.ollama_server import OllamaServer
from anamnesis_tests.support.page_reading import PAGE, SCRIPT, page_of, read

AT = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
CITED = Citation("mac/a:1", f"Webhooks were retried {SCRIPT}", "acme", AT - timedelta(days=9), 0.8)

Open = Callable[..., ChatSession]


def said(number: int, text: str = "text", session_id: str = "s1", **fields: object) -> ChatMessage:
    """Even numbers are questions, odd ones answers."""
    role = "assistant" if number % 2 else "user"
    message = ChatMessage(f"{session_id}-m{number}", session_id, role, text, AT + timedelta(seconds=number))
    return replace(message, **fields)  # type: ignore[arg-type]


@pytest.fixture
def opened(services: TestServices) -> Open:
    """Stores a conversation, with the episodes that it cites."""

    def opened(
        title: str = "Why retries?", messages: Sequence[ChatMessage] = (), session_id: str = "s1", **more: str
    ) -> ChatSession:
        project = more.pop("project", "")
        session = ChatSession(session_id, title, "ollama", "llama3.2", project, AT, AT, **more)
        services.store.chat.put_session(session)
        for cited in {each for message in messages for each in message.citations}:
            known = Episode(
                cited.episode_id, "direct", cited.timestamp, "mac", cited.project, "note", cited.summary, ""
            )
            services.store.episodes.put([(known, [])])
        for message in messages:
            services.store.chat.add(message)
        return session

    return opened


def one(page: BeautifulSoup | Tag, selector: str) -> Tag:
    found = page.select(selector)
    assert len(found) == 1, (selector, found)
    return found[0]


def test_first_visit_says_what_the_chat_is(client: TestClient) -> None:
    page = read(client, "/chat")
    assert one(page, "h1").text == "Chat"
    assert "becomes an episode" in one(page, "#welcome").text
    assert "sees a file with its own message only" in one(page, "#write-hint").text
    assert "The first one begins with your message." in one(page, "#session-list").text
    assert one(page, "#turns").find("li") is None


def test_conversation_runs_only_its_own_files_in_order(client: TestClient, opened: Open) -> None:
    opened(messages=[said(0), said(1, "# Title\n\ntext", citations=(CITED,))])
    reply = client.get("/chat/s1", headers=PAGE)
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    page = page_of(reply)
    assert page.select("script:not([src]), [style]") == []
    assert [name for each in page.find_all(True) for name in each.attrs if name.startswith("on")] == []
    levels = [int(each.name[1]) for each in page.select("main h1, main h2, main h3")]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    labels = {label["for"] for label in page.select("label[for]")}
    fields = page.select("main input:not([type=hidden]), main select, main textarea")
    assert [each for each in fields if each["id"] not in labels and not each.get("aria-label")] == []


def test_conversation_is_shown_with_its_citations(client: TestClient, opened: Open) -> None:
    made = {"backend": "ollama", "model": "llama3.2", "seconds": 3.21, "output_tokens": 120}
    cited = (CITED, replace(CITED, standing=True))
    opened(messages=[said(0, "Why?"), said(1, "The **key** was new.", citations=cited, **made)], project="acme")
    page = read(client, "/chat/s1")
    assert one(page, "h1").text == "Why retries?"
    assert one(page, ".turn.user .said").text == "Why?"
    assert one(page, ".turn.assistant .said strong").text == "key"
    assert " · ollama · llama3.2 · 3.2 s · 120 tokens" in one(page, ".turn.assistant .state").text
    asked, standing = page.select(".citations li")
    assert one(asked, "a")["href"] == "/dashboard/episodes/mac/a:1"
    assert "acme ·" in asked.text
    assert one(asked, "time")["datetime"] == "2026-02-20T10:00:00Z"
    assert ("standing" in asked.text, "standing" in standing.text) == (False, True)
    assert "Standing: found by the standing queries" in one(page, ".used").text
    assert one(page, ".used summary").text == "2 memories found for the model"
    assert one(page, "#session-list [aria-current=page]")["href"] == "/chat/s1"


def test_forgotten_citation_leads_nowhere(client: TestClient, services: TestServices, opened: Open) -> None:
    opened(messages=[said(0), said(1, citations=(CITED,))])
    services.store.episodes.delete(CITED.episode_id)
    row = one(read(client, "/chat/s1"), ".citations li")
    assert (FORGOTTEN in row.text, row.find("a")) == (True, None)


def test_stored_markup_stays_text_everywhere(client: TestClient, opened: Open) -> None:
    messages = [said(0, SCRIPT), said(1, f"{SCRIPT}\n\n`{SCRIPT}`", problem=SCRIPT, model=SCRIPT, citations=(CITED,))]
    opened(SCRIPT, messages, project=SCRIPT)
    client.post("/chat/s1/title", data={"title": f"New {SCRIPT}"})
    for path in ("/chat", "/chat/s1", "/chat/s1/head", "/chat/messages/s1-m1", f"/chat?q={SCRIPT}"):
        assert read(client, path).select("script:not([src])") == [], path
    assert "alert(1)" in one(read(client, "/chat/s1"), ".turn.assistant .said").text


def test_failed_or_stopped_answer_can_be_tried_again(client: TestClient, opened: Open) -> None:
    problem = "Ollama does not answer on http://127.0.0.1:11434: start it with `ollama serve`"
    opened(messages=[said(0), said(1, "", problem=problem), said(2), said(3, "Half of", stopped=True)])
    failed, stopped = read(client, "/chat/s1").select(".turn.assistant")
    assert problem in one(failed, ".problem").text
    assert one(failed, "[data-again]").text == "Try again"
    assert failed.select("[data-copy-said], .feedback") == [], "there is nothing to copy or to rate"
    assert "stopped" in one(stopped, ".state").text
    assert stopped.select(".problem") == []
    assert one(stopped, "[data-again]").text == "Try again"
    opened(messages=[said(4, "More"), said(5), said(6, "And then?", files=("plan.txt", SCRIPT))])
    page = read(client, "/chat/s1")
    assert page.select("#turn-s1-m3 [data-again]") == [], "only the last one is written anew"
    last = page.select(".turn")[-1]
    assert UNANSWERED in last.text
    assert one(last, "[data-again]")
    files = one(page, ".turn.user .files")
    assert (files["aria-label"], [each.text for each in files.select("li")]) == ("Attached files", ["plan.txt", SCRIPT])


def test_conversations_are_found_by_title(client: TestClient, opened: Open) -> None:
    opened("Retries of webhooks", session_id="s1")
    opened("A green build", session_id="s2")
    names = [each.text for each in read(client, "/chat/parts/sessions?q=RETRIES").select(".name")]
    assert names == ["Retries of webhooks"]
    nothing = read(client, "/chat/parts/sessions?q=deploy")
    assert "No title holds “deploy”" in nothing.text
    assert one(nothing, "p a")["href"] == "/dashboard/search?q=deploy"
    assert one(read(client, "/chat?q=build"), "#session-words")["value"] == "build"


def test_older_conversations_come_page_by_page(client: TestClient, opened: Open, services: TestServices) -> None:
    for number in range(SESSIONS_SHOWN + 2):
        session = opened(f"Number {number}", session_id=f"s{number:03}")
        services.store.chat.put_session(replace(session, updated_at=AT + timedelta(minutes=number)))
    first = read(client, "/chat")
    assert first.select(".name")[0].text == f"Number {SESSIONS_SHOWN + 1}"
    assert len(first.select(".name")) == SESSIONS_SHOWN
    older = read(client, str(one(first, "#older-sessions")["hx-get"]))
    assert [each.text for each in older.select(".name")] == ["Number 1", "Number 0"]
    assert one(older, "#newest-sessions")
    assert older.select("#older-sessions") == []


def test_a_long_conversation_is_shown_from_its_end(client: TestClient, opened: Open) -> None:
    opened(messages=[said(number, f"text {number}") for number in range(MAX_TURNS + 6)])
    page = read(client, "/chat/s1")
    assert len(page.select(".turn")) == MAX_TURNS
    assert "text 5\n" not in page.text
    before = read(client, str(one(page, "#earlier")["hx-get"]))
    assert [one(each, ".said").text.strip() for each in before.select(".turn")] == [f"text {n}" for n in range(6)]
    assert before.select("#earlier") == []


def test_no_page_grows_beyond_its_size(client: TestClient, opened: Open) -> None:
    cited = tuple(replace(CITED, summary="word & " * 200) for _ in range(10))
    opened(messages=[said(number, "<b> & `x` " * 200, citations=cited if number % 2 else ()) for number in range(200)])
    assert len(client.get("/chat/s1", headers=PAGE).content) < 200_000


def test_how_much_is_shown_counts_text_and_citations() -> None:
    long = [said(number, "x" * (MAX_CHARS // 2)) for number in range(4)]
    assert latest(long) == (long[2:], "s1-m2")
    assert latest(long, "s1-m2") == (long[:2], "")
    huge = [said(0), said(1, "x" * (2 * MAX_CHARS))]
    assert latest(huge) == (huge[1:], "s1-m1"), "at least one is shown"
    cited = [said(number, "", citations=(CITED,) * 10) for number in range(MAX_TURNS)]
    assert len(latest(cited)[0]) == MAX_CHARS // (10 * CITATION_CHARS)
    assert latest([]) == ([], "")
    assert latest(long[:1], "gone") == (long[:1], "")


@pytest.fixture
def ollama(monkeypatch: pytest.MonkeyPatch) -> Iterator[OllamaServer]:
    has = json_answer({"models": [{"name": "qwen3:4b", "model": "qwen3:4b"}]})
    with OllamaServer().respond(has).running() as server:
        monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", server.url)
        monkeypatch.setenv("ANAMNESIS_CLAUDE_COMMAND", "/nowhere/claude")
        yield server


def test_models_are_offered_and_others_say_why_not(client: TestClient, ollama: OllamaServer) -> None:
    part = read(client, "/chat/parts/models")
    assert part.select("label")[0]["for"] == one(part, "select")["id"] == "model"
    offered = {option.text: str(option["value"]) for option in part.select("optgroup:not([disabled]) option")}
    assert {name: json.loads(value) for name, value in offered.items()} == {"qwen3:4b": ["ollama", "qwen3:4b", ""]}
    default = part.select("option")[0]
    assert default.text == "Default: Ollama · qwen3:4b", "one that is there"
    assert json.loads(str(default["value"])) == ["ollama", "qwen3:4b", ""]
    away = one(part, "#backends-away")
    assert "open" not in away.attrs, "one is enough"
    assert "3 of 4 backends cannot answer now" in away.text
    assert "/nowhere/claude" in away.text
    assert "anthropic_api_key" in away.text


def test_service_takes_a_typed_name(client: TestClient, ollama: OllamaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_OPENAI_URL", "http://127.0.0.1:9/v1")
    part = read(client, "/chat/parts/models")
    option = one(part, "option[data-any]")
    assert (option.text, json.loads(str(option["value"]))) == ("A model by its name …", ["openai", "", ""])
    assert "disabled" not in option.parent.attrs
    name = one(part, "#any-model")
    assert ("hidden" in name.attrs, one(name, "label")["for"]) == (True, one(name, "input")["id"])
    late = r"it did not answer within \d+ s"  # on a busy machine
    unreached = r"the service at http://127.0.0.1:9/v1 cannot be reached"
    assert re.search(rf"OpenAI-compatible service: ({unreached}|{late})", part.text)


def test_each_server_is_offered_and_a_chosen_one_kept(
    client: TestClient, opened: Open, ollama: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened()
    for path in ("/chat/s1", "/chat/parts/models?open=s1"):
        kept = read(client, path).select("#model option")[0]
        assert kept.text == "ollama · llama3.2", path
    assert kept["value"] == ""
    monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", f"{ollama.url},http://127.0.0.1:9")
    part = read(client, "/chat/parts/models")
    address = ollama.url.removeprefix("http://")
    assert one(part, "optgroup:not([disabled])")["label"] == f"Ollama · {address} · local"
    assert json.loads(str(one(part, "optgroup:not([disabled]) option")["value"])) == ["ollama", "qwen3:4b", ollama.url]
    assert "Ollama · 127.0.0.1:9: ollama at http://127.0.0.1:9 cannot be reached" in part.text
    opened(worker_url=ollama.url)
    assert read(client, "/chat/s1").select("#model option")[0].text == f"ollama · llama3.2 · {address}"


def test_without_any_model_it_is_told_what_to_do(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", "http://127.0.0.1:9")
    monkeypatch.setenv("ANAMNESIS_CLAUDE_COMMAND", "/nowhere/claude")
    away = one(read(client, "/chat/parts/models"), "#backends-away")
    assert "open" in away.attrs
    assert "No model answers now" in away.text
    assert "ollama at http://127.0.0.1:9 cannot be reached" in away.text
    assert "anamnesis config set" in away.text
    kept = read(client, "/chat/parts/models").select("option")[0]
    assert (kept.text, kept["value"]) == ("Default: Ollama", "")


def test_answer_is_copied_as_it_was_written(client: TestClient, opened: Open) -> None:
    written = "# Title\n\n| a |\n|-|\n| b |\n\n```python\nx < 1\n```\n" + SCRIPT
    opened(messages=[said(0), said(1, written)])
    button = one(read(client, "/chat/s1"), "[data-copy-said]")
    reply = client.get(f"/chat/messages/{button['data-copy-said']}/text")
    assert (reply.text, reply.headers["content-type"]) == (written, "text/plain; charset=utf-8")
    for path in ("/head", "/earlier?before=x"):
        assert client.get(f"/chat/nothing{path}").status_code == 404
    for path in ("/chat/messages/nope/text", "/chat/messages/nope"):
        assert client.get(path).status_code == 404
    assert client.post("/chat/nothing/title", data={"title": "x"}).status_code == 404
    assert client.post("/chat/messages/nothing/feedback", data={"value": "1"}).status_code == 404
    assert one(read(client, "/chat/nothing", 404), "h1").text == "Not found"


def test_renaming_keeps_the_former_names(client: TestClient, opened: Open, services: TestServices) -> None:
    opened("First")
    form = one(read(client, "/chat/s1"), "#rename-dialog form")
    reply = client.post(str(form["hx-post"]), data={"title": "  Second \n name "})
    assert "Renamed." in reply.headers["hx-trigger"]
    head = BeautifulSoup(reply.text, "lxml")
    assert one(head, "h1").text == "Second name"
    assert "First until" in one(head, "#rename-dialog ul").text
    assert client.post("/chat/s1/title", data={"title": " "}).status_code == 422
    assert client.post("/chat/s1/title", data={"title": "x" * 201}).status_code == 422
    assert services.store.chat.session("s1").title == "Second name"


def test_deleting_keeps_episodes_or_not(client: TestClient, opened: Open, post: Post, services: TestServices) -> None:
    for session_id in ("s1", "s2"):
        post(f"What was said in {session_id}.", episode_id=f"chat/{session_id}")
        made = {"session_id": session_id, "episode_id": f"chat/{session_id}"}
        opened(messages=[said(0, **made), said(1, **made)], session_id=session_id)
    page = read(client, "/chat/s1")
    assert one(page, "[data-open=delete-dialog]").text == "Delete"
    assert one(page, "#delete-dialog [name=episodes]")["value"] == "true"
    client.post("/chat/s2/delete", data={"episodes": "true"})
    reply = client.post(str(one(page, "#delete-dialog form")["hx-post"]))
    after = read(client, reply.headers["hx-redirect"])
    assert "The conversation is deleted." in one(after, "[role=status].good").text
    assert after.select("#session-list .name") == []
    assert client.get("/chat/s1").status_code == 404
    assert list(services.store.episodes.get(["chat/s1", "chat/s2"])) == ["chat/s1"]


def test_answer_is_rated_and_the_rating_taken_back(client: TestClient, opened: Open, services: TestServices) -> None:
    opened(messages=[said(0), said(1)])
    page = read(client, "/chat/s1")
    for button, rating, label in (("up", 1, "Good answer"), ("down", -1, "Bad answer"), ("down", 0, "")):
        found = one(page, f"#feedback-s1-m1-{button}")
        value = str(found["hx-vals"]).split(":")[1].strip(" }")
        page = page_of(client.post(str(found["hx-post"]), data={"value": value}))
        assert [each["aria-label"] for each in page.select("[aria-pressed=true]")] == ([label] if label else [])
        assert services.store.chat.message("s1-m1").feedback == rating
    assert client.post("/chat/messages/s1-m1/feedback", data={"value": "5"}).status_code == 422
