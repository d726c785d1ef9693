"""Block schedules in TE. Importing the package registers ours."""

if __name__ != "tvm_dnnfusion.schedules":
    raise ImportError("import this package as tvm_dnnfusion.schedules, so that its registry exists once")

from . import conv2d_nchwc, default, depthwise_conv2d_nchwc, gemm, topi_anchor
from .registry import BlockSchedule, block_schedule, registered_schedules

__all__ = [
    "BlockSchedule",
    "block_schedule",
    "conv2d_nchwc",
    "default",
    "depthwise_conv2d_nchwc",
    "gemm",
    "registered_schedules",
    "topi_anchor",
]
