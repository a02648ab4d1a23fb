"""Compile the extension modules; all else about the build is in pyproject.toml."""

import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# No NumPy headers among the include folders: the kernels take typed memoryviews.
extensions = [
    Extension(
        ".".join(source.with_suffix("").parts),
        [source.as_posix()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        # Without errno a square root is one instruction.
        extra_compile_args=["/O2"] if sys.platform == "win32" else ["-O3", "-fno-math-errno"],
    )
    for source in sorted(Path("skokde/_engine").glob("*.pyx"))
]

setup(
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",  # keeps the generated C out of the package folder
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
        },
    )
)
