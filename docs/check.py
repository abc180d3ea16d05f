"""Every relative link of every page leads to a file that is there, and every anchor to a heading that is there."""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
HTML_ID = re.compile(r'\bid="([^"]+)"')


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])


def links(page: Path) -> Iterator[str]:
    prose = INLINE_CODE.sub("", FENCED.sub("", page.read_text("utf-8")))
    return (match[1] or match[2] for match in LINK.finditer(prose))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The names GitHub gives to headings: lower case, spaces to dashes, punctuation gone, a number when repeated."""
    prose = FENCED.sub("", page.read_text("utf-8"))
    found: list[str] = []
    for heading in HEADING.findall(prose):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        repeats = sum(1 for name in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", name))
        found.append(f"{slug}-{repeats}" if repeats else slug)
    return frozenset([*found, *HTML_ID.findall(prose)])


def broken(page: Path) -> Iterator[str]:
    for link in links(page):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):  # other sites are not ours to check, and need a network
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{page.relative_to(ROOT)}: no such file: {link}"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{page.relative_to(ROOT)}: no such heading: {link}"


def main() -> None:
    problems = [problem for page in pages() for problem in broken(page)]
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
