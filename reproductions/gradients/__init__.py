"""Reconstructing Training Data from Model Gradient, Provably."""
