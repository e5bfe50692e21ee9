"""What is configured of the crawler beside its sources, over HTTP."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.steps.tag_patterns import stored_patterns
from anamnesis_tests.sidecar.conftest import TestServices

URL = "/api/crawler/config/doc-tag-patterns"
INVOICE = {"match": "invoice", "tag": "money"}
NUMBER = {"match": r"\bACME-\d+", "tag": "acme", "field": "content", "regex": True, "ignorecase": False}


def test_patterns_round_trip_in_their_order(client: TestClient) -> None:
    assert client.get(URL).json() == {"patterns": []}
    whole = [{"field": "filename", "regex": False, "ignorecase": True, **INVOICE}, NUMBER]
    assert client.put(URL, json={"patterns": [INVOICE, NUMBER]}).json() == {"patterns": whole}
    assert client.get(URL).json() == {"patterns": whole}
    assert client.put(URL, json={"patterns": []}).json() == {"patterns": []}


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ({"match": "(", "tag": "t", "regex": True}, "no regular expression of RE2"),
        ({"match": "(?=a)", "tag": "t", "regex": True}, "no regular expression of RE2"),
        ({"match": "", "tag": "t"}, "at least 1 character"),
        ({"match": "a", "tag": "two words"}, "pattern"),
        ({"match": "a", "tag": "t", "field": "body"}, "'filename' or 'content'"),
        ({"match": "a" * 1_001, "tag": "t"}, "at most 1000 characters"),
        ({"match": "a", "tag": "t", "flags": "i"}, "is not a known field"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused_and_changes_nothing(
    client: TestClient, services: TestServices, pattern: dict[str, Any], said: str
) -> None:
    client.put(URL, json={"patterns": [INVOICE]})
    refused = client.put(URL, json={"patterns": [NUMBER, pattern]})
    assert refused.status_code == 422
    assert said in refused.text
    assert [found.tag for found in stored_patterns(services.store.settings)] == ["money"]


def test_a_hundred_and_one_patterns_are_too_many(client: TestClient) -> None:
    assert client.put(URL, json={"patterns": [INVOICE] * 100}).status_code == 200
    assert client.put(URL, json={"patterns": [INVOICE] * 101}).status_code == 422
