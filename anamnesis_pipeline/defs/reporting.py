"""How assets report: counts, rates and small tables as metadata, the store's watermark as data version."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from anamnesis_pipeline.store.ingest_base import SourceCounts


def table(rows: Sequence[Mapping[str, Any]]) -> dg.MarkdownMetadataValue:
    """Rows as a table that the Dagster UI shows."""
    import pandas as pd  # noqa: PLC0415 - half a second that loading the definitions does not need

    cells = [{name: _cell(value) for name, value in row.items()} for row in rows]
    return dg.MetadataValue.md(pd.DataFrame(cells).to_markdown(index=False) if rows else "(nothing)")


def _cell(value: Any) -> Any:
    """A value that does not end its cell or its row."""
    return " ".join(value.split()).replace("|", "\\|") if isinstance(value, str) else value


def counted(counts: Mapping[str, int]) -> dg.MarkdownMetadataValue:
    """Name -> number as a table, largest first."""
    return table([{"what": name, "count": n} for name, n in sorted(counts.items(), key=lambda item: -item[1])])


def watermark(counts: SourceCounts, *fields: str) -> dg.DataVersion:
    """A version that changes when the named counts do: a run that wrote nothing marks nothing downstream stale."""
    return dg.DataVersion("-".join(f"{name}:{getattr(counts, name)}" for name in fields))


def per_second(amount: float, seconds: float) -> float:
    """A rate, rounded; 0 for no time."""
    return round(amount / seconds, 1) if seconds > 0 else 0.0
