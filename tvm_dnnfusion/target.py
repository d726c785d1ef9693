"""Targets from text, checked before TVM's code generator sees them.

TVM accepts CPU names and triples that LLVM does not know: an unknown CPU is compiled for as ``generic``, an
unknown triple ends the process with a segmentation fault.
"""

from __future__ import annotations

import re

import tvm
from tvm.target import Target, codegen

from tvm_dnnfusion.errors import TargetError
from tvm_dnnfusion.threads import cpus_by_core

# Spellings of LLVM's architecture names (Triple::parseArch) that its own list of targets leaves out.
ALIASES = {
    "x86_64": re.compile(r"amd64|x86_64h"),
    "i386": re.compile(r"i[4-9]86"),
    "aarch64": re.compile(r"arm64e?"),
    "arm": re.compile(r"armv[4-9][\w.]*"),
    "thumb": re.compile(r"thumbv[4-9][\w.]*"),
}
EXAMPLES = (
    "'llvm -mcpu=core-avx2', 'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76' or 'opencl -device=adreno'"
)


def host_target() -> Target:
    """Return the target of the CPU this runs on: ``llvm -mcpu=... -mtriple=... -num-cores=...``.

    ``num-cores`` counts the physical cores that this process may use; Ansor and MetaSchedule size their
    parallel loops by it.
    """
    return Target(
        {
            "kind": "llvm",
            "mcpu": codegen.llvm_get_system_cpu(),
            "mtriple": codegen.llvm_get_system_triple(),
            "num-cores": len(cpus_by_core()),
        }
    )


def parse_target(text: str | None) -> Target:
    """Make a target of a command-line string.

    Parameters
    ----------
    text : str, optional
        TVM's target string, tag or JSON; the host's CPU by default.

    Returns
    -------
    Target
        With a host: its own, or this machine's CPU if the target is not a CPU and names none.

    Raises
    ------
    TargetError
        TVM does not know the target, cannot generate code for its kind, or LLVM does not know its
        architecture or CPU.
    """
    if text is None:
        return host_target()
    # Before TVM reads it: while it does, it complains on the error output of missing GPUs and unknown CPUs.
    kind = text.split()[0] if text.strip() else ""
    _check_kind(kind, text)
    if kind == "llvm":
        _check_llvm(text, _attribute("mtriple", text), _attribute("mcpu", text))
    try:
        target = Target(text)
    except (ValueError, TypeError, tvm.error.TVMError) as error:
        raise TargetError(f"target '{text}' is not known to TVM: {_reason(error)}; {_accepted()}") from error
    _check_kind(target.kind.name, text)
    if target.kind.name in ("llvm", "c"):
        host = target
    else:
        host = target.host or host_target()
        target = Target(target, host)
    if host.kind.name == "llvm":
        _check_llvm(text, str(host.attrs.get("mtriple", "")), str(host.attrs.get("mcpu", "")))
    return target


def accepted_kinds() -> list[str]:
    """List the target kinds that this build of TVM can generate code for, sorted."""
    return sorted(
        kind
        for kind in Target.list_kinds()
        if tvm.get_global_func(f"target.build.{kind}", allow_missing=True) is not None
    )


def _accepted() -> str:
    return f"write for example {EXAMPLES}; kinds: {', '.join(accepted_kinds())}"


def _check_kind(kind: str, text: str) -> None:
    """Refuse an empty target, and a kind that exists but that this build of TVM cannot generate code for."""
    if not kind:
        raise TargetError(f"the target is empty; {_accepted()}")
    if kind in Target.list_kinds() and kind not in accepted_kinds():
        raise TargetError(
            f"target '{text}': this build of TVM generates no code for kind '{kind}'; {_accepted()}"
        )


def _reason(error: Exception) -> str:
    """Take the sentence out of a TVM error: its last line less the exception's name."""
    line = str(error).strip().splitlines()[-1]
    return line.removeprefix("ValueError: ").split(" Target creation from string failed")[0].rstrip(".")


def _attribute(name: str, text: str) -> str:
    """Find an attribute's value in a target string; empty if it is not there."""
    found = re.search(rf"-{name}=([^\s'\"]+)", text)
    return found.group(1) if found else ""


def _check_llvm(text: str, triple: str, cpu: str) -> None:
    """Refuse an architecture or CPU that LLVM does not know; empty means the host's and none."""
    triple = triple or codegen.llvm_get_system_triple()
    architecture = triple.split("-")[0]
    known = [str(name) for name in codegen.llvm_get_targets()]
    if architecture not in known and not any(
        name in known and pattern.fullmatch(architecture) for name, pattern in ALIASES.items()
    ):
        raise TargetError(
            f"target '{text}': LLVM has no architecture '{architecture}', only {', '.join(known)}"
        )
    if not cpu:
        return
    # Asked without the CPU: LLVM complains on the error output about one that it does not know.
    bare = Target({"kind": "llvm", "mtriple": triple})
    cpus = sorted(str(name) for name in codegen.llvm_get_cpu_archlist(bare))
    if cpu not in cpus:
        raise TargetError(
            f"target '{text}': LLVM has no CPU '{cpu}' for {architecture}, only {', '.join(cpus)}"
        )
