"""DNNFusion for Apache TVM's Relay: operator fusion by mapping type, in the flow you have."""

from tvm_dnnfusion.relay_check import require_relay
from tvm_dnnfusion.version import __version__

require_relay()

from tvm_dnnfusion.block_operator import register_block_operators  # noqa: E402

register_block_operators()

from tvm_dnnfusion.build import BuildResult, build, build_stock  # noqa: E402
from tvm_dnnfusion.config import Options  # noqa: E402
from tvm_dnnfusion.onnx_import import from_onnx  # noqa: E402
from tvm_dnnfusion.passes import DNNFusion, Unseal  # noqa: E402

__all__ = [
    "BuildResult",
    "DNNFusion",
    "Options",
    "Unseal",
    "__version__",
    "build",
    "build_stock",
    "from_onnx",
]
