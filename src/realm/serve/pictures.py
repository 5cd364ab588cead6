"""Pictures of blocks over HTTP: only what the corpus names, by the id of a block, and only as it was when the corpus read it.

No request names a file. A document that is added over HTTP has no picture, whatever it says; a file that was changed, moved or replaced by
a link since it was read has another checksum, and is not sent.
"""

import numpy as np

from realm.corpus.pictures import SHOWN, picture_type
from realm.corpus.sources.pictures import picture_bytes
from realm.serve.refusals import Refusal
from realm.serve.serving import Serving


def picture_of_block(serving: Serving, block_id: int) -> tuple[bytes, str]:
    """The picture that a block is of, and its media type.

    Raises:
        Refusal: 404 there is no such block, it is of no picture, or the picture is gone or changed; 415 browsers do not show its kind.
    """
    store = serving.current.inputs.store.newest()
    wanted = np.array([block_id], np.int64)
    if not store.is_live(wanted)[0]:
        raise Refusal(404, "unknown", "no block has this id")
    block = store.block(int(store.rows_of(wanted)[0]))
    if not block.media:
        raise Refusal(404, "unknown", "this block is of no picture")
    data = picture_bytes(block.media, block.media_sum)
    if data is None:
        raise Refusal(404, "gone", "the picture is not where it was read, or has changed since; sync the corpus")
    kind = picture_type(data)
    if kind not in SHOWN:
        raise Refusal(415, "not_shown", "browsers do not show pictures of this kind")
    return data, kind
