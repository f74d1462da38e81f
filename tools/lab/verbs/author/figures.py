"""`./lab figures`: the pictures in the handouts that show what `./lab look` shows."""

import argparse
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

from lab import build, counts, paths
from lab.console import print_command, say
from lab.errors import LabError
from lab.verbs.student import look

HELP = "draw the handouts' pictures of what ./lab look shows, with Chromium"

# File, task, number of its counted case, code of the line whose costly accesses are shown, or the
# first where none is ("": tiles), width.
FIGURES = (
    ("part1_softmax_matmul/figures/look_x.png", "fused_cuda", 0, "x(b, softmax_row, key)", 760),
    ("part3_flash_cuda/figures/look_k.png", "flash_forward_cuda", 0, "tiles.K_smem + c", 1080),
    ("part3_flash_cuda/figures/look_causal.png", "flash_forward_cuda", 1, "", 1180),
    ("bonus_backward/figures/look_store.png", "flash_backward_cuda", 0,
     "load_rows<C::kStream, C>(Q_smem", 1080),
    ("bonus_decode/figures/look_q.png", "flash_decode_cuda", 0, "pass.q(b, h, i", 760),
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("only", nargs="?", default="", metavar="TEXT",
                        help="those whose file has this in its name")


def run(args: argparse.Namespace) -> int:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise LabError(f"there is none of {', '.join(BROWSERS)} in PATH")
    for file, name, number, code, width in FIGURES:
        if args.only in file:
            task, = counts.tasks(name, "solution", build.configured())
            _draw(browser, paths.ROOT / file, look.figure(task, number, code), width, 16 if code else 64)
            say(f"drew {file}: {(paths.ROOT / file).stat().st_size / 1000:.0f} KB")
    return 0


def _draw(browser: str, file: Path, page: str, width: int, colours: int) -> None:
    with tempfile.TemporaryDirectory(prefix="flash-figure-") as folder:
        html, shot = Path(folder) / "page.html", Path(folder) / "shot.png"
        html.write_text(page, encoding="utf-8")
        command = [browser, "--headless=new", "--disable-gpu", "--hide-scrollbars",
                   *["--no-sandbox"] * (os.geteuid() == 0), f"--window-size={width},3000",
                   "--virtual-time-budget=8000", f"--screenshot={shot}", html.as_uri()]
        print_command(command)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not shot.is_file():
            raise LabError(f"{browser} drew nothing: {done.stderr.strip()[-300:]}")
        picture = Image.open(shot).convert("RGB")
        box = ImageChops.difference(picture, Image.new("RGB", picture.size, "white")).getbbox()
        left, top, right, bottom = box
        picture = picture.crop((max(0, left - 8), max(0, top - 8), right + 8, bottom + 8))
        picture.quantize(colours, dither=Image.Dither.NONE).save(file, optimize=True)
