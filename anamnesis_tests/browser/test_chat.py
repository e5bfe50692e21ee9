"""The chat in the browser, with a service that speaks Ollama's wire format behind it."""

import re
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Error, FilePayload, Page, Route, expect

from anamnesis_tests.browser.chatting import ANSWER, QUESTION, ask, conversations, messages, send
from anamnesis_tests.browser.conftest import Post
from anamnesis_tests.browser.looks import assert_anybody_can_use
from anamnesis_tests.support.chat_services import ChatServer
from anamnesis_tests.support.loopback import json_answer

pytestmark = pytest.mark.timeout(300)

TELL_TOASTS = """() => {
  window.told = [];
  const added = (changes) => changes.flatMap((each) => [...each.addedNodes]);
  const note = (changes) => told.push(...added(changes).map((each) => each.textContent));
  new MutationObserver(note).observe(document.getElementById("toasts"), { childList: true });
}"""
"""Each toast goes after a while; `told` keeps what they said."""


@pytest.fixture(autouse=True)
def _stored(post: Post) -> None:
    post("crane", "The harbour crane was moved to Thursday")


def test_an_answer_is_streamed_cited_and_kept(page: Page, api: httpx.Client) -> None:
    page.goto("/chat")
    answer = ask(page)
    expect(answer).to_contain_text(ANSWER)
    expect(answer.locator("a[href='/dashboard/episodes/crane']")).to_be_visible()
    assert_anybody_can_use(page)
    (session,) = conversations(api)
    expect(page).to_have_url(re.compile(f"/chat/{session['session_id']}$"))
    page.reload()
    expect(page.locator(".turn.assistant")).to_contain_text(ANSWER)
    assert [each["role"] for each in messages(api)] == ["user", "assistant"]


def test_a_conversation_is_renamed_and_keeps_its_earlier_names(page: Page, api: httpx.Client) -> None:
    page.goto("/chat")
    ask(page)
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title", exact=True).fill("Cranes of the harbour")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("Cranes of the harbour")
    expect(page).to_have_title("Cranes of the harbour · Anamnesis")
    expect(page.locator("#session-list [aria-current] .name")).to_have_text("Cranes of the harbour")
    page.get_by_role("button", name="Rename").click()
    expect(page.locator("#rename-dialog li")).to_contain_text("Where is the crane?")
    assert_anybody_can_use(page)
    page.keyboard.press("Escape")
    expect(page.locator("#rename-dialog")).not_to_be_visible()
    (session,) = conversations(api)
    assert session["title"] == "Cranes of the harbour"
    assert [name["title"] for name in session["name_history"]] == ["Where is the crane?"]


@pytest.mark.parametrize("forgets", [False, True])
def test_deleting_asks_and_forgets_the_episode_where_ticked(page: Page, api: httpx.Client, forgets: bool) -> None:
    page.goto("/chat")
    ask(page)
    (made,) = {each["episode_id"] for each in messages(api)}
    page.get_by_role("button", name="Delete").first.click()
    page.get_by_role("button", name="Keep it").click()
    expect(page.locator("#delete-dialog")).not_to_be_visible()
    assert len(conversations(api)) == 1
    page.get_by_role("button", name="Delete").first.click()
    if forgets:
        page.get_by_label("Forget its episodes, too").check()
    page.locator("#delete-dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("main")).to_contain_text("The conversation is deleted.")
    assert conversations(api) == []
    assert api.get(f"/api/episodes/{made}").status_code == (404 if forgets else 200)


def test_conversation_is_exported_as_markdown_and_as_json(page: Page) -> None:
    page.goto("/chat")
    ask(page)
    page.get_by_role("button", name="Export").click()
    for name, ending in {"Markdown": ".md", "JSON": ".json"}.items():
        with page.expect_download() as begun:
            page.locator("#export-dialog").get_by_role("link", name=name).click()
        saved = begun.value
        assert saved.suggested_filename == f"Where-is-the-crane{ending}"
        assert ANSWER in Path(saved.path()).read_text()
    page.locator("#export-dialog").get_by_role("button", name="Close").click()
    expect(page.locator("#export-dialog")).to_be_hidden()


def test_stop_ends_an_answer_and_keeps_what_was_said(page: Page, api: httpx.Client, chat_server: ChatServer) -> None:
    chat_server.after = "stall"
    page.goto("/chat")
    expect(send(page).locator(".said")).to_contain_text(ANSWER)
    assert_anybody_can_use(page)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.get_by_role("button", name="Copy", exact=True)).to_be_visible()  # now it is stored
    expect(page.locator(".turn.assistant .state")).to_contain_text("stopped", ignore_case=True)
    assert messages(api)[1]["stopped"] is True
    page.reload()
    expect(page.locator(".turn.assistant")).to_contain_text(ANSWER)
    chat_server.after = "end"
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    expect(page.get_by_role("button", name="Copy", exact=True)).to_have_count(1)
    expect(page.locator(".turn")).to_have_count(2)
    assert [(each["text"], each["stopped"]) for each in messages(api)[1:]] == [(ANSWER, False)]


