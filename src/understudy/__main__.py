"""`python -m understudy` is the program."""

from understudy.cli.main import main

if __name__ == "__main__":
    main()
