"""The kernels that run the program of a junction tree (see ``table_memory``): sums, maxima, samples.

The first half serves ``exact``: sums only, complex numbers and tangents. The second half gives each clique, which then
sums out one variable, a weight w:

    m(x_S) = w log sum_{x_v} exp(psi(x_C) / w),    q(x_v | x_S) = exp((psi(x_C) - m(x_S)) / w)

w = 1 is the sum, w = 0 the maximum (q is then one at the first of the best labels), in between are the power sums of
Hölder's inequality (Liu and Ihler 2011).
"""

from __future__ import annotations

import numpy as np

from backfield.inference.exact.junction_tree import COPY, SUM_OUT
from backfield.kernels.compile import exact_kernel


@exact_kernel
def run_up(code, places, first, end, local, values, tangents):
    """Run rows of the program; messages below ``local`` are left alone (the way down has been there)."""
    for k in range(first, end):
        row = code[k]
        if row[0] == SUM_OUT:
            _sum_out(row, row[1] >= local, values, tangents)
        else:
            _spread(row, places, values)
            if len(tangents):
                _spread(row, places, tangents)


@exact_kernel
def run_down(code, places, first, end, values, tangents):
    """Run rows of the program backwards: marginals take the place of what they are marginals of."""
    for k in range(end - 1, first - 1, -1):
        row = code[k]
        if row[0] == SUM_OUT:
            _multiply(row, values, tangents)
        else:
            _gather(row, places, values)
            if len(tangents):
                _gather(row, places, tangents)


@exact_kernel
def _spread(row, places, values):
    """Do dst = src or dst += src, repeated along the axes that src lacks."""
    op, k, src, size, at, n_slow, n_middle = row[0], row[1], row[2], row[3], row[5], row[6], row[7]
    n_fast = size // (n_slow * n_middle)
    fast = places[at + n_slow + n_middle : at + n_slow + n_middle + n_fast]
    for a in range(n_slow):
        for b in range(n_middle):
            start = src + places[at + a] + places[at + n_slow + b]
            if op == COPY:
                for c in range(n_fast):
                    values[k + c] = values[start + fast[c]]
            else:
                for c in range(n_fast):
                    values[k + c] += values[start + fast[c]]
            k += n_fast


@exact_kernel
def _gather(row, places, values):
    """Make src the sum of dst over the axes that src lacks."""
    k, src, size, at, n_slow, n_middle = row[1], row[2], row[3], row[5], row[6], row[7]
    n_fast = size // (n_slow * n_middle)
    fast = places[at + n_slow + n_middle : at + n_slow + n_middle + n_fast]
    values[src : src + row[4]] = 0
    for a in range(n_slow):
        for b in range(n_middle):
            start = src + places[at + a] + places[at + n_slow + b]
            for c in range(n_fast):
                values[start + fast[c]] += values[k + c]
            k += n_fast


@exact_kernel
def _sum_out(row, write, values, tangents):
    """Turn psi into q, and write the message log sum exp psi; the same for tangents."""
    n_own = row[4] // row[3]
    for s in range(row[3]):
        a = row[2] + s * n_own
        top = -np.inf
        for e in range(a, a + n_own):
            top = max(top, values[e].real)
        total = values.dtype.type(0)
        for e in range(a, a + n_own):
            weight = values.dtype.type(0)
            if values[e].real > -np.inf:
                weight = np.exp(values[e] - top)
            values[e] = weight
            total += weight
        if write:
            values[row[1] + s] = top
        if top > -np.inf:
            for e in range(a, a + n_own):
                values[e] /= total
            if write:
                values[row[1] + s] += np.log(total)
        if len(tangents):
            slope = _slopes(values[a : a + n_own], tangents[a : a + n_own])
            if write:
                tangents[row[1] + s] = slope


