"""The diagonal of the permutohedral filter, K_ii = gain sum_kl b_k B_kl b_l over the vertices of a point's simplex.

A step forward in all d + 1 directions leads back to where it began. From vertex l to vertex k there are therefore two ways:
forward in the directions D between them, or backward in the others; from a vertex to itself three: none, all forward, all
backward. A way counts 4^-m 2^-(d + 1 - m) for m steps, in the order of the blurs, if all its vertices exist.

Cost O(n d^3): 0.3 us for each point in colour and position, once for each set of features.
"""

from __future__ import annotations

import numpy as np

from backfield.kernels.compile import kernel, part


@kernel
def diagonal(vertices, weights, ranks, neighbours, gain, out):
    """Write K_ii."""
    size = vertices.shape[1]
    local = np.zeros((size, size))
    for i in range(len(vertices)):
        _local_blur(vertices, ranks, neighbours, i, local)
        total = 0.0
        for k in range(size):
            for l in range(size):
                total += weights[i, k] * local[k, l] * weights[i, l]
        out[i] = gain * total


@kernel
def diagonal_vjp(vertices, weights, ranks, neighbours, gain, d_out, d_weights):
    """Add the adjoint of the barycentric weights."""
    size = vertices.shape[1]
    local = np.zeros((size, size))
    for i in range(len(vertices)):
        _local_blur(vertices, ranks, neighbours, i, local)
        for k in range(size):
            total = 0.0
            for l in range(size):
                total += (local[k, l] + local[l, k]) * weights[i, l]
            d_weights[i, k] += gain * d_out[i] * total


@part
def _local_blur(vertices, ranks, neighbours, i, local):
    """Write B_kl between the vertices of the simplex of point i."""
    size = vertices.shape[1]
    if i > 0 and _same_simplex(vertices, i):
        return
    for l in range(size):
        for k in range(size):
            # From vertex l to l + 1 leads the direction of rank d - l, and so on.
            low, high = min(k, l), max(k, l)
            total = 0.5**size if k == l else 0.0
            for forward in range(2):
                v, factor = vertices[i, l], 1.0
                for t in range(size):
                    between = low < size - ranks[i, t] <= high
                    if k == l or between == ((k > l) == (forward == 1)):
                        v = neighbours[t, v, forward]
                        factor *= 0.25
                        if v == neighbours.shape[1]:
                            factor = 0.0
                            break
                    else:
                        factor *= 0.5
                total += factor
            local[k, l] = total


@part
def _same_simplex(vertices, i):
    """Whether point i has the vertices of the point before it, for which the blur is known."""
    same = True
    for k in range(vertices.shape[1]):
        same &= vertices[i, k] == vertices[i - 1, k]
    return same
