"""What a memory must hold, told from what was on disk when each file was read, and in which order that was."""

from anamnesis_pipeline.model import SOMEWHERE, FileCursor
from anamnesis_pipeline.parsing.claude_logs.parser import FileState
from anamnesis_tests.parsing.claude_logs.log_tree import Line, Place, is_agents

ALONE = "?"
"""Behind the word of a subagent's task as long as nothing tells that the session says it too."""


class ExpectedMemory:
    """Archived generations of every file, and who owns each word."""

    def __init__(self) -> None:
        self.archived: dict[Place, list[list[Line]]] = {}
        self.owner: dict[str, Place] = {}
        self.copies: set[tuple[str, Place, int]] = set()
        """(word, file, line) of what some other file owns."""
        self._parsed: dict[Place, tuple[int, int]] = {}
        """How far: generation, and lines of it."""
        self._changed_at: dict[Place, int] = {}
        self._first_changed_at: dict[Place, int] = {}
        self._lent: set[str] = set()
        """Words that only forks and subagents' files had so far: whoever has them as their own takes them over."""
        self._told: set[str] = set()
        self._linked: set[str] = set()
        """Subagents' tasks that were read in a session which asked, not only in its copies under other names."""

    def crawled(self, place: Place, on_disk: list[Line], cursor: FileCursor) -> None:
        """A crawl archived a file up to some line."""
        generations = self.archived.setdefault(place, [[]])
        before = [line.text for line in generations[-1]]
        if before and [line.text for line in on_disk[: len(before)]] != before:
            generations.append([])
        generations[-1] = on_disk[: cursor.lines]
        assert cursor.generation == len(generations) - 1, f"{place}: a file's generation ends when its lines change"
        self._changed_at[place] = cursor.mtime_ns
        self._first_changed_at.setdefault(place, cursor.first_mtime_ns)

    def unparsed(self, folder: str) -> list[Place]:
        """The files of a folder with something to parse: sessions, those known, originals, the older ones first."""
        return sorted((place for place in self.archived if place[0] == folder and self._rest(place)), key=self._order)

    def parsed(self, place: Place, cursor: FileCursor) -> None:
        """A run parsed a file up to some line."""
        state = FileState.from_json(cursor.parser_state)
        assert state is not None
        end = state.generation, state.line
        for generation, number, line in self._rest(place):
            if (generation, number) < end:
                self._read(place, number, line)
        self._parsed[place] = end

    def _rest(self, place: Place) -> list[tuple[int, int, Line]]:
        begun = self._parsed.get(place, (0, 0))
        lines = ((g, n, line) for g, lines in enumerate(self.archived[place]) for n, line in enumerate(lines))
        return [found for found in lines if found[:2] >= begun]

    def _order(self, place: Place) -> tuple[bool, bool, bool, str, int, str]:
        is_new, lines = place not in self._parsed, self.archived[place][-1]
        is_fork, at = (lines[0].is_borrowed, lines[0].record["timestamp"]) if is_new and lines else (False, "")
        return is_agents(place), is_new, is_fork, at, self._changed_at[place], place[1]

    def _read(self, place: Place, number: int, line: Line) -> None:
        word = self._as_known(place, line)
        owner = self.owner.setdefault(word, place)
        is_lent = line.is_borrowed or is_agents(place)
        if word not in self._told:
            self._told.add(word)
            self._lent.update([word] if is_lent else [])
        elif owner == place:
            return
        elif word in self._lent and self._gives_way(owner, place, line):
            self.owner[word] = place
            self.copies.add((word, owner, SOMEWHERE))
            if not is_lent:
                self._lent.remove(word)
        elif word not in self._lent and not is_lent and self._is_older(place, owner):
            self.owner[word] = place
            self.copies.add((word, owner, SOMEWHERE))
        else:
            self.copies.add((word, place, number))

    def _is_older(self, place: Place, owner: Place) -> bool:
        """Whether a copy in another folder was there before the one that was read first."""
        is_elsewhere = place[0] != owner[0] and not is_agents(owner)
        return is_elsewhere and self._first_changed_at[place] < self._first_changed_at[owner]

    def _as_known(self, place: Place, line: Line) -> str:
        """The word. A task in its subagent's file is one of its own until the session is read that asks."""
        alone = line.word + ALONE
        if not line.asked_in or line.word in self._linked:
            return line.word
        if is_agents(place):
            return alone
        if line.record["sessionId"] == line.asked_in:
            self._linked.add(line.word)
            if alone in self._told:
                self._merge(alone, line.word)
        return line.word

    def _merge(self, alone: str, word: str) -> None:
        """Who has the task alone had the message first, or gives it up to a copy of the session."""
        former = self.owner.pop(alone)
        self.copies = {(word if its == alone else its, place, line) for its, place, line in self.copies}
        if word in self._told:
            self.copies.add((word, former, SOMEWHERE))
        else:
            self.owner[word] = former
            self._told.add(word)
            self._lent.add(word)

    def _gives_way(self, owner: Place, place: Place, line: Line) -> bool:
        """Whether the file of a subagent, or a fork, has the word no longer for its own."""
        return not is_agents(place) and (is_agents(owner) or not line.is_borrowed)