def test_unlisted_model_is_named_and_kept(page: Page, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_OPENAI_URL", f"{chat_server.url}/v1")
    own, none = ChatServer.answer, json_answer({}, 404)
    monkeypatch.setattr(
        ChatServer, "answer", lambda self, asked: none if asked.path == "/v1/models" else own(self, asked)
    )
    page.goto("/chat")
    page.get_by_label("Answered by").select_option(label="A model by its name …")
    page.locator("#message").fill("Where is the crane?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".turn")).to_have_count(0)
    expect(page.get_by_label("Name of the model")).to_be_focused()
    page.get_by_label("Name of the model").fill("my/own-model")
    ask(page)
    assert chat_server.prompts[-1]["model"] == "my/own-model"
    page.goto("/chat")
    expect(page.get_by_label("Name of the model")).to_have_value("my/own-model")
    page.get_by_label("Answered by").select_option(index=0)
    expect(page.get_by_label("Name of the model")).to_be_hidden()


def test_answer_is_copied_as_markdown_and_a_block_alone(page: Page, chat_server: ChatServer) -> None:
    chat_server.words = ("**Run** this:\n\n", "```sh\nls -l\n", "```\n")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/chat")
    answer = ask(page)
    for name, copied in {"Copy": "**Run** this:\n\n```sh\nls -l\n```", "Copy this code": "ls -l"}.items():
        answer.get_by_role("button", name=name, exact=True).click()
        expect(page.locator(".toast", has_text="Copied.").last).to_be_visible()
        page.wait_for_function("text => navigator.clipboard.readText().then((is) => is.trim() === text)", arg=copied)


def test_a_file_is_attached_removed_and_sent(page: Page, chat_server: ChatServer) -> None:
    page.goto("/chat")
    notes: FilePayload = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"The winch squeaks."}
    page.locator("#attach").set_input_files([notes, notes | {"name": "other.txt"}])
    page.get_by_role("button", name="Remove other.txt").click()
    expect(page.locator("#files li")).to_have_count(1)
    ask(page, "What squeaks?")
    assert "The winch squeaks." in str(chat_server.prompts[-1])
    assert "other.txt" not in str(chat_server.prompts[-1])
    page.locator("#attach").set_input_files([notes | {"name": "picture.png", "buffer": b"\x89PNG\x00\xff"}])
    expect(page.locator(".toast.bad")).to_contain_text("picture.png is not UTF-8 text")
    page.evaluate(TELL_TOASTS)
    page.locator("#attach").set_input_files([notes | {"name": "long.json", "buffer": b'"\xc3\xa4\\"' * 150_000}] * 5)
    page.wait_for_function("() => told.filter((each) => each.includes('receives the first 200 KB')).length === 5")
    expect(send(page, "And now?").locator(".problem")).to_contain_text("leave files out")


def test_nothing_opened_beside_an_answer_ends_it(page: Page, chat_server: ChatServer, api: httpx.Client) -> None:
    chat_server.after = "stall"
    page.goto("/chat")
    answer = send(page)
    expect(answer).to_contain_text(ANSWER)
    with page.context.expect_page() as opened:
        answer.locator("a[href='/dashboard/episodes/crane']").click()
    expect(opened.value.locator("h1")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.get_by_role("button", name="Stop").press("s")
    asked = list[str]()
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    assert asked == ["beforeunload"]
    page.get_by_role("button", name="Stop").click()
    expect(answer.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    assert messages(api)[1]["stopped"]


def test_what_is_typed_but_not_sent_survives_a_reload(page: Page) -> None:
    page.goto("/chat")
    page.locator("#message").fill("Half a thought")
    page.reload()
    assert page.locator("#message").input_value() == "Half a thought"


# --- a question that failed is asked again


def fail(page: Page, chat_server: ChatServer) -> None:
    """Ask with a file while the model refuses."""
    page.goto("/chat")
    expect(page.locator("#model option").nth(1)).to_be_attached()
    chat_server.respond(json_answer({"error": "out of order"}, 500))
    note = FilePayload(name="note.txt", mimeType="text/plain", buffer=b"The crane stands at pier 4.")
    page.locator("#attach").set_input_files(note)
    send(page)
    expect(page.locator(".turn.assistant .problem")).to_be_visible()
    expect(page.locator(".turn.user .files")).to_have_text("note.txt")


def test_question_asked_again_takes_its_files_along(page: Page, chat_server: ChatServer) -> None:
    fail(page, chat_server)
    assert_anybody_can_use(page)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".turn.assistant").get_by_role("button", name="Copy")).to_be_visible()
    expect(page.locator(".turn.assistant .said")).to_have_text(ANSWER)
    expect(page.locator(".turn.user")).to_have_count(1)
    expect(page.locator(".turn .problem")).to_have_count(0)
    assert "pier 4" in chat_server.prompts[-1]["messages"][-1]["content"]
    page.reload()
    expect(page.locator(".turn")).to_have_count(2)


def test_after_a_reload_the_files_are_asked_for(page: Page, chat_server: ChatServer) -> None:
    fail(page, chat_server)
    page.reload()
    expect(page.locator(".turn.assistant .problem")).to_be_visible()
    expect(page.locator(".turn.user .files")).to_have_text("note.txt")
    asked = len(chat_server.prompts)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#message")).to_have_value(QUESTION)
    expect(page.locator("#toasts")).to_contain_text("Attach note.txt again")
    assert len(chat_server.prompts) == asked


# --- lists beside a conversation keep what was chosen, typed and focused in them when they come anew


MODELS, SESSIONS = "**/chat/parts/models?*", "**/chat/parts/sessions?*"


@pytest.fixture
def two_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is none that anybody gets without choosing it."""
    names = ("qwen3:4b", "gemma3:4b")
    tags, own = json_answer({"models": [{"name": name, "model": name} for name in names]}), ChatServer.answer
    monkeypatch.setattr(
        ChatServer, "answer", lambda self, asked: tags if asked.path == "/api/tags" else own(self, asked)
    )


def test_chosen_model_stays_when_models_are_looked_for(page: Page, chat_server: ChatServer, two_models: None) -> None:
    page.goto("/chat")
    ask(page)
    page.get_by_label("Answered by").select_option(label="gemma3:4b")
    page.locator("#backends-away summary").click()
    with page.expect_response(MODELS):
        page.get_by_role("button", name="Look again").press("Enter")
    expect(page.get_by_role("button", name="Look again")).to_be_hidden()
    expect(page.get_by_label("Answered by")).to_be_focused()
    expect(page.locator("#model option:checked")).to_have_text("gemma3:4b")
    ask(page, "And the winch?")
    assert [each["model"] for each in chat_server.prompts] == ["qwen3:4b", "gemma3:4b"]


def test_message_before_the_list_goes_to_the_chosen_model(
    page: Page, chat_server: ChatServer, two_models: None
) -> None:
    page.goto("/chat")
    page.get_by_label("Answered by").select_option(label="gemma3:4b")
    held = list[Route]()
    page.route(MODELS, lambda route: held.extend([route]))
    page.goto("/chat")
    page.locator("#message").fill(QUESTION)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    assert [each["model"] for each in chat_server.prompts] == ["gemma3:4b"]
    for route in held:
        route.continue_()
    expect(page.locator("#any-model")).to_be_attached()


def test_the_filter_holds_whatever_comes_first(page: Page) -> None:
    page.goto("/chat")
    ask(page)
    held = list[Route]()
    page.route(SESSIONS, lambda route: held.extend([route]))
    with page.expect_request(SESSIONS):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('sessions'))")
    with page.expect_request(SESSIONS):
        page.get_by_label("Search titles of conversations").press_sequentially("zeppelin")
    for route in held:
        with suppress(Error), page.expect_response(SESSIONS, timeout=3_000):  # one that was given up has none
            route.continue_()
    expect(page.locator("#session-list")).to_contain_text("No title holds “zeppelin”.")
    page.unroute(SESSIONS)
    with page.expect_response(SESSIONS):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('sessions'))")
    expect(page.locator("#session-list")).to_contain_text("No title holds “zeppelin”.")
    page.get_by_role("link", name="New chat").click()
    expect(page.locator("h1")).to_have_text("Chat")
    page.get_by_label("Search titles of conversations").press_sequentially("crane")
    page.locator("#session-list a", has_text=QUESTION).click()
    expect(page.locator(".turn.user .said")).to_have_text(QUESTION)


def test_list_that_comes_anew_keeps_the_focus(page: Page) -> None:
    page.goto("/chat")
    ask(page)
    link = page.locator("#session-list a")
    expect(link).to_have_attribute("aria-current", "page")
    link.focus()
    page.evaluate("document.querySelector('#session-list a').dataset.old = 'yes'")
    page.evaluate("document.body.dispatchEvent(new CustomEvent('sessions'))")
    expect(page.locator("#session-list a[data-old]")).to_have_count(0)
    expect(link).to_be_focused()
