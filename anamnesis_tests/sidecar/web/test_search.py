from typing import Any

import pytest
from bs4 import BeautifulSoup
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import ModelLoading
from anamnesis_pipeline.sidecar.web.markdown import marked
from anamnesis_pipeline.sidecar.web.search import MAX_SHOWN
from anamnesis_tests.sidecar.conftest import Post, TestServices, know_the_unrelated, raising
from anamnesis_tests.support import samples
from anamnesis_tests.support.page_reading import PAGE, problem_of, read

PATH = "/dashboard/search"


def search(client: TestClient, q: str, status: int = 200, **asked: str) -> BeautifulSoup:
    return read(client, PATH, status, q=q, **asked)


def ids(soup: BeautifulSoup) -> list[str]:
    return [each.text for each in soup.select("#results code.id")]


def test_page_without_a_question_says_what_to_do(client: TestClient, post: Post) -> None:
    soup = read(client, PATH)
    assert soup.select_one("#results") is None
    assert "Ask in your own words" in soup.select_one(".empty").text
    assert "Nothing is stored yet" in search(client, "hangar").select_one(".empty").text
    post("A letter about the harbour")
    told = search(client, "zeppelinwiese", mode="exact")
    assert "Try other words" in told.select_one(".empty").text
    assert "Nothing is stored" not in told.text
    told = search(client, "letter", project="elsewhere")
    assert told.select_one(".results-head h2").text == "Nothing found"
    assert told.select_one(".empty a")["href"] == "/dashboard/search?q=letter"


