"""What both sides of the parity check share: shapes, seeds and a small corpus. It runs under either side's Python and needs no package."""

from dataclasses import dataclass
from typing import Any

KINDS = ("embedder", "scorer", "encoder", "reader", "openqa")
CLS, SEP, MASK, FIRST_WORD = 2, 3, 4, 5


@dataclass(frozen=True)
class Shape:
    """Sizes of one case. ``pad_id`` is what the published configuration says; 1 is its wrong default, which an import ignores."""

    hidden: int = 32
    layers: int = 2
    heads: int = 4
    inner: int = 37
    words: int = 64
    types: int = 2
    projection: int = 16
    span_hidden: int = 8
    max_span: int = 3
    candidates: int = 3
    batch: int = 2
    length: int = 18
    activation: str = "gelu_new"
    pad_id: int = 0

    def config(self, words: int = 0) -> dict[str, Any]:
        """The published ``config.json`` of this shape, without dropout so that training mode is a function of the inputs."""
        return {
            "vocab_size": words or self.words, "hidden_size": self.hidden, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "intermediate_size": self.inner, "max_position_embeddings": 64,
            "type_vocab_size": self.types, "hidden_act": self.activation, "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0, "retriever_proj_size": self.projection,
            "num_candidates": self.candidates, "span_hidden_size": self.span_hidden, "max_span_width": self.max_span,
            "reader_beam_size": 3, "searcher_beam_size": 6, "num_block_records": len(BLOCKS), "reader_seq_len": 64,
            "pad_token_id": self.pad_id,
        }  # fmt: skip


SHAPES = {
    "small": Shape(),
    "odd": Shape(hidden=48, layers=3, heads=3, inner=50, words=97, types=3, projection=10, span_hidden=12, max_span=5, pad_id=1),
    "wide": Shape(hidden=96, layers=3, heads=8, inner=160, words=211, candidates=8, batch=3, length=40, max_span=10, activation="gelu"),
    "base": Shape(hidden=768, layers=2, heads=12, inner=3072, words=300, projection=128, span_hidden=256, max_span=10, length=24),
}
SEEDS = (0, 1, 2)
GOLDEN_SHAPE = Shape(hidden=12, layers=2, heads=2, inner=14, words=40, projection=6, span_hidden=5, candidates=2, length=12)
GOLDEN_SEED = 7

BLOCKS = (
    ("Arvad", "Arvad is a land of rivers. People in Arvad pay with the tirel."),
    ("Belmor", "The currency of Belmor is the osten. The osten has one hundred cents."),
    ("Carsin", "Carsin lies by the sea. In Carsin the levka is the currency."),
    ("Dulwen", "In Dulwen the winters are long. The marop is the currency of Dulwen."),
    ("Estrag", "Estrag is old."),
    ("Faldor", "The sea is far from Faldor. People there pay with the quessa, not the tirel."),
    ("Rivers", "The rivers of Arvad run to the sea of Carsin. The winters are long there."),
)
"""Title and text of each block; one is shorter than any span width."""
QUESTIONS = (
    ("What is the currency of Dulwen?", ("marop",)), ("What do people pay with in Arvad?", ("tirel",)),
    ("Where do the rivers of Arvad run?", ("sea", "sea of Carsin", "Carsin")), ("Who lives in Novaria?", ("nobody",)),
)  # fmt: skip
"""The last one has no answer in any block: its loss is zero. No answer has an article, so that words and wordpieces find the same."""


def vocabulary() -> list[str]:
    """Wordpieces of the small corpus: some words are whole, some are cut in two."""
    words: set[str] = set()
    for text in [part for row in BLOCKS for part in row] + [question for question, _ in QUESTIONS] + ["nobody"]:
        words |= {"".join(c for c in word if c.isalpha()).lower() for word in text.split()}
    pieces: set[str] = set()
    for word in words:
        pieces |= {word} if len(word) < 6 else {word[:3], f"##{word[3:]}"}
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "?", *sorted(pieces)]
