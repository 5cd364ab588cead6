"""Text of the kNN proofs: articles chosen by a hash of their ids, caption pairs, and Wikitext in running spelling."""

import hashlib
import json
import lzma
import re
from pathlib import Path

JOINED = ((" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."), (" n't", "n't"), (" \n", "\n"))


def articles(data: Path, name: str, first: int, count: int, longest: int) -> list[str]:
    """Texts of ``count`` articles of 600 characters or more from the ``first`` on in order of their ids' hashes, cut at ``longest``."""
    with lzma.open(data / "corpus" / f"{name}.jsonl.xz", "rt", encoding="utf8") as lines:
        rows = [(hashlib.sha256(row["id"].encode()).digest(), row["text"]) for row in map(json.loads, lines) if len(row["text"]) >= 600]
    return [text[:longest] for _, text in sorted(rows)[first : first + count]]


def caption_pairs(data: Path, name: str) -> list[tuple[str, str]]:
    """(English, German) of one file of multi30k."""
    with lzma.open(data / "multi30k" / f"{name}.en-de.jsonl.xz", "rt", encoding="utf8") as lines:
        return [(row["en"], row["de"]) for row in map(json.loads, lines)]


def wikitext(data: Path, name: str) -> list[str]:
    """Articles of Wikitext-2 in running spelling. The rule: @-@ @,@ @.@ lose their marks and spaces; no space before . , ; : ! ? ) ] %
    's n't, none after ( [; double quotes lose the space inside, in turns; headings keep = signs; no space before <unk>, which stays."""
    with lzma.open(data / "wikitext2" / f"{name}.txt.xz", "rt", encoding="utf8") as file:
        text = file.read().replace(" <unk>", "<unk>")
    for marked, plain in JOINED:
        text = text.replace(marked, plain)
    text = re.sub(r" ([.,;:!?)\]%]|'s\b|'(?= ))", r"\1", text)
    text = re.sub(r"([(\[]) ", r"\1", text)
    text = re.sub(r'" ([^"\n]*) "', r'"\1"', text)
    parts = re.split(r"\n(?= = [^=])", text)
    return [part.strip() for part in parts if part.strip()]


def write_lines(path: Path, rows: list[dict[str, str]]) -> Path:
    """A JSONL file, written once."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf8")
    return path
