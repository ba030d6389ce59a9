"""Where nodes of a 4-connected grid stand in memory: colour by colour, even rows apart from odd ones.

In a row, place k of a colour holds column 2k or 2k + 1, so the neighbours of consecutive nodes are consecutive, too.
"""

from __future__ import annotations

from backfield.kernels.compile import part


@part
def neighbour(colour, parity, stride, d):
    """Parity of the row where the neighbour in direction d (left, right, up, down) lies, and its offset in places."""
    if d >= 2:
        if d == 2:
            return 1 - parity, -stride if parity == 0 else 0
        return 1 - parity, 0 if parity == 0 else stride
    # Red nodes of even rows stand in even columns: their left neighbour is one place to the left.
    left = parity - 1 if colour == 0 else -parity
    return parity, left + d
