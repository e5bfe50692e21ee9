"""The chat in the browser, with a service that speaks Ollama's wire format behind it."""

import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import FilePayload, Page, expect

from anamnesis_tests.browser.chatting import ANSWER, ask, conversations, messages
from anamnesis_tests.browser.conftest import Post
from anamnesis_tests.browser.looks import assert_anybody_can_use
from anamnesis_tests.chat.services import ChatServer
from anamnesis_tests.live_system import free_ports
from anamnesis_tests.summaries.loopback import json_answer

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


def test_deleting_a_conversation_asks_and_its_episode_stays_unless_told(page: Page, api: httpx.Client) -> None:
    page.goto("/chat")
    ask(page)
    (made,) = {each["episode_id"] for each in messages(api)}
    page.get_by_role("button", name="Delete").first.click()
    page.get_by_role("button", name="Keep it").click()
    expect(page.locator("#delete-dialog")).not_to_be_visible()
    assert len(conversations(api)) == 1
    page.get_by_role("button", name="Delete").first.click()
    page.locator("#delete-dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("main")).to_contain_text("The conversation is deleted.")
    assert conversations(api) == []
    assert api.get(f"/api/episodes/{made}").status_code == 200


def test_a_conversation_is_forgotten_with_its_episode_where_that_is_ticked(page: Page, api: httpx.Client) -> None:
    page.goto("/chat")
    ask(page)
    (made,) = {each["episode_id"] for each in messages(api)}
    page.get_by_role("button", name="Delete").first.click()
    page.get_by_label("Forget its episodes, too").check()
    page.locator("#delete-dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("main")).to_contain_text("The conversation is deleted.")
    assert api.get(f"/api/episodes/{made}").status_code == 404


def test_a_conversation_is_exported_as_markdown_and_as_json(page: Page) -> None:
    page.goto("/chat")
    ask(page)
    page.get_by_role("button", name="Export").click()
    for name, ending in {"Markdown": ".md", "JSON": ".json"}.items():
        with page.expect_download() as begun:
            page.locator("#export-dialog").get_by_role("link", name=name).click()
        saved = begun.value
        assert saved.suggested_filename == f"Where-is-the-crane{ending}"
        assert ANSWER in Path(saved.path()).read_text()


def test_a_thumb_is_kept_changed_and_taken_back(page: Page, api: httpx.Client) -> None:
    page.goto("/chat")
    answer = ask(page)
    good, bad = (answer.get_by_role("button", name=name) for name in ("Good answer", "Bad answer"))
    good.click()
    expect(good).to_have_attribute("aria-pressed", "true")
    assert messages(api)[1]["feedback"] == 1
    bad.click()
    expect(bad).to_have_attribute("aria-pressed", "true")
    expect(good).to_have_attribute("aria-pressed", "false")
    assert messages(api)[1]["feedback"] == -1
    bad.click()
    expect(page.locator(".toast", has_text="Your rating is taken back.")).to_be_visible()
    assert messages(api)[1]["feedback"] == 0


def test_stop_ends_an_answer_and_keeps_what_was_said(page: Page, api: httpx.Client, chat_server: ChatServer) -> None:
    chat_server.after = "stall"
    page.goto("/chat")
    expect(page.locator("#model option").first).to_be_attached()
    page.locator("#message").fill("Where is the crane?")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.assistant .said")).to_contain_text(ANSWER)
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


def test_the_chosen_model_answers_and_is_offered_first_next_time(
    page: Page, api: httpx.Client, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("qwen3:4b", "gemma3:4b")
    tags = json_answer({"models": [{"name": name, "model": name} for name in names]})
    monkeypatch.setattr(
        ChatServer,
        "answer",
        lambda self, asked, _own=ChatServer.answer: tags if asked.path == "/api/tags" else _own(self, asked),
    )
    page.goto("/chat")
    page.get_by_label("Answered by").select_option(label="gemma3:4b")
    ask(page)
    assert chat_server.prompts[-1]["model"] == "gemma3:4b"
    (session,) = conversations(api)
    assert (session["backend"], session["model"]) == ("ollama", "gemma3:4b")
    page.goto("/chat")
    expect(page.locator("#model option:checked")).to_have_text("gemma3:4b")


def test_a_model_that_nobody_lists_is_named_and_kept_for_the_next_conversation(
    page: Page, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_an_answer_is_copied_with_its_markdown_and_a_block_of_code_alone(page: Page, chat_server: ChatServer) -> None:
    chat_server.words = ("**Run** this:\n\n", "```sh\nls -l\n", "```\n")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/chat")
    answer = ask(page)
    for name, copied in {"Copy": "**Run** this:\n\n```sh\nls -l\n```", "Copy this code": "ls -l"}.items():
        answer.get_by_role("button", name=name, exact=True).click()
        expect(page.locator(".toast", has_text="Copied.").last).to_be_visible()
        page.wait_for_function("text => navigator.clipboard.readText().then((is) => is.trim() === text)", arg=copied)


def test_a_dead_model_is_told_with_what_to_do_and_asked_again_when_it_is_back(
    page: Page, api: httpx.Client, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.goto("/chat")
    expect(page.locator("#model option").first).to_be_attached()
    (port,) = free_ports(1)
    monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", f"http://127.0.0.1:{port}")
    page.locator("#message").fill("Anybody there?")
    page.keyboard.press("Enter")
    expect(page.locator(".turn .problem")).to_contain_text("cannot be reached; is it running")
    assert_anybody_can_use(page)
    monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", chat_server.url)
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    expect(page.locator(".turn.assistant")).to_contain_text(ANSWER)
    expect(page.locator(".turn .problem")).to_have_count(0)
    assert messages(api)[-1]["text"] == ANSWER


def test_without_any_model_the_page_says_which_and_why_and_looks_again(
    page: Page, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "1")
    page.goto("/chat")
    expect(page.locator("#backends-away summary")).to_have_text("No model answers now")
    expect(page.locator("#backends-away")).to_contain_text("Ollama")
    monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", chat_server.url)
    page.get_by_role("button", name="Look again").click()
    expect(page.locator("#model optgroup option", has_text="qwen3:4b")).to_be_attached()


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
    page.wait_for_function("() => told.filter((each) => each.includes('is told the first 200 KB')).length === 5")
    page.locator("#message").fill("And now?")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.assistant .problem")).to_contain_text("leave files out")


def test_nothing_that_is_opened_beside_an_answer_ends_it(
    page: Page, chat_server: ChatServer, api: httpx.Client
) -> None:
    chat_server.after = "stall"
    page.goto("/chat")
    expect(page.locator("#model option").first).to_be_attached()
    page.locator("#message").fill("Where is the crane?")
    page.get_by_role("button", name="Send").click()
    answer = page.locator(".turn.assistant").last
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


def test_conversations_are_found_by_title_and_opened(page: Page) -> None:
    for text in ("Where is the crane?", "Who oiled the winch?"):
        page.goto("/chat")
        ask(page, text)
    page.get_by_label("Search titles of conversations").press_sequentially("crane")
    expect(page.locator("#session-list li")).to_have_count(1)
    page.locator("#session-list a", has_text="Where is the crane?").click()
    expect(page.locator("h1")).to_have_text("Where is the crane?")
    expect(page.locator(".turn.user .said")).to_have_text("Where is the crane?")
    page.get_by_label("Search titles of conversations").press_sequentially("zeppelin")
    expect(page.locator("#session-list")).to_contain_text("No title holds “zeppelin”.")
    page.get_by_role("link", name="New chat").click()
    expect(page.locator("h1")).to_have_text("Chat")


def test_what_is_typed_but_not_sent_is_there_again_after_a_reload(page: Page) -> None:
    page.goto("/chat")
    page.locator("#message").fill("Half a thought")
    page.reload()
    assert page.locator("#message").input_value() == "Half a thought"
