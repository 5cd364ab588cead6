"""What a published stage of a run says about itself: ``stages/NAME/stage.json``, and the format of the whole run directory."""

from pathlib import Path
from typing import Any

from realm.decoding import json_value
from realm.errors import RunError
from realm.paths import RunPaths
from realm.storage.manifests import Errors
from realm.storage.sealed import check_sealed

RUN_FORMAT = 1
STAGE_FILE = "stage.json"
AGAIN = "Restore the file; realm verify RUN lists all that is damaged, realm repair RUN says what can be made again"


def _error(problem: object, path: Path) -> RunError:
    return RunError(f"damaged: {problem}", path=path, cure=AGAIN)


DAMAGED = Errors(damaged=_error, refused=_error)
"""What is raised for a file of a published stage, or of parameters, that is damaged or cannot be read."""


def stage_facts(paths: RunPaths, stage: str) -> dict[str, Any]:
    """What a published stage wrote about itself.

    Raises:
        RunError: the stage is not published, or by another version, or what it wrote has changed since.
    """
    path = paths.stage(stage) / STAGE_FILE
    check_sealed(path.parent, DAMAGED, STAGE_FILE)
    facts = _read(path)
    if facts is None:
        raise RunError(f"the stage '{stage}' has not run", path=paths.root, cure=f"Run it: realm {stage} {paths.root}")
    _check_format(facts, path)
    return facts


def has_stage(paths: RunPaths, stage: str) -> bool:
    """Whether the stage is published."""
    return (paths.stage(stage) / STAGE_FILE).exists()


def require_run(paths: RunPaths) -> None:
    """Refuse a directory that holds no run.

    Raises:
        RunError: no run is there, or one of another version.
    """
    if not paths.config.is_file():
        raise RunError("no run here: config.toml is missing", path=paths.root, cure="Make one with: realm run RECIPE.toml --out RUN")
    check_run_format(paths)


def check_run_format(paths: RunPaths) -> None:
    """Refuse a run directory of another version; one that no version has written to passes.

    Raises:
        RunError: ``run.json`` names another format or cannot be read.
    """
    path = paths.root / "run.json"
    facts = _read(path)
    if facts is not None:
        _check_format(facts, path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        facts: dict[str, Any] = json_value(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError) as error:
        raise RunError(f"cannot be read: {error}", path=path, cure=f"{AGAIN}.") from error
    return facts


def _check_format(facts: Any, path: Path) -> None:
    found = facts.get("format") if isinstance(facts, dict) else None
    if found != RUN_FORMAT:
        raise RunError(f"run format {found}, this version reads {RUN_FORMAT}", path=path, cure="Start a new run.")
