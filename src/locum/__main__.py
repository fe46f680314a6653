"""`python -m locum` is the program."""

from __future__ import annotations

from locum.cli.main import main

if __name__ == "__main__":
    main()
