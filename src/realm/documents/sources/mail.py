"""Mail: a message, or a mailbox of messages, each a document."""

import io
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.message import EmailMessage, MIMEPart
from itertools import chain
from mimetypes import guess_extension
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import regex

from realm.documents import records, streams
from realm.documents.detect import stem
from realm.documents.limited import Beyond, read_limited
from realm.documents.pages.pictures import says_enough
from realm.documents.pages.texts import html_page
from realm.documents.records import Record, Rejected, SourceDocument, SourceOptions, document_or_rejected
from realm.documents.sources.archives import NOT_INSIDE, read_inside
from realm.errors import MissingExtra, require_package
from realm.text.lines import canonical_line

_SEPARATOR = regex.compile(rb"From \S.*\d\d:\d\d")
_ESCAPED = regex.compile(rb">+From ")
_TAGS, _STUB = regex.compile(r"(?is)<(style|script)\b.*?</\1>|<[^>]*>"), 5  # a text of a fifth of the page's words only names it
_HEADERS = ("From", "To", "Cc", "Date")
_BAD_HEADER = (ValueError, LookupError, AttributeError, TypeError)
"""Errors of the library over headers that no standard knows."""
MOST_ATTACHED = 1_000
"""Attachments of one message that are read."""
_NOT_ATTACHED = NOT_INSIDE | {"mail", "outlook"}
_FILES = frozenset(("text/calendar", "text/vcard", "text/x-vcard", "text/csv"))
Part = tuple[str, str, str]
"""Kind, nothing and text of a text of a message; nothing, name and bytes in Base64 of an attachment."""


