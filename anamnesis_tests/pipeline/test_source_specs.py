"""Configured sources as the store keeps them."""

from anamnesis_pipeline.pipeline.source_specs import STORED, put_specs, stored_specs
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec
from anamnesis_pipeline.store.base import Store


def test_field_of_a_newer_version_is_left_out(store: Store) -> None:
    spec = SourceSpec("mine", DOCUMENTS, "/srv/mine", machine="box")
    put_specs(store.settings, [spec], [], "box")
    ((name, value),) = store.settings.all(STORED).items()
    store.settings.set(name, {**value, "follows_the_moon": True})
    assert stored_specs(store.settings) == [spec]
