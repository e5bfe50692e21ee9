"""What people do on the pages, in a browser before a real service: only the model that embeds is a small one."""

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect

from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_tests.chat.services import WORDS, ChatServer
from anamnesis_tests.live_system import free_ports
from anamnesis_tests.sidecar.conftest import open_services, wait_for

pytestmark = pytest.mark.timeout(300)

SCRIPT = "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title='taken over'\">"


@pytest.fixture
def chat_server() -> Iterator[ChatServer]:
    with ChatServer().running() as server:
        yield server


@pytest.fixture
def api(tmp_path: Path, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """A service of its own with two episodes, and a client of its API."""
    for name, value in {"HOME": str(tmp_path), "OLLAMA_URLS": chat_server.url, "LOCAL_ONLY": "0"}.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", value)
    services = open_services(tmp_path)
    (port,) = free_ports(1)
    running = uvicorn.Server(uvicorn.Config(create_app(services), port=port, log_level="warning"))
    thread = threading.Thread(target=running.run)
    thread.start()
    wait_for(lambda: running.started, 30)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
        wait_for(lambda: services.pool.ready, 30)
        for name, said in {"crane": "The harbour crane was moved to Thursday", "script": SCRIPT}.items():
            body = {"summary": said, "raw_exchange": said, "instance": "mac", "project": "acme", "episode_id": name}
            assert client.post("/api/episodes", json=body).status_code == 201
        yield client
    running.should_exit = True
    thread.join()


@pytest.fixture
def page(browser: Browser, api: httpx.Client) -> Iterator[Page]:
    context = browser.new_context(base_url=str(api.base_url))
    page = context.new_page()
    page.set_default_timeout(15_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


@pytest.mark.parametrize("path", ["", "/episodes", "/episodes/script", "/search?q=script"])
def test_a_stored_script_stays_text(page: Page, path: str) -> None:
    page.goto(f"/dashboard{path}", wait_until="load")
    expect(page.locator("main")).to_contain_text("<script>document.title")
    assert page.title() != "taken over"


def test_what_is_searched_is_found_opened_and_read(page: Page) -> None:
    page.goto("/dashboard")
    page.keyboard.press("/")
    page.keyboard.type("harbour crane")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dashboard/search?**")
    page.locator("main a[href='/dashboard/episodes/crane']").first.click()
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator("main")).to_contain_text("The harbour crane was moved to Thursday")


def test_an_answer_is_streamed_cited_and_kept(page: Page, api: httpx.Client) -> None:
    page.goto("/chat")
    expect(page.locator("#model option").first).to_be_attached()
    page.locator("#message").fill("Where is the crane?")
    page.keyboard.press("Enter")
    answer = page.locator(".turn.assistant").last
    expect(answer).to_contain_text("".join(WORDS))
    expect(answer.locator("a[href='/dashboard/episodes/crane']")).to_be_visible()
    expect(page.locator(".talk, .chat-head").first).to_be_visible()
    (session,) = api.get("/api/chat/sessions").json()["sessions"]
    wait_for(lambda: page.url.endswith(f"/chat/{session['session_id']}"), 10)
    page.reload()
    expect(page.locator(".turn.assistant")).to_contain_text("".join(WORDS))


def test_a_dead_model_is_told_with_what_to_do(
    page: Page, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.goto("/chat")
    expect(page.locator("#model option").first).to_be_attached()
    (port,) = free_ports(1)
    monkeypatch.setenv("ANAMNESIS_OLLAMA_URLS", f"http://127.0.0.1:{port}")
    page.locator("#message").fill("Anybody there?")
    page.keyboard.press("Enter")
    expect(page.locator(".turn .problem")).to_contain_text("cannot be reached; is it running")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
