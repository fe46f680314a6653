"""Generators fitted with and without a record, for the attacks that need them."""
