"""What is believed of another machine's clock."""

from anamnesis_pipeline.sources.ssh.machine import KEPT, Measured, is_vague, noted, skew_s


def test_the_quickest_answer_counts_and_the_noise_of_a_busy_start_does_not_stay() -> None:
    known = noted((), Measured(5.4, 1.0))
    assert skew_s(known) == 5.4
    assert skew_s(noted(noted(known, Measured(5.02, 0.01)), Measured(4.8, 0.9))) == 5.02


def test_what_is_less_than_the_round_trip_is_no_difference() -> None:
    assert skew_s(noted((), Measured(0.364, 0.73))) == 0.0
    assert skew_s(()) is None


def test_a_clock_that_was_set_counts_at_once() -> None:
    known = noted(noted((), Measured(3_600.0, 0.01)), Measured(0.3, 0.2))
    assert known == (Measured(0.3, 0.2),)


def test_a_slow_answer_is_asked_for_again_but_not_for_ever() -> None:
    known: tuple[Measured, ...] = ()
    assert not is_vague(known)
    for _ in range(KEPT - 1):
        known = noted(known, Measured(0.3, 0.9))
        assert is_vague(known)
    assert not is_vague(noted(known, Measured(0.3, 0.9)))
    assert not is_vague(noted(known[:1], Measured(0.0, 0.01)))
