"""MORI's folder for Triton's bindings."""
