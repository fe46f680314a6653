"""How messages travel: Flower, Ray, or one process."""
