"""Static HTML pages: no script, nothing loaded from elsewhere; a figure is part of the page."""

import contextlib
import html
import io
from collections.abc import Iterator

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 75rem; padding: 1rem;
       color: #1d2733; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem; margin-bottom: .2rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #d8dee6; text-align: left }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
td.text { overflow-wrap: anywhere; min-width: 7rem } .soft { color: #5b6776 }
svg { width: 100%; height: auto; max-width: 40rem; margin: .5rem 0 }
"""


def page(title: str, body: str, style: str = "") -> str:
    """`body` is HTML already; `style` adds to the style of all pages."""
    title = html.escape(title)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_STYLE}{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


@contextlib.contextmanager
def figure(width: float, height: float, label: str, drawn: list[str]) -> Iterator[Axes]:
    """Axes to draw on; adds them to `drawn` as SVG, which `label` describes in words."""
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "lab",
                                "font.family": "sans-serif", "font.size": 10}):
        made = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(made)
        yield made.add_subplot()
        out = io.StringIO()
        made.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    drawn.append(text[text.index("<svg"):].replace(
        "<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1))
