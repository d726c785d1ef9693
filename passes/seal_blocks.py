"""Groups as block operators, and back.

``SealBlocks`` turns each call of a primitive function that ``FuseByMappingType`` made into one call of
``dnnfusion.blockN``; ``Unseal`` is its inverse, exact to the bit of every constant and attribute.
"""

from __future__ import annotations

import tvm
from tvm import relay
from tvm_dnnfusion.passes.fuse_by_mapping_type import MAPPING_TYPE
from tvm_dnnfusion.passes.graph_rebuilder import GraphRebuilder

from tvm_dnnfusion.block_body import decode_body, encode_body
from tvm_dnnfusion.block_operator import (
    MAX_BLOCK_INPUTS,
    block_mapping_type,
    block_text,
    is_block,
    make_block,
)
from tvm_dnnfusion.relay_graph import is_sealed, key_of, visit_order


def is_group(expr: relay.Expr) -> bool:
    """True for a call of a primitive function that carries a mapping type."""
    return (
        isinstance(expr, relay.Call)
        and isinstance(expr.op, relay.Function)
        and expr.op.attrs is not None
        and MAPPING_TYPE in expr.op.attrs
    )


class _Sealer(GraphRebuilder):
    def replace(self, expr: relay.Expr) -> relay.Expr | None:
        if not is_group(expr) or not 1 <= len(expr.args) <= MAX_BLOCK_INPUTS:
            return None
        args = [self.rebuilt(a) for a in expr.args]
        return make_block(encode_body(expr.op), args, str(expr.op.attrs[MAPPING_TYPE]), expr.span)


class _Unsealer(GraphRebuilder):
    def replace(self, expr: relay.Expr) -> relay.Expr | None:
        if not is_block(expr):
            return None
        function = decode_body(block_text(expr)).function
        function = function.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
        function = function.with_attr(MAPPING_TYPE, block_mapping_type(expr))
        return relay.Call(function, [self.rebuilt(a) for a in expr.args], span=expr.span)


def _rebuild_functions(mod: tvm.IRModule, rebuilder: type[GraphRebuilder]) -> tvm.IRModule:
    mod = tvm.IRModule(mod.functions, mod.type_definitions, attrs=mod.attrs)
    for var, function in mod.functions.items():
        if not isinstance(function, relay.Function) or is_sealed(function):
            continue
        body = rebuilder().run(visit_order(function.body), function.body)
        if key_of(body) != key_of(function.body):
            mod.update_func(var, relay.function.FunctionWithFields(function, body=body))
    return relay.transform.InferType()(mod)


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.SealBlocks")
class SealBlocks:
    """Pass that turns each realised group into one block operator and leaves the rest as it was."""

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with sealed groups; types inferred."""
        return _rebuild_functions(mod, _Sealer)


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.Unseal")
class Unseal:
    """Pass that turns each block operator into the readable primitive function it was sealed from."""

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with nested functions; types inferred."""
        return _rebuild_functions(mod, _Unsealer)
