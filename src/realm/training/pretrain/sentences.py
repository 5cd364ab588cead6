"""The sentences that a run masks: of which corpus, what is hidden of them, and what they must not be given."""

from realm.documents.store.blocks import BlockStore
from realm.documents.store.manifest import given_corpus, read_manifest
from realm.errors import CorpusError
from realm.text.wordpieces import word_table
from realm.training.context import StageContext, fingerprint
from realm.training.masking.kinds import NO_EVIDENCE, NOTHING_RECURS, MaskKind, RandomSpans, RecurringSpans, UniformTokens, salient_spans
from realm.training.masking.sentences import Exclusion, MaskedSentences


def sentences_store(context: StageContext) -> BlockStore:
    """The pre-training corpus X: the knowledge corpus, unless the recipe names another. Raises CorpusError: it does not fit."""
    named = context.recipe.pretrain.sentences
    if not named:
        return context.store
    store = BlockStore.open(given_corpus(named) or context.paths.sentences)
    if not store.tokenizer.same_wordpieces(context.store.tokenizer):
        cure = f"Build it with: realm corpus build --tokenizer {context.paths.corpus}"
        raise CorpusError("the sentences have other wordpieces than the run's corpus", path=store.path, cure=cure)
    return store


def require_same_corpus(store: BlockStore) -> None:
    """Refuse to continue over another corpus than the open one. Raises CorpusError: it was replaced, or is gone."""
    if read_manifest(store.path).corpus_id != store.manifest.corpus_id:
        cure = "The trained stages belong to the old corpus: start a new run with --out."
        raise CorpusError("another corpus was built here while the run was using it", path=store.path, cure=cure)


def warm_sentences(context: StageContext) -> MaskedSentences:
    """Sentences that teach reading: a salient span of each, or random spans in a corpus without. Raises CorpusError: there are none."""
    salient = MaskedSentences(context.store, context.inputs.featurizer)
    if len(salient):
        return salient
    return _any(MaskedSentences(context.store, context.inputs.featurizer, _kind("spans", context.store)), "random spans")


def pretraining_sentences(context: StageContext) -> MaskedSentences:
    """Sentences that pre-training learns from, masked as the recipe says. Raises CorpusError: there are none."""
    section, store = context.recipe.pretrain, sentences_store(context)
    featurizer = context.inputs.featurizer
    exclusion = Exclusion(store, context.store, section.exclude)
    if section.masking == "recurring":
        kind: MaskKind = RecurringSpans(store, context.store, shown=featurizer.query_length - 2, unsalient=section.unsalient)
    else:
        kind = _kind(section.masking, store)
    return _any(MaskedSentences(store, featurizer, kind, exclusion), f"pretrain.masking = {section.masking!r}")


def probe_sentences(context: StageContext, training: MaskedSentences) -> MaskedSentences:
    """Sentences with a salient span that probe the retriever under any masks; ``training`` where the corpus has none."""
    section = context.recipe.pretrain
    if section.masking == "salient":
        return training
    salient = MaskedSentences(training.store, training.featurizer, exclusion=training.exclusion)
    return salient if len(salient) else training


def pretraining_fingerprint(context: StageContext) -> str:
    """Fingerprint of pre-training, over the corpus of masked sentences and the stages it starts from, too."""
    section = context.recipe.pretrain
    parents = [stage for stage, used in (("ict", section.from_ict), ("warm", section.from_warm)) if used]
    more = {"sentences": sentences_store(context).manifest.corpus_id} if section.sentences else {}
    return fingerprint(context, "pretrain", *parents, **more)


def _kind(masking: str, store: BlockStore) -> MaskKind:
    if masking == "spans":
        return RandomSpans(store, word_table(store.tokenizer))
    return UniformTokens(store) if masking == "tokens" else salient_spans(store)


def _any(sentences: MaskedSentences, choice: str) -> MaskedSentences:
    if len(sentences):
        return sentences
    alone, recurring = (sentences.dropped[reason] for reason in (NOTHING_RECURS, NO_EVIDENCE))
    if alone + recurring:
        share = recurring / (alone + recurring)
        problem = f"{share:.1%} of {alone + recurring:,} sentences share words with another document, but no document helps to fill them"
        cure = "Add documents that speak of the same things, or set pretrain.masking to 'salient' or 'spans'."
        raise CorpusError(problem, path=sentences.store.path, cure=cure)
    left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(sentences.dropped.items()))
    problem = f"no sentence has a span that can be masked with {choice}" + (f" ({left_out})" if left_out else "")
    cure = "Give a gazetteer ([corpus] gazetteer) or documents with names or dates, or set pretrain.masking to 'spans'."
    raise CorpusError(problem, path=sentences.store.path, cure=cure)
