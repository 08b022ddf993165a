"""Reconstructing a training batch from one gradient: a provable start by tensor decomposition, then the exact batch."""
