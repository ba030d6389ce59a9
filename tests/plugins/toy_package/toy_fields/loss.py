"""The focal loss."""

from dataclasses import dataclass

import numpy as np

from backfield.losses.base import Loss, label_weights, safe, unary_entries, unary_only


@dataclass(frozen=True, repr=False)
class Focal(Loss, name="focal"):
    """Minus the log probability of each label, less where it is large."""

    gamma: float = 2.0

    def value_and_dmu(self, mu, labeling, weights):
        graph = mu.graph
        variables, entries = unary_entries(graph, labeling.labels)  # hidden variables (-1) are not among them
        w = label_weights(graph, weights, variables, entries)
        p = safe(mu.unary_flat[entries], w)
        value = -(w * (1 - p) ** self.gamma * np.log(p)).sum()
        d_mu = np.zeros_like(mu.unary_flat)
        d_mu[entries] = w * (self.gamma * (1 - p) ** (self.gamma - 1) * np.log(p) - (1 - p) ** self.gamma / p)
        return value, unary_only(graph, d_mu)
