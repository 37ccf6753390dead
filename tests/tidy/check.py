#!/usr/bin/env python3
"""check.py RULE [ROOT]: prints what breaks one rule of the style, one line each; exit code 1 if anything does."""

import os
import re
import sys
from pathlib import Path

import arrows
import source

LINE_COLUMNS = 100
SCRIPT_COLUMNS = 120  # Scripts, CMake and proto.
FILE_LINES = 600
FUNCTION_LINES = 70


def check_arrows(root):
    """Only the allowed includes; see arrows.py."""
    paths = [path for path in source.files(root) if source.is_code(path)]
    existing = {str(path) for path in source.files(root)}
    for path in paths:
        layer = arrows.layer_of(str(path))
        if layer is None:
            yield path, 1, "belongs to no layer of tests/tidy/arrows.py"
            continue
        for line, name, _ in source.includes(source.read(root, path)):
            target = arrows.target_of(name, str(path), existing)
            if not arrows.is_allowed(layer, target):
                yield path, line, f"{layer} may not include {name} ({target or 'of no known layer'})"


def check_lines(root):
    """No line of code over 100 columns, no tab, no blank at its end."""
    for path in source.files(root):
        if not (source.is_code(path) or source.is_script(root, path) or path.suffix in {".proto", ".cmake"}
                or path.name == "CMakeLists.txt"):
            continue
        limit = LINE_COLUMNS if source.is_code(path) else SCRIPT_COLUMNS
        for number, line in enumerate(source.read(root, path).split("\n"), 1):
            if len(line) > limit:
                yield path, number, f"{len(line)} columns, {limit} are allowed"
            if "\t" in line or line != line.rstrip():
                yield path, number, "a tab, or blanks at the end"


def check_files(root):
    """No source file over 600 lines, except tests and data."""
    for path in source.files(root):
        if path.parts[0] == "tests" or not (source.is_code(path) or source.is_script(root, path)):
            continue
        count = source.read(root, path).count("\n")
        if count > FILE_LINES:
            yield path, count, f"{count} lines, {FILE_LINES} are allowed: split it by what it does"


def function_bodies(text):
    """(first line, lines) of each function body at namespace or class scope."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group(0).count("\n"),
                  source.code_only(text), flags=re.MULTILINE)
    scopes, head = [], 0
    for match in re.finditer(r"[{};]", code):
        mark, position = match.group(0), match.start()
        if mark == "{":
            words = code[head:position]
            open_scope = re.search(r"\b(namespace|class|struct|union|enum|extern)\b[^()=]*$", words)
            is_function = not open_scope and "(" in words and not re.search(r"=\s*$", words)
            nested = any(kind == "function" for kind, _ in scopes)
            scopes.append(("function" if is_function and not nested else "other", position))
        elif mark == "}" and scopes:
            kind, start = scopes.pop()
            if kind == "function":
                yield code.count("\n", 0, start) + 1, code.count("\n", start, position) + 1
        head = position + 1


def check_functions(root):
    """No function over 70 lines."""
    for path in source.files(root):
        if not source.is_code(path):
            continue
        for line, count in function_bodies(source.read(root, path)):
            if count > FUNCTION_LINES:
                yield path, line, f"a function of {count} lines, {FUNCTION_LINES} are allowed"


EVERYWHERE = [
    (r"\b(sleep|usleep|nanosleep|sleep_for|sleep_until)\s*\(", "waits for time: wait for the event, with a deadline"),
    (r"\b(strcpy|strcat|sprintf|vsprintf|gets)\s*\(", "writes without a bound"),
    (r"\b(system|tmpnam|mktemp)\s*\(", "runs a shell, or names a file before it exists"),
    (r"\busing\s+namespace\b", "opens a namespace"),
    (r"#\s*include\s*<(format|expected)>", "g++ 12 has no such header"),
]
LIBRARIES = ("client/base/", "client/src/", "client/include/", "device/", "daemon/core/", "daemon/ports/")
IN_LIBRARIES = [(r"\b(printf|puts|putchar|fprintf|fputs|cout|cerr|clog)\b",
                 "prints: libraries return, they do not log"),
                (r"\b(exit|_exit|quick_exit)\s*\(", "ends the process")]
EXCEPTIONS = {  # What a process says before it aborts.
    ("client/base/assert.cc", "prints"),
    ("device/include/cco/device/impl/platform_host.h", "prints"),
}


def check_calls(root):
    """No call that waits for time, overruns, runs a shell, or prints from a library."""
    for path in source.files(root):
        if not source.is_code(path):
            continue
        rules = EVERYWHERE + (IN_LIBRARIES if str(path).startswith(LIBRARIES) else [])
        for number, line in enumerate(source.code_only(source.read(root, path)).split("\n"), 1):
            for pattern, reason in rules:
                found = re.search(pattern, line)
                if found and (str(path), reason.split(":")[0]) not in EXCEPTIONS:
                    yield path, number, f"{found.group(0).strip()} {reason}"


def check_text(root):
    """The licence is there; no path of one machine, no note of unfinished work, no conflict marker."""
    licence = root / "LICENSE"
    if not licence.exists() or "Apache License" not in licence.read_text():
        yield Path("LICENSE"), 1, "is not the Apache licence"
    unfinished = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    for path in source.files(root):
        if path.parts[:2] == ("tests", "data") or path.name == "LICENSE":
            continue
        for number, line in enumerate(source.read(root, path).split("\n"), 1):
            if unfinished.search(line):
                yield path, number, "a note of unfinished work: finish it, or file it as an issue"
            if str(root) in line or re.search(r"/home/\w|/root/\w", line):
                yield path, number, "a path of one machine"
            if re.match(r"<{7} |>{7} ", line):
                yield path, number, "a conflict marker"


def check_docs(root):
    """Relative links lead to files; the README's first program is the one that is built; every folder has a README."""
    for path in source.files(root):
        if path.suffix != ".md":
            continue
        for number, line in enumerate(source.read(root, path).split("\n"), 1):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
                if "://" not in target and not (root / path.parent / target).exists():
                    yield path, number, f"the link to {target} leads nowhere"
    readme, program = Path("README.md"), Path("tests/install/consumer/main.cc")
    if program not in source.files(root) or source.read(root, program) not in source.read(root, readme):
        yield readme, 1, f"does not show {program} as it is"
    elif source.read(root, program).count("\n") >= 40:
        yield program, 1, "the first program has to stay below forty lines"
    for folder in ["proto", "device", "client", "daemon", "tests", "tests/tidy", "deploy", "systemd"]:
        page = root / folder / "README.md"
        if not page.exists():
            yield Path(folder), 1, "has no README.md"
        elif page.read_text().count("\n") > 80:
            yield Path(folder) / "README.md", 1, "is longer than one screen (80 lines)"


RULES = {name[len("check_"):]: rule for name, rule in list(globals().items()) if name.startswith("check_")}


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in RULES:
        sys.exit(f"usage: check.py {'|'.join(RULES)} [ROOT]")
    root = Path(sys.argv[2] if len(sys.argv) == 3 else os.getcwd()).resolve()
    complaints = [f"{path}:{line}: {text}" for path, line, text in RULES[sys.argv[1]](root)]
    if complaints:
        sys.exit("\n".join(complaints))


if __name__ == "__main__":
    main()
