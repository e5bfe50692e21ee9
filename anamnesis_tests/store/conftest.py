"""What is the same for all tests of stores."""

import pytest

from anamnesis_pipeline.store.mongo import index_tail


@pytest.fixture(autouse=True)
def indexes_settle_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loopback server's indexes show what was written at once and whole, unless a test tells them otherwise."""
    monkeypatch.setattr(index_tail, "SETTLED_AFTER_S", 0.1)
