"""The one tokenizer of a corpus, shared by embedder, encoder and reader: load, train, save, encode with offsets.

What does not live here: how token ids are laid out in model inputs (models/featurize.py) and how sentences are found (sentences.py)."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import regex
from tokenizers import Encoding, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from realm.errors import ConfigError, DataError, said
from realm.storage import files
from realm.storage.files import json_value
from realm.storage.manifests import Errors, check_sealed
from realm.text.alphabet import (
    CHARACTER_PATTERN,
    CHARACTERS_SHARE,
    can_continue_a_word,
    continues_a_character,
    read_texts,
    training_texts,
    writing_of,
)
from realm.text.folding import fold, folded

RELEASED = Path(__file__).parents[1] / "released" / "realm-minilm-en"
"""The model that ships in the package, with its tokenizer."""

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"

# What the five roles are called: BERT's names, RoBERTa's and XLM-R's. Read only when no tokenizer_config.json names them.
_KNOWN_NAMES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


_DAMAGED = Errors.of(DataError, "Restore the file, or save the tokenizer again", "damaged tokenizer: ")


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of [PAD], [UNK], [CLS], [SEP] and [MASK] in a vocabulary."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


Offsets = list[tuple[int, int]]


@dataclass(frozen=True)
class Tokenized:
    """Wordpieces of several texts.

    Attributes:
        ids: uint32 [tokens], of all texts, one after the other.
        starts: int64 [texts + 1]: ``ids[starts[i]:starts[i + 1]]`` are those of text i.
        offsets: of text i, (start, end) in code points of the text of every id.
        words: of text i, the number of the word that every id is of."""

    ids: np.ndarray
    starts: np.ndarray
    offsets: Callable[[int], Offsets]
    words: Callable[[int], Sequence[int | None]]


class TextTokenizer:
    """A ``tokenizers.Tokenizer`` without truncation, padding or added special tokens.

        >>> tokenizer = train_wordpiece(["the cat sat on the mat"], vocab_size=200)
        >>> ids, offsets = tokenizer.encode_offsets("The cat")
        >>> [tokenizer.token(id) for id in ids], offsets
        (['the', 'cat'], [(0, 3), (4, 7)])

    Args:
        backend: the tokenizer; its truncation and padding are switched off.
        names: token of each role (pad, unk, cls, sep, mask); guessed from the usual names if not given.
        origin: file or hub name, for error messages.

    ``sha256`` is that of the bytes that ``save`` writes. Raises DataError: a role has no token in the vocabulary."""

    def __init__(self, backend: Tokenizer, names: dict[str, str] | None = None, origin: str | Path | None = None):
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._names = {role: _find_role(backend, role, names or {}, origin) for role in _KNOWN_NAMES}
        self.special = SpecialTokens(**{role: backend.token_to_id(name) or 0 for role, name in self._names.items()})
        self._json = backend.to_str(pretty=True)
        self.sha256 = hashlib.sha256(self._json.encode("utf-8")).hexdigest()

    @cached_property
    def vocab_size(self) -> int:
        """Return the largest id + 1, added tokens included."""
        return max(self._backend.get_vocab(with_added_tokens=True).values()) + 1

    @cached_property
    def cuts_characters(self) -> bool:
        """Return whether characters of Hangul, kana, Thai and their like are words of their own, as Han characters are."""
        cut = {"type": "Split", "pattern": {"Regex": CHARACTER_PATTERN}, "behavior": "Isolated", "invert": False}
        steps = (json_value(self._json)["pre_tokenizer"] or {}).get("pretokenizers", [])
        return len(steps) == 2 and steps[0].get("type") == "BertPreTokenizer" and steps[1] == cut

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text in its one spelling (folding.py): no special tokens, no truncation."""
        return [encoding.ids for encoding in self._encodings([folded(text) for text in texts])]

    def encode_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of ``text`` and, for each, its (start, end) in code points of ``text`` as it is written."""
        written = fold(text)
        encoding = self._backend.encode(written.text, add_special_tokens=False)
        return encoding.ids, written.places(encoding.offsets)

    def tokenize(self, sentences: Sequence[str]) -> Tokenized:
        """Ids and offsets of running text: what ``encode_offsets`` gives."""
        written = [fold(sentence) for sentence in sentences]
        found = self._encodings([sentence.text for sentence in written])
        starts = np.cumsum([0, *(len(encoding) for encoding in found)], dtype=np.int64)
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in found), np.uint32, count=int(starts[-1]))
        return Tokenized(ids, starts, lambda i: written[i].places(found[i].offsets), lambda i: found[i].word_ids)

    def _encodings(self, texts: Sequence[str]) -> list[Encoding]:
        return self._backend.encode_batch(list(texts), add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Readable text of ``ids``, special tokens included."""
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def token(self, id: int) -> str:
        """The vocabulary entry ``id``. Raises KeyError: no such id."""
        token = self._backend.id_to_token(int(id))
        if token is None:
            raise KeyError(id)
        return token

    def same_wordpieces(self, other: "TextTokenizer") -> bool:
        """Return whether both have the same ids for the same entries; how the file spells the rest does not matter."""
        return self._backend.get_vocab(with_added_tokens=True) == other._backend.get_vocab(with_added_tokens=True)

    def save(self, directory: Path) -> None:
        """Write tokenizer.json and tokenizer_config.json, so that ``AutoTokenizer.from_pretrained(directory)`` loads it too."""
        files.write_atomic(directory / TOKENIZER_FILE, self._json)
        files.write_json(directory / CONFIG_FILE, _config_of(self._names))

    @classmethod
    def load(cls, directory_or_file: Path) -> "TextTokenizer":
        """Load what ``save`` wrote, or any tokenizer.json (with the tokenizer_config.json beside it, if there is one). Raises DataError:
        the file is missing, is not a tokenizer, lacks a special token, or is not the one that was published here."""
        file = Path(directory_or_file)
        if file.is_dir():
            file = file / TOKENIZER_FILE
        check_sealed(file.parent, _DAMAGED, file.name, CONFIG_FILE)
        try:
            backend = Tokenizer.from_str(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError("no tokenizer here", path=file, cure="Name a directory with tokenizer.json, or a hub name") from error
        except Exception as error:  # the library raises plain Exception for every malformed file
            raise DataError(f"not a tokenizer file: {error}", path=file, cure="Save the tokenizer again") from error
        return cls(backend, _names_in(_read_config(file.with_name(CONFIG_FILE))), file)

    @classmethod
    def from_pretrained(cls, name: str) -> "TextTokenizer":
        """The tokenizer of a model on the Hugging Face hub or in a local directory. Code from the model's repository is never run. Raises
        DataError: nothing is found under that name, or it has no fast tokenizer or no mask token."""
        if _is_saved_here(Path(name)):
            return cls.load(Path(name))
        from transformers import AutoTokenizer

        try:
            loaded: Any = AutoTokenizer.from_pretrained(name, use_fast=True, trust_remote_code=False)
        except Exception as error:  # a damaged file makes the library raise whatever its parts raise
            cure = "Give a hub name that can be reached or a directory with tokenizer.json"
            raise DataError(f"no tokenizer '{name}': {said(error)}", cure=cure) from error
        if not getattr(loaded, "is_fast", False):
            raise DataError(f"the tokenizer '{name}' has no fast version, which offsets need", cure="Choose a model with tokenizer.json")
        names = {role: getattr(loaded, f"{role}_token", None) for role in _KNOWN_NAMES}
        names["cls"] = names["cls"] or loaded.bos_token
        names["sep"] = names["sep"] or loaded.eos_token
        # A copy: switching truncation off must not change the object that the caller's other code may hold.
        backend = Tokenizer.from_str(loaded.backend_tokenizer.to_str())
        return cls(backend, {role: str(token) for role, token in names.items() if token}, name)


def _find_role(backend: Tokenizer, role: str, names: dict[str, str], origin: str | Path | None) -> str:
    for name in (names[role],) if role in names else _KNOWN_NAMES[role]:
        if backend.token_to_id(name) is not None:
            return name
    cure = "Choose the tokenizer of a masked language model, such as BERT's"
    raise DataError(f"the tokenizer has no {role} token", path=origin, cure=cure)


def _config_of(names: Mapping[str, str]) -> dict[str, str]:
    """The tokenizer_config.json of a tokenizer that has everything else in tokenizer.json."""
    return {"tokenizer_class": "PreTrainedTokenizerFast", **{f"{role}_token": name for role, name in names.items()}}


def _is_saved_here(directory: Path) -> bool:
    """Return whether ``save`` wrote this directory: then transformers, which takes seconds to import, would add nothing."""
    config = _read_config(directory / CONFIG_FILE)
    return (directory / TOKENIZER_FILE).is_file() and config == _config_of(_names_in(config))


def _read_config(path: Path) -> dict[str, Any]:
    config = files.read_json(path)
    return config if isinstance(config, dict) else {}


def _names_in(config: dict[str, Any]) -> dict[str, str]:
    """Special tokens by role, as transformers writes them: plain strings or {"content": ...}."""
    names = {}
    for role in _KNOWN_NAMES:
        entry = config.get(f"{role}_token")
        entry = entry.get("content") if isinstance(entry, dict) else entry
        if isinstance(entry, str):
            names[role] = entry
    return names


_NO_WORD = regex.compile(r"\w{1000,}|[^\s\p{P}$+<=>^`|~]{1000,}")
"""Nothing is learned from it: of more than 100 characters a word is unknown, and learning is quadratic in the length of a word."""


def train_wordpiece(texts: Iterable[str], vocab_size: int, lowercase: bool = True) -> TextTokenizer:
    """Train BERT's kind of vocabulary: BERT normaliser, BERT pre-tokenizer, WordPiece; [PAD]=0, [UNK], [CLS], [SEP], [MASK].

    The same texts give the same bytes, in every process and with any number of threads. Texts in scripts without spaces between words, or
    with particles glued to them (``alphabet.py``), are cut into characters, of which none that occurs is lost; those of Hangul that do
    not occur are spelled by their letters.

    At most ``MAX_TRAINING_CHARS`` characters are read; small corpora give fewer entries than ``vocab_size``. ``lowercase``: fold case and
    strip accents. Raises ConfigError: ``vocab_size`` is not in 200..1,000,000; DataError: the texts hold no character."""
    if not 200 <= vocab_size <= 1_000_000:
        raise ConfigError(f"vocab_size = {vocab_size} is not between 200 and 1000000")
    read = [folded(text) for text in read_texts(texts)]
    writing = writing_of(read)
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=False if writing.keeps_marks else None)
    whole = writing.whole[: int(CHARACTERS_SHARE * vocab_size)]
    normalised, alphabet = training_texts(read, normalizer, max(vocab_size // 4, 64), whole)
    special = [names[0] for names in _KNOWN_NAMES.values()]
    # The trainer gives ids to continuation pieces ("##a") in the order of a randomly seeded hash map, and breaks ties between
    # merges by those ids. Listed up front they get their ids in our order, and training becomes a function of the texts.
    continues = continues_a_character if writing.characters else can_continue_a_word
    continuations = [f"##{character}" for character in alphabet if continues(character)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=special + continuations,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = _pre_tokenizer(writing.characters)
    learner.train_from_iterator((_NO_WORD.sub(" ", text) for text in normalised), trainer)
    vocabulary = learner.get_vocab(with_added_tokens=True)
    # A fresh tokenizer: in the learner the continuation pieces count as special tokens, here they are ordinary ones.
    return _bert_tokenizer(vocabulary, normalizer, characters=writing.characters)


def read_vocabulary(file: Path, lowercase: bool = True) -> TextTokenizer:
    """BERT's tokenizer from a ``vocab.txt``: one wordpiece a line, its id the number of the line.

    ``lowercase``: fold case and strip accents, as the uncased models do. Raises DataError: the file cannot be read, names a wordpiece
    twice, or lacks a special token."""
    try:
        pieces = file.read_text("utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"no vocabulary ({error})", path=file, cure="Fetch the model's vocab.txt again.") from error
    pieces = [piece.rstrip("\r") for piece in pieces]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        line = next(number for number, piece in enumerate(pieces, 1) if vocabulary[piece] != number - 1)
        raise DataError("a repeated wordpiece", path=file, line=line, cure="Fetch the model's vocab.txt again.")
    if lacking := [names[0] for names in _KNOWN_NAMES.values() if names[0] not in vocabulary]:
        raise DataError(f"the vocabulary has no {lacking[0]}", path=file, cure="Use the vocab.txt of a BERT.")
    return _bert_tokenizer(vocabulary, normalizers.BertNormalizer(lowercase=lowercase))


def _pre_tokenizer(characters: bool) -> pre_tokenizers.PreTokenizer:
    """BERT's, which parts Han characters; with ``characters`` it parts those of Hangul, kana, Thai and their like, too."""
    words = pre_tokenizers.BertPreTokenizer()
    if not characters:
        return words
    return pre_tokenizers.Sequence([words, pre_tokenizers.Split(Regex(CHARACTER_PATTERN), behavior="isolated")])


def _bert_tokenizer(vocabulary: dict[str, int], normalizer: normalizers.BertNormalizer, *, characters: bool = False) -> TextTokenizer:
    """BERT's normaliser, pre-tokenizer and layout of inputs around a vocabulary."""
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    backend.normalizer = normalizer
    backend.pre_tokenizer = _pre_tokenizer(characters)
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    backend.add_special_tokens([names[0] for names in _KNOWN_NAMES.values()])
    return TextTokenizer(backend)


def read_tokenizer(directory: Path) -> TextTokenizer:
    """Tokenizer of ``tokenizer.json``, or BERT's with ``vocab.txt``. Raises DataError: neither is there, or it is damaged."""
    if (directory / "tokenizer.json").is_file():
        return TextTokenizer.load(directory)
    if (directory / "vocab.txt").is_file():
        return read_vocabulary(directory / "vocab.txt", lowercase=bool(_read_config(directory / CONFIG_FILE).get("do_lower_case", True)))
    raise DataError("no tokenizer here", path=directory, cure="Put the model's tokenizer.json or vocab.txt beside its weights.")
