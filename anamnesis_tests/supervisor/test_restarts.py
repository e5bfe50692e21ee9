"""The restart policy: patience that grows, and ends."""

from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.supervisor.restarts import RestartPolicy, restart_delay

POLICY = RestartPolicy(limit=5, window_s=600, first_delay_s=1, longest_delay_s=30)


def test_delays_double_and_the_sixth_death_is_the_last() -> None:
    delays = [restart_delay([100.0] * deaths, 100.0, POLICY) for deaths in range(1, 7)]
    assert delays == [1, 2, 4, 8, 16, None]


def test_deaths_long_ago_are_forgiven() -> None:
    assert restart_delay([0.0] * 50 + [10_000.0], 10_000.0, POLICY) == 1


def test_no_delay_exceeds_the_longest() -> None:
    assert restart_delay([0.0] * 12, 0.0, RestartPolicy(limit=20)) == 30


@given(st.lists(st.floats(0, 1e6)), st.floats(0, 1e6))
def test_a_child_is_restarted_exactly_while_it_died_at_most_limit_times_in_the_window(
    deaths: list[float], now: float
) -> None:
    recent = [death for death in deaths if now - death <= POLICY.window_s]
    delay = restart_delay(deaths, now, POLICY)
    assert (delay is None) == (len(recent) > POLICY.limit)
    assert delay is None or POLICY.first_delay_s <= delay <= POLICY.longest_delay_s
