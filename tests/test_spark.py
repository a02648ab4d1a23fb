"""The recipe for Spark, where Spark and Java are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
SCRIPT = Path(__file__).parents[1] / "examples" / "spark_merge.py"


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_recipe():
    run = subprocess.run(
        [sys.executable, str(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    *_, line = run.stdout.strip().splitlines()
    assert line.startswith("150 rows, accuracy on them ")
    assert float(line.split()[-1]) > 0.95
