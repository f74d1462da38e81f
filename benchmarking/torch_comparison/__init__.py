"""What compare_torch.py is made of. benchmarking/README.md says how it measures, and what the columns of its tables mean.

    errors.py           what can go wrong, in one line
    arguments.py        values of the command line
    environment.py      PyTorch's own environment, .venv-torch
    problems.py         the problems, and the sizes of a complete run
    library.py          ours: the C libraries
    attention.py        attention's inputs, oracle and verdict
    attention_bench.py  both on the same tensors, on the CPU or on a GPU, beside one of PyTorch's kernels
    softmax_matmul.py   the same of part 1's problem, on a GPU
    turns.py            the clock, the turns, and the row that they make
    machine.py          the processor, and who else uses it
    table.py            a CSV on disk
    markdown.py         its tables to read
    benchmark_rows.py   PyTorch alone, as bench_attention measures: rows for that program's CSV
"""
