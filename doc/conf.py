from importlib.metadata import version as installed_version

project = "skokde"
author = "the skokde developers"
copyright = "2026, the skokde developers"
version = release = installed_version("skokde")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
html_theme = "furo"

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 2
# The class template lists the members; numpydoc would list them a second time.
numpydoc_show_class_members = False
# Docstrings inherited from scikit-learn refer to labels of scikit-learn's own manual.
suppress_warnings = ["ref.ref"]
