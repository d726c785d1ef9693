"""Relay passes."""

if __name__ != "tvm_dnnfusion.passes":
    # A second copy under another name would register every operator and rule twice.
    raise ImportError(f"import this package as tvm_dnnfusion.passes, not as {__name__}")
