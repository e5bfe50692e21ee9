"""How far a search index is behind, as a process learns it."""

from anamnesis_pipeline.store.mongo import index_tail


def test_an_index_that_is_known_to_hold_the_newest_is_not_asked_again():
    asked: list[int] = []
    now = held = 0
    tail = index_tail.IndexTail(lambda: now)

    def holds(seq: int) -> bool:
        asked.append(seq)
        return seq <= held

    def behind(newest: int) -> tuple[int, bool]:
        asked.clear()
        seen = tail.behind("i", newest, holds)
        return seen.since, seen.is_whole

    assert behind(50) == (0, True)
    held = 50
    assert (behind(50), asked) == ((0, True), [50]), "it shows this one, and may lack one before"
    assert (behind(50), asked) == ((0, True), [])
    now = 6
    assert (behind(50), asked) == ((50, True), [])
    assert (behind(149), asked) == ((50, True), [149])
    held = 5_000
    assert (behind(5_100), asked) == ((50, True), [5_100, 5_000]), "all since may be one transaction"
    now = 12
    assert (behind(5_100), asked) == ((5_000, True), [5_100])
    assert (behind(30_000), asked) == ((20_000, False), [30_000, 29_900, 29_000, 20_000])
    assert (behind(4_000), asked) == ((3_000, True), [4_000]), "the collection was restored"
    tail.forget("i")
    assert (behind(5_000), asked) == ((4_000, True), [5_000])


def test_an_index_that_shows_the_newest_is_whole_where_nothing_was_written_for_long():
    asked: list[int] = []
    unused, held = 0.0, 50

    def holds(seq: int) -> bool:
        return seq <= held

    def unused_s() -> float:
        asked.append(1)
        return unused

    def since(tail: index_tail.IndexTail, newest: int) -> int:
        return tail.behind("i", newest, holds, unused_s).since

    assert since(index_tail.IndexTail(), 50) == 0, "something was written just now"
    unused = index_tail.QUIET_S
    new = index_tail.IndexTail()
    assert (since(new, 60), asked) == (0, [1]), "it lacks the newest, and nobody asks for how long"
    assert (since(new, 50), since(new, 50), asked) == (50, 50, [1, 1])
    held = 60
    assert (since(new, 60), asked) == (50, [1, 1]), "from then on what it shows tells more"
