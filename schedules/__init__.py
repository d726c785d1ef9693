"""TE schedules of blocks."""

if __name__ != "tvm_dnnfusion.schedules":
    # A second copy under another name would register every schedule twice.
    raise ImportError(f"import this package as tvm_dnnfusion.schedules, not as {__name__}")
