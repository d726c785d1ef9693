"""Relay passes, in the order of the pipeline."""

if __name__ != "tvm_dnnfusion.passes":
    # A second copy under another name would register every operator and rule twice.
    raise ImportError(f"import this package as tvm_dnnfusion.passes, not as {__name__}")

from tvm_dnnfusion.passes.alter_layout import AlterLayout
from tvm_dnnfusion.passes.canonicalize import Canonicalize
from tvm_dnnfusion.passes.dnnfusion import DNNFusion
from tvm_dnnfusion.passes.fold_constants import FoldConstants
from tvm_dnnfusion.passes.fuse_by_mapping_type import FuseByMappingType
from tvm_dnnfusion.passes.seal_blocks import SealBlocks, Unseal

__all__ = [
    "AlterLayout",
    "Canonicalize",
    "DNNFusion",
    "FoldConstants",
    "FuseByMappingType",
    "SealBlocks",
    "Unseal",
]
