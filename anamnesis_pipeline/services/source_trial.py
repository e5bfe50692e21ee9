"""Dry run of a source: lists what a crawl would read, and stores nothing."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from anamnesis_pipeline.errors import SourceUnreadable
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.sources.base import SourceHost, is_log
from anamnesis_pipeline.sources.discovery import COWORK, log_root
from anamnesis_pipeline.sources.document_selection import EXAMPLES, Chosen, Rules, chosen
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec
from anamnesis_pipeline.sources.survey_split import SourceFiles, found_in, wanted_of

FIRST_FILES = 20
_LOOKED_INTO = 5
"""Max folders searched for logs before a root counts as one of documents."""
_START_BYTES = 1 << 10


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a dry run. `formats`: format -> files and bytes. `first`: paths of the first files. `sources`: number
    of partitions. `skew_s`: how far the machine's clock is ahead, in seconds. `home`: the meaning of `~` there.
    `left_out` and `examples` as in `Chosen`.
    """

    spec: SourceSpec
    root: str
    skew_s: float | None
    seconds: float
    sources: int
    files: int
    bytes: int
    formats: Mapping[str, tuple[int, int]]
    first: tuple[str, ...]
    left_out: Mapping[str, int]
    examples: Mapping[str, tuple[str, ...]]
    problems: tuple[str, ...]
    home: str


def try_source(
    host: SourceHost,
    spec: SourceSpec,
    rules: Rules,
    skip: tuple[str, ...],
    kept_away: Callable[[str], str | None] = lambda path: None,
) -> Trial:
    """List a source once, and read the start of one file as a crawl would.

    :param kept_away: absolute path -> the rule that excludes it, as a sentence; None: none does.
    :raises SourceUnreadable: its root cannot be listed.
    :raises HostUnreachable: the machine does not answer.
    :raises HostRefused: login failed, the host key is unknown, or the machine has neither SFTP nor a shell.
    """
    started = time.perf_counter()
    (survey,) = host.survey([replace(wanted_of(spec, skip), names_skipped=True)])
    if isinstance(survey, SourceUnreadable):
        raise survey
    seconds = time.perf_counter() - started
    found = found_in(spec, survey, rules)
    excluded = _Excluded(kept_away)
    sources = [each for each in map(excluded.without, found.sources.values()) if each.files]
    files = [replace(file, path=_shown(each.source.folder, file.path)) for each in sources for file in each.files]
    selection = chosen(survey, spec, rules) if spec.kind == DOCUMENTS else Chosen(())
    counts: dict[str, tuple[int, int]] = {}
    for file in files:
        of_log = "log" if is_log(file.path) else "beside a log"
        name = (rules.format_of(file.path) or "other") if spec.kind == DOCUMENTS else of_log
        number, size = counts.get(name, (0, 0))
        counts[name] = number + 1, size + file.size
    problems = list(survey.problems)
    if first := next(((each.source, file) for each in sources for file in each.files), None):
        try:
            host.read(f"{folder_of(first[0]).rstrip('/')}/{first[1].path}", 0, _START_BYTES)
        except SourceUnreadable as problem:
            problems.append(str(problem))
    return Trial(
        spec,
        survey.root,
        host.clock_skew_s(),
        seconds,
        len(sources),
        len(files),
        sum(file.size for file in files),
        dict(sorted(counts.items(), key=lambda item: -item[1][0])),
        tuple(file.path for file in files[:FIRST_FILES]),
        {**excluded.left_out, **selection.left_out},
        {**excluded.examples, **selection.examples},
        tuple(problems),
        host.home(),
    )


class _Excluded:
    """Files of a source that exclusion rules drop: the count by rule, and the first few."""

    def __init__(self, kept_away: Callable[[str], str | None]) -> None:
        self._kept_away = kept_away
        self.left_out: Counter[str] = Counter()
        self.examples: dict[str, tuple[str, ...]] = {}

    def without(self, found: SourceFiles) -> SourceFiles:
        """Return the source files without the excluded ones."""
        folder = folder_of(found.source).rstrip("/")
        left = []
        for file in found.files:
            why = self._kept_away(f"{folder}/{file.path}")
            if why is None:
                left.append(file)
                continue
            self.left_out[why] += 1
            if self.left_out[why] <= EXAMPLES:
                self.examples[why] = (*self.examples.get(why, ()), _shown(found.source.folder, file.path))
        return replace(found, files=tuple(left))


def guessed_kind(host: SourceHost, root: str) -> str:
    """Return a root's kind: logs, if it is or holds a folder of Claude projects or Cowork sessions; else documents.

    :raises SourceUnreadable: it cannot be listed.
    """
    root = log_root(host, root)
    folders = host.folders(root)
    inside = [folder for folder in folders if folder != "."][:_LOOKED_INTO]
    has_logs = "." in folders or any("." in host.folders(f"{root.rstrip('/')}/{folder}") for folder in inside)
    return LOGS if has_logs or root.rstrip("/").endswith(f"/{COWORK}") else DOCUMENTS


def _shown(folder: str, path: str) -> str:
    return path if folder in {"", "."} else f"{folder}/{path}"
