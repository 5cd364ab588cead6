"""The verb about published bodies."""

from realm.cli import show


def models(*, json: bool = False) -> None:
    """List the published bodies that [model] body takes by name, and which of them are on this machine.

    Args:
        json: print one JSON object as the last line.
    """
    from dataclasses import asdict

    from realm.nn.known_bodies import KNOWN_BODIES, local_directory

    found = [{**asdict(body), "directory": str(local_directory(body) or "")} for body in KNOWN_BODIES]
    if not json:
        show.models(found)
    show.last_line({"models": found}, json)
