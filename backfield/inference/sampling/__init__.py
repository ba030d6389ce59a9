"""Inference by sampling: Gibbs, perturb-and-MAP."""
