"""Find the machine of a source: one connection per place, shared by all of its sources."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anamnesis_pipeline.errors import HostRefused, SourceUnreadable
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.pipeline.source_specs import spec_of_source
from anamnesis_pipeline.sources.base import SourceHost
from anamnesis_pipeline.sources.specs import SourceSpec


@dataclass(frozen=True, slots=True)
class Hosts:
    """The machines of the configured sources. `open_remote` gets (machine, place), returns the same host for the same
    place, and does not connect. With `local_only`, no other machine is contacted.
    """

    specs: Sequence[SourceSpec]
    local: SourceHost
    open_remote: Callable[[str, str], SourceHost]
    local_only: bool = False

    def of_spec(self, spec: SourceSpec) -> SourceHost:
        """Return the machine of a configured source.

        :raises HostRefused: it is another one, and `local_only` is set.
        """
        if not spec.host:
            return self.local
        if self.local_only:
            raise HostRefused(f"local_only refuses to connect with {spec.host}; unset it to crawl other machines")
        return self.open_remote(spec.machine, spec.host)

    def of_source(self, source: Source) -> SourceHost:
        """Return the machine of a stored source.

        :raises SourceUnreadable: it is not configured any more.
        :raises HostRefused: as `of_spec`.
        """
        spec = self.spec_of(source)
        if spec is not None:
            return self.of_spec(spec)
        if not source.spec and source.machine == self.local.machine:
            return self.local  # of a former log root: its remaining files are readable
        raise SourceUnreadable(
            f"{source.key} is not read any more, since the source {source.spec or source.root!r} was removed; what was "
            "read of it stays"
        )

    def spec_of(self, source: Source) -> SourceSpec | None:
        """Return the configuration of a stored source; None: it is not configured now."""
        return spec_of_source(source, self.specs)
