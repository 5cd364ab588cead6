"""JSON and TOML as values. Whatever is wrong with them is a ValueError, nesting that Python cannot follow included."""

import json
import tomllib
from typing import Any

TOO_DEEP = "nested too deeply"


def json_value(text: str | bytes) -> Any:
    """The value of JSON. Raises ValueError: it is none, is not UTF-8, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def toml_values(text: str) -> dict[str, Any]:
    """The values of TOML. Raises tomllib.TOMLDecodeError (a ValueError): it is none, or is nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError(TOO_DEEP) from None
