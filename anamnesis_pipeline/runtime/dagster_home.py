"""DAGSTER_HOME and the configuration files of the package."""

from importlib.metadata import distribution
from pathlib import Path

import anamnesis_pipeline
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.settings import Settings

CONFIG_FILES = ("dagster.yaml", "workspace.yaml")


def bundled(name: str) -> Path:
    """Return a file or folder installed beside the package, or in the root of the repository.

    :raises GiveUp: it is in neither place.
    """
    package = Path(anamnesis_pipeline.__path__[0])
    for place in (package / name, package.parent / name):
        if place.exists():
            return place
    raise GiveUp(f"{name} belongs to Anamnesis but is not in {package}; install it again")


def write_dagster_home(home: Path) -> None:
    """Create the folder and copy the configuration there; done at every start.

    :raises GiveUp: it cannot be written.
    """
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name in CONFIG_FILES:
            (home / name).write_bytes(bundled(name).read_bytes())
    except OSError as exc:
        raise GiveUp(f"{home} cannot be written ({exc.strerror}); mend that, or set ANAMNESIS_HOME") from exc


LOOPBACK = "127.0.0.1"


def dagster_url(settings: Settings) -> str:
    """Return the base address of the Dagster UI for this process."""
    return settings.dagster_url or f"http://{LOOPBACK}:{settings.dagster_port}"


def dagster_link(settings: Settings) -> str:
    """Return the base address of the Dagster UI for its users."""
    return settings.dagster_link or dagster_url(settings)


def dagster_command(name: str) -> str:
    """Return the path of one of Dagster's commands, from its installation's file list.

    :raises GiveUp: it does not exist.
    """
    package = "dagster-graphql" if name == "dagster-graphql" else "dagster"
    for file in distribution(package).files or ():
        if file.name == name and (path := Path(str(file.locate())).resolve()).is_file():
            return str(path)
    raise GiveUp(f"Dagster is installed without its command {name}; install {package} again")