def test_answer_is_marked_opened_and_copied(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar needs a new roof", episode_id="a/b: c?d#e", tags=["roofs"])
    soup = search(client, "zeppelin hangar")
    assert ids(soup) == ["a/b: c?d#e"]
    assert [each.text for each in soup.select(".excerpt mark")] == ["zeppelin", "hangar"]
    link = soup.select_one("#results > li > a")["href"]
    assert link == "/dashboard/episodes/a/b:%20c%3Fd%23e"
    assert client.get(link, headers=PAGE).status_code == 200
    copied = [soup.select_one(button["data-copy"]).text for button in soup.select("[data-copy]")]
    assert copied == [soup.select_one(".excerpt").text, "a/b: c?d#e"]
    assert soup.select_one("#q")["value"] == "zeppelin hangar"


def test_what_is_still_to_be_embedded_is_said_above_the_results(services: TestServices, client: TestClient) -> None:
    samples.put(services.store, "e", "the zeppelin hangar")
    soup = search(client, "zeppelin")
    assert ids(soup) == ["e"]
    assert "no vectors yet of 1 of 1 passage" in soup.select_one(".results-head ~ .muted").text


def test_words_are_marked_as_the_index_compares_them() -> None:
    assert marked("He retried <b>", "retry") == "He <mark>retried</mark> &lt;b&gt;"
    assert marked("in src/billing.py:44", "why `src/billing.py`") == "in <mark>src/billing.py</mark>:44"
    assert marked("nothing of it", "the") == "nothing of it"
    assert marked("上周把登录超时改成三十秒", "登录超时是多少") == "上周把<mark>登录超时</mark>改成三十秒"
    assert marked("", "x") == ""


def test_filters_narrow_the_results(client: TestClient, post: Post) -> None:
    given: dict[str, dict[str, Any]] = {
        "o": {"project": "other"},
        "i": {"instance": "pi"},
        "k": {"kind": "decision"},
        "t": {"tags": ["red", "blue"]},
        "r": {"tags": ["red"]},
        "s": {"timestamp": "2026-03-03"},
        "u": {"timestamp": "2026-01-01"},
    }
    for name, fields in given.items():
        post(f"The zeppelin hangar {name}{name}{name}", episode_id=name, **{"timestamp": "2026-02-01", **fields})
    asked = {
        "project=other": "o",
        "instance=pi": "i",
        "kind=decision": "k",
        "tags=red,+blue": "t",
        "since=2026-03-02": "s",
        "until=2026-01-02": "u",
        "layer=semantic&kind=decision": "k",
    }
    for query, found in asked.items():
        soup = read(client, f"{PATH}?q=zeppelin+hangar&{query}")
        assert ids(soup) == [found], query
        assert len(soup.select("details.filters summary .badge")) == query.count("=")


@pytest.mark.parametrize(("metadata", "lines"), [({}, ""), ({"lines": [3, 9]}, ", lines 3 to 9")])
def test_result_names_its_place(services: TestServices, client: TestClient, metadata: Any, lines: str) -> None:
    one = samples.episode("a", source="logs", machine="pi", path="p/s.jsonl", session_id="s", metadata=metadata)
    services.store.episodes.put([(one, samples.passages("The zeppelin hangar"))])
    assert search(client, "zeppelin", mode="exact").select_one(".source").text == f"pi:p/s.jsonl{lines}"


def test_superseded_is_shown_when_asked_for_and_says_by_what(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar is red", episode_id="old")
    post("The zeppelin hangar is blue", episode_id="new")
    client.patch("/api/episodes/old", json={"status": "superseded", "superseded_by": "new"})
    assert ids(search(client, "zeppelin hangar")) == ["new"]
    soup = search(client, "zeppelin hangar red", superseded="1")
    assert set(ids(soup)) == {"old", "new"}
    note = soup.select_one("li.superseded .warn")
    assert note.text.strip() == "Superseded by new."
    assert note.a["href"] == "/dashboard/episodes/new"


def test_explained_answer_shows_every_stage_and_counts_nothing(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar needs a new roof", episode_id="a", tags=["critical"])
    post("Roofs", raw_exchange="\n\n".join(f"The roof of hangar {n}. " + "It leaks. " * 300 for n in range(3)))
    link = search(client, "zeppelin & roof", project="acme").select_one(".results-head a")["href"]
    assert link == "/dashboard/search?q=zeppelin+%26+roof&project=acme&explain=1"
    assert client.get("/api/queries").json()["queries"] == 1, "a search of the page is remembered"
    soup = read(client, link)
    headers = [th.text for th in soup.select("main th[scope=row]")]
    for stage in ("Words", "Meaning", "Fused", "Time", "Confidence", "Below the floor", "All factors"):
        assert stage in headers
    assert "Factor: critical, a correction, or made of others" in headers
    lists = [[link["href"] for link in each.select("a")] for each in soup.select(".proposed")]
    assert lists
    assert all(len(links) == len(set(links)) for links in lists), "each names an episode once"
    assert client.get("/api/episodes/a").json()["retrieval_count"] == 0
    assert client.get("/api/queries").json()["queries"] == 1


def test_a_page_shows_no_more_results_than_its_form_offers(client: TestClient, post: Post) -> None:
    for number in range(MAX_SHOWN + 5):
        post(f"The zeppelin hangar {number} needs roof {number * 7919}")
    soup = search(client, "zeppelin hangar roof", top="100")
    assert len(ids(soup)) == MAX_SHOWN
    assert soup.select_one("#f-top option[selected]")["value"] == str(MAX_SHOWN)


def test_weak_results_are_said_to_be_the_nearest(client: TestClient, post: Post, services: TestServices) -> None:
    know_the_unrelated(services.store)
    post("The importer skips rows without a currency", episode_id="a")
    soup = search(client, "violin currency orchestra rehearsal evening")
    assert ids(soup) == ["a"]
    assert soup.select_one(".warn[role=status]").text == "Nothing answers well; the nearest:"
    assert "weak" in [span.text for span in soup.select("#results .meta span")]


def test_what_is_not_understood_is_said_beside_the_form(client: TestClient) -> None:
    for asked in ({"since": "yesterday"}, {"top": "many"}, {"top": "5000"}, {"mode": "psychic"}):
        soup = search(client, "roof", 422, **asked)
        assert problem_of(soup).startswith("Not understood: ")
        assert soup.select_one("#q")["value"] == "roof"


def test_answer_by_words_alone_says_so(services: TestServices, client: TestClient, post: Post) -> None:
    post("The zeppelin", episode_id="a")
    away = raising(ModelLoading("the model is loading"))
    services.engine._embed_query = away  # type: ignore[assignment, method-assign]
    soup = search(client, "zeppelin")
    assert ids(soup) == ["a"]
    assert "loading" in soup.select_one(".problem li").text
