"""One way to run a compiled model, whichever executor it was compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import tvm
from tvm.contrib.graph_executor import GraphModule
from tvm.runtime.vm import Executable, VirtualMachine

from tvm_dnnfusion.errors import TargetError


class Runner(Protocol):
    """Inputs are set once, then ``run`` is what a benchmark times."""

    def set_inputs(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the inputs to the device."""

    def run(self) -> None:
        """Run the model and wait for the device."""

    def outputs(self) -> list[np.ndarray]:
        """Copy the outputs of the last run from the device."""


class GraphRunner:
    """A model on the graph executor."""

    def __init__(self, module: GraphModule, device: tvm.runtime.Device) -> None:
        self._module = module
        self._device = device

    def set_inputs(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the inputs to the device; an input that the compiled graph no longer reads is skipped."""
        for name, array in arrays.items():
            if self._module.get_input_index(name) >= 0:
                self._module.set_input(name, array)

    def run(self) -> None:
        """Run the graph and wait for the device."""
        self._module.run()
        self._device.sync()

    def outputs(self) -> list[np.ndarray]:
        """Copy the outputs from the device."""
        return [self._module.get_output(i).numpy() for i in range(self._module.get_num_outputs())]


class VMRunner:
    """A model on the Relay virtual machine."""

    def __init__(self, executable: Executable, device: tvm.runtime.Device) -> None:
        self._machine = VirtualMachine(executable, device)
        self._names = [str(name) for name in executable.get_function_params("main")]
        self._device = device
        self._result: Any = None

    def set_inputs(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the inputs to the device; all of them, as ``main`` takes them by position."""
        given = [tvm.nd.array(arrays[name], self._device) for name in self._names]
        self._machine.set_input("main", *given)

    def run(self) -> None:
        """Run ``main`` and wait for the device."""
        self._result = self._machine.invoke("main")
        self._device.sync()

    def outputs(self) -> list[np.ndarray]:
        """Copy the outputs from the device, nested tuples flattened as the graph executor does."""
        arrays: list[np.ndarray] = []
        pending = [self._result]
        while pending:
            value = pending.pop()
            if isinstance(value, tvm.nd.NDArray):
                arrays.append(value.numpy())
            else:
                pending.extend(value[i] for i in reversed(range(len(value))))
        return arrays


def runner_of(compiled: Any, target: tvm.target.Target) -> Runner:
    """Get ready to run what was compiled in this process.

    Parameters
    ----------
    compiled : GraphExecutorFactoryModule or Executable
        What ``relay.build`` or ``relay.vm.compile`` gave.
    target : Target
        What it was compiled for; this machine must have such a device.

    Raises
    ------
    TargetError
        It does not.
    """
    device = device_of(target)
    if isinstance(compiled, Executable):
        return VMRunner(compiled, device)
    return GraphRunner(GraphModule(compiled["default"](device)), device)


def device_of(target: tvm.target.Target) -> tvm.runtime.Device:
    """Return this machine's first device of the target's kind.

    Raises
    ------
    TargetError
        There is none, or TVM was built without the runtime for it.
    """
    kind = target.kind.name
    device = tvm.cpu() if kind in ("llvm", "c") else tvm.device(kind)
    if not device.exist:
        raise TargetError(
            f"this machine has no {kind} device that TVM can run on; compile for its CPU instead"
        )
    return device
