"""Compile the extension modules; all else about the build is in pyproject.toml.

The environment variable SKOKDE_BUILD asks for slow builds that find mistakes, see CONTRIBUTING.md:
"checked" looks after each index of a memoryview, "sanitized" after each access to memory.
"""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup

build = os.environ.get("SKOKDE_BUILD", "")
if build not in ("", "checked", "sanitized"):
    raise SystemExit(f"SKOKDE_BUILD must be 'checked', 'sanitized' or empty, got {build!r}.")
checked = build == "checked"
# Information for debuggers takes a third of the time and most of the size.
sanitize, debug = [], ["-g0"]
if build == "sanitized":
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    debug = ["-g", "-O1"]

# Not in the package's folder, and not what another version of Cython has left.
c_folder = Path("build", f"cython-{Cython.__version__}{build}")
# What memoryviews need is compiled once, not into each module: half of the time and size.
shared = c_folder / "_cyutility.c"
if not shared.exists():
    c_folder.mkdir(parents=True, exist_ok=True)
    generate = [sys.executable, "-m", "cython", "-X", "freethreading_compatible=True"]
    subprocess.run([*generate, f"--generate-shared={shared}"], check=True)


def extension(source: Path, name: str) -> Extension:
    """No NumPy headers among the include folders: the kernels take typed memoryviews."""
    return Extension(
        name,
        [source.as_posix()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        # Without errno a square root is one instruction.
        extra_compile_args=["/O2"]
        if sys.platform == "win32"
        else ["-O3", "-fno-math-errno", *sanitize, *debug],
        extra_link_args=sanitize,
    )


package = "skokde._engine"
kernels = sorted(Path(*package.split(".")).glob("*.pyx"))
setup(
    ext_modules=cythonize(
        [extension(shared, f"{package}.{shared.stem}")]
        + [extension(kernel, f"{package}.{kernel.stem}") for kernel in kernels],
        build_dir=c_folder.as_posix(),
        # Where processes are started otherwise, each would run this file.
        nthreads=2 if multiprocessing.get_start_method() == "fork" else 0,
        shared_utility_qualified_name=f"{package}.{shared.stem}",
        compiler_directives={
            "language_level": 3,
            "boundscheck": checked,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": checked,
            # No function has state of its own.
            "freethreading_compatible": True,
        },
    )
)
