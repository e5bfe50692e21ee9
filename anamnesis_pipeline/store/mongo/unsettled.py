"""Sections of documents about which it is to be decided which text is current, as documents."""

from collections.abc import Iterable

from pymongo import UpdateOne

from anamnesis_pipeline.store.mongo.client import Tables


def note(tables: Tables, sections: Iterable[tuple[str, str, str]]) -> None:
    """(place, anchor, source) of sections in which something came or went."""
    tables["unsettled"].write(
        [
            UpdateOne(
                {"place": place, "anchor": anchor}, {"$set": {"source": source}, "$inc": {"noted": 1}}, upsert=True
            )
            for place, anchor, source in sections
        ]
    )


def note_published(tables: Tables, part_id: str) -> None:
    """A part of a document has a new episode, which is active: where another text is current, or none, it is to be
    settled; and so is what gave way to it, under whatever heading.
    """
    sightings, fields = tables["sightings"], ("place", "anchor", "source", "present")
    seen = sightings.find({"part_id": part_id}, fields)
    # a part is of one section, whose name is in its id, so this asks once
    shared = {
        section: sightings.has({"place": section[0], "anchor": section[1], "part_id": {"$ne": part_id}})
        for section in {(s["place"], s["anchor"]) for s in seen}
    }
    held = [s for s in seen if not s["present"] or shared[s["place"], s["anchor"]]]
    led_here = sightings.find({"became": part_id}, fields) if part_id else []
    note(tables, sorted({(s["place"], s["anchor"], s["source"]) for s in (*held, *led_here)}))
