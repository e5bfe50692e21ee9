"""Where settings stand outside the store: in the environment, in files of secrets and in `config.toml`."""

import os
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from anamnesis_pipeline.errors import BadSetting

ENV_PREFIX = "ANAMNESIS_"


def default_home() -> Path:
    """The home where none is set."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "anamnesis"


def chosen_home() -> Path:
    """The home of this process."""
    given = os.environ.get(f"{ENV_PREFIX}HOME")
    return (Path(given) if given else default_home()).expanduser().absolute()


def chosen_secrets_dir(default: Path) -> Path | None:
    """The folder of secrets, one in a file; None where there is none, which pydantic-settings warns of."""
    folder = Path(os.environ.get(f"{ENV_PREFIX}SECRETS_DIR") or default)
    return folder if folder.is_dir() else None


def in_environment(names: Collection[str]) -> set[str]:
    """Those of these settings that a variable of the environment sets."""
    return {name for name in names if os.environ.get(ENV_PREFIX + name.upper())}


def in_secret_files(folder: Path | None, names: Collection[str]) -> set[str]:
    """Those of these settings that a file of a secret holds.

    :raises BadSetting: the folder or such a file may not be read.
    """
    files = {name: folder / f"{ENV_PREFIX}{name}".lower() for name in names} if folder else {}
    refused = [p for p in (folder, *files.values()) if p and os.access(p, os.F_OK) and not os.access(p, os.R_OK)]
    if refused or (folder and not os.access(folder, os.X_OK)):
        raise BadSetting(f"{[*refused, folder][0]} is not readable for this user; change its owner or its mode")
    return {name for name, file in files.items() if file.is_file()}


def read_file(path: Path, names: Collection[str]) -> dict[str, Any]:
    """Name -> value as a file has them; empty where there is no file.

    :raises BadSetting: it is not TOML, or sets what is none of these names, or the home.
    """
    if not os.path.isdir(path.parent):  # a home that cannot be made has none
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, OSError) as exc:
        raise BadSetting(f"{path} cannot be read as TOML: {exc}; mend it or move it away") from exc
    if unknown := sorted(values.keys() - set(names)):
        known = ", ".join(sorted(names))
        raise BadSetting(f"{path}: {', '.join(unknown)} is not a setting; the settings are: {known}")
    if "home" in values:
        raise BadSetting(
            f"{path} lies in the home folder, so it cannot say where that is; set {ENV_PREFIX}HOME instead"
        )
    return values
