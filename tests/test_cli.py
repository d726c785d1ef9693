"""The command line: what each sub-command does, and one line with exit code 2 for every bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relay

from tvm_dnnfusion.bench_peers import PEERS, Peer
from tvm_dnnfusion.cli import run as run_command
from tvm_dnnfusion.cli.main import COMMANDS, main

IMAGE = (1, 3, 8, 8)


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Cli = Callable[..., Answer]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    """Run the command in this process; C++ output is captured too."""

    def call(*argv: object) -> Answer:
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Answer(code, *capfd.readouterr())

    return call


def write_onnx(path: Path, batch: int | str = 1, activation: str = "Relu") -> Path:
    """Conv, activation and a second output; the batch may be open."""
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "weight"], ["sum"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node(activation, ["sum"], ["features"], name="activation"),
        helper.make_node("Exp", ["features"], ["grown"], name="exp"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, *IMAGE[1:]])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("features", "grown")],
        [numpy_helper.from_array(weight, "weight")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def reference(model: Path, image: np.ndarray) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs by name."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"image": image}), strict=True))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_onnx(tmp_path_factory.mktemp("model") / "small.onnx")


@pytest.fixture(scope="module")
def open_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_onnx(tmp_path_factory.mktemp("model") / "open.onnx", batch="n")


@pytest.fixture(scope="module")
def folder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, compiled once for all tests."""
    path = tmp_path_factory.mktemp("compiled") / "small"
    assert main(["compile", str(model), "-o", str(path)]) == 0
    return path


def assert_refused(answer: Answer, *words: str) -> None:
    """Exit code 2 and one line that holds ``words``."""
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.count("\n") == 1 and answer.err.startswith("tvm-dnnfusion"), answer.err
    for word in words:
        assert word in answer.err


def assert_no_leftovers(parent: Path, *expected: str) -> None:
    assert sorted(path.name for path in parent.iterdir()) == sorted(expected)


