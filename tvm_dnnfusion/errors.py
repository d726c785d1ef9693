"""Typed errors: one sentence with what, where, and what would be accepted."""

from __future__ import annotations


class DNNFusionError(Exception):
    """Base of all errors that are the input's fault; the command line prints them and exits with 2."""


class ImportModelError(DNNFusionError):
    """A model file or object could not be read or imported."""


class ShapeError(DNNFusionError):
    """An input's name, rank or extents do not fit the model."""


class TargetError(DNNFusionError):
    """A target string that TVM does not know."""


class BuildError(DNNFusionError):
    """TVM cannot build a module for a target; the cause carries its traceback."""


class OutputError(DNNFusionError):
    """A result could not be written."""


class BlockError(DNNFusionError):
    """A block's body is not one this package wrote, or does not fit its operands."""


class OptionError(DNNFusionError):
    """An option's value is not one of those accepted."""


class RegistrationError(DNNFusionError):
    """A declaration is incomplete, or its name is taken."""


class DatabaseError(DNNFusionError):
    """The latency database cannot be opened, read or written."""


class MeasureError(DNNFusionError):
    """A kernel could not be built or timed."""
