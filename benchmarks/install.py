"""What an installation takes: seconds of pip in a new virtual environment, and its size on disk.

python benchmarks/install.py
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from startup import megabytes

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Install as `make up` does, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin/python"
        command = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", ROOT]
        subprocess.run([*map(str, command)], check=True)
        print(f"installed in {time.monotonic() - started:.0f} s: {megabytes(Path(folder)):,.0f} MB")
        cuda = [path for path in Path(folder).glob("lib/python3*/site-packages/nvidia") if path.is_dir()]
        print(f"of which libraries for CUDA: {sum(map(megabytes, cuda)):,.0f} MB")


if __name__ == "__main__":
    main()
