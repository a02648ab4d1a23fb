"""Results, cell by cell, in one file that an interrupted run goes on from."""

from __future__ import annotations

import json
from pathlib import Path

from evaluation.cells import OK, TIME_LIMIT, Cell


class Store:
    """Records of cells, a line of JSON each.

    A record is appended as soon as its cell has ended; of several of one cell the last counts.

    Parameters
    ----------
    path : Path
        Need not exist.
    """

    def __init__(self, path: Path):
        self.path = path
        self.records: dict[Cell, dict] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    record = json.loads(line)
                except json.JSONDecodeError:  # the last line of a run that was killed
                    continue
                self._keep(record)
            self.tidy()

    def _keep(self, record: dict) -> None:
        self.records[Cell(*(record[field] for field in Cell._fields))] = record

    def add(self, cell: Cell, record: dict) -> None:
        self._keep(cell._asdict() | record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(self.records[cell]) + "\n")

    def tidy(self) -> None:
        """Rewrite the file with the last record of each cell, sorted."""
        order = sorted(self.records, key=lambda cell: (*cell[:3], cell.rows or 0))
        text = "".join(json.dumps(self.records[cell]) + "\n" for cell in order)
        if self.path.exists() and self.path.read_text() == text:
            return  # who only reads writes nothing
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)

    def find(self, cell: Cell, fingerprint: str, limit: float) -> dict | None:
        """A record of this computation: of the cell, or of one that differs in the model's name.

        One that was stopped counts if it had at least this time limit.
        """
        names = [cell.model, *{other.model for other in self.records}]
        for name in names:
            record = self.records.get(cell._replace(model=name))
            if record is None or record["fingerprint"] != fingerprint:
                continue
            if record["status"] == OK or (
                record["status"] == TIME_LIMIT and record["limit"] >= limit
            ):
                return record
        return None
