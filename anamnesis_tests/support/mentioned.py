"""Things as they are found in episodes."""

from datetime import UTC, datetime

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.entity_model import Entity, EntityKind, Mention, Relation
from anamnesis_pipeline.store.records.observations import Unobserved
from anamnesis_tests.support.samples import put

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SHOP = "acme/shop"


def file(name: str) -> Entity:
    return Entity(EntityKind.FILE, name)


def touch(
    store: Store, episode_id: str, *things: Entity | Mention, project: str = SHOP, minute: float = 0, **fields: object
) -> None:
    """Store an episode in which these things were edited, or what the mentions say."""
    put(store, episode_id, "a text", project=project, minute=minute, **{"summary": f"Say {episode_id}"} | fields)
    found = [
        each
        if isinstance(each, Mention)
        else Mention(each.kind, each.name, Relation.EDITED, episode_id, project, at=NOW)
        for each in things
    ]
    store.entities.settle(Unobserved(episode_id, 1), found)
