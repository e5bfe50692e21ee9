"""What shell commands did, as far as their words and their output tell."""

import pytest

from anamnesis_pipeline.parsing.claude_logs.commands import (
    command_of_tests,
    commits,
    commits_in,
    matters,
    outcome_of_tests,
    shown,
)

LOOKS = [
    "ls -la && cat README.md | head -20",
    "grep -rn 'npm install' docs; find . -name '*.py' | xargs wc -l",
    "cd /srv/shop && git status && git log --oneline -5 && git diff HEAD~1",
    "git -C /srv/shop show abc1234",
    "sed -n 1,40p app.py",
    "python -c 'print(1)'",
    "python3 - <<'EOF'\nprint(open('x').read())\nEOF",
    "node -e 'console.log(1)'",
    "curl -s http://localhost:8000/health",
    "gh pr view 12 && gh run list",
    "docker ps -a; kubectl get pods",
    "psql -c 'select count(*) from users'",
    "echo done > /dev/null 2>&1",
    "cargo --version",
    "git stash list",
    "for f in *.py; do echo $f; done",
]
CHANGES = [
    "npm run build 2>&1 | tail -5",
    "cd web && rm -rf dist",
    "sed -i 's/a/b/' app.py",
    "cat > notes.md <<'EOF'\nhello\nEOF",
    "python manage.py migrate",
    "FOO=1 python scripts/load.py --all",
    "git push --force-with-lease",
    "git checkout -b fix-login",
    "curl -X POST http://localhost:8000/items -d '{}'",
    "gh pr create --fill",
    "psql -c 'DROP TABLE users'",
    "find . -name '*.pyc' -delete",
    "make",
    "docker compose up -d",
    "pip install -e .",
    "pytest -q",
    "terraform apply",
    "poetry config certificates.shop.cert /etc/ca.pem",
]


@pytest.mark.parametrize("script", [*LOOKS, *CHANGES])
def test_command_that_changes_builds_or_tests_matters(script: str) -> None:
    assert matters(script) is (script in CHANGES)


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("cd /srv && .venv/bin/pytest -q tests -k login 2>&1 | tail -5", ".venv/bin/pytest -q tests -k login"),
        ("uv run pytest", "uv run pytest"),
        ("python -m pytest -x", "python -m pytest -x"),
        ("python manage.py test shop", "python manage.py test shop"),
        ("npx vitest run src", "npx vitest run src"),
        ("npm test -- --watch=false", "npm test -- --watch=false"),
        ("npm run test:unit", "npm run test:unit"),
        ("pnpm exec jest", "pnpm exec jest"),
        ("yarn test", "yarn test"),
        ("go test ./...", "go test ./..."),
        ("cargo test --workspace", "cargo test --workspace"),
        ("make test", "make test"),
        ("make check && make install", "make check"),
        ("./gradlew :app:test", "./gradlew :app:test"),
        ("mvn -q verify", "mvn -q verify"),
        ("mix test test/a_test.exs", "mix test test/a_test.exs"),
        ("bundle exec rspec spec/a_spec.rb", "bundle exec rspec spec/a_spec.rb"),
        ("dotnet test", "dotnet test"),
        ("bash scripts/run_tests.sh", "bash scripts/run_tests.sh"),
        ("./test.sh --fast", "./test.sh --fast"),
        ("ls tests && cat tests/test_a.py", ""),
        ("npm run build", ""),
        ("pytest --collect-only", ""),
        ("make", ""),
        ("git commit -m 'run pytest'", ""),
        ("test -f x && echo yes", ""),
    ],
)
def test_command_of_tests_is_recognized(script: str, command: str) -> None:
    assert command_of_tests(script) == command


@pytest.mark.parametrize(
    ("output", "result"),
    [
        ("....F\n==== 1 failed, 11 passed, 2 warnings in 3.20s ====", "1 failed, 11 passed, 2 warnings in 3.20s"),
        ("12 passed in 0.31s", "12 passed in 0.31s"),
        ("FAILED t/a.py::test_b - assert\n1 failed, 3 passed in 1s", "1 failed, 3 passed in 1s (t/a.py::test_b)"),
        ("Test Suites: 1 passed, 1 total\nTests:       2 failed, 9 passed\nTime: 2 s", "Tests: 2 failed, 9 passed"),
        (" Test Files  3 passed (3)\n      Tests  24 passed (24)\n   Duration  1.2s", "Tests 24 passed (24)"),
        ("ok  \tapi\t0.3s\nFAIL\tweb\t0.1s\n--- FAIL: TestLogin (0.00s)", "1 packages ok, 1 failed (TestLogin)"),
        ("test result: ok. 12 passed; 0 failed; 0 ignored", "test result: ok. 12 passed; 0 failed; 0 ignored"),
        ("Finished in 0.2 seconds\n5 tests, 1 failure", "5 tests, 1 failure"),
        ("12 examples, 0 failures", "12 examples, 0 failures"),
        ("Ran 12 tests in 0.010s\n\nFAILED (failures=1)", "Ran 12 tests in 0.010s; FAILED (failures=1)"),
        ("Tests run: 12, Failures: 1, Errors: 0, Skipped: 0", "Tests run: 12, Failures: 1, Errors: 0, Skipped: 0"),
        ("  9 passing (20ms)\n  1 failing", "9 passing (20ms); 1 failing"),
        ("# pass 12\n# fail 0", "# pass 12; # fail 0"),
        ("OK (12 tests, 20 assertions)", "OK (12 tests, 20 assertions)"),
        ("\x1b[32m3 passed\x1b[0m in 0.1s", "3 passed in 0.1s"),
        ("Command running in background with ID: b1", "started in the background"),
        ("", "ended without an error"),
    ],
)
def test_result_of_tests_is_in_the_words_of_the_runner(output: str, result: str) -> None:
    assert outcome_of_tests(output, is_error=False) == result


def test_result_of_tests_that_say_nothing_is_the_exit_code() -> None:
    assert outcome_of_tests("Exit code 2\nImportError: no module", is_error=True) == "failed with exit code 2"
    assert outcome_of_tests("killed", is_error=True) == "failed"


def test_commit_is_read_from_what_git_prints() -> None:
    script = "git add -A && git commit -m \"$(cat <<'EOF'\nMend the login\n\nIt waited.\nEOF\n)\""
    assert commits(script)
    for output, found in {
        "[main 3f9c2ab] Mend the login\n 2 files changed": [("main", "3f9c2ab Mend the login")],
        "[main (root-commit) 3f9c2ab] Mend the login": [("main", "3f9c2ab Mend the login")],
        "": [("", "Mend the login")],
        "3f9c2ab (HEAD -> main) Mend the login": [("", "3f9c2ab Mend the login")],
        "nothing to commit, working tree clean": [],
    }.items():
        assert commits_in(script, output, is_error=False) == found
    assert commits_in(script, "Exit code 1\nlint failed", is_error=True) == []
    assert not commits("git log --grep commit")


def test_shown_command_is_one_short_line() -> None:
    assert shown("cd /srv/shop && make   build 2>&1 | tail -3") == "make build"
    assert len(shown("echo " + "x" * 500)) == 160