def test_compile_writes_manifest(folder: Path, model: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["inputs"] == [{"name": "image", "shape": list(IMAGE), "dtype": "float32"}]
    assert [output["name"] for output in manifest["outputs"]] == ["features", "grown"]
    assert manifest["executor"] == "graph" and manifest["target"].startswith("llvm")
    assert manifest["kernels"] and set(manifest["blocks"]) <= set(manifest["kernels"])
    assert any("nn.relu" in operators for operators in manifest["blocks"].values())
    assert manifest["versions"]["tvm"] == tvm.__version__
    assert {"import", "build"} <= manifest["seconds"].keys()
    for name, size in manifest["files"].items():
        assert (folder / name).stat().st_size == size
    assert_no_leftovers(folder.parent, folder.name)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_run_agrees_with_onnx_runtime(
    kind: str, cli: Cli, model: Path, folder: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    image = rng.standard_normal(IMAGE).astype(np.float32)
    np.savez(tmp_path / "in.npz", image=image)
    what = model if kind == "file" else folder
    answer = cli("run", what, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert answer.code == 0, answer.err
    expected = reference(model, image)
    with np.load(tmp_path / "out.npz") as outputs:
        assert set(outputs.files) == expected.keys()
        for name, array in expected.items():
            np.testing.assert_allclose(outputs[name], array, rtol=1e-4, atol=1e-5)
    assert_no_leftovers(tmp_path, "in.npz", "out.npz")


def test_run_without_inputs_is_repeatable(cli: Cli, folder: Path, tmp_path: Path) -> None:
    answers = [
        json.loads(cli("run", folder, "--json", "--seed", seed, "--repeat", 2).out) for seed in (3, 3, 4)
    ]
    first, again, other = (answer["outputs"] for answer in answers)
    assert first == again != other
    assert answers[0]["seed"] == 3 and answers[0]["repeat"] == 2
    assert answers[0]["min_ms"] <= answers[0]["median_ms"] <= answers[0]["max_ms"]
    assert "seed 7" in cli("run", folder, "--seed", 7).out


def test_open_batch_compiles_for_the_virtual_machine(
    cli: Cli, open_model: Path, tmp_path: Path, rng: np.random.Generator
) -> None:
    assert cli("compile", open_model, "-o", tmp_path / "open").code == 0
    assert json.loads((tmp_path / "open/manifest.json").read_text())["executor"] == "vm"
    assert_refused(cli("run", tmp_path / "open"), "open extents", "--shape image=1x3x8x8")
    for batch in (1, 3):
        image = rng.standard_normal((batch, *IMAGE[1:])).astype(np.float32)
        np.savez(tmp_path / "in.npz", image=image)
        answer = cli(
            "run", tmp_path / "open", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz"
        )
        assert answer.code == 0, answer.err
        with np.load(tmp_path / "out.npz") as outputs:
            expected = reference(open_model, image)["features"]
            np.testing.assert_allclose(outputs["features"], expected, rtol=1e-4, atol=1e-5)


def test_shape_closes_an_open_batch(cli: Cli, open_model: Path, tmp_path: Path) -> None:
    answer = cli("compile", open_model, "-o", tmp_path / "two", "--shape", "image=2x3x8x8")
    assert answer.code == 0, answer.err
    manifest = json.loads((tmp_path / "two/manifest.json").read_text())
    assert manifest["executor"] == "graph" and manifest["inputs"][0]["shape"] == [2, 3, 8, 8]


@pytest.mark.parametrize("suffix", [".relay", ".txt", ".json"])
def test_run_reads_relay(suffix: str, cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(x)))
    text = tvm.ir.save_json(mod) if suffix == ".json" else mod.astext()
    (tmp_path / f"net{suffix}").write_text(text)
    array = rng.standard_normal((2, 3)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=array)
    answer = cli(
        "run", tmp_path / f"net{suffix}", "--shape", "x=2x3", "--inputs", tmp_path / "in.npz",
        "--outputs", tmp_path / "out.npz",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    exponentials = np.exp(array.astype(np.float64))
    with np.load(tmp_path / "out.npz") as outputs:
        expected = exponentials / exponentials.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(outputs["output0"], expected, rtol=1e-4)


def test_run_writes_outputs_of_any_name(tmp_path: Path) -> None:
    arrays = {name: np.full((2,), i) for i, name in enumerate(["file", "/layer1/Relu:0", "allow_pickle"])}
    run_command._write_npz(tmp_path / "out.npz", arrays)
    read = run_command._read_npz(str(tmp_path / "out.npz"))
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)


def test_compile_replaces_its_own_folder_only(cli: Cli, model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert cli("compile", model, "-o", tmp_path / "empty").code == 0
    stale = tmp_path / "empty" / "stale"
    stale.touch()
    assert cli("compile", model, "-o", tmp_path / "empty").code == 0
    assert not stale.exists() and cli("run", tmp_path / "empty").code == 0
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.tex").write_text("years of work")
    assert_refused(cli("compile", model, "-o", tmp_path / "theirs"), "other content")
    assert (tmp_path / "theirs" / "thesis.tex").read_text() == "years of work"
    assert_no_leftovers(tmp_path, "empty", "theirs")


def test_failed_compile_leaves_the_old_folder(cli: Cli, folder: Path, tmp_path: Path) -> None:
    copytree(folder, tmp_path / "net")
    before = (tmp_path / "net" / "manifest.json").read_bytes()
    broken = write_onnx(tmp_path / "broken.onnx", activation="NoSuchOperator")
    assert_refused(cli("compile", broken, "-o", tmp_path / "net"), "NoSuchOperator", "activation")
    assert (tmp_path / "net" / "manifest.json").read_bytes() == before
    assert_no_leftovers(tmp_path, "broken.onnx", "net")


def bad_model(path: Path, kind: str) -> Path:
    """Write a file that is no model, in one of several ways."""
    good = write_onnx(path / "good.onnx").read_bytes()
    contents = {
        "cut.onnx": good[: len(good) // 2],
        "empty.onnx": b"",
        "noise.onnx": np.random.default_rng(0).bytes(500),
        "noise.relay": b"\xff\xfe not text",
        "syntax.relay": b"def @main(",
        "operator.txt": b'#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32]) { nn.nosuch(%x) }',
        "type.txt": b'#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32]) { nn.dense(%x, %x) }',
        "nomain.txt": b'#[version = "0.0.5"]\ndef @other(%x: Tensor[(2), float32]) { nn.relu(%x) }',
        "broken.json": b'{"root": 1, "nodes": [',
        "other.json": b'{"hello": 1}',
        "array.json": b"[]",
        "model.pb": b"",
    }
    (path / kind).write_bytes(contents[kind])
    return path / kind


@pytest.mark.parametrize(
    "kind",
    [
        "cut.onnx", "empty.onnx", "noise.onnx", "noise.relay", "syntax.relay", "operator.txt", "type.txt",
        "nomain.txt", "broken.json", "other.json", "array.json", "model.pb",
    ],
)  # fmt: skip
def test_run_refuses_bad_model(kind: str, cli: Cli, tmp_path: Path) -> None:
    assert_refused(cli("run", bad_model(tmp_path, kind)), kind)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "MISSING.onnx"], ["MISSING.onnx", "No such file"]),
        (["run", "."], ["manifest.json"]),
        (["run", "MODEL", "--shape", "image=1x3x9x9"], ["image"]),
        (["run", "MODEL", "--shape", "picture=1x3x8x8"], ["picture", "image"]),
        (["run", "MODEL", "--shape", "image=1by3"], ["image=1by3", "NAME="]),
        (["run", "MODEL", "--shape", "image=1x3x8x8", "--shape", "image=1x3x8x8"], ["once"]),
        (["run", "MODEL", "--target", "abacus"], ["abacus", "llvm"]),
        (["run", "MODEL", "--target", "opencl"], ["opencl"]),
        (["run", "FOLDER", "--target", "llvm"], ["--target"]),
        (["run", "MODEL", "--repeat", "0"], ["'0'", "--help"]),
        (["run", "MODEL", "--threads", "-1"], ["-1"]),
        (["run", "MODEL", "--inputs", "MISSING.npz"], ["MISSING.npz"]),
        (["run", "MODEL", "--inputs", "MODEL"], ["small.onnx", "numpy.savez"]),
        (["run", "MODEL", "--outputs", "no/such/folder.npz"], ["no/such/folder.npz"]),
        (["run", "MODEL", "--outputs", "."], ["folder"]),
        (["run"], ["MODEL_OR_DIR"]),
        (["compile", "MODEL"], ["--output"]),
        (["compile", "MODEL", "-o", "MODEL"], ["not a folder"]),
        (["compile", "MODEL", "-o", "no/such/folder"], ["no/such/folder"]),
        (["compile", "MODEL", "-o", "new", "--log", "MISSING.json"], ["MISSING.json"]),
        (["compile", "MODEL", "-o", "new", "--executor", "rocket"], ["rocket", "graph"]),
        (["explain", "MISSING.onnx"], ["MISSING.onnx"]),
        (["explain", "MODEL", "--edge", "conv"], ["PRODUCER,CONSUMER"]),
        (["bench", "MISSING.onnx"], ["MISSING.onnx"]),
        (["bench", "MODEL", "--against", "abacus"], ["abacus", "stock, onnxruntime"]),
        (["bench"], ["MODEL"]),
        (["dance"], ["dance", "compile"]),
        ([], ["COMMAND"]),
    ],
)
def test_command_refuses_bad_argument(
    arguments: list[str],
    words: list[str],
    cli: Cli,
    model: Path,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    known = {"MODEL": model, "FOLDER": folder}
    assert_refused(cli(*(known.get(argument, argument) for argument in arguments)), *words)
    assert_no_leftovers(tmp_path)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, ["image", "not given"]),
        ({"picture": np.zeros(IMAGE, np.float32)}, ["picture", "image float32[1x3x8x8]"]),
        ({"image": np.zeros(IMAGE, np.float64)}, ["float64", "float32"]),
        ({"image": np.zeros((1, 3, 8, 9), np.float32)}, ["[1x3x8x9]", "[1x3x8x8]"]),
        ({"image": np.zeros((3, 8, 8), np.float32)}, ["[3x8x8]"]),
        ({"image": np.array(["text", None], dtype=object)}, ["numpy.savez"]),
    ],
)
def test_run_refuses_inputs_that_do_not_fit(
    arrays: dict[str, np.ndarray], words: list[str], cli: Cli, folder: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", **arrays)
    assert_refused(cli("run", folder, "--inputs", tmp_path / "in.npz"), *words)


def test_run_refuses_damaged_folder(cli: Cli, folder: Path, tmp_path: Path) -> None:
    copytree(folder, tmp_path / "net")
    library = tmp_path / "net" / "model.so"
    library.write_bytes(library.read_bytes()[:1000])
    assert_refused(cli("run", tmp_path / "net"), "model.so", "1000 bytes")
    library.unlink()
    assert_refused(cli("run", tmp_path / "net"), "missing")


def test_run_refuses_library_of_another_machine(cli: Cli, folder: Path, tmp_path: Path) -> None:
    copytree(folder, tmp_path / "net")
    manifest = json.loads((tmp_path / "net" / "manifest.json").read_text())
    noise = b"\x7fELF" + bytes(100)
    (tmp_path / "net" / "model.so").write_bytes(noise)
    manifest["files"]["model.so"] = len(noise)
    (tmp_path / "net" / "manifest.json").write_text(json.dumps(manifest))
    assert_refused(cli("run", tmp_path / "net"), "cannot be loaded on this machine")


def test_explain_reports_plan(cli: Cli, model: Path) -> None:
    answer = cli("explain", model, "--json")
    assert answer.code == 0, answer.err
    report = json.loads(answer.out)
    assert report["kernels"] < report["stock_kernels"]
    assert any("nn.relu" in block["ops"] for block in report["blocks"])
    assert report["why_not"] or len(report["blocks"]) == 1
    text = cli("explain", model).out
    assert f"in {report['kernels']} kernels (stock: {report['stock_kernels']})" in text


def test_explain_names_the_block_of_an_edge(cli: Cli, model: Path) -> None:
    answer = cli("explain", model, "--edge", "conv,activation")
    assert answer.code == 0 and "both in block" in answer.out
    fields = json.loads(cli("explain", model, "--edge", "conv,activation", "--json").out)
    assert fields == {"edge": ["conv", "activation"], "reason": answer.out.rstrip("\n")}
    assert_refused(cli("explain", model, "--edge", "conv,nothing"), "nothing")


def test_bench_reports_every_engine(cli: Cli, model: Path) -> None:
    answer = cli("bench", model, "--json", "--repeat", 1)
    assert answer.code == 0, answer.err
    (fields,) = json.loads(answer.out)
    for engine in ("ours", "stock", "onnxruntime"):
        assert fields[f"{engine}_ms"] > 0 and fields[f"{engine}_runs"] >= 1
    for peer in ("stock", "onnxruntime"):
        assert fields[f"{peer}_over_ours"] == pytest.approx(fields[f"{peer}_ms"] / fields["ours_ms"])
        assert fields[f"{peer}_difference"] < 1e-4


def test_bench_refuses_missing_package(cli: Cli, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        PEERS, "absent", Peer(lambda workload: pytest.fail(), "no_such_module", "the-package")
    )
    assert_refused(cli("bench", model, "--against", "absent"), "pip install the-package")


def test_bench_refuses_onnx_peer_for_relay(cli: Cli, tmp_path: Path) -> None:
    mod = tvm.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(2, 3))))
    (tmp_path / "net.relay").write_text(mod.astext())
    assert cli("bench", tmp_path / "net.relay", "--repeat", 1).code == 0
    answer = cli("bench", tmp_path / "net.relay", "--against", "onnxruntime")
    assert_refused(answer, "onnxruntime", "ONNX")


def test_interrupt_exits_with_130(cli: Cli, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_command, "load_model", interrupt)
    answer = cli("run", model)
    assert (answer.code, answer.err) == (130, "tvm-dnnfusion run: interrupted\n")


@pytest.mark.parametrize("command", [module.__name__.rpartition(".")[2] for module in COMMANDS])
def test_help_shows_examples(command: str, cli: Cli) -> None:
    answer = cli(command, "--help")
    assert answer.code == 0 and f"tvm-dnnfusion {command} " in answer.out.partition("examples:")[2]


def test_module_launches_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tvm_dnnfusion", "--version"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and result.stdout.startswith("tvm-dnnfusion ")


def test_script_passes_exit_code_on() -> None:
    script = Path(sys.executable).with_name("tvm-dnnfusion")
    result = subprocess.run([script, "run", "MISSING.onnx"], capture_output=True, text=True, check=False)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
