"""One Triton kernel for each method of the device table, written to a file as Triton wants it: a method's result goes
to `out`, its arguments are the kernel's, and those that choose a symbol are compile-time constants."""

import importlib.util
import tempfile
from pathlib import Path

from cco import device
from cco import triton as cco


def kernel_source(row):
    """The kernel of one method."""
    constants = {name for axis in row.axes for name in axis.arguments}
    names = [argument.name for argument in row.signature]
    parameters = ", ".join(["out", *(f"{name}: tl.constexpr" if name in constants else name for name in names)])
    call = f"cco.{row.face}.{row.method}({', '.join(f'{name}={name}' for name in names)})"
    runtime = [name for name in names if name not in constants]
    return (f"# One kernel for all values of a type: there are many calls.\n@triton.jit(do_not_specialize={runtime})\n"
            f"def {row.face}_{row.method}({parameters}):\n    tl.store(out, {call})\n")


def module_source():
    rows = [row for row in device.OPERATIONS if row.face]
    return ("import triton\nimport triton.language as tl\n\nfrom cco import triton as cco\n\n\n"
            + "\n\n".join(kernel_source(row) for row in rows))


class Kernels:
    """The kernels, loaded from a folder that lives as long as this does."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="cco-kernels-")
        path = Path(self._folder.name) / "cco_table_kernels.py"
        path.write_text(module_source(), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self._libraries = None

    def function(self, method):
        return getattr(self.module, method.replace(".", "_"))

    def launch(self, method, grid, warps, out, arguments):
        """On the current device and stream. Arguments that are left out have the method's defaults."""
        namespace, _, name = method.partition(".")
        row = device.methods(namespace)[name]
        given = {argument.name: arguments.get(argument.name, argument.default) for argument in row.signature}
        unknown = set(arguments) - set(given)
        missing = [key for key, value in given.items() if value is None]
        if unknown or missing:
            raise TypeError(f"{method}: unknown {sorted(unknown)}, missing {missing}")
        if self._libraries is None:
            self._libraries = cco.get_extern_libs()
        self.function(method)[(grid,)](out, **given, num_warps=warps, extern_libs=self._libraries)
