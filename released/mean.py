"""A model with the mean of the weights of two readers of one shape: a start that keeps what each of them knows.

    python released/mean.py MODEL OTHER --out runs/mean
    python released/mean.py runs/mean RUN/stages/finetune --share 0.65 --out runs/shipped

Embedder, specification and tokenizer are those of the second.
"""

import argparse
from pathlib import Path

from realm.models.bodies.known import body_directory
from realm.models.model import RealmModel
from realm.text.tokenizer import TextTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs=2, help="directories, or names of known bodies")
    parser.add_argument("--share", type=float, default=0.5, help="weight of the second")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    directories = [body_directory(name) for name in arguments.models]
    other, model = map(RealmModel.from_pretrained, directories)
    state, theirs = model.reader.state_dict(), other.reader.state_dict()
    model.reader.load_state_dict({name: theirs[name].lerp(values, arguments.share) for name, values in state.items()})
    model.save_pretrained(arguments.out, tokenizer=TextTokenizer.load(directories[-1]))


if __name__ == "__main__":
    main()
