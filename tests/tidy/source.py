"""Which files there are, and what is code in them."""

import re
import subprocess
from pathlib import Path

CODE = {".h", ".hpp", ".cc", ".cu", ".c"}
SCRIPT = {".py", ".sh"}


def files(root):
    """Paths of the checkout's files, relative to root: tracked ones, and new ones that are not ignored."""
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True).stdout
    return sorted({Path(name) for name in listing.split("\0") if name and (root / name).is_file()})


def is_code(path):
    return path.suffix in CODE


def is_script(root, path):
    if path.suffix in SCRIPT:
        return True
    return path.suffix == "" and read(root, path)[:2] == "#!"


def read(root, path):
    return (root / path).read_text(encoding="utf-8", errors="replace")


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)


def code_only(text):
    """The text with comments and literals blanked, so that line numbers stay."""
    def blank(match):
        word = match.group(0)
        quotes = '""' if word[0] in '"R' else ""
        return quotes + "\n" * word.count("\n")
    return _TOKEN.sub(blank, text)


_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def includes(text):
    """(line, name, quoted) of each #include."""
    for match in _INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1) or match.group(2), bool(match.group(1))
