"""What a user may say about sources instead of letting the readers look."""

from dataclasses import asdict, dataclass

from realm.corpus.sources.formats import FORMATS
from realm.errors import ConfigError


@dataclass(frozen=True)
class SourceOptions:
    """How to read the sources of one build; None lets the reader look.

    Args:
        format: one of ``FORMATS``, for every source. Of a folder, only the files that look like this format are read.
        id_column: column (or JSON key) with the id.

    Raises:
        ConfigError: an unknown format.
    """

    format: str | None = None
    id_column: str | None = None
    title_column: str | None = None
    text_column: str | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise ConfigError(f"unknown format of sources '{self.format}'", cure=f"It is one of: {', '.join(FORMATS)}")

    @classmethod
    def of(cls, format: str, id_column: str, title_column: str, text_column: str) -> "SourceOptions":
        """From flags and recipes, where an empty string lets the reader look."""
        return cls(format or None, id_column or None, title_column or None, text_column or None)

    def said(self) -> dict[str, str]:
        """The fields that are not left to the readers."""
        return {name: value for name, value in asdict(self).items() if value is not None}


LOOK = SourceOptions()
"""Everything is found by looking."""
