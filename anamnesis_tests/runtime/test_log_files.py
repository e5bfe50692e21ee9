"""Logs of children stay bounded, lose nothing recent, and are read back from their end."""

from pathlib import Path

from anamnesis_pipeline.runtime.supervision import KEPT, last_lines, rotate


def test_small_or_absent_log_is_not_rotated(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert not rotate(log)
    log.write_text("line\n")
    assert not rotate(log, max_bytes=100)
    assert log.read_text() == "line\n"


def test_only_so_many_older_logs_are_kept_newest_first(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for number in range(KEPT + 3):
        log.write_text(f"{number} " + "x" * 100)
        assert rotate(log, max_bytes=10)
    older = sorted(path.name for path in tmp_path.iterdir() if path != log)
    assert older == [f"a.log.{n}" for n in range(1, KEPT + 1)]
    assert (tmp_path / "a.log.1").read_text().startswith(f"{KEPT + 2} ")


def test_child_goes_on_writing_to_a_log_that_was_rotated(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("ab", buffering=0) as child:
        child.write(b"before " * 10)
        rotate(log, max_bytes=10)
        child.write(b"after")
    assert log.read_bytes() == b"after"


def test_last_lines_have_no_colours_and_survive_broken_text(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"\xff\xfe\n" + b"".join(b"\x1b[32m%d\x1b[0m\n" % n for n in range(50)))
    assert last_lines(log, count=3) == ["47", "48", "49"]
    assert last_lines(tmp_path / "none.log") == []
