r"""Max-product messages in the log domain and their decoding: any arity, any label counts, -inf.

    m_c(x_i) = max_{x_c\i} ( theta(x_c) + sum_{j in c\i} q_cj(x_j) ) - const
    q_cj(x_j) = theta(x_j) + sum_{d: j in d, d != c} m_d(x_j)

No message is ever subtracted, so -inf needs no care: a label with m = -inf is impossible, and a message that is
-inf everywhere proves that no configuration is possible, on graphs with cycles too.

Cost O(degree · L + table) per message.
"""

from __future__ import annotations

import numpy as np

from backfield.errors import InputError
from backfield.kernels.compile import exact_kernel, exact_part


def impossible(variable: int) -> InputError:
    """Return the error for potentials that forbid every configuration."""
    return InputError(
        f"the potentials allow no label for variable {variable}: together they forbid them all (-inf); "
        "no configuration is possible."
    )


@exact_kernel
def send(layout, order, backward, theta_u, theta_c, damping, source, state):
    """Update the messages of ``order`` in place, reading ``source`` (which may be ``state``).

    Returns the largest change, and the first slot whose message is -inf everywhere (-1: none).
    """
    q, out = _buffers(layout)
    free = np.full(len(layout.labels), -1, dtype=np.int64)
    change = 0.0
    for position in range(len(order)):
        k = order[len(order) - 1 - position] if backward else order[position]
        c, count, start = layout.slot_factor[k], layout.labels[layout.scope[k]], layout.msg_ptr[k]
        first, last = layout.scope_ptr[c], layout.scope_ptr[c + 1]
        if last - first == 2:  # written out: the calls of the other branch would double the time of a pair
            d = first + last - 1 - k
            j, unary = layout.scope[d], layout.var_ptr[layout.scope[d]]
            for y in range(layout.labels[j]):
                q[0, y] = theta_u[unary + y]
            for s in range(layout.inc_ptr[j], layout.inc_ptr[j + 1]):
                if layout.inc[s] != d:
                    message = layout.msg_ptr[layout.inc[s]]
                    for y in range(layout.labels[j]):
                        q[0, y] += source[message + y]
            for x in range(count):
                out[x] = -np.inf
            for y in range(layout.labels[j]):
                entry = layout.table_ptr[c] + y * layout.stride[d]
                for x in range(count):
                    value = theta_c[entry + x * layout.stride[k]] + q[0, y]
                    out[x] = value if value > out[x] else out[x]  # max() would also look for NaN
        else:
            _cavities(layout, theta_u, source, free, c, q)
            _factor_max(layout, theta_c, k, q, out)
        top = out[0]
        for x in range(1, count):
            top = out[x] if out[x] > top else top
        if top == -np.inf:
            return change, k
        for x in range(count):
            old, new = source[start + x], out[x] - top
            if new > -np.inf and old > -np.inf:
                new = damping * old + (1 - damping) * new
                change = max(change, abs(new - old))
            elif new != old:
                change = np.inf
            state[start + x] = new
    return change, -1


@exact_kernel
def decode(layout, order, theta_u, theta_c, m, labels):
    """Fix the variables along ``order``, each at its best label given the messages and those fixed before it.

    So ties are broken consistently, towards low labels; exact on acyclic graphs after messages to the roots.
    Returns the first variable that has no possible label left (-1: none); it gets one that its unary table allows.
    """
    q, out = _buffers(layout)
    total = np.empty(len(out))
    labels[:] = -1
    bad = -1
    for i in order:
        count, unary = layout.labels[i], layout.var_ptr[i]
        for x in range(count):
            total[x] = theta_u[unary + x]
        for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
            k = layout.inc[s]
            c = layout.slot_factor[k]
            first, last = layout.scope_ptr[c], layout.scope_ptr[c + 1]
            free, entry = 0, layout.table_ptr[c]
            for d in range(first, last):
                label = labels[layout.scope[d]]
                if label < 0:
                    free += 1
                else:
                    entry += layout.stride[d] * label
            if free == 1:
                for x in range(count):
                    total[x] += theta_c[entry + x * layout.stride[k]]
            elif free == last - first:
                for x in range(count):
                    total[x] += m[layout.msg_ptr[k] + x]
            else:
                _cavities(layout, theta_u, m, labels, c, q)
                _factor_max(layout, theta_c, k, q, out)
                for x in range(count):
                    total[x] += out[x]
        best = 0
        for x in range(1, count):
            best = x if total[x] > total[best] else best
        if total[best] == -np.inf:
            bad = i if bad < 0 else bad
            best = int(np.argmax(theta_u[unary : unary + count]))
        labels[i] = best
    return bad


@exact_part
def _cavities(layout, theta_u, m, labels, c, q):
    """Write the q of all slots of factor c; variables that have a label (not -1) are held there."""
    for a in range(layout.scope_ptr[c + 1] - layout.scope_ptr[c]):
        k = layout.scope_ptr[c] + a
        j = layout.scope[k]
        for x in range(layout.labels[j]):
            q[a, x] = -np.inf if labels[j] >= 0 else theta_u[layout.var_ptr[j] + x]
        if labels[j] >= 0:
            q[a, labels[j]] = 0
            continue
        for s in range(layout.inc_ptr[j], layout.inc_ptr[j + 1]):
            if layout.inc[s] != k:
                for x in range(layout.labels[j]):
                    q[a, x] += m[layout.msg_ptr[layout.inc[s]] + x]


@exact_part
def _buffers(layout):
    """Return room for the q of all slots of a factor, and for one message."""
    arity = 1
    for c in range(len(layout.scope_ptr) - 1):
        arity = max(arity, layout.scope_ptr[c + 1] - layout.scope_ptr[c])
    labels = layout.labels.max()
    return np.empty((arity, labels)), np.empty(labels)


@exact_part
def _factor_max(layout, theta_c, k, q, out):
    """Write max over all but x_i of theta(x_c) + sum_j q_cj(x_j), for slot k = (c, i) of any factor."""
    c = layout.slot_factor[k]
    first, last, table = layout.scope_ptr[c], layout.scope_ptr[c + 1], layout.table_ptr[c]
    count, step = layout.labels[layout.scope[k]], layout.stride[k]
    for x in range(count):
        out[x] = -np.inf
    for e in range(layout.table_ptr[c + 1] - table):
        value = theta_c[table + e]
        for d in range(first, last):
            if d != k:
                value += q[d - first, e // layout.stride[d] % layout.labels[layout.scope[d]]]
        x = e // step % count
        out[x] = value if value > out[x] else out[x]
