"""The tables of conversations: a migration of `schema.py`."""

# ruff: noqa: S608
# only names and texts of ours enter the SQL

from anamnesis_pipeline.chat_model import FORGOTTEN

WITHOUT_QUOTES = "json_set(details, '$.citations', json('[]'), '$.files', json('[]'))"
"""The details of a message without what quotes other texts."""
FORGETS = f"text = '{FORGOTTEN}', details = {WITHOUT_QUOTES}, records_at = ''"
"""What an update sets of a message that is forgotten."""

M007_CHAT = (
    """CREATE TABLE chat_sessions (
        session_id TEXT PRIMARY KEY, title TEXT NOT NULL, backend TEXT NOT NULL, model TEXT NOT NULL,
        worker_url TEXT NOT NULL, project TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
        name_history TEXT NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX chat_sessions_by_use ON chat_sessions (updated_at, session_id)",
    # details: what answered, what it saw, what it cost, as JSON; records_at: when to look for the records of a round
    # trip ('': no need)
    """CREATE TABLE chat_messages (
        message_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, number INTEGER NOT NULL, role TEXT NOT NULL,
        text TEXT NOT NULL, at TEXT NOT NULL, episode_id TEXT NOT NULL, feedback INTEGER NOT NULL,
        details TEXT NOT NULL, records_at TEXT NOT NULL DEFAULT ''
    )""",
    "CREATE UNIQUE INDEX chat_messages_in_order ON chat_messages (session_id, number)",
    "CREATE INDEX chat_messages_by_episode ON chat_messages (episode_id)",
    "CREATE INDEX chat_messages_rated ON chat_messages (feedback, at) WHERE feedback <> 0",
    "CREATE INDEX chat_messages_by_records ON chat_messages (records_at) WHERE records_at <> ''",
    # whatever removes an episode, its text is in no conversation any more, nor in a title that came from it
    f"""CREATE TRIGGER episodes_removed_from_chat AFTER DELETE ON episodes BEGIN
        UPDATE chat_sessions SET title = '{FORGOTTEN}', name_history = '[]' WHERE session_id IN (
            SELECT session_id FROM chat_messages WHERE episode_id = old.episode_id AND number = 1);
        UPDATE chat_messages SET {FORGETS} WHERE episode_id = old.episode_id;
    END""",
)
