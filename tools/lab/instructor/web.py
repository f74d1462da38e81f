"""Pages made of templates: no script, nothing loaded from elsewhere; a figure is part of it."""

import contextlib
import html
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from lab import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _shown_by(neutral: Callable[[str], str], autoescape: bool) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True,
        autoescape=autoescape, finalize=lambda value: value if not isinstance(value, str)
        or isinstance(value, (Markup, text.Markdown)) else neutral(value))


_TEMPLATES = {".html": _shown_by(text.plain, True), ".md": _shown_by(text.markdown, False)}


def page(template: str, **values: object) -> str:
    """A page of templates/. Whatever it shows is text, but for figures, and what text.py made."""
    return _TEMPLATES[Path(template).suffix].get_template(template).render(values)


@contextlib.contextmanager
def figure(width: float, height: float, label: str, drawn: list[Markup]) -> Iterator["Axes"]:
    """Axes to draw on; adds them to `drawn` as SVG, which `label` describes in words."""
    import matplotlib  # it takes two seconds, and not each page has a figure
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "lab",
                                "font.family": "sans-serif", "font.size": 10}):
        made = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(made)
        yield made.add_subplot()
        out = io.StringIO()
        made.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    drawn.append(Markup(svg[svg.index("<svg"):].replace(
        "<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1)))
