"""One index for all ranks of a job: the first rank refreshes as the recipe says, and all go over to what it publishes at the same step.

The first rank proposes a generation by its number before each step; the others wait for that number and open the generation, so every
rank maps the same files. A child that embeds belongs to the first rank.
"""

from typing import Any

from realm.nn.model import RealmModel
from realm.refresh.generation import Generation
from realm.refresh.swapping import Inline
from realm.train.distributed import is_first, on_first


class Ranked(Inline):
    """A source of generations on one rank of several.

    Args:
        first: what the first rank asks; the other ranks' is never asked.
    """

    def __init__(self, first: Inline):
        super().__init__(first.paths, first.inputs, first.device, first.schedule, first.protect, first.options)
        self._first = first

    @property
    def restarts(self) -> int:
        return self._first.restarts

    def resume(self, number: int) -> Generation:
        generation = self._go_over(on_first(lambda: self._first.resume(number).number))
        assert generation is not None
        return generation

    def between(self, step: int, model: RealmModel) -> Generation | None:
        return self._go_over(on_first(lambda: _number(self._first.between(step, model))))

    def settle(self, step: int, model: RealmModel) -> Generation:
        generation = self._go_over(on_first(lambda: _number(self._first.settle(step, model))))
        assert generation is not None
        return generation

    def state(self) -> dict[str, Any]:
        return self._first.state()

    def restore(self, state: dict[str, Any]) -> None:
        self._first.restore(state)

    def tidy(self) -> None:
        on_first(self._first.tidy)

    def close(self) -> None:
        if is_first():
            self._first.close()

    def _go_over(self, number: int | None) -> Generation | None:
        """Search generation ``number`` on this rank, too; None: nothing new."""
        if number is None:
            return None
        if not is_first():
            return super().resume(number)
        self.generation, self.made_with = self._first.generation, self._first.made_with
        return self.generation


def _number(found: Generation | None) -> int | None:
    return None if found is None else found.number
