"""Descriptions and reports of assets: counts, rates and small tables as metadata, the store's watermark as data
version.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from inspect import signature
from typing import Any

import dagster as dg

from anamnesis_pipeline.defs.resources import AT_LOAD
from anamnesis_pipeline.services.dagster.api import ASSET_PAGES
from anamnesis_pipeline.settings import sidecar_url
from anamnesis_pipeline.store.records.overview import SourceCounts

STORE_KIND = "mongodb" if AT_LOAD.store == "mongo" else "sqlite"
INDEX_KIND = "mongodb" if AT_LOAD.store == "mongo" else "usearch"
ROWS = "dagster/row_count"
"""Metadata that the UI shows as an asset's size, and plots over time."""
OWNER = "team:anamnesis"
DAILY = frozenset(
    "crawled_files exchanges documents summaries episodes session_summaries entities observations".split()
)
"""Assets that every full ingest materializes; the others only on changes."""
FRESHNESS = dg.FreshnessPolicy.time_window(warn_window=timedelta(hours=26), fail_window=timedelta(hours=50))
"""The nightly ingest may be an hour or two late; two missed nights are a failure."""


def owned(definition: Callable[..., Any]) -> dict[str, Any]:
    """Return the owner as an argument for a job, sensor or schedule; empty if this Dagster lacks the parameter."""
    return {"owners": [OWNER]} if "owners" in signature(definition).parameters else {}


def tagged(stage: str) -> dict[str, str]:
    """Return the tags of an asset, job, sensor or schedule of a stage."""
    return {"stage": stage, "store": AT_LOAD.store}


def described(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Return an asset with its owner, store kind and page; daily ones get a freshness policy."""
    name = spec.key.path[0]
    pages = AT_LOAD.service_link or sidecar_url(AT_LOAD)
    page = {"page": dg.MetadataValue.url(pages + ASSET_PAGES[name])} if name in ASSET_PAGES else {}
    spec = spec.merge_attributes(owners=[OWNER], tags=tagged(str(spec.group_name)), kinds={STORE_KIND}, metadata=page)
    if name in DAILY and AT_LOAD.ingest_schedule != "disabled":
        return spec.replace_attributes(freshness_policy=FRESHNESS)
    return spec


def table(rows: Sequence[Mapping[str, Any]]) -> dg.MarkdownMetadataValue:
    """Return rows as a table for the Dagster UI."""
    import pandas as pd  # noqa: PLC0415 - half a second that loading the definitions need not take

    cells = [  # a value must not end its cell or row
        {name: " ".join(v.split()).replace("|", "\\|") if isinstance(v, str) else v for name, v in row.items()}
        for row in rows
    ]
    return dg.MetadataValue.md(pd.DataFrame(cells).to_markdown(index=False) if rows else "(nothing)")


def counted(counts: Mapping[str, int]) -> dg.MarkdownMetadataValue:
    """Return name -> number as a table, largest first."""
    return table([{"what": name, "count": n} for name, n in sorted(counts.items(), key=lambda item: -item[1])])


def watermark(counts: SourceCounts, *fields: str) -> dg.DataVersion:
    """Return a version that changes with the named counts: a run without changes makes nothing downstream stale."""
    return dg.DataVersion("-".join(f"{name}:{getattr(counts, name)}" for name in fields))


def versioned(version: str) -> dict[str, str]:
    """Return tags of a materialization without a run's output, in Dagster's format for the data version."""
    return {"dagster/data_version": version, "dagster/data_version_is_user_provided": "true"}


def per_second(amount: float, seconds: float) -> float:
    """Return a rounded rate; 0 for no time."""
    return round(amount / seconds, 1) if seconds > 0 else 0.0
