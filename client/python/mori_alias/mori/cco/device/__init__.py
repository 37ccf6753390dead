"""MORI's folder for what kernel languages need of cco."""
