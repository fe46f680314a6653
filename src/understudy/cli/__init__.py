"""The program `understudy`. Thin: every verb is a recipe. Nobody imports this."""

__all__: list[str] = []
