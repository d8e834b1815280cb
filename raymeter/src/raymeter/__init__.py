"""raymeter shows what an unchanged Ray program spends on moving data, where, and what to change."""

__version__ = "0.1.0"
