"""What is in the repository may be published: no secrets, no weights, nobody's folders and addresses."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LARGEST_BYTES = 1 << 20
WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".onnx", ".gguf", ".h5", ".npy", ".npz", ".ckpt"}
MADE_UP_USERS = {"ann", "kim", "you", "anamnesis"}
MADE_UP_ADDRESSES = {"10.0.3.7", "10.1.2.3", "192.168.1.20"}
"""They stand in sentences that measure a model, and in examples."""

_HOME = re.compile(r"(?:/home|/Users|C:\\Users)[/\\]([A-Za-z][\w.-]*)")
_PRIVATE = re.compile(r"\b(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}\b")

in_a_checkout = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a checkout knows what is published")


def published() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


@in_a_checkout
def test_nothing_published_is_large_or_weights_of_a_model() -> None:
    assert [str(p) for p in published() if p.suffix in WEIGHTS or p.stat().st_size > LARGEST_BYTES] == []


@in_a_checkout
def test_the_package_and_its_documents_name_nobodys_home_and_no_private_address() -> None:
    found = []
    for path in published():
        if path.relative_to(ROOT).parts[0] in ("anamnesis_tests", "examples", "benchmarks") or path.suffix == ".png":
            continue
        text = path.read_text(encoding="utf-8")
        found += [f"{path}: {name}" for name in _HOME.findall(text) if name not in MADE_UP_USERS]
        found += [f"{path}: {address}" for address in _PRIVATE.findall(text) if address not in MADE_UP_ADDRESSES]
    assert found == []


def test_the_scan_of_make_check_stops_a_planted_key(tmp_path: Path) -> None:
    """The very command that `make check` runs, over a repository of one file."""
    (line,) = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "secrets-hook" in line]
    command = line.strip().replace("$(BIN)", str(Path(sys.executable).parent)).replace("$$", "$")
    git = shutil.which("git")
    assert git is not None
    subprocess.run([git, "init", "-q", str(tmp_path)], check=True)
    planted = tmp_path / "settings.py"

    def scanned(text: str) -> int:
        planted.write_text(text, encoding="utf-8")
        subprocess.run([git, "add", "-A"], cwd=tmp_path, check=True)
        return subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, check=False).returncode

    assert scanned("REGION = 'eu-central-1'\n") == 0
    assert scanned("KEY = 'AKIA" + "2E0A8F3B244C9986'\n") != 0
