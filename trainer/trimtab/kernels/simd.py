"""LLVM vector code for numba: what the CPU kernels do to one block of 64 floats.

numba's own loops leave two things on the table that this pass lives by: a comparison of a whole block as one 64-bit
mask (so that blocks and elements without a hit cost no branch), and stores that bypass the cache (so that the line
which is about to be overwritten is not read first: 12 bytes an element, not 16). LLVM lowers the fixed-width vectors to
whatever the processor has (AVX-512, AVX2, NEON).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 64
BLOCK_BYTES = LANES * 4
#: Streaming stores need whole cache lines.
STREAM_ALIGNMENT = 64

_MASK = ir.IntType(LANES)
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)


_declare: Any = cgutils.get_or_insert_function
_tuple: Any = types.Tuple


def _load(builder: Any, address: Any) -> Any:
    value = builder.load(builder.inttoptr(address, _FLOATS.as_pointer()))
    value.align = 4
    return value


def _store(builder: Any, value: Any, address: Any, *, streaming: bool) -> None:
    store = builder.store(value, builder.inttoptr(address, _FLOATS.as_pointer()))
    store.align = STREAM_ALIGNMENT if streaming else 4
    if streaming:
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))


def _reaches(builder: Any, acc: Any, threshold: Any) -> Any:
    """<64 x i1>: |acc| >= threshold; false where acc is NaN."""
    fabs = _declare(builder.module, ir.FunctionType(_FLOATS, [_FLOATS]), f"llvm.fabs.v{LANES}f32")
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(undefined, threshold, ir.Constant(ir.IntType(32), 0))
    everywhere = builder.shuffle_vector(
        first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    )
    return builder.fcmp_ordered(">=", builder.call(fabs, [acc]), everywhere)


def _squared_norm(builder: Any, acc: Any) -> Any:
    """Sum of squares of the block in float64."""
    wide = builder.fpext(acc, _DOUBLES)
    return _sum(builder, builder.fmul(wide, wide))


def _sum(builder: Any, doubles: Any) -> Any:
    """Sum of the block's float64 values, in the order that suits the processor."""
    double = ir.DoubleType()
    total = _declare(
        builder.module, ir.FunctionType(double, [double, _DOUBLES]), f"llvm.vector.reduce.fadd.v{LANES}f64"
    )
    return builder.call(total, [ir.Constant(double, -0.0), doubles], fastmath=("reassoc",))


def _add_block(
    _typing: Any, grad: Any, residual: Any, next_residual: Any, threshold: Any, streaming: Any
) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        grad, residual, next_residual, threshold, streaming = arguments
        acc = builder.fadd(_load(builder, grad), _load(builder, residual))
        reaches = _reaches(builder, acc, threshold)
        kept = builder.select(reaches, ir.Constant(_FLOATS, [0.0] * LANES), acc)
        with builder.if_else(builder.icmp_unsigned("!=", streaming, streaming.type(0))) as (stream, cache):
            with stream:
                _store(builder, kept, next_residual, streaming=True)
            with cache:
                _store(builder, kept, next_residual, streaming=False)
        result = (builder.bitcast(reaches, _MASK), _squared_norm(builder, acc))
        return context.make_tuple(builder, signature.return_type, result)

    pointers = (types.intp, types.intp, types.intp)
    return _tuple((types.uint64, types.float64))(*pointers, types.float32, types.boolean), generate


