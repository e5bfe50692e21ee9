"""The same error has the same signature in every run; different errors have different ones."""

import pytest

from anamnesis_pipeline.knowledge.error_signatures import (
    MAX_LABEL_CHARS,
    error_line,
    is_like_error,
    is_same_error,
    label_of,
    signature_of,
)

REFUSED = """Traceback (most recent call last):
  File "/srv/app/db.py", line 12, in connect
    raise
psycopg2.OperationalError: connection to server at "localhost" (127.0.0.1), port 5433 failed: Connection refused"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (REFUSED, REFUSED.splitlines()[-1]),
        (
            "npm warn old\nnpm ERR! code ERESOLVE\nnpm ERR! could not resolve react@19",
            "npm ERR! could not resolve react@19",
        ),
        (
            "src/main.rs:4:5\nerror[E0382]: borrow of moved value: `config`",
            "error[E0382]: borrow of moved value: `config`",
        ),
        ("bash: terraform: command not found", "bash: terraform: command not found"),
        ("Error in merge(x, y) :\n  nrow(x) == nrow(y) is not TRUE", "nrow(x) == nrow(y) is not TRUE"),
        (
            "In LockError.php line 9:\n\n  The lock file is older than the manifest.",
            "The lock file is older than the manifest.",
        ),
        (
            "thread 'main' panicked at src/cut.rs:88:34:\nattempt to subtract with overflow",
            "attempt to subtract with overflow",
        ),
        (
            "loading\ndjango.core.exceptions.ImproperlyConfigured: Requested setting DATABASES\n",
            "django.core.exceptions.ImproperlyConfigured: Requested setting DATABASES",
        ),
        *[
            (line, line)
            for line in (
                "src/a.ts(263,9): error TS2769: No overload matches this call.",
                "14:1  error  Prefer named exports  import/no-default-export",
                "HTTP Error 403: Invalid authentication information.",
                "Database Error in model stg_events of shop_pay",
                "│ Error: Backend initialization required, please run init",
            )
        ],
        (
            "ERROR: failed to pull data for following targets:\ndata/may",
            "ERROR: failed to pull data for following targets:",
        ),
        ("Assertion failure in mixer_Buffer.h:88", "Assertion failure in mixer_Buffer.h:88"),
        ("lib/a.rb:4:in `scan': invalid bytes in UTF-8 (ArgumentError)",) * 2,
        (
            "make: *** [Makefile:12: build] Error 1\ngcc: fatal error: no input files",
            "gcc: fatal error: no input files",
        ),
    ],
)
def test_line_that_tells_the_error_is_found(output: str, line: str) -> None:
    assert error_line(output) == line
    assert signature_of(line)


@pytest.mark.parametrize(
    "output",
    [
        "<tool_use_error>File has not been read yet. Read it first before writing to it.</tool_use_error>",
        "The user doesn't want to proceed with this tool use.",
        "E       assert 3 == 4",
        "AssertionError: expected 3 to equal 4",
        "Exit code 1",
        "org.opentest4j.AssertionFailedError: expected: <3> but was: <4>",
        "Finished: PASS=31 ERROR=0 when loading database test",
        "warning: unused variable `x`",
        "[main 63d9067] fix: improve abort listener error handling and prevent leaks",
        "    80     │ - ····streamingService.destroySession(session.id).catch((error)·=>·{",
        'In bin/run line 4:\n. "$BASE/lib/tell.sh"\n  ^---^ SC1091 (info): Not following: ./lib/tell.sh',
        "No :ignore_warnings opt specified in mix.exs and default does not exist.",
        "app/menu.tsx (1:0): Error when using sourcemap for reporting an error: Can't resolve original location.",
        "all good",
    ],
)
def test_refusals_test_failures_and_plain_output_are_no_errors(output: str) -> None:
    assert error_line(output) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "2026-03-01 10:00:01 ERROR cannot open /home/ada/app/data.db",
            "2026-04-11 23:59:59 ERROR cannot open /srv/x/data.db",
        ),
        (
            "app.py:12: ModuleNotFoundError: No module named 'yaml'",
            "app.py:340: ModuleNotFoundError: No module named 'yaml'",
        ),
        ("Error: task 0x7ffde1 timed out after 30s", "Error: task 0x41ab00 timed out after 31 s"),
        ("fatal: unable to access repo.git, pid 4312", "fatal: unable to access repo.git, pid 99"),
        (
            "a.b.TokenException: token was issued in the future",
            "2026-03-01 10:00:01 WARN Filter - rejected: a.b.TokenException: token was issued in the future",
        ),
        ("lib/a.rb:4:in `scan': invalid bytes (ArgumentError)", "lib/b.rb:18:in `gsub': invalid bytes (ArgumentError)"),
    ],
)
def test_signature_ignores_what_differs_from_run_to_run(one: str, other: str) -> None:
    assert signature_of(one) == signature_of(other) != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ModuleNotFoundError: No module named 'yaml'", "ModuleNotFoundError: No module named 'requests'"),
        ("connect ECONNREFUSED 127.0.0.1:5432", "connect ECONNREFUSED 127.0.0.1:6379"),
        ("KeyError: 'user_id'", "KeyError: 'order_id'"),
    ],
)
def test_signature_keeps_what_tells_errors_apart(one: str, other: str) -> None:
    assert signature_of(one) != signature_of(other)


def test_same_error_may_say_more_or_be_elsewhere() -> None:
    short, long = map(signature_of, ("cannot bind the socket twice", "server stopped: cannot bind the socket twice"))
    assert is_same_error(short, long)
    here, there = map(
        signature_of, ("ERROR hook invoice rejected: no valid seal", "ERROR hook refund rejected: no valid seal")
    )
    assert is_like_error(here, there)
    assert not is_same_error(here, there)
    assert not is_like_error(here, signature_of("ERROR cannot bind the socket twice"))


def test_error_that_says_nothing_has_no_signature() -> None:
    assert signature_of("Error: failed with exit code 1") == ""


@pytest.mark.parametrize(
    ("line", "signature"),
    [
        (
            "src/agent/plan.ts(263,9): error TS2769: No overload matches this call.",
            "plan.ts ts2769 overload matches call",
        ),
        (
            "/home/ann/src/agent/plan.ts:7:1: error TS2769: No overload matches this call.",
            "plan.ts ts2769 overload matches call",
        ),
        ("error: failed to push some refs to 'https://github.com/ann/shop.git'", "failed push refs shop.git"),
        ("CRITICAL 'molecule/db/molecule.yml' glob failed", "critical molecule.yml glob failed"),
    ],
)
def test_position_and_folders_of_a_path_are_left_out(line: str, signature: str) -> None:
    assert signature_of(line) == signature


@pytest.mark.parametrize(
    ("line", "label"),
    [
        (
            "fatal: The current branch main has no upstream branch.",
            "fatal: The current branch main has no upstream branch.",
        ),
        ("src/plan.ts(263,9): error TS2769: No overload matches", "src/plan.ts: error TS2769: No overload matches"),
        (
            "\x1b[96mapp/Chart.tsx\x1b[0m:\x1b[93m70\x1b[0m:3 - error TS2717: Types differ",
            "app/Chart.tsx - error TS2717: Types differ",
        ),
        ("/bin/bash: line 1: idf.py: command not found", "bash: idf.py: command not found"),
        (
            "\u2819 /home/ann/arm.cpp:44:26: error: 'scaled' was not declared",
            "arm.cpp: error: 'scaled' was not declared",
        ),
        ("2026-03-01 12:00:00,123 ERROR the day 2026-03-02 is no workday", "ERROR the day 2026-03-02 is no workday"),
        ("cannot connect to localhost:5432: refused", "cannot connect to localhost:5432: refused"),
        ("check\tcargo\terror: no cached data", "check cargo error: no cached data"),
        (
            'Post "https://shop.svc:443/validate/pod?timeout=30s": deadline exceeded',
            'Post "https://shop.svc:443/validate/pod?timeout=30s": deadline exceeded',
        ),
    ],
)
def test_label_keeps_the_words_of_an_error(line: str, label: str) -> None:
    assert label_of(line) == label


def test_long_lines_are_signed_and_labelled_by_their_beginning() -> None:
    line = "Error: cannot read " + "a." * 10_000
    assert signature_of(line).startswith("cannot read")
    assert len(label_of(line)) <= MAX_LABEL_CHARS
