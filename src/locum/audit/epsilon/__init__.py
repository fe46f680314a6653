"""A claimed epsilon put to the test: canaries and the bounds that follow from them."""