def read_mail(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The messages of a file: sender, receivers, date and text, with the subject as title; and their attachments, each a document by its
    own format, NAME/a.pdf. Those of a kind that is not read are counted.

    Of a mailbox the id is NAME#message=3; ``line`` counts messages and what they bring."""
    line = 0
    for found in _messages(path):
        if isinstance(found, Rejected):
            yield found
            continue
        number, message = found
        try:
            line = max(line + 1, number) if number else 0
            for record in _read_one("mail", message, f"{name}#message={number}" if number else name, path, line, options):
                line = record.line
                yield record
        except MissingExtra as error:
            yield Rejected(str(path), number, error.problem)


def read_outlook(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """A message as Outlook saves it, read as other messages are. Raises MissingExtra: python-oxmsg is not installed."""
    require_package("oxmsg", "reading .msg files", "office")
    data = streams.read_document(path)
    if isinstance(data, Rejected):
        yield data
    else:
        yield from _read_one("outlook", data, name, path, 0, options)


def _read_one(kind: str, data: bytes, doc_id: str, path: Path, line: int, options: SourceOptions) -> Iterator[SourceDocument | Rejected]:
    found = read_limited(kind, data, options.document_seconds)
    if isinstance(found, Beyond):
        yield Rejected(str(path), line, found.reason)
        return
    title, head, parts = found
    texts, attached = [head], [part for part in parts if not part[0]]
    for kind, _, text in parts:
        if kind == "html":
            page, _, shown = html_page(text.encode("utf-8", "replace"), "utf-8", doc_id, title, str(path), line, options.document_seconds)
            said = [words for figure in shown for words in figure.said if says_enough(words)]
            text = "\n\n".join([page.text, *said] if isinstance(page, SourceDocument) else said)
        texts.append(text if kind else "")
    yield document_or_rejected(doc_id, title or stem(path), "\n\n".join(filter(str.strip, texts)), str(path), line)
    names = set[str]()
    for number, (_, name, content) in enumerate(attached[:MOST_ATTACHED]):
        with TemporaryDirectory() as room:
            called = PurePosixPath(canonical_line(name).replace("\\", "/")).name[-60:].lstrip(".") or "attachment"
            inside = Path(room, f"{number} {called}" if called in names else called)
            names.add(called)
            inside.write_bytes(b64decode(content))
            for record in read_inside(inside, f"{doc_id}/{inside.name}", options, _NOT_ATTACHED):
                if isinstance(record, SourceDocument):
                    line, told = line + 1, ": ".join(filter(None, (title, record.title)))
                    yield replace(record, title=told, path=str(path), line=line, media="", media_sum="")
                elif isinstance(record, Rejected):
                    reason = records.ATTACHMENT if record.reason == records.UNKNOWN_KIND else record.reason
                    yield Rejected(f"{path}/{name}", line, reason)
    yield from (Rejected(str(path), line, records.ATTACHMENT) for _ in attached[MOST_ATTACHED:])


def _messages(path: Path) -> Iterator[tuple[int, bytes] | Rejected]:
    """The messages of a mailbox with their numbers from 1 on, or the one message of a file, numbered 0; as rejected what cannot be had."""
    lines: list[bytes] = []
    number, size, blank = 0, 0, True
    for found in chain(streams.numbered_lines(path), [None]):
        if isinstance(found, Rejected):
            yield found
            continue
        line = found[1] if found else b""
        separates = blank and _SEPARATOR.match(line) and (number or not lines)
        if found is None or (separates and number):
            yield Rejected(str(path), number, records.TOO_LONG) if size > streams.LINE_LIMIT else (number, b"".join(lines))
        if separates:
            number, lines, size = number + 1, [], 0
            continue
        blank = not line.strip()
        size += len(line)
        if size <= streams.LINE_LIMIT:
            lines.append(line[1:] if number and _ESCAPED.match(line) else line)


def message_text(data: bytes) -> tuple[str, str, list[Part]]:
    """Subject; sender with receivers and date; its parts."""
    message = message_from_bytes(data, policy=policy.default)
    assert isinstance(message, EmailMessage)
    return _header(message, "Subject"), _head(message), list(_parts(message))


def _parts(part: MIMEPart) -> Iterator[Part]:
    """Each text of a message in its order, of alternatives those of one; and each attachment."""
    kind = part.get_content_type()
    if kind == "multipart/alternative":
        found = [list(_parts(one)) for one in part.iter_parts()]
        texts = [[text for text in one if text[0] and text[2].strip()] for one in found]
        yield from _best([one for one in texts if one])
        yield from (attached for one in found for attached in one if not attached[0])
    elif part.is_multipart():
        for one in part.iter_parts():
            if kind == "message/rfc822":
                yield "plain", "", "\n".join(filter(None, (_header(one, "Subject"), _head(one))))
            yield from _parts(one)
    elif part.get_content_maintype() == "text" and part.get_content_disposition() != "attachment" and kind not in _FILES:
        yield part.get_content_subtype(), "", _content(part)
    else:
        name, payload = f"attachment{guess_extension(kind) or ''}", part.get_payload(decode=True)
        with suppress(*_BAD_HEADER):
            name = part.get_filename() or name
        data = _content(part).encode("utf-8", "replace") if kind == "text/plain" else payload if isinstance(payload, bytes) else b""
        yield "", name, b64encode(data).decode()


def _best(texts: list[list[Part]]) -> list[Part]:
    """Of alternatives the text, or the page if the text has less than a fifth of its words and so only names it."""
    words = {one[0][0]: len(_TAGS.sub(" ", one[0][2]).split()) for one in texts}
    kind = "html" if _STUB * words.get("plain", 0) < words.get("html", 0) else "plain"
    return min(texts, key=lambda one: one[0][0] != kind, default=[])


def _head(message: MIMEPart) -> str:
    return "\n".join(f"{name}: {value}" for name in _HEADERS if (value := _header(message, name)))


def outlook_text(data: bytes) -> tuple[str, str, list[Part]]:
    """The same of a message of Outlook. Raises ValueError: it is damaged."""
    from oxmsg import Message

    try:
        message = Message.load(io.BytesIO(data))
        receivers = ", ".join(f"{one.name} <{one.email_address}>" for one in message.recipients if one.email_address)
        head = {"From": str(make_header(decode_header(message.sender or ""))), "To": receivers, "Date": message.sent_date}
        told = "\n".join(f"{name}: {value}" for name, value in head.items() if value)
        texts = [("plain", "", (message.body or "").strip()), ("html", "", message.html_body or "")]
        parts = [("", one.file_name or "", b64encode(one.file_bytes or b"").decode()) for one in message.attachments]
        return message.subject or "", told, [*_best([[one] for one in texts if one[2]]), *parts]
    except Exception as error:  # what olefile and oxmsg raise over a damaged file is theirs
        raise ValueError("damaged message") from error


def _header(message: MIMEPart, name: str) -> str:
    """A header as people read it; empty where it is missing or cannot be read."""
    try:
        return str(message.get(name, "")).strip()
    except _BAD_HEADER:
        return ""


def _content(part: MIMEPart) -> str:
    """The text of a part in the encoding that it states, or looks like."""
    with suppress(LookupError, ValueError):
        if "\ufffd" not in (text := str(part.get_content())):
            return regex.sub(r"(?<!\n--) \r?\n", "", text) if part.get_param("delsp") == "yes" else text
    payload = part.get_payload(decode=True)
    found = streams.decoded(payload if isinstance(payload, bytes) else b"", "")
    return found if isinstance(found, str) else ""
