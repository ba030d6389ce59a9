"""The kernels of Gibbs sampling, with their own random generator: the same seed gives the same bytes."""

from __future__ import annotations

import numpy as np

from backfield.kernels.compile import exact_kernel, exact_part


def rng_states(seed: int, count: int, stream: int = 0) -> np.ndarray:
    """Return ``count`` independent states (count, 4) of the generator that the kernels use."""
    return np.random.SeedSequence([seed, stream]).generate_state(4 * count, np.uint64).reshape(count, 4)


@exact_kernel
def gibbs_steps(layout, theta_u, theta_c, x, rng, n_sweeps):
    """Do ``n_sweeps`` sweeps on the labels ``x`` (n,) with the generator state ``rng`` (4,), both in place."""
    p = np.empty(layout.labels.max())
    none = np.empty(0)
    for _ in range(n_sweeps):
        _sweep(layout, theta_u, theta_c, x, rng, p, False, none, none)


@exact_kernel
def gibbs_steps_all(layout, theta_u, theta_c, x, rngs, n_sweeps):
    """Do ``n_sweeps`` sweeps on each row of ``x`` (R, n) with its own generator ``rngs`` (R, 4)."""
    for r in range(len(x)):
        gibbs_steps(layout, theta_u, theta_c, x[r], rngs[r], n_sweeps)


@exact_kernel
def collect(layout, theta_u, theta_c, n_samples, thin, x, rng, mu_u, mu_c, counts):
    """Sample, and add conditionals to mu and labels to the counts (2, U) of the first and the second half."""
    p = np.empty(layout.labels.max())
    half = n_samples // 2
    for t in range(n_samples):
        gibbs_steps(layout, theta_u, theta_c, x, rng, thin - 1)
        _sweep(layout, theta_u, theta_c, x, rng, p, True, mu_u, mu_c)
        for part in range(2):
            if part * (n_samples - half) <= t < half + part * (n_samples - half):
                for i in range(len(x)):
                    counts[part, layout.var_ptr[i] + x[i]] += 1


@exact_part
def _sweep(layout, theta_u, theta_c, x, rng, p, collect, mu_u, mu_c):
    for i in range(len(x)):
        unary, count = layout.var_ptr[i], layout.labels[i]
        for a in range(count):
            p[a] = theta_u[unary + a]
        for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
            k = layout.inc[s]
            c = layout.slot_factor[k]
            entry = layout.table_ptr[c] - layout.stride[k] * x[i]
            for d in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                entry += layout.stride[d] * x[layout.scope[d]]
            for a in range(count):
                p[a] += theta_c[entry + a * layout.stride[k]]
        top = p[0]
        for a in range(1, count):
            top = p[a] if p[a] > top else top
        if top == -np.inf:  # only while the state is impossible: take one of the labels that break least
            _count_forbidden(layout, theta_u, theta_c, x, i, p)
            top = p[:count].max()
        total = 0.0
        for a in range(count):
            p[a] = np.exp(p[a] - top)
            total += p[a]
        u = _uniform(rng) * total
        label, below = -1, 0.0
        for a in range(count):  # rounding may leave u above the sum: then the last possible label
            if p[a] > 0 and (label < 0 or u >= below):
                label = a
            below += p[a]
            p[a] /= total
        if collect:
            for a in range(count):
                mu_u[unary + a] += p[a]
            for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
                k = layout.inc[s]
                c = layout.slot_factor[k]
                share = 1.0 / (layout.scope_ptr[c + 1] - layout.scope_ptr[c])
                entry = layout.table_ptr[c] - layout.stride[k] * x[i]
                for d in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                    entry += layout.stride[d] * x[layout.scope[d]]
                for a in range(count):
                    mu_c[entry + a * layout.stride[k]] += share * p[a]
        x[i] = label


@exact_part
def _count_forbidden(layout, theta_u, theta_c, x, i, p):
    """Write 0 for labels of variable i with the fewest -inf terms, -inf for the others."""
    for a in range(layout.labels[i]):
        p[a] = -1.0 if theta_u[layout.var_ptr[i] + a] == -np.inf else 0.0
        for s in range(layout.inc_ptr[i], layout.inc_ptr[i + 1]):
            k = layout.inc[s]
            c = layout.slot_factor[k]
            entry = layout.table_ptr[c] + layout.stride[k] * (a - x[i])
            for d in range(layout.scope_ptr[c], layout.scope_ptr[c + 1]):
                entry += layout.stride[d] * x[layout.scope[d]]
            p[a] -= 1.0 if theta_c[entry] == -np.inf else 0.0
    top = p[: layout.labels[i]].max()
    for a in range(layout.labels[i]):
        p[a] = 0.0 if p[a] == top else -np.inf


@exact_kernel
def _uniform(rng):
    """Return the next number in [0, 1) of xoshiro256++ (Blackman and Vigna 2021)."""
    mixed = rng[0] + rng[3]
    result = ((mixed << np.uint64(23)) | (mixed >> np.uint64(41))) + rng[0]
    shifted = rng[1] << np.uint64(17)
    rng[2] ^= rng[0]
    rng[3] ^= rng[1]
    rng[1] ^= rng[2]
    rng[0] ^= rng[3]
    rng[2] ^= shifted
    rng[3] = (rng[3] << np.uint64(45)) | (rng[3] >> np.uint64(19))
    return np.float64(result >> np.uint64(11)) * 2.0**-53
