"""``--set section.key=value``: values over a recipe from the command line."""

from typing import Any


def overrides(settings: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """``section.key=value`` as nested values; a value that is no TOML is a string."""
    import tomllib

    from realm.errors import ConfigError

    values: dict[str, dict[str, Any]] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot and section and key):
            raise ConfigError(f"--set {setting}: not a setting", cure="Write --set section.key=value, such as --set pretrain.steps=100.")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        values.setdefault(section, {})[key] = value
    return values
