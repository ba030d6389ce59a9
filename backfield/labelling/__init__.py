"""``backfield label``: paint a few strokes, watch the field think, keep the model.

session    folder, labels, scribbles on disk, undo; a volume is a file with many images, its slices
thinking   scribbles -> classifier, field, pictures of what they believe
asking     where a label would help most, and whether to go on
export     the model, masks and probabilities of the whole folder
server     what a browser may ask for; ``page/`` is what it shows
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backfield.labelling.session import Session as Session


def learn(folder: str | Path, model: str | Path | None = None) -> Any:
    """Return the model of the scribbles in a folder, as a :class:`backfield.GridCRF`: the one that a session exports.

    Parameters
    ----------
    folder : of images or volumes, and ``masks/``
    model : an exported model to start from
    """
    from backfield.labelling.export import learn_folder

    return learn_folder(Path(folder), None if model is None else Path(model))
