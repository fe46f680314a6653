"""What carries the messages: Flower, Ray, or calls in one process."""
