"""The kernels that run the jobs of ``clique_plan``, and those that bring theta in and marginals out."""

from __future__ import annotations

import numpy as np

from backfield.inference.exact.clique_plan import (
    ADDRESS,
    AXES,
    CONSTANT,
    CONTIGUOUS,
    DOWN,
    END,
    FIRST,
    INDEX,
    KIND,
    LENGTH,
    M_SIZE,
    MESSAGE,
    MODE,
    N_BLOCKS,
    N_INDEX,
    N_SLOW,
    OUT,
    SIZE,
    STRIDES,
    M,
    P,
)  # fmt: skip
from backfield.kernels.compile import exact_kernel, kernel

#: A message whose largest entry is below it may have lost others to underflow.
TINY = 1e-200


@kernel
def run(jobs, views, strides, axes, index, buffer, values):
    """Run jobs in their order; return the sum of the logs that messages were divided by, NaN where one is tiny."""
    log_scale = 0.0
    counter, base = np.zeros(64, np.int64), np.zeros(64, np.int64)
    for k in range(len(jobs)):
        job = jobs[k]
        first, out, end, n_slow = job[FIRST], job[OUT], job[END], job[N_SLOW]
        if job[KIND] == DOWN:
            scale = values[job[P] + job[M_SIZE]]
            for s in range(job[M_SIZE]):
                m = values[job[M] + s]
                values[job[M] + s] = values[job[P] + s] / m / scale if m > 0 else 0.0
        if end - first > len(base):
            base = np.zeros(end - first, np.int64)
        for v in range(first, end):
            base[v - first] = views[v, ADDRESS]
        for v in range(out, end):
            for e in range(views[v, ADDRESS], views[v, ADDRESS] + views[v, SIZE]):
                values[e] = 0.0
        counter[:n_slow] = 0
        for _ in range(job[N_BLOCKS]):
            for v in range(first, out):
                at, length, places = base[v - first], views[v, LENGTH], views[v, INDEX]
                mode, n = views[v, MODE], views[v, N_INDEX]
                if v == first:
                    if mode == CONSTANT:
                        for r in range(n):
                            x = values[at + index[places + r]]
                            for e in range(r * length, (r + 1) * length):
                                buffer[e] = x
                    elif mode == CONTIGUOUS:
                        for r in range(n):
                            a, z = r * length, at + index[places + r]
                            for e in range(length):
                                buffer[a + e] = values[z + e]
                    else:
                        for e in range(n):
                            buffer[e] = values[at + index[places + e]]
                elif mode == CONSTANT:
                    for r in range(n):
                        x = values[at + index[places + r]]
                        for e in range(r * length, (r + 1) * length):
                            buffer[e] *= x
                elif mode == CONTIGUOUS:
                    for r in range(n):
                        a, z = r * length, at + index[places + r]
                        for e in range(length):
                            buffer[a + e] *= values[z + e]
                else:
                    for e in range(n):
                        buffer[e] *= values[at + index[places + e]]
            for v in range(out, end):
                at, length, places = base[v - first], views[v, LENGTH], views[v, INDEX]
                mode, n = views[v, MODE], views[v, N_INDEX]
                if mode == CONSTANT:
                    for r in range(n):
                        total = 0.0
                        for e in range(r * length, (r + 1) * length):
                            total += buffer[e]
                        values[at + index[places + r]] += total
                elif mode == CONTIGUOUS:
                    for r in range(n):
                        a, z = r * length, at + index[places + r]
                        for e in range(length):
                            values[z + e] += buffer[a + e]
                else:
                    for e in range(n):
                        values[at + index[places + e]] += buffer[e]
            a = n_slow - 1
            while a >= 0:
                counter[a] += 1
                for v in range(first, end):
                    base[v - first] += strides[views[v, STRIDES] + a]
                count = axes[job[AXES] + a]
                if counter[a] < count:
                    break
                for v in range(first, end):
                    base[v - first] -= strides[views[v, STRIDES] + a] * count
                counter[a] = 0
                a -= 1
        if job[KIND] == MESSAGE:
            scale = 0.0
            for s in range(job[M], job[M] + job[M_SIZE]):
                scale = max(scale, values[s])
            if not scale > TINY:
                return np.nan
            inverse = 1 / scale
            values[job[P] + job[M_SIZE]] = scale
            for s in range(job[M], job[M] + job[M_SIZE]):
                values[s] *= inverse
            log_scale += np.log(scale)
    return log_scale


@kernel
def load(theta, base, tab_ptr, sorted_slots, tab_var, tab_stride, label_ptr, label, address, values):
    """Write exp(theta - max) of each table with its axes sorted; return the sum of the maxima, -inf if one is."""
    constant = 0.0
    counter = np.zeros(64, np.int64)
    for t in range(len(address)):
        if address[t] < 0:
            continue
        d, size = tab_ptr[t + 1] - tab_ptr[t], 1
        slots = sorted_slots[tab_ptr[t] : tab_ptr[t + 1]]
        for s in slots:
            size *= label_ptr[tab_var[s] + 1] - label_ptr[tab_var[s]]
        counter[:d] = 0
        at = base[t]
        for s in slots:
            at += label[label_ptr[tab_var[s]]] * tab_stride[s]
        top, to = -np.inf, address[t]
        for e in range(size):
            x = theta[at]
            values[to + e] = x
            top = max(top, x)
            a = d - 1
            while a >= 0:
                s = slots[a]
                labels = label[label_ptr[tab_var[s]] : label_ptr[tab_var[s] + 1]]
                at -= labels[counter[a]] * tab_stride[s]
                counter[a] += 1
                if counter[a] < len(labels):
                    at += labels[counter[a]] * tab_stride[s]
                    break
                counter[a] = 0
                at += labels[0] * tab_stride[s]
                a -= 1
        if top == -np.inf:
            return -np.inf
        constant += top
        for e in range(to, to + size):
            values[e] = np.exp(values[e] - top)
    return constant


@exact_kernel
def store(base, tab_ptr, sorted_slots, tab_var, tab_stride, label_ptr, label, place, values, out):
    """Write marginals (where ``place`` >= 0) to the places that theta's tables have; those without axes are 1."""
    counter = np.zeros(64, np.int64)
    for t in range(len(place)):
        if place[t] == -1:
            continue
        slots = sorted_slots[tab_ptr[t] : tab_ptr[t + 1]]
        d, size, at = len(slots), 1, base[t]
        if d == 0:
            out[at] = 1
            continue
        for s in slots:
            size *= label_ptr[tab_var[s] + 1] - label_ptr[tab_var[s]]
            at += label[label_ptr[tab_var[s]]] * tab_stride[s]
        counter[:d] = 0
        for e in range(size):
            out[at] = values[place[t] + e]
            a = d - 1
            while a >= 0:
                s = slots[a]
                labels = label[label_ptr[tab_var[s]] : label_ptr[tab_var[s] + 1]]
                at -= labels[counter[a]] * tab_stride[s]
                counter[a] += 1
                if counter[a] < len(labels):
                    at += labels[counter[a]] * tab_stride[s]
                    break
                counter[a] = 0
                at += labels[0] * tab_stride[s]
                a -= 1
