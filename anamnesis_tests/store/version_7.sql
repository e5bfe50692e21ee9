-- A store of version 7 as its migrations made it.
PRAGMA application_id = 1095647565;
CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, applied_at TEXT);
CREATE TABLE sources (
    key TEXT PRIMARY KEY, machine TEXT NOT NULL, root TEXT NOT NULL, folder TEXT NOT NULL, kind TEXT NOT NULL,
    spec TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE files (
    source TEXT NOT NULL, path TEXT NOT NULL, device TEXT NOT NULL, inode TEXT NOT NULL, size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL, head_hash TEXT NOT NULL, head_bytes INTEGER NOT NULL, "offset" INTEGER NOT NULL,
    generation INTEGER NOT NULL, lines INTEGER NOT NULL, parsed_lines INTEGER NOT NULL,
    parser_state TEXT NOT NULL, gone INTEGER NOT NULL, version INTEGER NOT NULL, first_mtime_ns INTEGER NOT NULL,
    unread TEXT NOT NULL, PRIMARY KEY (source, path)
);
CREATE INDEX files_incomplete ON files (source, path) WHERE gone = 0
    AND (unread = '' AND size - "offset" > 2 OR unread <> '' AND unread NOT GLOB 'excluded by a rule*');
CREATE TABLE frames (
    source TEXT NOT NULL, path TEXT NOT NULL, generation INTEGER NOT NULL, first_line INTEGER NOT NULL,
    lines INTEGER NOT NULL, archive_offset INTEGER NOT NULL, archive_bytes INTEGER NOT NULL,
    revision INTEGER NOT NULL, mark TEXT NOT NULL, base_source TEXT, base_path TEXT, base_generation INTEGER,
    base_revision INTEGER, base_offset INTEGER, base_bytes INTEGER,
    PRIMARY KEY (source, path, generation, first_line)
) WITHOUT ROWID;
CREATE INDEX frames_by_mark ON frames (mark) WHERE mark <> '';
CREATE INDEX frames_by_base ON frames (base_source, base_path, base_generation)
    WHERE base_source IS NOT NULL;
CREATE TABLE messages (
    key TEXT PRIMARY KEY, source TEXT NOT NULL, path TEXT NOT NULL, canonical TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX messages_by_source ON messages (source) WHERE canonical = '';
CREATE INDEX messages_by_canonical ON messages (canonical) WHERE canonical <> '';
CREATE TABLE dead_letters (
    source TEXT NOT NULL, path TEXT NOT NULL, generation INTEGER NOT NULL, line INTEGER NOT NULL,
    reason TEXT NOT NULL, PRIMARY KEY (source, path, generation, line)
) WITHOUT ROWID;
CREATE TABLE occurrences (
    source TEXT NOT NULL, path TEXT NOT NULL, line INTEGER NOT NULL, message_key TEXT NOT NULL,
    PRIMARY KEY (source, path, line, message_key)
) WITHOUT ROWID;
CREATE INDEX occurrences_by_key ON occurrences (message_key);
CREATE TABLE parts (
    part_id TEXT PRIMARY KEY, source TEXT NOT NULL, path TEXT NOT NULL, session_id TEXT NOT NULL,
    exchange_id TEXT NOT NULL, ordinal INTEGER NOT NULL, kind TEXT NOT NULL, project TEXT NOT NULL,
    cwd TEXT NOT NULL, prompt TEXT NOT NULL, agent_id TEXT NOT NULL, agent_type TEXT NOT NULL,
    origin TEXT NOT NULL DEFAULT '', lead TEXT NOT NULL, section TEXT NOT NULL DEFAULT '',
    closed INTEGER NOT NULL, started_at TEXT NOT NULL, ended_at TEXT NOT NULL, content_hash TEXT NOT NULL,
    wanted_hash TEXT NOT NULL, published_hash TEXT, summarized_hash TEXT, summary_due TEXT,
    held_by TEXT, segments BLOB NOT NULL
);
CREATE INDEX parts_by_exchange ON parts (source, exchange_id);
CREATE INDEX parts_by_path ON parts (source, path);
CREATE INDEX parts_by_session ON parts (session_id, agent_id, started_at, project);
CREATE INDEX parts_of_unlinked_agents ON parts (source) WHERE kind = 'subagent' AND origin = '';
CREATE INDEX parts_open ON parts (source, ended_at) WHERE closed = 0;
CREATE INDEX parts_summarized ON parts (source) WHERE summarized_hash IS NOT NULL;
CREATE INDEX parts_to_summarize ON parts (source, ended_at DESC, part_id DESC)
    WHERE closed = 1 AND summarized_hash IS NOT content_hash;
CREATE INDEX parts_to_summarize_again ON parts (source, summary_due)
    WHERE closed = 1 AND summary_due IS NOT NULL;
CREATE INDEX parts_to_publish ON parts (source, ended_at DESC, part_id DESC)
    WHERE published_hash IS NOT wanted_hash AND held_by IS NULL;
CREATE INDEX parts_held ON parts (held_by) WHERE held_by IS NOT NULL;
CREATE TABLE sightings (
    source TEXT NOT NULL, path TEXT NOT NULL, part_id TEXT NOT NULL, place TEXT NOT NULL, anchor TEXT NOT NULL,
    ordinal INTEGER NOT NULL, first_line INTEGER NOT NULL, last_line INTEGER NOT NULL, since_ns INTEGER NOT NULL,
    skew_ns INTEGER NOT NULL, text TEXT NOT NULL, body TEXT NOT NULL, cwd TEXT NOT NULL, present INTEGER NOT NULL,
    became TEXT NOT NULL, PRIMARY KEY (source, path, part_id)
) WITHOUT ROWID;
CREATE INDEX sightings_by_section ON sightings (place, anchor, part_id, present);
CREATE INDEX sightings_by_part ON sightings (part_id, present);
CREATE INDEX sightings_by_text ON sightings (text);
CREATE INDEX sightings_by_successor ON sightings (became) WHERE became <> '';
CREATE TABLE unsettled (
    place TEXT NOT NULL, anchor TEXT NOT NULL, source TEXT NOT NULL, noted INTEGER NOT NULL,
    PRIMARY KEY (place, anchor)
) WITHOUT ROWID;
CREATE INDEX unsettled_by_source ON unsettled (source, place, anchor);
CREATE TABLE summaries (
    part_id TEXT PRIMARY KEY, content_hash TEXT NOT NULL, text TEXT NOT NULL, model TEXT NOT NULL,
    tags TEXT NOT NULL, records TEXT NOT NULL, skip INTEGER NOT NULL, problem TEXT NOT NULL, retry_at TEXT,
    attempts INTEGER NOT NULL, reply_key TEXT NOT NULL
);
CREATE INDEX summaries_by_model ON summaries (model, problem <> '', skip);
CREATE TABLE llm_replies (key TEXT PRIMARY KEY, backend TEXT NOT NULL, model TEXT NOT NULL, reply TEXT NOT NULL);
CREATE TABLE llm_asked (
    key TEXT NOT NULL, part_id TEXT NOT NULL, void INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (key, part_id)
) WITHOUT ROWID;
CREATE INDEX llm_asked_by_part ON llm_asked (part_id);
CREATE TABLE llm_calls (
    call_id TEXT PRIMARY KEY, day TEXT NOT NULL, backend TEXT NOT NULL, model TEXT NOT NULL,
    settled INTEGER NOT NULL, calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL, dollars REAL NOT NULL
);
CREATE INDEX llm_calls_by_day ON llm_calls (day);
CREATE TABLE llm_leases (key TEXT PRIMARY KEY, call_id TEXT NOT NULL, until TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX llm_leases_by_call ON llm_leases (call_id);
CREATE TABLE llm_failures (key TEXT PRIMARY KEY, problem TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE llm_batches (
    batch_id TEXT PRIMARY KEY, backend TEXT NOT NULL, model TEXT NOT NULL, call_id TEXT NOT NULL,
    keys TEXT NOT NULL
);
CREATE TABLE llm_turns (backend TEXT PRIMARY KEY, next_at REAL NOT NULL);
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE context_sessions (
    session_id TEXT PRIMARY KEY, seen_at TEXT NOT NULL, restarted_at TEXT
) WITHOUT ROWID;
CREATE INDEX context_sessions_by_time ON context_sessions (seen_at);
CREATE TABLE context_shown (
    session_id TEXT NOT NULL, episode_id TEXT NOT NULL, number INTEGER NOT NULL, passage_id INTEGER,
    PRIMARY KEY (session_id, episode_id)
) WITHOUT ROWID;
CREATE INDEX context_shown_by_number ON context_shown (session_id, number);
INSERT INTO sources VALUES ('direct', '', '', '', 'reserved', '');
INSERT INTO sources VALUES ('uploads', '', '', '', 'reserved', '');
INSERT INTO sources VALUES ('chat', '', '', '', 'reserved', '');
INSERT INTO migrations VALUES (1, 'm001_ingest', '2026-11-25T12:00:00.000000+00:00');
CREATE TABLE episodes (
    episode_key INTEGER PRIMARY KEY AUTOINCREMENT, episode_id TEXT NOT NULL UNIQUE, source TEXT NOT NULL,
    timestamp TEXT NOT NULL, instance TEXT NOT NULL, project TEXT NOT NULL, own_project TEXT NOT NULL,
    kind TEXT NOT NULL, status TEXT NOT NULL, superseded_by TEXT, superseded_at TEXT,
    passages INTEGER NOT NULL, content_hash TEXT NOT NULL, edited INTEGER NOT NULL DEFAULT 0,
    stored_hash TEXT NOT NULL, retrieval_count INTEGER NOT NULL DEFAULT 0, last_retrieved TEXT
);
CREATE INDEX episodes_by_time ON episodes (timestamp, episode_id);
CREATE INDEX episodes_by_project ON episodes (project, timestamp, episode_id);
CREATE INDEX episodes_by_own_project ON episodes (own_project, project);
CREATE INDEX episodes_by_kind ON episodes (project, kind, status, timestamp, episode_id);
CREATE INDEX episodes_by_instance ON episodes (instance, project, timestamp);
CREATE INDEX episodes_by_source ON episodes (source, timestamp, episode_id);
CREATE INDEX episodes_passages ON episodes (source, passages);
CREATE INDEX episodes_by_successor ON episodes (superseded_by, episode_id) WHERE superseded_by IS NOT NULL;
CREATE TABLE episode_texts (
    episode_key INTEGER PRIMARY KEY, summary TEXT NOT NULL, tags TEXT NOT NULL, machine TEXT NOT NULL,
    path TEXT NOT NULL, session_id TEXT NOT NULL, metadata TEXT NOT NULL, message_ids TEXT NOT NULL,
    message_keys TEXT NOT NULL, raw_exchange TEXT NOT NULL
);
CREATE INDEX episodes_by_session ON episode_texts (session_id);
CREATE INDEX episodes_by_path ON episode_texts (path);
CREATE TABLE episode_tags (
    tag TEXT NOT NULL, episode_key INTEGER NOT NULL, PRIMARY KEY (tag, episode_key)
) WITHOUT ROWID;
CREATE INDEX episode_tags_by_episode ON episode_tags (episode_key);
CREATE TABLE tombstones (
    episode_id TEXT PRIMARY KEY, deleted_at TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
    went_with TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX tombstones_by_time ON tombstones (deleted_at, episode_id) WHERE went_with = '';
CREATE INDEX tombstones_by_company ON tombstones (went_with) WHERE went_with <> '';
CREATE TABLE tombstone_keys (
    message_key TEXT NOT NULL, episode_id TEXT NOT NULL, PRIMARY KEY (message_key, episode_id)
) WITHOUT ROWID;
CREATE INDEX tombstone_keys_by_episode ON tombstone_keys (episode_id);
CREATE TABLE buried_sections (
    episode_id TEXT NOT NULL, source TEXT NOT NULL, path TEXT NOT NULL, place TEXT NOT NULL, kept BLOB NOT NULL,
    PRIMARY KEY (episode_id, source, path)
) WITHOUT ROWID;
CREATE INDEX buried_sections_by_place ON buried_sections (place);
CREATE INDEX buried_sections_by_file ON buried_sections (source, path);
CREATE TABLE store_secret (secret BLOB NOT NULL);
INSERT INTO store_secret VALUES (randomblob(32));
CREATE TABLE passages (
    passage_id INTEGER PRIMARY KEY AUTOINCREMENT, episode_key INTEGER NOT NULL, ordinal INTEGER NOT NULL
);
CREATE UNIQUE INDEX passages_by_episode ON passages (episode_key, ordinal);
CREATE TABLE passage_texts (
    passage_id INTEGER PRIMARY KEY, text TEXT NOT NULL, context TEXT NOT NULL, message_ids TEXT NOT NULL
);
CREATE VIEW passage_terms AS SELECT passage_id, exact_terms(text) AS terms FROM passage_texts;
CREATE VIRTUAL TABLE stem_index USING fts5 (
    text, context, content = 'passage_texts', content_rowid = 'passage_id',
    tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE exact_index USING fts5 (
    terms, content = 'passage_terms', content_rowid = 'passage_id',
    tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* Co'"
);
CREATE VIRTUAL TABLE stem_words USING fts5vocab (stem_index, instance);
CREATE VIRTUAL TABLE exact_words USING fts5vocab (exact_index, instance);
CREATE TABLE filter_version (version INTEGER NOT NULL);
INSERT INTO filter_version VALUES (0);
CREATE TRIGGER episodes_insert_is_seen AFTER insert ON episodes  BEGIN
    UPDATE filter_version SET version = version + 1;
    END;
CREATE TRIGGER episodes_delete_is_seen AFTER delete ON episodes  BEGIN
    UPDATE filter_version SET version = version + 1;
    END;
CREATE TRIGGER episodes_update_is_seen AFTER update ON episodes WHEN new.retrieval_count = old.retrieval_count BEGIN
    UPDATE filter_version SET version = version + 1;
    END;
CREATE TRIGGER episode_tags_insert_is_seen AFTER insert ON episode_tags  BEGIN
    UPDATE filter_version SET version = version + 1;
    END;
CREATE TRIGGER episode_tags_delete_is_seen AFTER delete ON episode_tags  BEGIN
    UPDATE filter_version SET version = version + 1;
    END;
CREATE TRIGGER episode_tags_update_is_seen AFTER update ON episode_tags  BEGIN
    UPDATE filter_version SET version = version + 1;
    END;
CREATE TRIGGER passages_insert_is_seen AFTER insert ON passages  BEGIN
    UPDATE filter_version SET version = version + 1;
    END;
CREATE TRIGGER passages_delete_is_seen AFTER delete ON passages  BEGIN
    UPDATE filter_version SET version = version + 1;
    END;
CREATE TRIGGER passages_update_is_seen AFTER update ON passages  BEGIN
    UPDATE filter_version SET version = version + 1;
    END;
CREATE TRIGGER passage_texts_added AFTER INSERT ON passage_texts BEGIN
    INSERT INTO stem_index (rowid, text, context) VALUES (new.passage_id, new.text, new.context);
    INSERT INTO exact_index (rowid, terms) VALUES (new.passage_id, exact_terms(new.text));
    END;
CREATE TRIGGER passage_texts_removed AFTER DELETE ON passage_texts BEGIN
    INSERT INTO stem_index (stem_index, rowid, text, context)
    VALUES ('delete', old.passage_id, old.text, old.context);
    INSERT INTO exact_index (exact_index, rowid, terms)
    VALUES ('delete', old.passage_id, exact_terms(old.text));
    END;
CREATE TRIGGER passage_texts_are_final BEFORE UPDATE ON passage_texts BEGIN
    SELECT RAISE(ABORT, 'a passage never changes; it is deleted and written under a new key');
    END;
INSERT INTO migrations VALUES (2, 'm002_episodes', '2026-11-25T12:00:00.000000+00:00');
CREATE TABLE spaces (
    space_id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, model_id TEXT NOT NULL,
    dim INTEGER NOT NULL, generation INTEGER NOT NULL, query_prefix TEXT NOT NULL, passage_prefix TEXT NOT NULL,
    pooling TEXT NOT NULL, "precision" TEXT NOT NULL, fidelity REAL, variants TEXT NOT NULL,
    token_dims INTEGER NOT NULL, token_variant TEXT NOT NULL, status TEXT NOT NULL, projection BLOB,
    last_episode TEXT, written_at TEXT
);
CREATE UNIQUE INDEX spaces_active ON spaces (status) WHERE status = 'active';
CREATE UNIQUE INDEX spaces_building ON spaces (status) WHERE status = 'building';
CREATE TABLE space_variants (
    space_id INTEGER NOT NULL, variant TEXT NOT NULL, PRIMARY KEY (space_id, variant)
) WITHOUT ROWID;
CREATE TABLE vectors (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, space_id INTEGER NOT NULL, variant TEXT NOT NULL,
    passage_id INTEGER NOT NULL, vec BLOB NOT NULL
);
CREATE UNIQUE INDEX vectors_by_passage ON vectors (space_id, variant, passage_id);
CREATE INDEX vectors_by_seq ON vectors (space_id, variant, seq);
CREATE TABLE token_vectors (
    token_key INTEGER PRIMARY KEY, space_id INTEGER NOT NULL, passage_id INTEGER NOT NULL,
    tokens INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX token_vectors_by_passage ON token_vectors (space_id, passage_id, tokens);
CREATE TABLE pending (
    space_id INTEGER NOT NULL, episode_key INTEGER NOT NULL, source TEXT NOT NULL, timestamp TEXT NOT NULL,
    missing INTEGER NOT NULL, PRIMARY KEY (space_id, episode_key)
) WITHOUT ROWID;
CREATE INDEX pending_by_source ON pending (space_id, source, timestamp, episode_key, missing);
CREATE INDEX pending_by_episode ON pending (episode_key);
CREATE TABLE index_files (
    space_id INTEGER NOT NULL, variant TEXT NOT NULL, name TEXT NOT NULL, bytes INTEGER NOT NULL,
    covered_seq INTEGER NOT NULL, vectors INTEGER NOT NULL, removed INTEGER NOT NULL,
    PRIMARY KEY (space_id, variant)
) WITHOUT ROWID;
INSERT INTO migrations VALUES (3, 'm003_spaces', '2026-11-25T12:00:00.000000+00:00');
CREATE TABLE consolidated (
    episode_id TEXT PRIMARY KEY, canonical TEXT NOT NULL, regime TEXT NOT NULL, undone INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX consolidated_by_canonical ON consolidated (canonical);
CREATE INDEX consolidated_by_regime ON consolidated (regime, undone);
CREATE TABLE unconsolidated (session_id TEXT PRIMARY KEY, noted INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO migrations VALUES (4, 'm004_consolidation', '2026-11-25T12:00:00.000000+00:00');
CREATE TABLE query_log (
    number INTEGER PRIMARY KEY AUTOINCREMENT, asked_at TEXT NOT NULL, query TEXT NOT NULL, asked TEXT NOT NULL,
    found INTEGER NOT NULL, used_at TEXT
);
CREATE INDEX query_log_by_time ON query_log (asked_at);
CREATE TABLE query_results (
    episode_id TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (episode_id, number)
) WITHOUT ROWID;
CREATE INDEX query_results_by_query ON query_results (number);
CREATE TRIGGER query_log_removed AFTER DELETE ON query_log BEGIN
    DELETE FROM query_results WHERE number = old.number;
    END;
CREATE TRIGGER episodes_removed_from_queries AFTER DELETE ON episodes BEGIN
    DELETE FROM query_log WHERE number IN (SELECT number FROM query_results WHERE episode_id = old.episode_id);
    END;
INSERT INTO migrations VALUES (5, 'm005_queries', '2026-11-25T12:00:00.000000+00:00');
CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, kind TEXT NOT NULL, process INTEGER NOT NULL,
    episode_id TEXT NOT NULL, episodes INTEGER NOT NULL, project TEXT NOT NULL
);
CREATE INDEX events_by_episode ON events (episode_id, number);
INSERT INTO migrations VALUES (6, 'm006_events', '2026-11-25T12:00:00.000000+00:00');
CREATE TABLE chat_sessions (
    session_id TEXT PRIMARY KEY, title TEXT NOT NULL, backend TEXT NOT NULL, model TEXT NOT NULL,
    worker_url TEXT NOT NULL, project TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    name_history TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX chat_sessions_by_use ON chat_sessions (updated_at, session_id);
CREATE TABLE chat_messages (
    message_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, number INTEGER NOT NULL, role TEXT NOT NULL,
    text TEXT NOT NULL, at TEXT NOT NULL, episode_id TEXT NOT NULL, feedback INTEGER NOT NULL,
    details TEXT NOT NULL, records_at TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX chat_messages_in_order ON chat_messages (session_id, number);
CREATE INDEX chat_messages_by_episode ON chat_messages (episode_id);
CREATE INDEX chat_messages_rated ON chat_messages (feedback, at) WHERE feedback <> 0;
CREATE INDEX chat_messages_by_records ON chat_messages (records_at) WHERE records_at <> '';
CREATE TRIGGER episodes_removed_from_chat AFTER DELETE ON episodes BEGIN
    UPDATE chat_sessions SET title = '(forgotten)', name_history = '[]' WHERE session_id IN (
    SELECT session_id FROM chat_messages WHERE episode_id = old.episode_id AND number = 1);
    UPDATE chat_messages SET text = '(forgotten)', details = json_set(details, '$.citations', json('[]'), '$.files', json('[]')), records_at = '' WHERE episode_id = old.episode_id;
    END;
INSERT INTO migrations VALUES (7, 'm007_chat', '2026-11-25T12:00:00.000000+00:00');
