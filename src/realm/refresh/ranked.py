"""One index for all ranks of a job: the first rank refreshes as the recipe says, and all go over to what it publishes at the same step.

The first rank proposes a generation by its number before each step; the others wait for that number and open the generation, so every
rank maps the same files. A child that embeds belongs to the first rank.
"""

from realm.nn.model import RealmModel
from realm.refresh.generation import Generation
from realm.refresh.index_source import IndexSource
from realm.train.distributed import is_first, on_first, world


def for_all_ranks(source: IndexSource) -> IndexSource:
    """``source`` itself in a job of one rank, else what the first rank's gives to all."""
    return source if world() == 1 else Ranked(source)


class Ranked(IndexSource):
    """A source of generations on one rank of several.

    Args:
        first: what the first rank asks; the other ranks' is never asked.
    """

    def __init__(self, first: IndexSource):
        super().__init__(first.context)
        self._first = first

    @property
    def restarts(self) -> int:
        return self._first.restarts

    def resume(self, number: int) -> Generation:
        return self._go_over(on_first(lambda: self._first.resume(number).number))

    def between(self, step: int, model: RealmModel) -> Generation | None:
        def ask() -> int | None:
            found = self._first.between(step, model)
            return None if found is None else found.number

        number = on_first(ask)
        return None if number is None else self._go_over(number)

    def finalize(self, step: int, model: RealmModel) -> Generation:
        return self._go_over(on_first(lambda: self._first.finalize(step, model).number))

    def tidy(self) -> None:
        on_first(self._first.tidy)

    def close(self) -> None:
        if is_first():
            self._first.close()

    def _go_over(self, number: int) -> Generation:
        """Search generation ``number`` on this rank, too."""
        if is_first():
            assert self._first.generation is not None
            self.generation = self._first.generation
        else:
            self.generation = self.context.open(number)
        return self.generation
