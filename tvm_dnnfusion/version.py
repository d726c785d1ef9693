"""The package's version; the only place it is written down."""

__version__ = "0.1.0"
