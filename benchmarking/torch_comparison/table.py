"""A CSV on disk: rows with a key, of which one that is measured again replaces its own and no other."""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from .errors import ComparisonError, shown

Row = dict[str, str]


@dataclass(frozen=True)
class Schema:
    columns: tuple[str, ...]
    key: tuple[str, ...]  # the columns that tell rows apart

    def same(self, one: Row, other: Row) -> bool:
        return all(one[name] == other[name] for name in self.key)


def load(file: Path, *schemas: Schema) -> list[Row]:
    """The rows of a CSV of one of these kinds; of another file, ComparisonError."""
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            records = list(csv.reader(stream, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ComparisonError(f"{shown(file)} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not records or tuple(records[0]) not in (schema.columns for schema in schemas):
        raise ComparisonError(f"{shown(file)} is another kind of table and is left as it is: it does not begin with "
                              f"{' or '.join(','.join(schema.columns[:4]) + ',...' for schema in schemas)}")
    columns = records[0]
    for line, record in enumerate(records[1:], 2):
        if len(record) != len(columns):
            raise ComparisonError(f"{shown(file)}:{line} has {len(record)} cells; there have to be {len(columns)}")
    return [dict(zip(columns, record)) for record in records[1:]]


def record(file: Path, schema: Schema, row: Row) -> None:
    """Puts `row` in the place of the one with its key, or at the end; the file is the old one or the new one, never a part."""
    rows = load(file, schema) if file.exists() else []
    places = [place for place, other in enumerate(rows) if schema.same(other, row)]
    if places:
        rows[places[0]] = row
    else:
        rows.append(row)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", newline="", encoding="utf-8") as stream:
            table = csv.DictWriter(stream, schema.columns, lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)  # in the same folder, because a rename is atomic only within one file system
    except OSError as error:
        raise ComparisonError(f"{shown(file)} cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
