from pathlib import Path

import pytest

from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.ingested import Ingested


@pytest.fixture
def home(store: Store, tmp_path: Path) -> Ingested:
    return Ingested(store, tmp_path)
