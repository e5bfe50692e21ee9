"""What is the same for all tests of stores."""

import pytest

from anamnesis_pipeline.store.mongo import index_tail
from anamnesis_tests.mongo_server import shared


@pytest.fixture(autouse=True)
def indexes_settle_quickly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loopback server's indexes show what was written at once and whole, unless a test tells them otherwise; those of
    a real one do not. A test with a `server` has a loopback one of its own, whatever the others run on.
    """
    if "server" in request.fixturenames or not shared.is_given():
        monkeypatch.setattr(index_tail, "SETTLED_AFTER_S", 0.1)
