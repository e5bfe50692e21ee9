from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.services.editing import Edit
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.web import undo as undoing
from anamnesis_pipeline.sidecar.web.edits import edit, read_episode
from anamnesis_pipeline.sidecar.web.undo import ADDRESS, TRIES, WAIT_S, Undo
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.statuses import Cause
from anamnesis_tests.sidecar.conftest import BASE, Post, TestServices, open_services, problem


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def undo(services: TestServices, clock: Clock, client: TestClient, post: Post) -> Undo:
    for name in "abc":
        post(f"The zeppelin hangar {name}{name}", episode_id=name)
    return Undo(services, clock=clock)


def stored(services: TestServices) -> set[str]:
    return set(services.store.episodes.get(["a", "b", "c"]))


def token(address: str) -> str:
    return address.removeprefix(ADDRESS)


def test_deletion_waits_and_hides_until_its_time(services: TestServices, undo: Undo, clock: Clock) -> None:
    undo.delete_later(["a"], exclude=True)
    undo.delete_later(["b"], exclude=False)
    clock.now = WAIT_S - 0.1
    undo.delete_due()
    assert stored(services) == {"a", "b", "c"}
    assert undo.waiting() >= {"a", "b"}
    clock.now = WAIT_S
    undo.delete_due()
    assert stored(services) == {"c"}
    assert undo.waiting() == frozenset()
    assert {t.episode_id for t in services.store.exclusion.tombstones(9)} == {"a"}, "b may come back"


def test_deletion_that_is_taken_back_is_none(client: TestClient, undo: Undo, clock: Clock) -> None:
    address = undo.delete_later(["a"], exclude=True)
    assert undo.address_of({"a"}) == address
    assert undo.take_back(token(address)) == 1
    clock.now = WAIT_S
    undo.delete_due()
    assert client.get("/api/episodes/a").status_code == 200
    assert undo.address_of({"a"}) is None
    with pytest.raises(HTTPException) as told:
        undo.take_back(token(address))
    assert told.value.status_code == 410
    assert "too late" in problem(client.post(f"{ADDRESS}nonsense"), 410)["detail"]


def test_what_is_deleted_twice_is_taken_back_by_either(services: TestServices, undo: Undo, clock: Clock) -> None:
    first = undo.delete_later(["a", "b"], exclude=True)
    clock.now = WAIT_S - 1
    second = undo.delete_later(["b", "c"], exclude=False)
    clock.now = WAIT_S + 1
    undo.delete_due()
    assert stored(services) == {"b", "c"}, "b waits as long as it was last asked for"
    assert undo.address_of({"b"}) == second
    assert undo.take_back(token(first)) == 1
    assert undo.take_back(token(second)) == 1
    with pytest.raises(HTTPException, match="too late"):
        undo.take_back(token(second))
    undo.delete_all()
    assert stored(services) == {"b", "c"}


def test_last_deletion_of_what_is_shown_is_taken_back(undo: Undo) -> None:
    first = undo.delete_later(["a"], exclude=True)
    second = undo.delete_later(["b"], exclude=True)
    assert undo.address_of({"a", "c"}) == first
    assert undo.address_of({"a", "b"}) == second
    assert undo.address_of({"c"}) is None


def test_too_many_deletions_at_once_are_refused(undo: Undo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undoing, "MAX_WAITING", 2)
    undo.delete_later(["a", "b"], exclude=True)
    with pytest.raises(HTTPException) as told:
        undo.delete_later(["c"], exclude=True)
    assert told.value.status_code == 429
    undo.delete_later(["a", "b"], exclude=True)


@pytest.mark.parametrize(("refusals", "left"), [(1, {"b", "c"}), (TRIES, {"a", "b", "c"})])
def test_busy_store_is_asked_again_before_the_page_says_why(
    services: TestServices, undo: Undo, clock: Clock, monkeypatch: pytest.MonkeyPatch, refusals: int, left: set[str]
) -> None:
    delete, asked = undoing.delete_episode, []

    def busy(*given: Any, **more: Any) -> bool:
        asked.append(clock.now)
        if len(asked) <= refusals:
            raise StoreBusy("another process writes")
        return delete(*given, **more)

    monkeypatch.setattr(undoing, "delete_episode", busy)
    undo.delete_later(["a"], exclude=True)
    clock.now = WAIT_S
    undo.delete_due()
    assert stored(services) == {"a", "b", "c"}
    assert undo.address_of({"a"}) is None, "begun: it is too late"
    for _ in range(TRIES):
        clock.now += TRIES
        undo.delete_due()
    assert (stored(services), len(asked), undo.waiting()) == (left, min(refusals + 1, TRIES), frozenset())
    assert undo.problems() == ["a is not deleted: another process writes"] * ("a" in left)
    undo.forget_problems()
    assert undo.problems() == []


def test_an_edit_is_taken_back_field_by_field(services: TestServices, undo: Undo) -> None:
    done = edit(services, read_episode(services, "a"), {"tags": ["red"], "summary": "Other words"})
    services.poster.patch("a", {"project": "elsewhere"})
    assert undo.take_back(token(undo.keep([done]))) == 1
    after = read_episode(services, "a")
    assert (after.summary, after.tags, after.project) == ("The zeppelin hangar aa", (), "elsewhere")


def test_an_edit_of_what_was_edited_since_stays_and_says_so(services: TestServices, undo: Undo) -> None:
    done = edit(services, read_episode(services, "a"), {"tags": ["red"]})
    services.poster.patch("a", {"tags": ["blue"]})
    with pytest.raises(HTTPException) as told:
        undo.take_back(token(undo.keep([done])))
    assert told.value.status_code == 409
    assert read_episode(services, "a").tags == ("blue",)


def test_edit_can_be_taken_back_later(services: TestServices, undo: Undo, monkeypatch: pytest.MonkeyPatch) -> None:
    edits = [edit(services, read_episode(services, name), {"tags": ["red"]}) for name in "ab"]
    take_back, asked = undoing.take_back, []

    def busy_once(store: Store, writer: EpisodeWriter, done: Edit, cause: Cause) -> None:
        asked.append(done)
        if len(asked) == 2:
            raise StoreBusy("the store is busy; try again")
        take_back(store, writer, done, cause)

    monkeypatch.setattr(undoing, "take_back", busy_once)
    address = undo.keep(edits)
    with pytest.raises(HTTPException, match="Not taken back yet: the store is busy") as refused:
        undo.take_back(token(address))
    assert refused.value.status_code == 503
    assert undo.take_back(token(address)) == 1
    assert [read_episode(services, name).tags for name in "ab"] == [(), ()]


def test_only_the_latest_edits_are_kept(services: TestServices, undo: Undo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undoing, "EDITS_KEPT", 1)
    done = edit(services, read_episode(services, "a"), {"tags": ["red"]})
    first, second = undo.keep([done]), undo.keep([done])
    with pytest.raises(HTTPException):
        undo.take_back(token(first))
    assert undo.take_back(token(second)) == 1


def test_what_waits_is_deleted_when_the_service_ends(tmp_path: Path) -> None:
    with TestClient(create_app(open_services(tmp_path)), base_url=BASE) as client:
        for name in "ab":
            posted = {"summary": f"The {name}", "instance": "mac", "project": "acme", "episode_id": name}
            assert client.post("/api/episodes", json=posted).status_code == 201
        assert client.post("/dashboard/episode/delete", data={"episode_id": "a", "exclude": "true"}).status_code == 200
        assert client.get("/api/episodes/a").status_code == 200
    services = open_services(tmp_path)
    assert set(services.store.episodes.get(["a", "b"])) == {"b"}
    services.close()
