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
from backfield.kernels.compile import exact_kernel, inlined

# A row of the program is (op, dst, src, their sizes, where its places are: start, slow, middle), that of a sum
# (SUM_OUT, message, table, their sizes). What only one kernel does is written there: pieces take time to compile.


@exact_kernel
def run_up(code, places, first, end, local, values, tangents):
    """Run rows of the program: psi becomes q, and messages are written.

    Messages below ``local`` are left alone (the way down has been there).
    """
    zero = values.dtype.type(0)
    for k in range(first, end):
        if code[k, 0] != SUM_OUT:
            for table in (values, tangents):
                if len(table):
                    _spread(code, k, places, table)
            continue
        n_messages, stop = code[k, 3], code[k, 2]
        write, n_own = code[k, 1] >= local, code[k, 4] // n_messages
        for message in range(code[k, 1], code[k, 1] + n_messages):
            start, stop = stop, stop + n_own
            top = -np.inf
            for e in range(start, stop):
                psi = values[e].real
                if psi > top:
                    top = psi
            total = zero
            for e in range(start, stop):
                psi, q = values[e], zero
                if psi.real > -np.inf:
                    q = np.exp(psi - top)
                values[e] = q
                total += q
            if top > -np.inf:
                for e in range(start, stop):
                    values[e] /= total
            if write:
                values[message] = top + np.log(total) if top > -np.inf else top
            if len(tangents):  # dm = sum_R q dpsi, dq = q (dpsi - dm)
                mean = zero
                for e in range(start, stop):
                    q = values[e]
                    if q != zero:
                        mean += q * tangents[e]
                for e in range(start, stop):
                    q = values[e]
                    tangents[e] = q * (tangents[e] - mean) if q != zero else zero
                if write:
                    tangents[message] = mean


@exact_kernel
def run_down(code, places, first, end, values, tangents):
    """Run rows of the program backwards: marginals take the place of what they are marginals of."""
    for k in range(end - 1, first - 1, -1):
        if code[k, 0] != SUM_OUT:
            for table in (values, tangents):
                if len(table):
                    _gather(code, k, places, table)
            continue
        n_messages, stop = code[k, 3], code[k, 2]
        n_own = code[k, 4] // n_messages
        for message in range(code[k, 1], code[k, 1] + n_messages):  # p = q p(x_S), dp = dq p(x_S) + q dp(x_S)
            start, stop = stop, stop + n_own
            p = values[message]
            if len(tangents):
                d_p = tangents[message]
                for e in range(start, stop):
                    tangents[e] = tangents[e] * p + values[e] * d_p
            for e in range(start, stop):
                values[e] *= p


@exact_kernel
def run_up_weighted(code, places, weights, values):
    """Go from leaves to roots: psi becomes q; clique after clique has the next of ``weights``."""
    clique = -1
    for k in range(len(code)):
        if code[k, 0] != SUM_OUT:
            _spread(code, k, places, values)
            continue
        clique += 1
        weight = weights[clique]
        inverse = 1 / weight
        n_messages, stop = code[k, 3], code[k, 2]
        n_own = code[k, 4] // n_messages
        for message in range(code[k, 1], code[k, 1] + n_messages):
            start, stop = stop, stop + n_own
            top, best = -np.inf, start
            for e in range(start, stop):
                psi = values[e]
                if psi > top:
                    top, best = psi, e
            values[message] = top
            total = 0.0
            for e in range(start, stop):
                q = 0.0
                if weight > 0 and top > -np.inf:
                    q = np.exp((values[e] - top) * inverse)
                values[e] = q
                total += q
            if total > 0:
                for e in range(start, stop):
                    values[e] /= total
                values[message] += weight * np.log(total)
            elif top > -np.inf:  # w = 0
                values[best] = 1


@exact_kernel
def run_down_weighted(code, places, values, entropy):
    """Go from roots to leaves: p in the place of q and of theta, and H(x_v | x_S) of each clique."""
    clique = len(entropy)
    for k in range(len(code) - 1, -1, -1):
        if code[k, 0] != SUM_OUT:
            _gather(code, k, places, values)
            continue
        clique -= 1
        total = 0.0
        n_messages, stop = code[k, 3], code[k, 2]
        n_own = code[k, 4] // n_messages
        for message in range(code[k, 1], code[k, 1] + n_messages):
            start, stop = stop, stop + n_own
            p = values[message]
            for e in range(start, stop):
                q = values[e]
                if q > 0 and p > 0:
                    total -= p * q * np.log(q)
                values[e] = q * p
        entropy[clique] = total


@inlined
def _spread(code, k, places, values):
    """Do dst = src or dst += src, repeated along the axes that src lacks."""
    dst, src, at, n_slow, n_middle = code[k, 1], code[k, 2], code[k, 5], code[k, 6], code[k, 7]
    n_fast = code[k, 3] // (n_slow * n_middle)
    copy, fast = code[k, 0] == COPY, places[at + n_slow + n_middle :]
    for a in range(n_slow):
        for b in range(n_middle):
            start = src + places[at + a] + places[at + n_slow + b]
            if copy:
                for c in range(n_fast):
                    values[dst + c] = values[start + fast[c]]
            else:
                for c in range(n_fast):
                    values[dst + c] += values[start + fast[c]]
            dst += n_fast


@inlined
def _gather(code, k, places, values):
    """Make src the sum of dst over the axes that src lacks."""
    dst, src, at, n_slow, n_middle = code[k, 1], code[k, 2], code[k, 5], code[k, 6], code[k, 7]
    n_fast = code[k, 3] // (n_slow * n_middle)
    fast = places[at + n_slow + n_middle :]
    for e in range(src, src + code[k, 4]):
        values[e] = 0
    for a in range(n_slow):
        for b in range(n_middle):
            start = src + places[at + a] + places[at + n_slow + b]
            for c in range(n_fast):
                values[start + fast[c]] += values[dst + c]
            dst += n_fast


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
