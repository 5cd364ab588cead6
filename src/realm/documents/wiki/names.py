"""Names that MediaWikis use in their languages: namespaces, redirects, disambiguation, lists, and closing sections (``names.toml``)."""

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files


def name_set(text: str) -> frozenset[str]:
    """Names apart by bars and line ends."""
    return frozenset(_listed(text))


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.replace("\n", "|").split("|") if name.strip()]


def _any_of(key: str) -> str:
    return "|".join(_listed(TABLES[key]))


TABLES: dict[str, str] = tomllib.loads((files("realm.documents.wiki") / "names.toml").read_text("utf-8"))
FILE, CATEGORY = name_set(TABLES["file"]), name_set(TABLES["category"])
FRAMES, SIDES = name_set(TABLES["frames"]), name_set(TABLES["sides"])
_LONG_CODES, _SHORT_PREFIXES = name_set(TABLES["long_codes"]), name_set(TABLES["short_prefixes"])
_TARGET = re.compile(r"[^\[\]|{}<>\n]{0,255}")
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(?=:)")
REDIRECT = re.compile(rf"\s*#\s*(?:{_any_of('redirect')})\s*:?\s*\[\[", re.IGNORECASE)
_DISAMBIGUATION_TEMPLATES = name_set(TABLES["disambiguation_templates"])
_DISAMBIGUATION_CATEGORIES = tuple(sorted(name_set(TABLES["disambiguation_categories"])))
_DISAMBIGUATION_TITLE = re.compile(rf"\((?:{_any_of('disambiguation_title')})\)$", re.IGNORECASE)
_LIST_TITLE = re.compile(rf"(?:{_any_of('list_begins')})\b|.*(?:{_any_of('list_ends')})$", re.IGNORECASE)
_TEMPLATE_NAME = re.compile(r"\{\{\s*([^|{}\[\]<\n]{1,60})")
_CATEGORY_LINK = re.compile(r"\[\[\s*([^\[\]|:\n]{1,30}):\s*([^\[\]|\n]{1,100})")

CLOSING_SECTIONS = name_set(TABLES["closing_sections"])
_ENGLISH = {"talk": 1, "user": 2, "wikipedia": 4, "file": 6, "image": 6, "mediawiki": 8, "template": 10, "help": 12, "category": 14}
_ENGLISH |= {f"{name} talk": number + 1 for name, number in _ENGLISH.items() if number > 1} | {"portal": 100}


class Namespaces:
    """The file and category namespaces and the other wikis' prefixes of one dump, by ``numbered``, its own names of namespaces."""

    def __init__(self, numbered: Mapping[int, str] | None = None):
        numbered = numbered or {}
        own = {number: name.lower() for number, name in numbered.items()}
        self.dropped = FILE | CATEGORY | {own.get(-2, "media"), own.get(6, "file"), own.get(14, "category")}
        self.category = CATEGORY | {own.get(14, "category")}
        self.groups_by_comma = own.get(14, "category") == "category"  # an English wiki, which writes 1,234
        self._numbers = {name: number for number, name in own.items() if name}
        self._titles = _ENGLISH | self._numbers

    def drops(self, target: str) -> bool:
        """Return whether a link to this target leaves no text: a file, a category, or the same page in another language."""
        if ":" not in target or target.startswith(":"):
            return False
        lower = target.partition(":")[0].strip().replace("_", " ").lower()
        if lower in self.dropped or lower in _LONG_CODES:
            return True
        return bool(_LANGUAGE_CODE.match(target)) and lower not in _SHORT_PREFIXES and lower not in self._numbers

    def number_of(self, title: str) -> int:
        """The namespace of a page, for dumps older than schema 0.6, which do not say it."""
        prefix, colon, _ = title.partition(":")
        return self._titles.get(prefix.strip().lower(), 0) if colon else 0


def is_redirect(text: str) -> bool:
    return REDIRECT.match(text, 0) is not None


def redirect_target(text: str) -> str:
    """The title that a redirect leads to; empty where its text does not say."""
    found = REDIRECT.match(text, 0)
    target = _TARGET.match(text, found.end()) if found else None
    return page_name(target[0]) if target else ""


def page_name(target: str) -> str:
    """The title of the page that the target of a link names, without the section; empty where it is a section of its own page."""
    return " ".join(target.partition("#")[0].replace("_", " ").removeprefix(":").split())


def is_disambiguation(title: str, text: str, namespaces: Namespaces) -> bool:
    """By the title's ending, the magic word, a template or a category, in the languages of the tables."""
    if _DISAMBIGUATION_TITLE.search(title) or "__DISAMBIG__" in text:
        return True
    if any(name.replace("_", " ").strip().lower() in _DISAMBIGUATION_TEMPLATES for name in _TEMPLATE_NAME.findall(text)):
        return True
    return any(
        name.strip().lower().startswith(_DISAMBIGUATION_CATEGORIES)
        for prefix, name in _CATEGORY_LINK.findall(text)
        if prefix.strip().lower() in namespaces.category
    )


def is_list(title: str) -> bool:
    """Return whether the title says that the article is a list, an index or an outline."""
    return _LIST_TITLE.match(title) is not None
