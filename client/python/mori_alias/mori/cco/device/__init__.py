"""MORI's folder for what kernel languages need of cco: `mori.cco.device.flydsl` for FlyDSL."""

from typing import Any

__all__ = ["find_cco_bitcode", "get_bitcode_path"]


def __getattr__(name: str) -> Any:
    """Both are FlyDSL's, which is imported when somebody asks for them."""
    if name in __all__:
        from cco.flydsl import find_cco_bitcode

        return find_cco_bitcode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