def _scale_block(_typing: Any, source: Any, target: Any, scale: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        source, target, scale = arguments
        undefined = ir.Constant(_FLOATS, ir.Undefined)
        first = builder.insert_element(undefined, scale, ir.Constant(ir.IntType(32), 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        everywhere = builder.shuffle_vector(first, undefined, lanes)
        _store(builder, builder.fmul(_load(builder, source), everywhere), target, streaming=True)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.float32), generate


def _look_block(_typing: Any, acc: Any, threshold: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, threshold = arguments
        acc = _load(builder, address)
        result = (builder.bitcast(_reaches(builder, acc, threshold), _MASK), _squared_norm(builder, acc))
        return context.make_tuple(builder, signature.return_type, result)

    return _tuple((types.uint64, types.float64))(types.intp, types.float32), generate


def _tail_block(_typing: Any, acc: Any, threshold: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, threshold = arguments
        acc, module, float32 = _load(builder, address), builder.module, ir.FloatType()
        reaches = _reaches(builder, acc, threshold)
        fabs = _declare(module, ir.FunctionType(_FLOATS, [_FLOATS]), f"llvm.fabs.v{LANES}f32")
        kept = builder.select(reaches, builder.call(fabs, [acc]), ir.Constant(_FLOATS, [0.0] * LANES))
        count = _declare(module, ir.FunctionType(_MASK, [_MASK]), f"llvm.ctpop.i{LANES}")
        largest = _declare(module, ir.FunctionType(float32, [_FLOATS]), f"llvm.vector.reduce.fmax.v{LANES}f32")
        result = (
            builder.call(count, [builder.bitcast(reaches, _MASK)]),
            _sum(builder, builder.fpext(kept, _DOUBLES)),
            _squared_norm(builder, kept),
            builder.call(largest, [kept], fastmath=("nnan",)),
        )
        return context.make_tuple(builder, signature.return_type, result)

    kinds = (types.uint64, types.float64, types.float64, types.float32)
    return _tuple(kinds)(types.intp, types.float32), generate


def _lowest_bit(_typing: Any, mask: Any) -> tuple[Any, Any]:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        zero_is_undefined = ir.Constant(ir.IntType(1), 1)
        return builder.cttz(arguments[0], zero_is_undefined)

    return types.uint64(types.uint64), generate


def _load_index(_typing: Any, _address: Any) -> tuple[Any, Any]:
    return types.int32(types.intp), _loading(ir.IntType(32))


def _load_float(_typing: Any, _address: Any) -> tuple[Any, Any]:
    return types.float32(types.intp), _loading(ir.FloatType())


def _loading(kind: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        loaded = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()))
        loaded.align = 4
        return loaded

    return generate


def _bits_of(_typing: Any, _value: Any) -> tuple[Any, Any]:
    return types.uint32(types.float32), _reinterpreting(ir.IntType(32))


def _float_of(_typing: Any, _bits: Any) -> tuple[Any, Any]:
    return types.float32(types.uint32), _reinterpreting(ir.FloatType())


def _reinterpreting(kind: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], kind)

    return generate


def _fence(_typing: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


#: (grad, residual, next_residual: addresses; threshold, streaming) -> (mask of |acc| >= threshold, squared norm of
#: acc); writes acc to next_residual, or 0 where the mask is set. Streaming wants next_residual on a whole cache line.
add_block: Any = intrinsic(_add_block)
#: (source, target: addresses; scale): writes scale * source past the cache; target on a whole cache line.
scale_block: Any = intrinsic(_scale_block)
#: (acc: address; threshold) -> (mask of |acc| >= threshold, squared norm of acc).
look_block: Any = intrinsic(_look_block)
#: (acc: address; threshold) -> count, sum, sum of squares and largest of the magnitudes |acc| >= threshold.
tail_block: Any = intrinsic(_tail_block)
#: Position of the lowest set bit of a mask that is not 0.
lowest_bit: Any = intrinsic(_lowest_bit)
#: The int32 at an address.
load_index: Any = intrinsic(_load_index)
#: The float32 at an address.
load_float: Any = intrinsic(_load_float)
#: The bits of a float32.
bits_of: Any = intrinsic(_bits_of)
#: The float32 of such bits.
float_of: Any = intrinsic(_float_of)
#: Streaming stores become visible to other threads in order only after a fence.
fence: Any = intrinsic(_fence)
