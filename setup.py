"""Compile the extension modules; all else about the build is in pyproject.toml.

The environment variable SKOKDE_BUILD asks for slow builds that find mistakes, see CONTRIBUTING.md:
"checked" looks after each index of a memoryview, "sanitized" after each access to memory.
"""

import os
import sys
from pathlib import Path

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

# No NumPy headers among the include folders: the kernels take typed memoryviews.
extensions = [
    Extension(
        ".".join(source.with_suffix("").parts),
        [source.as_posix()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        # Without errno a square root is one instruction.
        extra_compile_args=["/O2"]
        if sys.platform == "win32"
        else ["-O3", "-fno-math-errno", *sanitize, *debug],
        extra_link_args=sanitize,
    )
    for source in sorted(Path("skokde/_engine").glob("*.pyx"))
]

setup(
    ext_modules=cythonize(
        extensions,
        build_dir=f"build/cython{build}",  # keeps the generated C out of the package folder
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
