"""Import-time check that the installed TVM, if any, has Relay.

Relay left Apache TVM after 0.19, and ``apache-tvm`` on PyPI starts at 0.25: a missing Relay is the usual
first failure of a new user, so it gets one sentence instead of an ``ImportError`` from deep inside.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

REMEDY = "run: pip install 'tvm-dnnfusion[tvm]' (or put your own TVM build, 0.19 or earlier, on PYTHONPATH)"


def require_relay() -> None:
    """Check that ``tvm`` and ``tvm.relay`` can be imported.

    Raises
    ------
    ImportError
        There is no TVM, it cannot be loaded, or it has no Relay; the sentence names the remedy.
    """
    if find_spec("tvm") is None:
        raise ImportError(f"tvm_dnnfusion needs Apache TVM with Relay, and no TVM is installed; {REMEDY}")
    tvm = _load_tvm()
    if find_spec("tvm.relay") is None:
        version = getattr(tvm, "__version__", "of unknown version")
        raise ImportError(
            f"tvm_dnnfusion needs Apache TVM with Relay, and the installed TVM {version} has none; {REMEDY}"
        )


def _load_tvm() -> ModuleType:
    """Import ``tvm``; a shared library that does not load (``OSError``) becomes an ``ImportError``."""
    try:
        return importlib.import_module("tvm")
    except (ImportError, OSError, RuntimeError) as error:
        raise ImportError(
            f"tvm_dnnfusion needs Apache TVM with Relay, and the installed TVM cannot be loaded "
            f"({error}); {REMEDY}"
        ) from error
