"""Scripts of the gallery are what sphinx-gallery needs; the build of the site runs them."""

import ast
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("plot_*.py"))


def test_there_are_scripts():
    assert len(SCRIPTS) >= 12


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_of_the_gallery(script):
    source = script.read_text(encoding="utf-8")
    tree = ast.parse(source)
    compile(tree, script, "exec")
    title, underline, rest = ast.get_docstring(tree).split("\n", 2)
    assert underline == "=" * len(title)
    assert rest.strip()
    blocks = re.findall(r"^# %%\n(# .*)\n(# -+)\n# \S", source, flags=re.MULTILINE)
    assert len(blocks) >= 2
    for heading, line in blocks:
        assert len(line) == len(heading)
    assert "plt.show()" in source


def test_titles_differ():
    titles = {
        ast.get_docstring(ast.parse(script.read_text("utf-8"))).split("\n")[0] for script in SCRIPTS
    }
    assert len(titles) == len(SCRIPTS)
