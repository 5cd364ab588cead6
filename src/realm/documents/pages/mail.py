"""Mail: a message, or a mailbox of messages, each a document."""

import io
from collections.abc import Iterator
from contextlib import suppress
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from email.message import EmailMessage, MIMEPart
from pathlib import Path

import regex

from realm.documents import streams
from realm.documents.detect import stem
from realm.documents.formats import SourceOptions
from realm.documents.limited import Beyond, read_limited
from realm.documents.pages.texts import html_page
from realm.documents.records import ATTACHMENT, TOO_LONG, Record, Rejected, SourceDocument, document_or_rejected
from realm.errors import MissingExtra, require_package

_SEPARATOR = regex.compile(rb"From \S.*\d\d:\d\d")
_ESCAPED = regex.compile(rb">+From ")
_HEADERS = ("From", "To", "Cc", "Date")


def read_mail(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """The messages of a file: sender, receivers, date and text. Its title is the subject; attachments are counted, and not read.

    Of a mailbox the id is NAME#message=3, and ``line`` the number of the message."""
    for found in _messages(path):
        if isinstance(found, Rejected):
            yield found
            continue
        number, message = found
        try:
            doc_id = f"{name}#message={number}" if number else name
            yield from _read_one("mail", message, doc_id, path, number, options.document_seconds)
        except MissingExtra as error:
            yield Rejected(str(path), number, error.problem)


def read_outlook(path: Path, name: str, options: SourceOptions) -> Iterator[Record]:
    """A message as Outlook saves it, read as other messages are. Raises MissingExtra: python-oxmsg is not installed."""
    require_package("oxmsg", "reading .msg files", "office")
    data = streams.read_document(path)
    if isinstance(data, Rejected):
        yield data
    else:
        yield from _read_one("outlook", data, name, path, 0, options.document_seconds)


def _read_one(kind: str, data: bytes, doc_id: str, path: Path, number: int, seconds: float) -> Iterator[Record]:
    found = read_limited(kind, data, seconds)
    if isinstance(found, Beyond):
        yield Rejected(str(path), number, found.reason)
        return
    title, head, parts, attachments = found
    texts = [head]
    for kind, text in parts:
        if kind == "html":
            record = html_page(text.encode("utf-8", "replace"), "utf-8", doc_id, title, str(path), number, seconds)[0]
            text = record.text if isinstance(record, SourceDocument) else ""
        texts.append(text)
    yield document_or_rejected(doc_id, title or stem(path), "\n\n".join(filter(str.strip, texts)), str(path), number)
    yield from (Rejected(str(path), number, ATTACHMENT) for _ in range(attachments))


def _messages(path: Path) -> Iterator[tuple[int, bytes] | Rejected]:
    """The messages of a mailbox with their numbers from 1 on, or the one message of a file, numbered 0; as rejected what cannot be had."""
    lines: list[bytes] = []
    number, size, blank = 0, 0, True
    for found in streams.numbered_lines(path):
        if isinstance(found, Rejected):
            yield found
            continue
        line = found[1]
        if blank and _SEPARATOR.match(line) and (number or not lines):
            if number:
                yield _whole(path, number, lines, size)
            number, lines, size = number + 1, [], 0
            continue
        blank = not line.strip()
        size += len(line)
        if size <= streams.LINE_LIMIT:
            lines.append(line[1:] if number and _ESCAPED.match(line) else line)
    yield _whole(path, number, lines, size)


def _whole(path: Path, number: int, lines: list[bytes], size: int) -> tuple[int, bytes] | Rejected:
    return Rejected(str(path), number, TOO_LONG) if size > streams.LINE_LIMIT else (number, b"".join(lines))


def message_text(data: bytes) -> tuple[str, str, list[tuple[str, str]], int]:
    """Subject; sender with receivers and date; kind and content of each text; and the number of attachments."""
    message = message_from_bytes(data, policy=policy.default)
    assert isinstance(message, EmailMessage)
    parts = list(_parts(message))
    return _header(message, "Subject"), _head(message), [part for part in parts if part is not None], parts.count(None)


def _parts(part: MIMEPart) -> Iterator[tuple[str, str] | None]:
    """Kind and content of each text of a message in its order, of alternatives those of one; None for an attachment."""
    kind = part.get_content_type()
    if part.get_content_disposition() == "attachment":
        yield None
    elif kind == "multipart/alternative":
        found = [[text for text in _parts(one) if text is not None and text[1].strip()] for one in part.iter_parts()]
        yield from min(filter(None, found), key=lambda texts: texts[0][0] != "plain", default=())
    elif part.is_multipart():
        for one in part.iter_parts():
            if kind == "message/rfc822":
                yield "plain", "\n".join(filter(None, (_header(one, "Subject"), _head(one))))
            yield from _parts(one)
    elif part.get_content_maintype() == "text":
        yield part.get_content_subtype(), _content(part)
    else:
        yield None


def _head(message: MIMEPart) -> str:
    return "\n".join(f"{name}: {value}" for name in _HEADERS if (value := _header(message, name)))


def outlook_text(data: bytes) -> tuple[str, str, list[tuple[str, str]], int]:
    """The same of a message of Outlook. Raises ValueError: it is damaged."""
    from oxmsg import Message

    try:
        message = Message.load(io.BytesIO(data))
        receivers = ", ".join(f"{one.name} <{one.email_address}>" for one in message.recipients if one.email_address)
        head = {"From": str(make_header(decode_header(message.sender or ""))), "To": receivers, "Date": message.sent_date}
        told = "\n".join(f"{name}: {value}" for name, value in head.items() if value)
        text, page = (message.body or "").strip(), message.html_body or ""
        return message.subject or "", told, [("plain", text) if text else ("html", page)], message.attachment_count
    except Exception as error:  # what olefile and oxmsg raise over a damaged file is theirs
        raise ValueError("damaged message") from error


def _header(message: MIMEPart, name: str) -> str:
    """A header as people read it; empty where it is missing or cannot be read."""
    try:
        return str(message.get(name, "")).strip()
    except (ValueError, LookupError, AttributeError, TypeError):  # what the library raises over headers that no standard knows
        return ""


def _content(part: MIMEPart) -> str:
    """The text of a part in the encoding that it states, or looks like."""
    with suppress(LookupError, ValueError):
        if "\ufffd" not in (text := str(part.get_content())):
            return text
    payload = part.get_payload(decode=True)
    found = streams.decoded(payload if isinstance(payload, bytes) else b"", "")
    return found if isinstance(found, str) else ""
