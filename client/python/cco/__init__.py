"""cco: a node-wide symmetric heap for communicating GPU kernels; Python over `cco/cco.h`."""

__version__ = "0.1.0"
