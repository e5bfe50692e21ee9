"""Records of forgotten uploads, so that one that is uploaded again becomes complete."""

from collections.abc import Collection, Mapping

from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.services.blocklist import lift
from anamnesis_pipeline.store.base import Store

SOURCE = "uploads"
NO_REVISION = -1
"""Makes all revisions former ones."""
UPLOADS = "uploads."
"""Prefix of the stored settings with one upload each."""
FORGOTTEN = "forgotten_uploads."
"""Prefix of the settings with a forgotten upload's count, the ids of its episodes, and their keys."""


def drop_uploads(store: Store, ids: Collection[str], keys_of: Mapping[str, Collection[str]]) -> None:
    """Remove the episodes of these ids from every upload, and an upload with its last one. May be repeated.

    :param keys_of: id -> message keys.
    """
    for name, body in store.settings.all(UPLOADS).items():
        gone = {episode_id for episode_id in body["episode_ids"] if episode_id in ids}
        if not gone:
            continue
        left = [episode_id for episode_id in body["episode_ids"] if episode_id not in gone]
        keys = {key for episode_id in gone for key in keys_of.get(episode_id, ())}
        _note(store, FORGOTTEN + name.removeprefix(UPLOADS), gone, keys, is_gone=not left)
        store.settings.set(name, body | {"episode_ids": left} if left else None)


def drop_empty_upload(store: Store, upload_id: str) -> None:
    """Remove an upload without episodes."""
    _note(store, FORGOTTEN + upload_id, set(), set(), is_gone=True)
    store.settings.set(UPLOADS + upload_id, None)


def remove_forgotten_files(store: Store, archive: Archive) -> None:
    """Remove the names and empty archives of uploads of which nothing is left. The caller must hold `archive.alone`."""
    for path, cursor in store.files.cursors(SOURCE).items():
        upload_id = path.partition("/")[0].partition("-")[0]
        is_read = cursor.parsed_lines == cursor.lines
        is_listed = store.settings.get(UPLOADS + upload_id) is not None
        if is_read and not is_listed and not store.documents.sightings_of(SOURCE, path):
            for generation in range(cursor.generation + 1):
                archive.remove_former(SOURCE, path, generation, NO_REVISION)
            store.forgetting.remove_file(SOURCE, path)


def bring_back(store: Store, upload_id: str) -> int:
    """Lift every tombstone of an upload. Return how often it was forgotten."""
    before = store.settings.get(FORGOTTEN + upload_id)
    if before is None:
        return 0
    for episode_id in before["episode_ids"]:
        lift(store, episode_id)
    store.exclusion.lift_keys(before["keys"])
    return int(before["times"])


def _note(store: Store, name: str, ids: set[str], keys: set[str], *, is_gone: bool) -> None:
    before = store.settings.get(name, {"times": 0, "episode_ids": [], "keys": []})
    after = {
        "times": before["times"] + is_gone,
        "episode_ids": sorted({*before["episode_ids"], *ids}),
        "keys": sorted({*before["keys"], *keys}),
    }
    store.settings.set(name, after)
