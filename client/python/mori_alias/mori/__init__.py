"""MORI's Python names over cco: `mori.cco` and what lies beside it. Needs a running cco-memd."""
