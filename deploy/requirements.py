"""Prints what pyproject.toml requires, so that the image's largest layer does not change with the code.

python requirements.py PYPROJECT EXTRAS    (EXTRAS: names of optional dependencies, separated by commas)
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extras: str) -> list[str]:
    """The dependencies, then those of each extra.

    :raises KeyError: there is no such extra.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    names = [name.strip() for name in extras.split(",") if name.strip()]
    return [*project["dependencies"], *(line for name in names for line in optional[name])]


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in requirements(Path(sys.argv[1]), sys.argv[2]))
