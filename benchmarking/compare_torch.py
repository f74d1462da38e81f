#!/usr/bin/env python3
"""Attention beside PyTorch's scaled_dot_product_attention, on the CPU or on a GPU: the same tensors, one process, in turns.

    benchmarking/compare_torch.py --install           once: PyTorch, pinned, in an environment of its own, .venv-torch
    benchmarking/compare_torch.py --quick             a minute; without --quick, all sizes
    benchmarking/compare_torch.py --device cuda       on a GPU, beside each of PyTorch's backends
    benchmarking/compare_torch.py --device cuda --problem softmax_matmul    part 1's problem, beside torch.softmax(x, -1) @ v
    benchmarking/compare_torch.py --device cuda --benchmark-rows            PyTorch alone, as a row of bench_attention's CSV
    benchmarking/compare_torch.py --table FILE.csv    the tables of results that are there, without measuring

Standard library and PyTorch only. This file is the command line; torch_comparison/ has the rest. How it measures, and what the
columns of the CSVs mean: README.md.
"""

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from torch_comparison import benchmark_rows
from torch_comparison.arguments import Parser, batch_heads, causal, integer, one_of, seconds, several
from torch_comparison.attention import Truth
from torch_comparison.attention_bench import CudaBench, TorchBench
from torch_comparison.environment import VENV, with_torch
from torch_comparison.errors import REPOSITORY, ComparisonError, Failed, shown
from torch_comparison.library import LIBRARY, Library, SoftmaxMatmulLibrary, beside
from torch_comparison.machine import Others, logical_cores, machine
from torch_comparison.markdown import DISTURBED, markdown
from torch_comparison.problems import (ATTENTION, BACKENDS, CUDA_FULL, CUDA_QUICK, DIRECTIONS, DTYPES, FULL, ON_DEVICE, QUICK,
                                       SOFTMAX_MATMUL, SOFTMAX_MATMUL_FULL, SOFTMAX_MATMUL_QUICK, cases, softmax_matmul_cases)
from torch_comparison.softmax_matmul import SoftmaxMatmulBench
from torch_comparison.table import Row, load, record
from torch_comparison.turns import FEWEST_TURNS, CudaStopwatch, Stopwatch, compare

OUTPUTS = REPOSITORY / "outputs" / "csv"

# What a run does, and the file that its rows are written to.
COMPARE, COMPARE_SOFTMAX_MATMUL, BENCHMARK_ROWS = "attention", "softmax_matmul", "benchmark rows"
OUTPUT = {COMPARE: OUTPUTS / "torch_comparison.csv", COMPARE_SOFTMAX_MATMUL: OUTPUTS / "torch_softmax_matmul.csv",
          BENCHMARK_ROWS: OUTPUTS / "attention_benchmark.csv"}

# The options that not every run has, and the runs that have them.
OPTIONS_OF = {("impl", "turns", "budget"): (COMPARE, COMPARE_SOFTMAX_MATMUL),
              ("dtypes", "head_dims", "seq_lens", "batch_heads", "causal", "threads"): (COMPARE, BENCHMARK_ROWS),
              ("directions", "backends"): (COMPARE,), ("d2",): (COMPARE_SOFTMAX_MATMUL,), ("warmups", "passes"): (BENCHMARK_ROWS,)}
DEVICE_OF = {"backends": "cuda", "threads": "cpu"}


# ---- the command line --------------------------------------------------------------------------------------------------------


