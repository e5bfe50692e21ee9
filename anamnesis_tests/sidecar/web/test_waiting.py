"""What is to be deleted, and can still be taken back, is on no page; as soon as it is taken back, it is again."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.model import ChatMessage, ChatSession, Citation
from anamnesis_tests.sidecar.conftest import Post, TestServices
from anamnesis_tests.sidecar.web.test_memory_map import draw, fill
from anamnesis_tests.support.page_reading import read

GONE, STAYS = "The walrus decision: keep the retries", "The pelican decision: keep the queue"
PAGES = {
    "episodes": "/dashboard/episodes",
    "search": "/dashboard/search?q=decision+keep",
    "timeline": "/dashboard/timeline",
    "overview": "/dashboard",
    "context at the start": "/dashboard/context?project=acme",
    "context on a prompt": "/dashboard/context?project=acme&query=decision+keep",
    "search for it": "/dashboard/search?q=walrus",
}


@pytest.fixture
def undo(client: TestClient, post: Post) -> Iterator[str]:
    """Two episodes, one of which is to be deleted; where that is taken back."""
    for name, summary in (("gone", GONE), ("stays", STAYS)):
        post(summary, episode_id=name, project="acme", tags=["decision"], kind="decision", raw_exchange=summary)
        client.get(f"/api/episodes/{name}")
    reply = client.post("/dashboard/episodes", data={"action": "delete", "ids": ["gone"]})
    assert reply.status_code == 200
    (address,) = [client.app.state.undo.address_of({"gone"})]  # type: ignore[attr-defined]
    yield str(address)
    assert client.get("/api/episodes/gone").status_code == 200, "it was there all the time"


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_what_waits_is_on_no_page_until_it_is_taken_back(client: TestClient, undo: str, path: str) -> None:
    before = read(client, path).text
    assert "walrus decision" not in before
    assert "pelican decision" in before or "q=walrus" in path
    assert client.post(undo).status_code == 200
    assert "walrus decision" in read(client, path).text


def test_a_conversation_cites_nothing_that_waits(client: TestClient, services: TestServices, undo: str) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    services.store.chat.put_session(ChatSession("s", "Retries", "ollama", "m", "", at, at))
    cited = tuple(Citation(name, "", "", at, 0.5) for name in ("gone", "stays"))
    services.store.chat.add(ChatMessage("m1", "s", "assistant", "Both.", at, cited))
    for path in ("/chat/s", "/chat/messages/m1"):
        shown = read(client, path)
        assert (GONE in shown.text, STAYS in shown.text) == (False, True)
        assert len(shown.select(".citations li")) == 2
    client.post(undo)
    assert GONE in read(client, "/chat/s").text


def test_the_map_tells_nothing_of_what_waits(client: TestClient, services: TestServices) -> None:
    fill(services)
    made = draw(services)

    def names_of(points: Sequence[int]) -> list[str]:
        found = services.store.episodes.passages([int(made.passages[at]) for at in points])
        return [found[int(made.passages[at])].episode_id for at in points]

    def told(at: int) -> int:
        return client.get("/dashboard/map/point", params={"map": made.mark, "at": at}).status_code

    def found() -> list[str]:
        reply = client.get("/dashboard/map/found", params={"map": made.mark, "q": "word7"})
        return names_of(reply.json()["points"])

    (place,) = [at for at in range(40) if names_of([at]) == ["e7"]]
    assert (told(place), "e7" in found()) == (200, True)
    client.post("/dashboard/episodes", data={"action": "delete", "ids": ["e7"]})
    assert (told(place), "e7" in found()) == (404, False)
    client.post(client.app.state.undo.address_of({"e7"}))  # type: ignore[attr-defined]
    assert (told(place), "e7" in found()) == (200, True)
