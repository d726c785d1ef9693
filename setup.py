"""Packaging: ``passes`` and ``schedules`` live at the top level and import as ``tvm_dnnfusion.*``."""

from setuptools import setup

setup(
    name="tvm-dnnfusion",
    version="0.1.0",
    packages=["tvm_dnnfusion", "tvm_dnnfusion.passes", "tvm_dnnfusion.schedules"],
    package_dir={"tvm_dnnfusion": "tvm_dnnfusion", "tvm_dnnfusion.passes": "passes", "tvm_dnnfusion.schedules": "schedules"},
    python_requires=">=3.10",
)