def parser() -> Parser:
    made = Parser(prog="compare_torch.py", allow_abbrev=False,
                  description="Attention, or part 1's softmax-matmul, beside PyTorch's, in turns.")
    add = made.add_argument
    add("--install", action="store_true", help=f"install PyTorch from PyPI into {shown(VENV)}, once, and go on in it")
    add("--quick", action="store_true", help="one or two small sizes, fewer turns: a minute")
    add("--device", choices=tuple(ON_DEVICE), default="cpu", help="default cpu")
    add("--problem", choices=(COMPARE, COMPARE_SOFTMAX_MATMUL), default=COMPARE, help="default attention; softmax_matmul, part 1's, "
        "is for --device cuda")
    add("--benchmark-rows", action="store_true", help=f"measure PyTorch alone, as bench_attention measures ours, and write its rows, "
        f"{benchmark_rows.IMPLEMENTATION}, into that program's CSV")
    add("--backends", type=several(one_of(BACKENDS)), metavar="NAMES", help="PyTorch's, on a GPU; default all of "
        f"{','.join(BACKENDS)}")
    add("--impl", type=several(str), metavar="NAMES",
        help="implementations, with commas; default: of attention the last in the registry, on a CPU the ladder's top; of "
             "softmax_matmul all")
    add("--dtypes", type=several(one_of(DTYPES)), metavar="NAMES",
        help=f"default {','.join(ON_DEVICE['cpu'])}; on a GPU {','.join(ON_DEVICE['cuda'])}; --benchmark-rows: float32")
    add("--directions", type=several(one_of(DIRECTIONS)), metavar="NAMES", help="both: the two passes as one piece of work; "
        f"default {','.join(FULL['directions'])}; on a GPU {','.join(CUDA_FULL['directions'])}")
    add("--head-dims", type=several(integer), metavar="N,...", help="default 64,128; --benchmark-rows: 64")
    add("--seq-lens", type=several(integer), metavar="N,...", help="queries, and as many keys; default 512,1024,2048,4096; on a "
        "GPU 1024,4096,16384; --benchmark-rows: those of bench_attention")
    add("--batch-heads", type=several(batch_heads), metavar="BxH,...",
        help="batch x heads, or heads alone; default 1x1,1x8; on a GPU 8x1; --benchmark-rows: 1x4, on a GPU 8x1")
    add("--causal", type=causal, metavar="no|yes|both", help="default both")
    add("--d2", type=several(integer), metavar="N,...", help="keys of softmax_matmul; default 64,128,...,8192")
    add("--turns", type=integer, metavar="N", help="timed turns of a case; default 21, on a GPU 11")
    add("--budget", type=seconds, metavar="S", help=f"seconds for the turns of a case, once there are {FEWEST_TURNS}; default 15")
    add("--warmups", type=integer, metavar="N", help="of --benchmark-rows; default 1, on a GPU 10")
    add("--passes", type=integer, metavar="N", help="timed passes of --benchmark-rows, each way; default 5, on a GPU 100")
    add("--threads", type=lambda text: integer(text, 1, 1024), metavar="N", help="of both, on a CPU; default 2; --benchmark-rows: "
        "as many as there are")
    add("--library", type=Path, default=LIBRARY, metavar="FILE", help=f"default {shown(LIBRARY)}; the others lie beside it")
    add("--output", type=Path, metavar="FILE", help="the CSV; default " +
        ", ".join(f"{shown(file)} ({run})" for run, file in OUTPUT.items()))
    add("--table", type=Path, metavar="FILE", help="print the tables of this CSV, and measure nothing")
    return made


def parsed(argv: list[str]) -> argparse.Namespace:
    """The options, with what follows from them: `run`, `sizes`, and the defaults of that run."""
    made = parser()
    args = made.parse_args(argv)
    args.run = BENCHMARK_ROWS if args.benchmark_rows else args.problem
    if args.benchmark_rows and args.problem != COMPARE:
        made.error("--benchmark-rows: they are of attention; --problem must be attention")
    if args.problem == COMPARE_SOFTMAX_MATMUL and args.device != "cuda":
        made.error(f"--problem: with {COMPARE_SOFTMAX_MATMUL} --device must be cuda")
    for options, runs in OPTIONS_OF.items():
        for option in options:
            given = getattr(args, option) is not None
            if given and args.run not in runs:
                made.error(f"--{option.replace('_', '-')}: not with "
                           f"{'--benchmark-rows' if args.benchmark_rows else f'--problem {args.problem}'}")
            if given and DEVICE_OF.get(option, args.device) != args.device:
                made.error(f"--{option}: it is for --device {DEVICE_OF[option]}")
    for dtype in args.dtypes or ():
        if dtype not in ON_DEVICE[args.device]:
            made.error(f"--dtypes: it is '{dtype}'; with --device {args.device} it must be one of "
                       f"{', '.join(ON_DEVICE[args.device])}")
    default = {COMPARE: {"cpu": (FULL, QUICK), "cuda": (CUDA_FULL, CUDA_QUICK)},
               COMPARE_SOFTMAX_MATMUL: {"cuda": (SOFTMAX_MATMUL_FULL, SOFTMAX_MATMUL_QUICK)},
               BENCHMARK_ROWS: {device: (benchmark_rows.SIZES[device], benchmark_rows.QUICK_SIZES[device]) for device in ON_DEVICE}}
    sizes = default[args.run][args.device][args.quick]
    args.sizes = sizes | {name: value for name, value in vars(args).items() if name in sizes and value is not None}
    args.output = args.output or OUTPUT[args.run]
    args.budget = 15 if args.budget is None else args.budget
    return args


