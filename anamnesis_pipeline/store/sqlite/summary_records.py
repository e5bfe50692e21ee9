"""Which parts want a summary, and the summaries there are, in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store import part_values
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.project_names import names_of
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.episode_rows import read_aliases
from anamnesis_pipeline.store.sqlite.part_rows import PART_COLUMNS
from anamnesis_pipeline.store.sqlite.summary_rows import read_summary, write_summary
from anamnesis_pipeline.store.values import instant, json_list
from anamnesis_pipeline.summary_model import Summary

PARTS_AT_ONCE = 100
_ASKED_FOR = ""
"""`summary_due` of a part whose summary is wanted anew: before every instant."""

_WANTED = "part_id NOT IN (SELECT episode_id FROM tombstones) AND held_by IS NULL"
_MISSING = f"closed = 1 AND summarized_hash IS NOT content_hash AND {_WANTED}"
_DUE = f"closed = 1 AND summary_due IS NOT NULL AND summary_due <= :now AND {_WANTED}"
"""Each reads the partial index of its condition, which holds the work left."""
_OF_PROJECT = "(:projects IS NULL OR project IN (SELECT value FROM json_each(:projects)))"


class SqliteSummaries:
    """The part of `IngestRecords` that is about summaries."""

    _database: Database

    def parts_to_summarize(
        self, source: str, now: datetime, limit: int, project: str | None = None, *, after: Part | None = None
    ) -> list[Part]:
        """See `IngestRecords.parts_to_summarize`. A deleted episode's part is left out."""
        of = f"source = :source AND {_OF_PROJECT}"
        given = {"source": source, "now": instant(now), "limit": limit}
        if after is not None:
            of += " AND (ended_at, part_id) < (:ended_at, :part_id)"
            given |= {"ended_at": part_values.ended_at(after), "part_id": after.part_id}
        with self._database.read() as connection:
            given["projects"] = _names(connection, project)
            # the ids alone are sorted; the texts of the others stay compressed on disk
            ids = connection.execute(
                f"""SELECT part_id, ended_at FROM parts WHERE {of} AND {_MISSING}
                    UNION SELECT part_id, ended_at FROM parts WHERE {of} AND {_DUE}
                    ORDER BY ended_at DESC, part_id DESC LIMIT :limit""",
                given,
            ).fetchall()
            return _read_parts(connection, [part_id for part_id, _ in ids])

    def sources_to_summarize(self, now: datetime) -> set[str]:
        """See `IngestRecords.sources_to_summarize`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT source FROM parts WHERE {_MISSING} UNION SELECT source FROM parts WHERE {_DUE}",
                {"now": instant(now)},
            )
            return {source for (source,) in rows}

    def want_summaries(
        self,
        except_model: str,
        *,
        source: str | None = None,
        project: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        accepts: Callable[[Part], bool] = lambda part: True,
    ) -> dict[str, int]:
        """See `IngestRecords.want_summaries`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT part_id, source FROM parts
                    WHERE closed = 1 AND summarized_hash IS content_hash AND {_WANTED} AND {_OF_PROJECT}
                        AND (:source IS NULL OR source = :source)
                        AND (SELECT model FROM summaries s WHERE s.part_id = parts.part_id) <> :model
                    ORDER BY ended_at DESC, part_id DESC""",
                {"projects": _names(connection, project), "model": except_model, "source": source},
            ).fetchall()
        found = list(islice(self._accepted(rows, accepts), limit))
        for batch in batches([] if dry_run else found):
            with self._database.write() as connection:
                connection.execute(
                    "UPDATE parts SET summary_due = ? WHERE part_id IN (SELECT value FROM json_each(?))",
                    (_ASKED_FOR, json_list(part_id for part_id, _ in batch)),
                )
        return dict(Counter(source for _, source in found))

    def _accepted(self, rows: Sequence[tuple[str, str]], accepts: Callable[[Part], bool]) -> Iterator[tuple[str, str]]:
        """(part id, source) of those parts that are; the texts of a few are in memory at once."""
        for batch in batches(rows, PARTS_AT_ONCE):
            with self._database.read() as connection:
                parts = _read_parts(connection, [part_id for part_id, _ in batch])
            yield from ((part.part_id, part.source) for part in parts if accepts(part))

    def put_summaries(self, summaries: Sequence[Summary]) -> int:
        """See `IngestRecords.put_summaries`."""
        changed = 0
        for batch in batches(summaries):
            with self._database.write() as connection:
                changed += sum(write_summary(connection, summary) for summary in batch)
        return changed

    def summary(self, part_id: str) -> Summary | None:
        """See `IngestRecords.summary`."""
        with self._database.read() as connection:
            return read_summary(connection, part_id)

    def last_summary_problem(self) -> str:
        """See `IngestRecords.last_summary_problem`."""
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT problem FROM summaries WHERE problem <> '' ORDER BY retry_at DESC, part_id LIMIT 1"
            ).fetchone()
        return str(row[0]) if row else ""

    def summary_counts(self) -> dict[str, int]:
        """See `IngestRecords.summary_counts`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT model, problem <> '', skip, count(*) FROM summaries GROUP BY model, problem <> '', skip"
            ).fetchall()
        counts: Counter[str] = Counter()
        for model, is_flagged, skip, count in rows:
            counts["problem" if is_flagged else "skip" if skip else model] += count
        return dict(counts)


def _read_parts(connection: sqlite3.Connection, part_ids: Sequence[str]) -> list[Part]:
    """Those of these parts that are there, newest first."""
    rows = connection.execute(
        f"""SELECT {PART_COLUMNS} FROM parts WHERE part_id IN (SELECT value FROM json_each(?))
            ORDER BY ended_at DESC, part_id DESC""",
        (json_list(part_ids),),
    ).fetchall()
    return [part_values.read_part(row) for row in rows]


def _names(connection: sqlite3.Connection, project: str | None) -> str | None:
    """All names of a project as a JSON list, since a part keeps its own; None is every project."""
    return None if project is None else json_list(names_of(read_aliases(connection), project))
