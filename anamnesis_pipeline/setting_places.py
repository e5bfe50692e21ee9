"""Settings outside the store: environment, secret files and `config.toml`."""

import os
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from anamnesis_pipeline.errors import BadSetting

ENV_PREFIX = "ANAMNESIS_"


def default_home() -> Path:
    """Return the default home."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "anamnesis"


def chosen_home() -> Path:
    """Return the home of this process."""
    given = os.environ.get(f"{ENV_PREFIX}HOME")
    return (Path(given) if given else default_home()).expanduser().absolute()


def chosen_secrets_dir(default: Path) -> Path | None:
    """Return the folder of secret files; None if missing, since pydantic-settings would warn."""
    folder = Path(os.environ.get(f"{ENV_PREFIX}SECRETS_DIR") or default)
    return folder if folder.is_dir() else None


def in_environment(names: Collection[str]) -> set[str]:
    """Return the settings that environment variables set."""
    return {name for name in names if os.environ.get(ENV_PREFIX + name.upper())}


def in_secret_files(folder: Path | None, names: Collection[str]) -> set[str]:
    """Return the settings that secret files set.

    :raises BadSetting: the folder or such a file is not readable.
    """
    files = {name: folder / f"{ENV_PREFIX}{name}".lower() for name in names} if folder else {}
    refused = [p for p in (folder, *files.values()) if p and os.access(p, os.F_OK) and not os.access(p, os.R_OK)]
    if refused or (folder and not os.access(folder, os.X_OK)):
        raise BadSetting(f"{[*refused, folder][0]} is not readable for this user; change its owner or its mode")
    return {name for name, file in files.items() if file.is_file()}


def read_file(path: Path, names: Collection[str]) -> dict[str, Any]:
    """Return name -> value from a file; empty if there is none.

    :raises BadSetting: it is not TOML, or sets an unknown name, or the home.
    """
    if not os.path.isdir(path.parent):  # a home that cannot be created has none
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
