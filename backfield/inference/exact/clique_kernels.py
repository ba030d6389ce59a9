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
from backfield.kernels.vector_math import vector_exp

#: A message whose largest entry is below it may have lost others to underflow.
TINY = 1e-200
#: What is further below the maximum of its table is zero.
LEAST = -690.0


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
            # The first operand is read where it lies if it is one run; all others are multiplied into the buffer. Unsigned
            # places need no care for negative ones, which would keep the loops from being vectorised.
            start = np.uint64(0)
            direct = views[first, MODE] == CONTIGUOUS and views[first, N_INDEX] == 1 and out - first > 1
            if direct:
                start = np.uint64(base[0])
            for v in range(first + 1 if direct else first, out):
                at, places = np.uint64(base[v - first]), np.uint64(views[v, INDEX])
                length, n = np.uint64(views[v, LENGTH]), np.uint64(views[v, N_INDEX])
                mode, a = views[v, MODE], np.uint64(0)
                if v == first:
                    for r in range(n):
                        z = at + np.uint64(index[places + r])
                        if mode == CONSTANT:
                            x = values[z]
                            for e in range(length):
                                buffer[a + e] = x
                        else:
                            for e in range(length):
                                buffer[a + e] = values[z + e]
                        a += length
                elif v == first + 1 and direct:
                    for r in range(n):
                        z = at + np.uint64(index[places + r])
                        if mode == CONSTANT:
                            x = values[z]
                            for e in range(length):
                                buffer[a + e] = values[start + a + e] * x
                        else:
                            for e in range(length):
                                buffer[a + e] = values[start + a + e] * values[z + e]
                        a += length
                elif mode == CONSTANT:
                    for r in range(n):
                        x = values[at + np.uint64(index[places + r])]
                        for e in range(length):
                            buffer[a + e] *= x
                        a += length
                elif mode == CONTIGUOUS:
                    for r in range(n):
                        z = at + np.uint64(index[places + r])
                        for e in range(length):
                            buffer[a + e] *= values[z + e]
                        a += length
                else:
                    for r in range(n):
                        buffer[r] *= values[at + np.uint64(index[places + r])]
            for v in range(out, end):
                at, places = np.uint64(base[v - first]), np.uint64(views[v, INDEX])
                length, n = np.uint64(views[v, LENGTH]), np.uint64(views[v, N_INDEX])
                mode, a = views[v, MODE], np.uint64(0)
                if mode == CONSTANT:
                    for r in range(n):
                        total = 0.0
                        for e in range(length):
                            total += buffer[a + e]
                        values[at + np.uint64(index[places + r])] += total
                        a += length
                elif mode == CONTIGUOUS:
                    for r in range(n):
                        z = at + np.uint64(index[places + r])
                        for e in range(length):
                            values[z + e] += buffer[a + e]
                        a += length
                else:
                    for r in range(n):
                        values[at + np.uint64(index[places + r])] += buffer[r]
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
def load(unary, tables, n_unary, base, tab_ptr, sorted_slots, tab_var, tab_stride, label_ptr, label, address, values):
    """Write exp(theta - max) of each table with its axes sorted; return the sum of the maxima, -inf if one is."""
    constant = 0.0
    counter = np.zeros(64, np.int64)
    for t in range(len(address)):
        slots = sorted_slots[tab_ptr[t] : tab_ptr[t + 1]]
        d, to = len(slots), np.uint64(address[t])
        source = unary if base[t] < n_unary else tables
        at = base[t] if base[t] < n_unary else base[t] - n_unary
        if d == 0:
            values[to] = 1
            constant += source[at]
            continue
        size, inner, stride = np.uint64(1), tab_var[slots[d - 1]], tab_stride[slots[d - 1]]
        for a in range(d - 1):
            s = slots[a]
            size *= np.uint64(label_ptr[tab_var[s] + 1] - label_ptr[tab_var[s]])
            at += label[label_ptr[tab_var[s]]] * tab_stride[s]
            counter[a] = 0
        length = np.uint64(label_ptr[inner + 1] - label_ptr[inner])
        top = -np.inf
        for row in range(size):
            start = to + row * length
            for x in range(length):
                y = source[np.uint64(at + label[np.uint64(label_ptr[inner]) + x] * stride)]
                values[start + x] = y
                top = y if y > top else top
            a = d - 2
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
        for e in range(size * length):
            y = values[to + e] - top
            values[to + e] = vector_exp(y) if y > LEAST else 0.0
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
        for a in range(d):
            s = slots[a]
            size *= label_ptr[tab_var[s] + 1] - label_ptr[tab_var[s]]
            at += label[label_ptr[tab_var[s]]] * tab_stride[s]
            counter[a] = 0
        for e in range(size):
            out[at] = values[place[t] + e] if d > 0 else 1.0
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