def chosen(known: Sequence[str], asked: Sequence[str] | None, default: Sequence[str]) -> Sequence[str]:
    for name in asked or ():
        if name not in known:
            raise ComparisonError(f"--impl has '{name}'; there are {', '.join(known)}")
    return asked or default


# ---- what it runs ------------------------------------------------------------------------------------------------------------


def attention_on_cpu(args: argparse.Namespace, library: Any, make_bench: Callable[[], Any], watch: Stopwatch) -> int:
    known = library.names()
    names = chosen(known, args.impl, known[-1:])
    threads, isa = args.threads or 2, library.isa()
    if args.output.exists():
        load(args.output, ATTENTION)  # what is wrong with it is said before anything is measured
    library.set_threads(threads)
    bench = make_bench()
    fixed = {"machine": machine(), "threads": str(threads), "isa": isa}
    print(f"{', '.join(names)} beside {bench.peer}: {fixed['machine']}, {threads} threads, {isa}, checked")
    return compare_all(args, cases(args.sizes, "cpu"), [bench], names, fixed, watch, Others())


def attention_on_gpu(args: argparse.Namespace, library: Any, make_bench: Callable[[str], Any], gpu: str, watch: Stopwatch) -> int:
    """Beside each backend."""
    known = library.names()
    names = chosen(known, args.impl, known[-1:])
    if args.output.exists():
        load(args.output, ATTENTION)
    benches = [make_bench(backend) for backend in args.backends or BACKENDS]
    print(f"{', '.join(names)} beside {', '.join(bench.peer for bench in benches)}: {gpu}, checked")
    return compare_all(args, cases(args.sizes, "cuda"), benches, names, {"machine": gpu}, watch)


def softmax_matmul_on_gpu(args: argparse.Namespace, library: Any, make_bench: Callable[[], Any], gpu: str, watch: Stopwatch) -> int:
    names = chosen(library.names(), args.impl, library.names())
    if args.output.exists():
        load(args.output, SOFTMAX_MATMUL)
    bench = make_bench()
    print(f"{', '.join(names)} beside {bench.peer}: {gpu}, float32, checked")
    return compare_all(args, softmax_matmul_cases(args.sizes), [bench], names, {"machine": gpu}, watch)


def compare_all(args: argparse.Namespace, problems: Sequence[Any], benches: Sequence[Any], names: Sequence[str], fixed: Row,
                watch: Stopwatch, others: Others | None = None) -> int:
    """A row for each case, peer and implementation, saved when it is measured; then the tables of them. The exit code."""
    schema, shares = problems[0].schema, "" if others is None else "  of mm of peak"
    print(f"{problems[0].heading} {'ours, ms':>9} {'PyTorch':>9} {'ratio':>7} {'GFLOP/s':>8}{shares}     error PyTorch's", flush=True)
    rows, disturbed = [], 0
    for case in problems:
        for bench in benches:
            for name in names:
                row, problem = compare(bench, case, name, fixed, args.sizes["turns"], args.budget, watch)
                words = [f"{case} {progress(row, problem)}", *([name] if len(names) > 1 else []),
                         *([f"beside {bench.peer}"] if len(benches) > 1 else [])]
                if others is not None:
                    share = others.share()
                    row["others"] = f"{share:.2g}"
                    if share > DISTURBED:
                        disturbed += 1
                        words.append(f"(others: {100 * share:.0f} %)")
                record(args.output, schema, row)
                rows.append(row)
                print("  ".join(words), flush=True)
    if disturbed:
        print(f"\nDuring {disturbed} of {len(rows)} cases others had more than {100 * DISTURBED:.0f} % of the processors. "
              "PyTorch's threads spin while they wait for\neach other, and lose more by that than ours: measure those again "
              "on an idle machine.")
    print(f"\n{markdown(rows)}\n\nsaved in {shown(args.output)}")
    return 1 if any(row["status"] == "error" for row in rows) else 0


