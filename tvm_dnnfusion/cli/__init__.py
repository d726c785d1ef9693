"""The command ``tvm-dnnfusion``: ``main`` dispatches to one module per sub-command."""
