#!/usr/bin/env python3
"""Goal: every rule of check.py finds what it forbids, and nothing in a file without fault.

Method: a small repository in a temporary folder; one file with one fault is added, the rule has to name that file,
and says nothing once it is gone.
"""

import subprocess
import tempfile
import unittest
from pathlib import Path

import check

LONG_FUNCTION = "int f() {\n" + "  g();\n" * 80 + "}\n"
FAULTS = [
    ("arrows", "daemon/core/a.cc", '#include "cco/memd/v1/memd.pb.h"\n'),
    ("arrows", "daemon/core/a.cc", "#include <sys/socket.h>\n"),
    ("arrows", "daemon/core/a.cc", '#include "daemon/service/s.h"\n'),
    ("arrows", "client/include/cco/x.hpp", '#include "absl/status/status.h"\n'),
    ("arrows", "device/include/cco/device/x.h", "#include <cuda/atomic>\n"),
    ("arrows", "device/include/cco/device/abi.h", '#include "cco/device/good.h"\n'),
    ("arrows", "elsewhere/a.cc", "int a;\n"),
    ("lines", "client/src/a.cc", "// " + "x" * 98 + "\n"),
    ("lines", "client/src/a.cc", "int a; \n"),
    ("lines", "client/src/a.cc", "\tint a;\n"),
    ("files", "client/src/a.cc", "int a;\n" * 601),
    ("functions", "client/src/a.cc", "namespace n {\n" + LONG_FUNCTION + "}\n"),
    ("functions", "client/src/a.cc", "class A {\n  A() : b_(0) {\n" + "    g();\n" * 80 + "  }\n};\n"),
    ("calls", "tests/unit/a.cc", "void f() { std::this_thread::sleep_for(t); }\n"),
    ("calls", "client/src/a.cc", "void f() { strcpy(a, b); }\n"),
    ("calls", "client/src/a.cc", "void f() { std::cout << 1; }\n"),
    ("calls", "daemon/core/a.cc", "using namespace std;\n"),
    ("text", "client/src/a.cc", "// TO" "DO later\n"),
    ("text", "deploy/run.sh", "cd /home/" "someone/cco\n"),
    ("docs", "deploy/README.md", "[there](nowhere.md)\n"),
    ("docs", "README.md", "no program\n"),
]
GOOD = {
    "daemon/core/good.cc": '// Waits like sleep(1) in a comment do not count.\n#include "daemon/core/good.h"\n'
                           '#include "absl/status/status.h"\n#include <vector>\n'
                           'const char* kText = "strcpy(a, b)";\nint f(int a) { return a; }\n',
    "daemon/core/good.h": "#pragma once\n",
    "daemon/service/s.h": "#pragma once\n",
    "device/include/cco/device/good.h": "#pragma once\n#include <atomic>\n",
    "tests/install/consumer/main.cc": "int main() {}\n",
    "README.md": "int main() {}\n",
    "LICENSE": "Apache License\n",
    **{f"{folder}/README.md": "text\n" for folder in
       ["proto", "device", "client", "daemon", "tests", "tests/tidy", "deploy", "systemd"]},
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Rules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        for name, text in GOOD.items():
            write(self.root / name, text)

    def complaints(self, rule):
        return [str(path) for path, _, _ in check.RULES[rule](self.root)]

    def test_nothing_is_said_of_good_files(self):
        for rule in check.RULES:
            self.assertEqual(self.complaints(rule), [], rule)

    def test_each_fault_is_found(self):
        for rule, name, text in FAULTS:
            path = self.root / name
            before = path.read_text() if path.exists() else None
            write(path, text)
            self.assertIn(name, self.complaints(rule), f"{rule}: {text[:60]!r}")
            path.unlink() if before is None else path.write_text(before)
        self.assertEqual({rule for rule, _, _ in FAULTS}, set(check.RULES), "a rule without a test")


if __name__ == "__main__":
    unittest.main()
