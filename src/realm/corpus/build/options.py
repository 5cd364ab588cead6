"""What a user may say about a corpus that is built: everything that its bytes depend on besides the sources."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from realm.corpus.sources import LOOK, SourceOptions
from realm.corpus.store import manifest as manifests
from realm.corpus.tagging.specs import DEFAULT as DEFAULT_TAGGER
from realm.errors import ConfigError
from realm.storage import files
from realm.text.tokenizer import TextTokenizer

SHORTEST_BLOCK = 16


@dataclass(frozen=True)
class BuildOptions:
    """The options of one build.

    Args:
        tokenizer: a tokenizer, a directory or file with one, a corpus, or a hub name. None trains a WordPiece vocabulary on the documents.
        vocab_size: of a trained vocabulary.
        lowercase: whether a trained vocabulary folds case.
        block_length: most wordpieces of a block, its title and three special tokens counted in.
        tagger: which taggers find the salient spans, as ``tagging.specs`` says. Without spans a corpus can be searched, not pre-trained on.
        gazetteer: file of phrases to tag besides names, dates and numbers, one a line.
        strict: stop at the first bad record instead of leaving it out.
        source_options: format and columns of the sources, where detection is not enough.

    Raises:
        ConfigError: ``block_length`` is too small.
    """

    tokenizer: TextTokenizer | str | Path | None = None
    vocab_size: int = 8000
    lowercase: bool = True
    block_length: int = 288
    tagger: str = DEFAULT_TAGGER
    gazetteer: Path | None = None
    strict: bool = False
    source_options: SourceOptions = LOOK

    def __post_init__(self) -> None:
        if self.block_length < SHORTEST_BLOCK:
            raise ConfigError(f"block_length = {self.block_length} is below {SHORTEST_BLOCK}")

    def given_tokenizer(self) -> TextTokenizer | None:
        """The tokenizer that was asked for; None if one is to be trained. Raises DataError: it cannot be read."""
        if self.tokenizer is None or isinstance(self.tokenizer, TextTokenizer):
            return self.tokenizer
        path = Path(self.tokenizer)
        if path.is_file():
            return TextTokenizer.load(path)
        if (path / manifests.TOKENIZER_DIRECTORY).is_dir():
            return TextTokenizer.load(path / manifests.TOKENIZER_DIRECTORY)
        return TextTokenizer.from_pretrained(str(self.tokenizer))

    def fingerprint(self, given: TextTokenizer | None) -> dict[str, Any]:
        """JSON values that differ where two builds of the same sources could give different bytes.

        Args:
            given: what ``given_tokenizer`` returned.
        """
        return {
            "tokenizer": given.sha256 if given else [self.vocab_size, self.lowercase],
            "block_length": self.block_length,
            "tagger": self.tagger,
            "strict": self.strict,
            "gazetteer": self.gazetteer and files.sha256_file(Path(self.gazetteer)),
            "source_options": asdict(self.source_options),
        }
