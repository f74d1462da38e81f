"""Sphinx's settings for `./lab book`: Markdown pages, formulas as MathML. No page needs a network.
"""

from importlib.resources import files

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

project = "FlashAttention, step by step"
html_title = project
extensions = ["myst_parser"]
root_doc = "index"
html_theme = "furo"
# Not every machine has a font for formulas, and without one fractions and indices look wrong.
html_static_path = ["book.css", str(files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf")]
html_css_files = ["book.css"]
html_copy_source = False
html_show_copyright = False
pygments_dark_style = "github-dark"
suppress_warnings = ["misc.highlighting_failure"]  # text that is no full program of its language
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # links to headings as on GitHub: page.md#4-backward
html_math_renderer = "mathml"


def _formula(display: str):
    def visit(self, node: nodes.Element) -> None:
        # What stands apart on a line comes on lines of its own on a phone.
        mathml = " ".join(convert(part, display=display) for part in
                          node.astext().replace(r"\mathrel{+}=", "+=").split(r"\qquad"))
        # As operators these would have spaces around them.
        mathml = mathml.replace("<mo>&#x0002B;</mo><mo>&#x0003D;</mo>", "<mo>+=</mo>")
        mathml = mathml.replace("<mo>&#x0221E;</mo>", "<mi>&#x0221E;</mi>")
        mathml = mathml.replace("&#x0003D;</mo><mo>&#x02212;",
                                '&#x0003D;</mo><mo form="prefix">&#x02212;')
        # Without a space "ln l" is one word.
        mathml = mathml.replace("<mi>ln</mi>", '<mi>ln</mi><mspace width="0.17em" />')
        tag = "span" if display == "inline" else "div"
        self.body.append(f'<{tag} class="math">{mathml}</{tag}>')
        raise nodes.SkipNode
    return visit, None


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", inline_renderers=_formula("inline"),
                               block_renderers=_formula("block"))
