import pytest

from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.searched_memory import Memory


@pytest.fixture
def memory(store: Store) -> Memory:
    """Empty."""
    return Memory(store)
