"""Sources: any kind of document collection in, documents and rejected records out, one at a time, decoded but not yet canonical.

One file a kind. ``reading`` looks at a source and picks the reader, ``detect`` knows endings and first bytes, ``streams`` decompresses,
bounds lines and decodes, ``columns`` finds columns. Duplicate ids are found by the builder, which sees all sources."""

from realm.documents.records import FORMATS, LOOK, SourceOptions
from realm.documents.sources.reading import iter_documents

__all__ = ["FORMATS", "LOOK", "SourceOptions", "iter_documents"]
