"""MORI's folder for bindings of kernel languages."""
