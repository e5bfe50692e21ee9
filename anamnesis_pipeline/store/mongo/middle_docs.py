"""Middles of episodes, read from MongoDB."""

from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.episode_middles import EpisodeMiddles, middles_of
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.facets import of_episodes
from anamnesis_pipeline.store.mongo.space_docs import SpaceDoc, vectors_name
from anamnesis_pipeline.store.mongo.vector_docs import unpack


def read_middles(
    tables: Tables, space: SpaceDoc, variant: Variant, where: Where, after: int, limit: int
) -> EpisodeMiddles:
    """See `VectorIndex.middles`."""
    wanted = {"$and": [of_episodes(where), {"number": {"$gt": after}}]}
    episodes = tables["episodes"].find(wanted, ("_id", "project", "number"), order=[("number", 1)], limit=limit)
    places = {each["_id"]: place for place, each in enumerate(episodes)}
    passages = list(tables["passages"].among("episode_id", places, ("_id", "episode_id", "ordinal")))
    has = {variant.value: {"$exists": True}}
    found = tables[vectors_name(space.key)].among(
        "_id", (each["_id"] for each in passages), ("_id", variant.value), **has
    )
    vectors = {each["_id"]: each[variant.value] for each in found}
    held = [each for each in passages if each["_id"] in vectors]
    held.sort(key=lambda each: (places[each["episode_id"]], each["ordinal"]))
    return middles_of(
        [(each["_id"], each["project"]) for each in episodes],
        [(places[each["episode_id"]], each["_id"]) for each in held],
        unpack([vectors[each["_id"]] for each in held], space.dim),
        episodes[-1]["number"] if len(episodes) == limit else None,
    )
