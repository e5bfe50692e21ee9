"""Which tests failed when they ran last."""

import pytest

from anamnesis_pipeline.model import SegmentKind
from anamnesis_pipeline.search.failing_tests import failing
from anamnesis_pipeline.search.turns import Said
from anamnesis_tests.support.samples import episode


def told(*runs: tuple[str, str]) -> str:
    """What is said of runs of commands, each with what it printed."""
    messages = []
    for command, printed in runs:
        messages.append(Said(episode("e"), SegmentKind.TOOL_INPUT, f"Bash\ncommand: {command}\ntimeout: 9"))
        messages.append(Said(episode("e"), SegmentKind.TOOL_RESULT, printed))
    run = failing(messages)
    return run.describe() if run else ""


@pytest.mark.parametrize(
    ("command", "printed", "said"),
    [
        ("pytest", "FAILED t/a.py::x - no\n=== 1 failed, 3 passed in 1s ===", "1 failed, 3 passed in 1s: t/a.py::x"),
        ("mix test", "  1) test adds (CartTest)\n\n9 tests, 1 failure", "9 tests, 1 failure: test adds (CartTest)"),
        ("npx jest test", "Tests:       2 failed, 5 passed, 7 total", "Tests: 2 failed, 5 passed, 7 total"),
        (
            "npx vitest test",
            " \u00d7 cart > adds\n Tests  1 failed | 3 passed",
            "Tests 1 failed | 3 passed: cart > adds",
        ),
        ("go test ./...", "--- FAIL: TestCart (0.00s)\nFAIL\tshop/cart\t0.1s", "2 failed: TestCart; shop/cart"),
        ("cargo test", "test a::b ... FAILED\n3 passed; 1 failed", "3 passed; 1 failed: a::b"),
        ("rspec test", "10 examples, 2 failures", "10 examples, 2 failures"),
        ("python -m unittest", "FAIL: test_x (t.T)\nRan 12 tests\nFAILED (failures=1)", "FAILED (failures=1): test_x"),
        ("mvn test", "Tests run: 10, Failures: 1, Errors: 0", "Tests run: 10, Failures: 1, Errors: 0"),
    ],
)
def test_failures_of_a_runner_are_read(command: str, printed: str, said: str) -> None:
    assert told((command, printed)) == f"`{command}`: {said}"


@pytest.mark.parametrize(
    ("later", "is_gone"),
    [
        (("pytest", "4 passed in 1s"), True),
        (("pytest -x t", "9 passed in 1s"), True),
        (("pytest t/a.py", "1 passed in 1s"), True),
        (("pytest t/b.py", "1 passed in 1s"), False),
        (("cat t/a.py", "4 passed"), False),
        (("git log", "nothing"), False),
    ],
)
def test_failure_is_gone_when_a_later_run_shows_it(later: tuple[str, str], is_gone: bool) -> None:
    found = told(("pytest", "FAILED t/a.py::test_x - no\n1 failed, 3 passed in 1s"), later)
    assert (found == "") is is_gone


def test_output_of_other_commands_is_no_test_run() -> None:
    assert told(("cat results.txt", "1 failed, 3 passed")) == ""
    assert told(("pytest", "3 passed in 1s")) == ""
    assert told(("pytest", "command not found")) == ""
