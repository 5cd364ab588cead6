"""Plain TFRecord files: the blocks of the original release, one record a block. Checksums of lengths are not verified, lengths are."""

import struct
from collections.abc import Iterator
from pathlib import Path

from realm.corpus.sources.record_file import LARGEST_RECORD
from realm.errors import DataError

CURE = "Fetch the file again; compressed TFRecords must be unpacked first."
_HEAD, _TAIL = struct.Struct("<QI"), 4


class TfRecordFile:
    """The records of one file, in order, as often as they are asked for: a ``RecordFile`` of another form.

    Raises:
        DataError: the file cannot be read.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        self._count: int | None = None

    def __len__(self) -> int:
        """How many records there are; reads the file once."""
        if self._count is None:
            self._count = sum(1 for _ in self)
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        """The records. Raises DataError: a length that cannot be, or a file that is cut short."""
        try:
            with open(self.path, "rb") as file:
                while head := file.read(_HEAD.size):
                    length = _HEAD.unpack(head)[0] if len(head) == _HEAD.size else LARGEST_RECORD + 1
                    record = file.read(length + _TAIL) if length <= LARGEST_RECORD else b""
                    if len(record) != length + _TAIL:
                        raise DataError(f"damaged or cut short at byte {file.tell()}", path=self.path, cure=CURE)
                    yield record[:-_TAIL]
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror or error}", path=self.path, cure=CURE) from error
