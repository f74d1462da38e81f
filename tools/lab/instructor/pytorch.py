"""What PyTorch's kernels take for a board's problems, where ./lab bench --torch has measured them
on such a GPU: marks by another clock, without a reference in the same turns, so without a place."""

from lab import paths, results
from lab.errors import LabError
from lab.leaderboard.boards import Board
from lab.results import Row

TABLES = "attention_benchmark.csv"


def times(board: Board, device: str) -> tuple[tuple[str, float], ...]:
    """Names, and ms for all problems of the board together; the fastest first."""
    if board.device != "cuda" or board.kind != "attention":
        return ()
    found: dict[str, dict[str, float]] = {}
    for file in sorted(paths.OUTPUTS.rglob(TABLES)):
        try:
            rows = results.load(file)
        except LabError:
            continue  # ./lab plot says what is wrong with it
        for row in rows:
            problem, ms = _problem(row), _ms(board, row)
            if row.name.startswith("pytorch_") and ms and problem in board.problems \
                    and row.dtype == board.dtype and row.gpu and device.startswith(row.gpu):
                of_name = found.setdefault(row.pass_name("forward"), {})
                of_name[problem] = min(ms, of_name.get(problem, ms))
    whole = {name: sum(of_name.values()) for name, of_name in found.items()
             if len(of_name) == len(board.problems)}
    return tuple(sorted(whole.items(), key=lambda item: item[1]))


def line(found: tuple[tuple[str, float], ...]) -> str:
    """"" where there is nothing to say."""
    if not found:
        return ""
    return ("PyTorch's kernels on this GPU, by the clock of ./lab bench: "
            + "; ".join(f"{name.removeprefix('pytorch_')} {ms:.4g} ms" for name, ms in found))


def _problem(row: Row) -> str:
    if row.query_scale != 1:
        return ""
    mask = ":causal" if row.mask else ""
    return f"{row.batch}x{row.heads}x{row.seq_len}x{row.d_model // row.heads}{mask}"


def _ms(board: Board, row: Row) -> float | None:
    if len(board.passes) == 1:
        return row.forward_ms
    return row.forward_ms + row.backward_ms if row.forward_ms and row.backward_ms else None
