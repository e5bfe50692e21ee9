"""`Where` as SQL over `episodes e`. The only place that knows both."""

# ruff: noqa: S608
# only names of ours enter the SQL

from anamnesis_pipeline.model import CHAT, CHAT_ANSWER, CHAT_KINDS, FORMER_KIND, Where
from anamnesis_pipeline.store.sqlite.layer_terms import layer_terms
from anamnesis_pipeline.store.values import instant, json_list, sought, spellings

_KIND_IS = f"""CASE WHEN e.source = '{CHAT}' AND e.kind = '{FORMER_KIND}' THEN '{CHAT_ANSWER}' ELSE e.kind END
    IN (SELECT value FROM json_each(?))"""
"""`model.kind_of` in SQL. No index has it, so it is asked where it makes a difference."""

Condition = tuple[str, list[str]]
"""SQL that stands after WHERE, and its parameters in order."""


def condition(where: Where) -> Condition:
    """What an episode must meet, as one expression; `1` when nothing is asked."""
    lists = (
        ("e.project IN (SELECT value FROM json_each(?))", spellings(where.projects)),
        ("e.project NOT IN (SELECT value FROM json_each(?))", where.hidden_projects),
        (_KIND_IS if CHAT_KINDS & set(where.kinds) else "e.kind IN (SELECT value FROM json_each(?))", where.kinds),
        ("e.kind NOT IN (SELECT value FROM json_each(?))", where.hidden_kinds),
    )
    terms = [(test, json_list(values)) for test, values in lists if values]
    of_session = "e.episode_key IN (SELECT episode_key FROM episode_texts WHERE session_id = ?)"
    values = (
        ("e.instance = ?", where.instance),
        ("e.source = ?", where.source),
        (of_session, where.session_id),
        ("e.timestamp >= ?", instant(where.since) if where.since else None),
        ("e.timestamp < ?", instant(where.until) if where.until else None),
    )
    terms += [(test, sought(value)) for test, value in values if value is not None]
    terms += [
        ("e.episode_key IN (SELECT episode_key FROM episode_tags WHERE tag = ?)", sought(tag)) for tag in where.tags
    ]
    terms += layer_terms(where)
    pieces, parameters = [sql for sql, _ in terms], [value for _, value in terms]
    if where.hidden_sources:
        pieces.append(
            "(e.source NOT IN (SELECT value FROM json_each(?)) OR e.project IN (SELECT value FROM json_each(?)))"
        )
        parameters += [json_list(where.hidden_sources), json_list(where.shown_projects)]
    if where.only_superseded:
        pieces.append("e.status = 'superseded'")
    elif not where.include_superseded:
        pieces.append("e.status = 'active'")
    return " AND ".join(pieces) or "1", parameters
