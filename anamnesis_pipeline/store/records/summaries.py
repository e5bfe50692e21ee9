"""Which parts want a summary, and the summaries there are."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import merge
from itertools import groupby, islice

from anamnesis_pipeline.model import Part, Summary
from anamnesis_pipeline.store.gateway import Gateway, Match, Row, Tables, batches, write_all
from anamnesis_pipeline.store.records.parts import (
    NEWEST_FIRST,
    behind,
    buried,
    ended_at,
    publication_hash,
    read_parts,
    read_summaries,
    summary_row,
)
from anamnesis_pipeline.store.records.settings import names_of, read_aliases
from anamnesis_pipeline.store.tables import NOT_EMPTY, NOT_NULL, TEXT
from anamnesis_pipeline.store.values import clean, instant

Place = tuple[str, str]
"""End and id of a part."""
_AT_ONCE = 100
_ASKED_FOR = ""
"""`summary_due` of a part whose summary is wanted again: before every instant."""
_MISSING = {"to_summarize": 1}


class SummaryRecords:
    """Which parts want a summary, and the summaries there are."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def parts_to_summarize(
        self, source: str, now: datetime, limit: int, project: str | None = None, *, after: Part | None = None
    ) -> list[Part]:
        """Return closed parts (of one project, by any of its names and aliases) without a summary of their present
        content (by any writer), or whose summary is to be tried again by `now` (`Summary.retry_at`) or was asked for
        again, newest first: by the time of their last segment, then id. None that is held (`ExclusionRecords.hold`), or
        whose episode was deleted.

        :param after: only those behind this one, the last of the page before, even if it is gone.
        """
        last = None if after is None else (ended_at(after), after.part_id)
        with self._gateway.read() as tables:
            match = {"source": source, **_of_project(tables, project)}
            part_ids = [part_id for _, part_id in islice(_wanting(tables, match, now, last), limit)]
            return _in_order(tables, part_ids)

    def sources_to_summarize(self, now: datetime) -> set[str]:
        """Return the sources for which `parts_to_summarize` lists something."""
        with self._gateway.read() as tables:
            newest = [
                row
                for wanted in (_MISSING, _due(now))
                for row in tables["parts"].firsts(
                    {"source": TEXT, **wanted}, by=["source"], fields=["part_id"], order=NEWEST_FIRST
                )
            ]
            gone = buried(tables, [row["part_id"] for row in newest])
            found = {row["source"] for row in newest if row["part_id"] not in gone}
            others = {row["source"] for row in newest} - found
            return found | {source for source in others if any(_wanting(tables, {"source": source}, now, None))}

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
        """Ask for new summaries of closed parts (of one source; of one project, by any of its names and aliases) that
        something other than `except_model` summarized and that `accepts` takes, newest first; what is there stays until
        then. Return source -> how many.
        """
        match: Row = {"closed": 1, "held_by": None, "summarized_hash": NOT_NULL}
        match |= {} if source is None else {"source": source}
        fields = ("part_id", "source", "ended_at", "content_hash", "summarized_hash")
        with self._gateway.read() as tables:
            of_others = tables["summaries"].each({"model": {"$ne": except_model}}, ["part_id"])
            ids = [row["part_id"] for row in of_others]
            parts = tables["parts"].among("part_id", ids, fields, **match, **_of_project(tables, project))
            rows = [row for row in parts if row["summarized_hash"] == row["content_hash"]]
            gone = buried(tables, [row["part_id"] for row in rows])
        rows.sort(key=lambda row: (row["ended_at"], row["part_id"]), reverse=True)
        listed = [row["part_id"] for row in rows if row["part_id"] not in gone]
        found: list[tuple[str, str]] = []
        for batch in batches(listed, _AT_ONCE):  # the texts of a few are in memory at once
            with self._gateway.read() as tables:
                some = _in_order(tables, batch)
            found += [(part.part_id, part.source) for part in some if accepts(part)]
            if limit is not None and len(found) >= limit:
                break
        found = found[:limit]
        if not dry_run:
            ids = [part_id for part_id, _ in found]
            due = {"summary_due": _ASKED_FOR}
            write_all(self._gateway, ids, lambda tables, ids: tables["parts"].update({"part_id": {"$in": [*ids]}}, due))
        return dict(Counter(source for _, source in found))

    def put_summaries(self, summaries: Sequence[Summary]) -> int:
        """Write by part id. Return how many changed. Not written is one of a part that is not there any more, of a text
        that is neither its present one nor that of the summary there is, or that was read from a reply that may not be
        kept (`LlmRecords.put_reply`).
        """
        return sum(write_all(self._gateway, summaries, write_summaries))

    def summary(self, part_id: str) -> Summary | None:
        """Return the summary of a part, of any version."""
        with self._gateway.read() as tables:
            return read_summaries(tables, [part_id]).get(part_id)

    def summary_counts(self) -> dict[str, int]:
        """Return model -> summaries it wrote, but under `problem` those that stand in for an LLM's, and under `skip`
        parts in which an LLM found nothing worth remembering.
        """
        counts = Counter[str]()
        with self._gateway.read() as tables:
            # an index has these fields, so no text is read
            for row in tables["summaries"].sums({"model": TEXT}, by=["model", "problem", "skip"]):
                counts["problem" if row["problem"] else "skip" if row["skip"] else row["model"]] += row["rows"]
        return dict(counts)

    def last_summary_problem(self) -> str:
        """Return why an LLM did not write the summary that was flagged last; empty when none is."""
        with self._gateway.read() as tables:
            found = tables["summaries"].one({"problem": NOT_EMPTY}, ["problem"], order=["-retry_at", "part_id"])
        return found["problem"] if found else ""


