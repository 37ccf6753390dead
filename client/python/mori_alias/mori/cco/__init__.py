"""MORI CCO's host interface."""
