"""What says the same in several places, and what an installed package must be able to do."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import skokde

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def found(pattern, name):
    return re.findall(pattern, (ROOT / name).read_text("utf-8"), re.MULTILINE)


def test_one_version():
    version = PYPROJECT["project"]["version"]
    assert skokde.__version__ == version
    assert found(r"^version: (.*)$", "CITATION.cff") == [version]
    assert found(r'^  version: "(.*)"$', "conda/recipe.yaml") == [version]
    # What is not released yet stands above the last release, if there was one.
    assert found(r"^## \[(.*?)\]", "CHANGELOG.md")[:2] in (["Unreleased"], ["Unreleased", version])


def test_the_conda_recipe_asks_for_what_pyproject_asks_for():
    asked = {}
    for section, lines in found(r"^  (host|run):\n((?:    - .*\n)+)", "conda/recipe.yaml"):
        names = re.findall(r"- (.*)", lines)
        asked[section] = {name.replace(" ", "") for name in names} - {"python", "pip"}
    requires = {name.lower() for name in PYPROJECT["build-system"]["requires"]}
    assert asked == {"host": requires, "run": set(PYPROJECT["project"]["dependencies"])}
    command = PYPROJECT["tool"]["cibuildwheel"]["test-command"]
    assert command in " ".join((ROOT / "conda" / "recipe.yaml").read_text("utf-8").split())


def test_no_large_file_is_tracked():
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a checkout of git")
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    sizes = {name: (ROOT / name).stat().st_size for name in names if (ROOT / name).is_file()}
    assert len(sizes) > 100
    assert not {name: size for name, size in sizes.items() if size > 2e6}


def test_sources_that_are_not_compiled_say_so(tmp_path):
    # As beside an installed package, where Python is started among the sources.
    sources = Path(skokde.__file__).parent
    shutil.copytree(sources, tmp_path / "skokde", ignore=shutil.ignore_patterns("*.so", "*.pyd"))
    run = subprocess.run(
        [sys.executable, "-c", "import skokde"], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode
    assert "ImportError: skokde is imported from a folder of sources" in run.stderr


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has always a lock"
)
def test_importing_leaves_a_free_threaded_python_without_its_lock():
    # A module that does not declare that it can do without brings the lock back, with a warning.
    code = "import sys, skokde; sys.exit(sys._is_gil_enabled())"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
