"""Records of sessions with commands, as Claude Code's logs have them."""

from typing import Any

from anamnesis_tests.support.archived_logs import record


def called(script: str, output: str, at: int, session: str, **result: Any) -> list[dict[str, Any]]:
    """A command and its output, at minute `at`."""
    call = f"toolu_{session[:4]}_{at}"
    use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": script}}
    back = {"type": "tool_result", "tool_use_id": call, "content": output, **result}
    asked = record("assistant", "", at, session)
    asked["message"]["content"] = [use]
    answered = record("user", "", at, session, uuid=f"{session[:4]}-r{at}")
    answered["message"]["content"] = [back]
    return [asked, answered]


REFUSED = "psycopg2.OperationalError: connection to localhost, port 5433 failed: Connection refused"


def migration(session: str, at: int, *then: str) -> list[dict[str, Any]]:
    """A session in which an error is met and fixed, and in which the user says further things."""
    lines = [record("user", "run the migrations of the shop database", at, session)]
    lines += called("alembic upgrade head", REFUSED, at + 1, session, is_error=True)
    lines += called("docker compose up -d db", "Started", at + 2, session)
    lines += called("alembic upgrade head", "done", at + 3, session)
    lines += [record("assistant", "The migrations are done; the database was not running.", at + 4, session)]
    return lines + [record("user", text, at + 5 + number, session) for number, text in enumerate(then)]