def write_summaries(tables: Tables, summaries: Sequence[Summary]) -> int:
    """Write summaries, one after the other, as `SummaryRecords.put_summaries` has it. Return how many changed."""
    part_ids = {summary.part_id for summary in summaries}
    parts = tables["parts"].among("part_id", part_ids, ["part_id", "content_hash"])
    texts = {row["part_id"]: row["content_hash"] for row in parts}
    held = read_summaries(tables, part_ids)
    keys = {summary.reply_key for summary in summaries if summary.reply_key}
    void = {row["key"] for row in tables["llm_asked"].among("key", keys, ["key"], void=1)}
    written: list[Row] = []
    meant: list[Row] = []
    for summary in map(cleaned, summaries):
        before, text = held.get(summary.part_id), texts.get(summary.part_id)
        replaceable = text, before.content_hash if before else None
        if text is None or summary.content_hash not in replaceable or summary.reply_key in void:
            continue
        row = summary_row(summary)
        if before != summary or before.reply_key != summary.reply_key:
            written.append(row)
            held[summary.part_id] = summary
        change = {
            "part_id": summary.part_id,
            "summarized_hash": summary.content_hash,
            "summary_due": row["retry_at"],
        }
        if summary.content_hash == text:
            change["wanted_hash"] = publication_hash(text, summary)
        meant.append(change)
    tables["summaries"].put(written)
    tables["parts"].put(meant)
    return len(written)


def rewrite_summary(tables: Tables, before: Summary, after: Summary) -> bool:
    """Write the texts of a summary as `ForgetRecords.rewrite_summary` has it."""
    if read_summaries(tables, [before.part_id]).get(before.part_id) != before:
        return False
    after = cleaned(after)
    row = summary_row(after)
    tables["summaries"].put([{name: row[name] for name in ("part_id", "text", "tags", "records")}])
    of_this_text = {"part_id": after.part_id, "content_hash": after.content_hash}
    tables["parts"].update(of_this_text, {"wanted_hash": publication_hash(after.content_hash, after)})
    return True


def cleaned(summary: Summary) -> Summary:
    """Return `summary` as it will be read back."""
    return replace(
        summary,
        text=clean(summary.text),
        tags=tuple(clean(tag) for tag in summary.tags),
        records=tuple(replace(r, text=clean(r.text), why=clean(r.why)) for r in summary.records),
        problem=clean(summary.problem),
    )


def _due(now: datetime) -> Match:
    # the index holds those that are closed and have such a text, and the match has to say so
    return {"closed": 1, "summary_due": {**TEXT, "$lte": instant(now)}, "held_by": None}


def _of_project(tables: Tables, project: str | None) -> Row:
    """Return the match of parts of a project, by any of its names, since a part keeps its own; None: of any."""
    return {} if project is None else {"project": {"$in": sorted(names_of(read_aliases(tables), project))}}


def _wanting(tables: Tables, match: Match, now: datetime, last: Place | None) -> Iterator[Place]:
    """Yield the parts that want a summary, newest first, each once."""
    missing, due = (_places(tables, {**match, **wanted}, last) for wanted in (_MISSING, _due(now)))
    yield from (listed for listed, _ in groupby(merge(missing, due, reverse=True)))


def _places(tables: Tables, match: Match, last: Place | None) -> Iterator[Place]:
    """Yield the places of the parts that match and are not deleted, newest first, as they are asked for."""
    while True:
        page = tables["parts"].find(
            {**match, **(behind(*last) if last else {})}, ["ended_at", "part_id"], order=NEWEST_FIRST, limit=_AT_ONCE
        )
        gone = buried(tables, [row["part_id"] for row in page])
        yield from ((row["ended_at"], row["part_id"]) for row in page if row["part_id"] not in gone)
        if len(page) < _AT_ONCE:
            return
        last = page[-1]["ended_at"], page[-1]["part_id"]


def _in_order(tables: Tables, part_ids: Sequence[str]) -> list[Part]:
    """Return those of these parts that are there, newest first."""
    parts = read_parts(tables, part_ids).values()
    return sorted(parts, key=lambda part: (ended_at(part), part.part_id), reverse=True)
