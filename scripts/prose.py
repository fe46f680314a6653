"""Check the English of README and docs with proselint, and the length of their lines.

    pip install proselint==0.16
    python scripts/prose.py                # README.md and docs/
    python scripts/prose.py docs/guides    # some of it

Code, addresses of links and quotations are blanked first: they are not our prose. Findings that do not apply are left
out, each for a reason (`IGNORED`). The exit code is 1 if anything is left. Long lines of tables and of code are fine.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 100
IGNORED = {
    "typography.symbols.curly_quotes": "Sphinx curls quotes when it renders a page",
    "typography.symbols.ellipsis": "Sphinx renders three dots as one sign",
    "typography.symbols.copyright": "(c) is the third item of a list",
    "typography.symbols.trademark": "(R) is a name in a formula",
    "typography.diacritical_marks": "to resume is a verb",
    "dates_times.dates.dash_and_from": "it takes numbers of records for years",
}
FINDING = re.compile(r"^(?P<place>[^ ]+:\d+:\d+): (?P<check>[a-z_.]+): ")
FENCE = re.compile(r"\s*(`{3,}|~{3,})")


def prose(text: str) -> str:
    """The text with everything blanked that is not our prose; lines keep their numbers."""
    lines, fence = [], ""
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
            lines.append("")
        elif mark:
            fence = mark[1]
            lines.append("")
        else:
            lines.append(line)
    words = iter(range(10**6))

    def blank(match: re.Match[str]) -> str:
        # A word of its own for each, or equal neighbors would look like a word written twice.
        word = "".join(chr(ord("a") + int(digit)) for digit in str(next(words)))
        return f"code{word}x" + "\n" * match[0].count("\n")

    text = re.sub(r"\]\([^)]*\)", "]", "\n".join(lines))
    text = re.sub(r"(`+)(?!`)(?:.(?!\n\n))+?\1", blank, text, flags=re.DOTALL)
    return re.sub(r'"(?:[^"\n]|\n(?!\n)){1,200}"', blank, text)


def long_lines(text: str) -> list[tuple[int, int]]:
    """Number and length of each line above `WIDTH` that is neither code nor a row of a table."""
    fence, found = "", []
    for number, line in enumerate(text.split("\n"), 1):
        mark = FENCE.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
        elif mark:
            fence = mark[1]
        elif len(line) > WIDTH and not line.lstrip().startswith("|"):
            found.append((number, len(line)))
    return found


def main(arguments: list[str]) -> int:
    """Print what is left; 1 if anything is."""
    places = [Path(a).resolve() for a in arguments] or [ROOT / "README.md", ROOT / "docs"]
    pages = sorted({page for place in places for page in (place.rglob("*.md") if place.is_dir() else [place])})
    left: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for page in pages:
            name, text = page.relative_to(ROOT), page.read_text(encoding="utf-8")
            left += [f"{name}:{number}: {length} characters" for number, length in long_lines(text)]
            copy = Path(folder).resolve() / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(prose(text), encoding="utf-8")
        command = ["proselint", "check", folder]
        out = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        for line in out.splitlines():
            match = FINDING.match(line)
            if match and match["check"] not in IGNORED:
                left.append(line.removeprefix(f"{Path(folder).resolve()}/"))
    print("\n".join(left) if left else f"{len(pages)} pages: nothing left")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