def progress(row: Row, problem: str) -> str:
    if row["status"] != "ok":
        return f"{row['status']}: {problem}"
    shares = [f"{100 * float(row[column]):.0f} %" for column in ("share_of_gemm", "share_of_peak") if row.get(column)]
    return (f"{float(row['ms']):>9.4g} {float(row['peer_ms']):>9.4g} {float(row['ratio']):>6.2f}x {float(row['gflops']):>8.4g} "
            f"{''.join(f'{share:>{width}} ' for share, width in zip(shares, (6, 7)))}{row['error']:>9} {row['peer_error']:>9}")


def write_benchmark_rows(args: argparse.Namespace, torch: Any, runs_on: Any, truth: Truth) -> int:
    """PyTorch alone, a row for each problem in bench_attention's CSV."""
    schema = benchmark_rows.BENCH_ATTENTION
    if args.output.exists():
        load(args.output, schema)
    warmups, passes = args.sizes["warmups"], args.sizes["passes"]
    print(f"{benchmark_rows.IMPLEMENTATION} of PyTorch {torch.__version__} on {runs_on.gpu or machine()}: {passes} passes after "
          f"{warmups}, checked\n{benchmark_rows.HEADING}", flush=True)
    failed = False
    for case in cases(args.sizes, args.device):
        found = benchmark_rows.measured(torch, runs_on, truth, case, warmups, passes)
        row = benchmark_rows.row_of(case, runs_on, found)
        record(args.output, schema, row)
        failed |= found.status == "error"
        print(benchmark_rows.progress(case, row, found), flush=True)
    print(f"\nsaved in {shown(args.output)}")
    return 1 if failed else 0


def usable_gpu(torch: Any) -> str:
    """Its name, once PyTorch is told to keep to float32 where the tensors have it, as ours does."""
    if not torch.cuda.is_available():
        raise ComparisonError("--device is 'cuda', and PyTorch sees no usable GPU")
    warnings.filterwarnings("ignore", category=UserWarning)  # why a backend refuses, over several lines; the row says that it does
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.cuda.get_device_name(0)


def run(args: argparse.Namespace, argv: list[str]) -> int:
    """Libraries first: before several GB are installed that would be of no use."""
    def pytorch() -> Any:
        return with_torch(args.install, Path(__file__), argv)

    def another(target: str) -> Path:
        return beside(args.library, target)

    if args.run == COMPARE_SOFTMAX_MATMUL:
        functions = SoftmaxMatmulLibrary(another("flash_softmax_matmul_cuda_c"))
        oracle = SoftmaxMatmulLibrary(another("flash_softmax_matmul_c"))
        torch = pytorch()
        gpu = usable_gpu(torch)
        return softmax_matmul_on_gpu(args, functions, lambda: SoftmaxMatmulBench(torch, functions, oracle), gpu,
                                     CudaStopwatch(torch))
    library = Library(args.library)
    if args.device == "cpu":
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # of PyTorch's profiler, which else says when it starts and stops
        torch = pytorch()
        if args.run == COMPARE:
            return attention_on_cpu(args, library, lambda: TorchBench(torch, library, args.threads or 2), Stopwatch())
        threads = args.threads or logical_cores()
        torch.set_num_threads(threads)
        library.set_threads(threads)
        return write_benchmark_rows(args, torch, benchmark_rows.Cpu(torch, library), Truth(torch, library))
    on_gpu = Library(another("flash_attention_cuda_c")) if args.run == COMPARE else None
    torch = pytorch()
    gpu, truth = usable_gpu(torch), Truth(torch, library)
    if on_gpu is None:
        return write_benchmark_rows(args, torch, benchmark_rows.Gpu(torch), truth)
    return attention_on_gpu(args, on_gpu, lambda backend: CudaBench(torch, on_gpu, truth, backend), gpu, CudaStopwatch(torch))


def main(argv: list[str]) -> int:
    def terminated(*_: object) -> NoReturn:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminated)  # as ctrl-C: no temporary file stays behind
    args = parsed(argv)
    try:
        if args.table is not None:
            print(markdown(load(args.table, ATTENTION, SOFTMAX_MATMUL)))
            return 0
        return run(args, argv)
    except (ComparisonError, Failed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the cases above are saved", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `| head`: every case was saved before it was printed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
