"""Lists of what something newer replaced, and of nothing else."""

import pytest
from starlette.testclient import TestClient

from anamnesis_tests.sidecar.conftest import Post
from anamnesis_tests.sidecar.pages.reading import read


@pytest.mark.parametrize("path", ["/dashboard/episodes", "/dashboard/timeline"])
@pytest.mark.parametrize(("status", "shown"), [("", {"new"}), ("all", {"old", "new"}), ("superseded", {"old"})])
def test_superseded_episodes_are_left_out_shown_too_or_shown_alone(
    client: TestClient, post: Post, path: str, status: str, shown: set[str]
) -> None:
    post("The new plan for retries", episode_id="new")
    post("The old plan for retries", episode_id="old")
    assert client.patch("/api/episodes/old", json={"status": "superseded", "superseded_by": "new"}).status_code == 200
    page = read(client, path, status=status)
    links = {str(link["href"]).rpartition("/")[2] for link in page.select("main a[href^='/dashboard/episodes/']")}
    assert links == shown
    chosen = page.select("[name=status] option[selected]")
    assert [option["value"] for option in chosen] == ([status] if status else ["active"])


def test_a_status_that_is_none_is_told(client: TestClient) -> None:
    assert "Not understood" in read(client, "/dashboard/episodes", 422, status="deleted").text


def test_clients_get_the_same(client: TestClient, post: Post) -> None:
    for name in ("new", "old"):
        post(f"The {name} plan", episode_id=name)
    client.patch("/api/episodes/old", json={"status": "superseded", "superseded_by": "new"})
    listed = client.get("/api/episodes", params={"only_superseded": "true"}).json()
    assert [each["episode_id"] for each in listed["items"]] == ["old"]
