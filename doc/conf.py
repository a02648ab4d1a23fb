import re
import subprocess
import sys
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

from sphinx.util.fileutil import copy_asset

here = Path(__file__).parent
generated = here / "generated"

project = "skokde"
author = "the skokde developers"
copyright = "2026, the skokde developers"
version = release = installed_version("skokde")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "matplotlib.sphinxext.plot_directive",
    "myst_parser",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "_templates",
    "figures",
    # sphinx-gallery's downloads, and its table of times, which is in no menu.
    "auto_examples/*.ipynb",
    "sg_execution_times.rst",
    "auto_examples/sg_execution_times.rst",
]
templates_path = ["_templates"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# numpydoc tells the types, and the menu of a class's page need not repeat its name.
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
# The class template lists the members; numpydoc would list them a second time.
numpydoc_show_class_members = False
suppress_warnings = [
    # Docstrings inherited from scikit-learn refer to labels of scikit-learn's own manual.
    "ref.ref",
    # Functions of this file are among the settings.
    "config.cache",
]

html_theme = "pydata_sphinx_theme"
html_title = "skokde"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_sidebars = {"getting_started": [], "how_do_i": [], "changelog": [], "contributing": []}
html_show_sourcelink = False
html_favicon = "_static/logo.svg"
html_theme_options = {
    "logo": {"text": "skokde", "image_light": "_static/logo.svg", "image_dark": "_static/logo.svg"},
    "header_links_before_dropdown": 5,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Figures of the guide are made when it is built.
plot_include_source = False
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 160)]
plot_rcparams = {
    "figure.figsize": (5.2, 3.6),
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
plot_apply_rcparams = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
    "within_subsection_order": "FileNameSortKey",
    "matplotlib_animations": (True, "jshtml"),
    "doc_module": ("skokde",),
    "backreferences_dir": "generated/backreferences",
    "show_signature": False,
    "parallel": True,
    "write_computation_times": False,
    "abort_on_example_error": True,
}


def reachable(url: str) -> bool:
    try:
        with urlopen(url + "objects.inv", timeout=5):
            return True
    except OSError:
        return False


# Without a network the links to other projects are left out, and nothing is warned of.
intersphinx_mapping = {
    name: (url, None)
    for name, url in {
        "python": "https://docs.python.org/3/",
        "numpy": "https://numpy.org/doc/stable/",
        "scipy": "https://docs.scipy.org/doc/scipy/",
        "sklearn": "https://scikit-learn.org/stable/",
        "matplotlib": "https://matplotlib.org/stable/",
    }.items()
    if reachable(url)
}

# Formulas are set by a copy of MathJax that comes with the site.
mathjax_path = "mathjax/tex-chtml.js"
mathjax_files = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"


def copy_mathjax(app, exception):
    if exception is None and app.builder.format == "html":
        target = app.outdir / "_static" / "mathjax"
        copy_asset(mathjax_files / "tex-chtml.js", target)
        copy_asset(mathjax_files / "output/chtml/fonts", target / "output/chtml/fonts")


def make_animation(app):
    script = here / "figures" / "animation.py"
    target = generated / "animation.gif"
    if not target.exists() or target.stat().st_mtime < script.stat().st_mtime:
        generated.mkdir(exist_ok=True)
        subprocess.run([sys.executable, script, target], check=True)


def trim_doctests(app, docname, source):
    """Leave out the blank line that ends the output of a doctest."""
    source[0] = re.sub(r"\n\n```$", "\n```", source[0], flags=re.MULTILINE)


def without_cdn(app, pagename, templatename, context, doctree):
    """Let matplotlib's animations use the theme's icons, not those of another server."""
    if "body" in context:
        context["body"] = re.sub(
            r'<link rel="stylesheet"\s+href="https://[^>]*>', "", context["body"]
        )


def setup(app):
    app.connect("source-read", trim_doctests)
    app.connect("html-page-context", without_cdn)
    app.connect("builder-inited", make_animation)
    app.connect("build-finished", copy_mathjax)