@exact_kernel
def _slopes(q, d_psi):
    """Return dm = sum q dpsi and put dq = q (dpsi - dm) in the place of dpsi."""
    zero = q.dtype.type(0)
    mean = zero
    for r in range(len(q)):
        if q[r] != zero:
            mean += q[r] * d_psi[r]
    for r in range(len(q)):
        d_psi[r] = q[r] * (d_psi[r] - mean) if q[r] != zero else zero
    return mean


@exact_kernel
def _multiply(row, values, tangents):
    """Turn q into p = q p(x_S), and dq into dp."""
    n_own = row[4] // row[3]
    for s in range(row[3]):
        p = values[row[1] + s]
        for e in range(row[2] + s * n_own, row[2] + (s + 1) * n_own):
            if len(tangents):
                tangents[e] = tangents[e] * p + values[e] * tangents[row[1] + s]
            values[e] *= p


@exact_kernel
def run_up_weighted(code, places, weights, values):
    """Go from leaves to roots; clique after clique has the next of ``weights``."""
    clique = 0
    for k in range(len(code)):
        row = code[k]
        if row[0] == SUM_OUT:
            if weights[clique] > 0:
                _power_sum(row, weights[clique], values)
            else:
                _maximum(row, values)
            clique += 1
        else:
            _spread(row, places, values)


@exact_kernel
def run_down_weighted(code, places, values, entropy):
    """Go from roots to leaves: p in the place of q and of theta, and H(x_v | x_S) of each clique."""
    clique = len(entropy)
    for k in range(len(code) - 1, -1, -1):
        row = code[k]
        if row[0] == SUM_OUT:
            clique -= 1
            entropy[clique] = _multiply_and_measure(row, values)
        else:
            _gather(row, places, values)


@exact_kernel
def _power_sum(row, weight, values):
    """Turn psi into q and write the message; ``weight`` > 0."""
    n_own = row[4] // row[3]
    inverse = 1 / weight
    for s in range(row[3]):
        a = row[2] + s * n_own
        top = -np.inf
        for e in range(a, a + n_own):
            top = max(top, values[e])
        values[row[1] + s] = top
        if top == -np.inf:
            values[a : a + n_own] = 0
            continue
        total = 0.0
        for e in range(a, a + n_own):
            values[e] = np.exp((values[e] - top) * inverse)
            total += values[e]
        for e in range(a, a + n_own):
            values[e] /= total
        values[row[1] + s] += weight * np.log(total)


@exact_kernel
def _maximum(row, values):
    """Turn psi into the indicator of its first best label and write the message."""
    n_own = row[4] // row[3]
    for s in range(row[3]):
        a = row[2] + s * n_own
        best = a
        for e in range(a + 1, a + n_own):
            if values[e] > values[best]:
                best = e
        top = values[best]
        values[a : a + n_own] = 0
        if top > -np.inf:
            values[best] = 1
        values[row[1] + s] = top


@exact_kernel
def _multiply_and_measure(row, values):
    """Turn q into p = q p(x_S); return H(x_v | x_S)."""
    n_own = row[4] // row[3]
    entropy = 0.0
    for s in range(row[3]):
        p = values[row[1] + s]
        for e in range(row[2] + s * n_own, row[2] + (s + 1) * n_own):
            q = values[e]
            if q > 0 and p > 0:
                entropy -= p * q * np.log(q)
            values[e] = q * p
    return entropy


@exact_kernel
def walk_down(owner, table, n_own, sep_ptr, sep, stride, values, uniform, labels):
    """Choose labels (N, n) from roots to leaves: the label of q(. | x_S) at which its sum exceeds ``uniform`` (N, n)."""
    for row in range(len(labels)):
        for k in range(len(owner) - 1, -1, -1):
            at = 0
            for j in range(sep_ptr[k], sep_ptr[k + 1]):
                at += labels[row, sep[j]] * stride[j]
            at = table[k] + at * n_own[k]
            total, chosen = 0.0, -1
            for x in range(n_own[k]):
                if values[at + x] > 0:
                    total += values[at + x]
                    chosen = x  # rounding may leave the sum below the number: the last possible label then
                    if total > uniform[row, k]:
                        break
            labels[row, owner[k]] = chosen
