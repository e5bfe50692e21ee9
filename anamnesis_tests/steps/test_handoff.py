"""What a hand-off is read from."""

from anamnesis_pipeline.search.handoff import SESSIONS
from anamnesis_pipeline.steps.handoff import TALK, read_handoff
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.store.samples import episode, passages


def test_a_busy_project_beside_a_quiet_one_is_read_without_gaps(store: Store) -> None:
    def turn(name: str, minute: float, project: str, session: str):  # type: ignore[no-untyped-def]
        return (
            episode(name, minute, project=project, session_id=session, kind="exchange", summary=f"turn {name}"),
            passages(f"turn {name}"),
        )

    busy = [turn(f"b{n}", 10_000 + n, "busy", f"s{n // TALK}") for n in range(3 * TALK)]
    store.episodes.put([*busy, turn("old", 0, "quiet", "quiet")])
    recent = [item.episode.session_id for item in read_handoff(store, ["quiet", "busy"]).recent]
    assert recent == ["s2", "s1", "s0", "quiet"][:SESSIONS]
