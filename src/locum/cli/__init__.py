"""The program `locum`. Thin: every verb is a recipe. Nobody imports this."""
