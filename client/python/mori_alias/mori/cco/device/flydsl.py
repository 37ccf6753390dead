"""MORI's name for `cco.flydsl`."""

from cco.flydsl import *  # noqa: F403
from cco.flydsl import __all__ as __all__
