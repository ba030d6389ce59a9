"""``backfield list`` shows sentences, not markup."""

import pytest

from backfield.cli.list import first_line
from backfield.registry import lookup, names, rooms


@pytest.mark.parametrize("room", rooms())
def test_no_markup_is_left(room):
    for name in names(room):
        line = first_line(lookup(room, name))
        assert line and "`" not in line and ":class:" not in line, line


def test_references_keep_their_names():
    class Part:
        """Images: (H, W, F) arrays or :class:`GridSample` s; ``a`` and :func:`~pack.module.f` stay."""

    assert first_line(Part) == "Images: (H, W, F) arrays or GridSamples; a and pack.module.f stay."
