"""DNNFusion for Apache TVM's Relay."""

from tvm_dnnfusion.relay_check import require_relay
from tvm_dnnfusion.version import __version__

require_relay()

__all__ = ["__version__"]
