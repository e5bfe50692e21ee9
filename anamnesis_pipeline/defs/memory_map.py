"""Asset: the memory map, which the page Map draws."""

from base64 import b64encode

import dagster as dg

from anamnesis_pipeline.defs.reporting import INDEX_KIND, ROWS, per_second
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.embeddings.cores import Priority, run_ranked
from anamnesis_pipeline.pipeline.memory_map import TooFewEpisodesError, make_map, map_path, save_map
from anamnesis_pipeline.services.map_picture import picture_of
from anamnesis_pipeline.services.wiring import configured_cores


@dg.asset(deps=["vector_index"], group_name="memory", kinds={INDEX_KIND})
def memory_map(memory: MemoryResource) -> dg.MaterializeResult[None]:
    """A point in two dimensions for each episode of the active space: similar episodes are close together."""
    settings, space = memory.settings, memory.store.spaces.active()
    if space is None:
        return _nothing_yet("No space is active yet; it is once the first episodes are embedded.")
    cores = configured_cores(settings)
    try:
        made = run_ranked(lambda: make_map(memory.store, space, threads=len(cores)), cores, Priority.BACKGROUND)
    except TooFewEpisodesError as exc:
        return _nothing_yet(str(exc))
    save_map(map_path(settings.home), made)
    picture = b64encode(picture_of(made)).decode("ascii")
    return dg.MaterializeResult(
        data_version=dg.DataVersion(f"{made.space}-{made.mark}"),
        metadata={
            "map": dg.MetadataValue.md(f"![The map of memory](data:image/png;base64,{picture})"),
            ROWS: len(made.places),
            "space": made.space,
            "episodes": made.episodes,
            "points": len(made.places),
            "landmarks": made.landmarks,
            "projects": len(made.counts),
            "seconds": made.seconds,
            "episodes per second": per_second(made.episodes, made.seconds),
        },
    )


def _nothing_yet(reason: str) -> dg.MaterializeResult[None]:
    """Report an empty map as up to date, as the page Map does."""
    return dg.MaterializeResult(data_version=dg.DataVersion("none"), metadata={"status": reason, "episodes": 0})
