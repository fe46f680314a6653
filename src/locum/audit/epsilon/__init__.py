"""Tests of a claimed epsilon: canaries, and the lower bound that follows from them."""
