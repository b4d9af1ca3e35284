"""The Triton kernel, without a GPU: interpreted against the reference, and compiled for one."""

import os
import subprocess
import sys

import pytest

INTERPRETED = """
import torch
from trimtab.kernels import gpu, reference

generator = torch.Generator().manual_seed(0)
for n in (1, 63, gpu.BLOCK - 1, gpu.BLOCK, gpu.BLOCK + 1, 3 * gpu.BLOCK + 5):
    for threshold in (2.0**-149, 1.5, 1e9):
        grad, residual = torch.randn(n, generator=generator), torch.randn(n, generator=generator)
        if n > 1:
            grad[n // 2] = 0.0
            residual[n // 2] = float("nan") if threshold == 1e9 else 0.0
        acc, ours, oracle = grad + residual, torch.empty(n), torch.empty(n)
        a = gpu.fused_select(grad, residual, ours, threshold, n, offset=7)
        b = reference.fused_select(grad, residual, oracle, threshold, n, offset=7)
        assert a.num_over == b.num_over and torch.equal(a.indices, b.indices) and torch.equal(a.values, b.values)
        assert torch.equal(ours.nan_to_num(77.0), oracle.nan_to_num(77.0))
        for x, y in ((a.squared_norm_before, b.squared_norm_before), (a.squared_norm_after, b.squared_norm_after)):
            assert abs(x - y) <= 1e-12 * abs(y) or x != x and y != y, (x, y)

        room = max(0, b.num_over - 2)  # too little: the first of them are sent, all of them counted, none of them lost
        a = gpu.fused_select(grad, residual, ours, threshold, room, offset=7)
        b = reference.fused_select(grad, residual, oracle, threshold, room, offset=7)
        assert a.num_over == b.num_over and torch.equal(a.indices, b.indices) and torch.equal(a.values, b.values)
        assert torch.equal(ours.nan_to_num(77.0), oracle.nan_to_num(77.0))

        place = acc.clone()
        a = gpu.select_in_place(place, threshold, n, offset=7)
        b = reference.fused_select(grad, residual, oracle, threshold, n, offset=7)
        assert torch.equal(a.indices, b.indices) and torch.equal(place.nan_to_num(77.0), oracle.nan_to_num(77.0))
        norm = gpu.accumulate(grad, residual, ours)
        assert norm == a.squared_norm_before or norm != norm
print("agree")
"""

COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from trimtab.kernels import gpu

types = {name: "*fp32" for name in ("grad", "residual", "next_residual", "values")}
types |= {"indices": "*i32", "count": "*i32", "norms": "*fp64", "threshold": "fp32"}
types |= {name: "i32" for name in ("n", "capacity", "offset", "num_blocks")}
for has_residual in (True, False):
    constants = {"HAS_RESIDUAL": has_residual, "BLOCK": gpu.BLOCK}
    source = ASTSource(gpu._select_block, types | {name: "constexpr" for name in constants}, constants)
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
print("compiled")
"""


def run_python(code: str, **environment: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout.strip()


@pytest.mark.slow
def test_interpreted_it_agrees_with_the_reference():
    assert run_python(INTERPRETED, TRITON_INTERPRET="1") == "agree"


@pytest.mark.slow
def test_it_compiles_for_a_gpu(tmp_path):
    assert run_python(COMPILED, TRITON_CACHE_DIR=str(tmp_path)) == "compiled"


@pytest.mark.cuda
def test_on_a_gpu_it_agrees_with_the_reference():
    on_device = INTERPRETED.replace("import torch\n", "import torch\ntorch.set_default_device('cuda')\n").replace(
        "torch.Generator()", "torch.Generator('cuda')"
    )
    assert run_python(on_device) == "agree"
