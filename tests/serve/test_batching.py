"""The queue in front of the model: what is computed together, what is refused, what is given up."""

import asyncio
import threading

import pytest

from realm.serve.batching import Batcher
from realm.serve.shapes import Refusal


class Model:
    """Doubles numbers; keeps its batches, and waits until it is let go."""

    def __init__(self):
        self.batches = []
        self.go = threading.Event()

    def __call__(self, key, payloads):
        self.go.wait(10)
        self.batches.append((key, payloads))
        if "bad" in payloads:
            raise ValueError("bad")
        return [2 * payload for payload in payloads]


async def _gathered(batcher, model, *waiting):
    """What a first call gives, and those that come while it is computed."""
    first = asyncio.create_task(batcher.submit("a", [0], 10))
    await asyncio.sleep(0.05)
    rest = [asyncio.create_task(batcher.submit(key, payloads, 10)) for key, payloads in waiting]
    await asyncio.sleep(0.01)
    model.go.set()
    return await asyncio.gather(first, *rest, return_exceptions=True)


def test_one_key_is_computed_together_in_order():
    model = Model()
    batcher = Batcher(model, waiting=10, most=4)
    waiting = [("a", [1, 2]), ("b", [3]), ("a", [4]), ("a", [5, 6])]
    assert asyncio.run(_gathered(batcher, model, *waiting)) == [[0], [2, 4], [6], [8], [10, 12]]
    assert model.batches == [("a", [0]), ("a", [1, 2, 4, 5]), ("b", [3]), ("a", [6])]
    batcher.close()
    with pytest.raises(Refusal) as refused:
        asyncio.run(batcher.submit("a", [1], 1))
    assert refused.value.status == 503 and refused.value.headers and not batcher.alive


def test_a_full_queue_and_a_deadline():
    model = Model()
    batcher = Batcher(model, waiting=3, most=4)

    async def ask():
        first = asyncio.create_task(batcher.submit("a", [0], 10))
        await asyncio.sleep(0.05)
        with pytest.raises(Refusal) as late:
            await batcher.submit("a", [7, 8], 0.05)
        assert late.value.status == 504
        waiting = asyncio.create_task(batcher.submit("a", [9], 10))
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as full:
            await batcher.submit("a", [1, 2, 3], 10)
        assert (full.value.status, full.value.headers) == (503, {"retry-after": "1"})
        others = asyncio.create_task(batcher.submit("a", [1, 2], 10))  # what was given up on holds no place
        await asyncio.sleep(0)
        model.go.set()
        assert await first == [0] and await waiting == [18] and await others == [2, 4]

    asyncio.run(ask())
    batcher.close()
    assert model.batches == [("a", [0]), ("a", [9, 1, 2])]  # nobody computes what nobody waits for


def test_one_bad_payload_spoils_no_other():
    model = Model()
    batcher = Batcher(model, waiting=10, most=4)
    found = asyncio.run(_gathered(batcher, model, *(("a", [payload]) for payload in (1, "bad", 2))))
    assert found[:2] == [[0], [2]] and found[3] == [4] and isinstance(found[2], ValueError)
    batcher.close()


def test_between_two_batches():
    """An action runs while nothing is computed, however much waits."""
    model = Model()
    model.go.set()
    batcher = Batcher(model, waiting=1000, most=1)

    async def ask():
        tasks = [asyncio.create_task(batcher.submit("a", [number], 10)) for number in range(200)]
        await asyncio.sleep(0)
        seen = []
        await asyncio.to_thread(batcher.between, lambda: seen.append(len(model.batches)))
        assert len(seen) == 1
        return await asyncio.gather(*tasks)

    assert asyncio.run(ask()) == [[2 * number] for number in range(200)]
    with pytest.raises(ZeroDivisionError):
        batcher.between(lambda: 1 / 0)
    batcher.close()
