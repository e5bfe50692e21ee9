"""Records of sessions with commands, as Claude Code's logs have them."""

from typing import Any

from anamnesis_pipeline.entities.linking import link
from anamnesis_tests.support.archived_logs import OTHER, SESSION, Home, record


def used(tool: str, given: dict[str, Any], output: str, at: int, session: str, **result: Any) -> list[dict[str, Any]]:
    """A call of a tool and its output, at minute `at`."""
    call = f"toolu_{session[:4]}_{at}"
    use = {"type": "tool_use", "id": call, "name": tool, "input": given}
    back = {"type": "tool_result", "tool_use_id": call, "content": output, **result}
    asked = record("assistant", "", at, session)
    asked["message"]["content"] = [use]
    answered = record("user", "", at, session, uuid=f"{session[:4]}-r{at}")
    answered["message"]["content"] = [back]
    return [asked, answered]


def called(script: str, output: str, at: int, session: str, **result: Any) -> list[dict[str, Any]]:
    """A command and its output, at minute `at`."""
    return used("Bash", {"command": script}, output, at, session, **result)


REFUSED = "psycopg2.OperationalError: connection to localhost, port 5433 failed: Connection refused"


def migration(session: str, at: int, *then: str) -> list[dict[str, Any]]:
    """A session in which an error is met and fixed, and in which the user says further things."""
    lines = [record("user", "run the migrations of the shop database", at, session)]
    lines += called("alembic upgrade head", REFUSED, at + 1, session, is_error=True)
    lines += called("docker compose up -d db", "Started", at + 2, session)
    lines += called("alembic upgrade head", "done", at + 3, session)
    lines += [record("assistant", "The migrations are done; the database was not running.", at + 4, session)]
    return lines + [record("user", text, at + 5 + number, session) for number, text in enumerate(then)]


def edit(path: str, at: int, cwd: str) -> list[dict[str, Any]]:
    """A call that edits a file at minute `at`, and its result."""
    use = {"type": "tool_use", "id": f"toolu_{at}", "name": "Edit", "input": {"file_path": path, "new_string": "x"}}
    asked, done = record("assistant", "", at, cwd=cwd), record("user", "", at, uuid=f"r{at}", cwd=cwd)
    asked["message"]["content"] = [use]
    done["message"]["content"] = [{"type": "tool_result", "tool_use_id": f"toolu_{at}", "content": "updated"}]
    return [asked, done]


def work(home: Home) -> None:
    """A session of the project /code/shop that rounds prices and is corrected, and one that mends a migration."""
    said = [record("user", "round the prices of an order to cents", 1)]
    said += edit("/code/shop/src/prices.py", 2, "/code/shop")
    said += [record("user", "no, never round in prices.py, round where the invoice is printed", 3)]
    said += edit("/code/shop/src/invoice.py", 4, "/code/shop")
    said += called("pytest -q tests/test_prices.py", "3 passed", 5, SESSION)
    home.write([*said, record("assistant", "The invoice rounds now.", 6)])
    home.write(migration(OTHER, 100), f"-code-shop/{OTHER}.jsonl")
    home.ingest()
    link(home.store)
