# SPDX-License-Identifier: Apache-2.0
"""Keep the records of several configurations in a folder: single files while they are measured, then an archive."""

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from common.record_files import ARCHIVE
from dataflow.errors import RecordError, UsageError
from dataflow.records import files
from dataflow.records.schema import Record


class Recorded(Protocol):
    """A configuration that is measured or skipped."""

    record: Record
    path: Path  # of its single record
    saved_path: Path  # of the file that has the record


class RecordFolder:
    """The records of one call, and of an earlier one that it continues.

    A single record is replaced after each run, so no kill loses a run that has ended. The archive replaces them when
    everything is measured, and before that, it is taken apart if an earlier call has made it. Each step leaves a
    folder with all records. `path` is a file if only one configuration is measured; then there is never an archive.
    """

    def __init__(self, path: Path, items: Sequence[Recorded], is_archived: bool) -> None:
        self.path = path
        self.items = items
        self.is_archived = is_archived  # at the end
        self.archive = path / ARCHIVE

    def require_new(self) -> None:
        """Raise UsageError if an earlier call has written an archive."""
        if self.archive.exists():
            raise UsageError(
                f"{self.archive} exists: give another name, or move it away. "
                "To continue an earlier call, give --continue"
            )

    def load_earlier(self) -> dict[Path, Record]:
        """Return the records of an earlier call by the paths of the items that continue them.

        Raise UsageError if the archive has one that no item continues, and RecordError if one cannot be read.
        """
        earlier = self._load_archived()
        for item in self.items:
            if item.path.exists():
                earlier[item.path] = files.load(item.path)
        return earlier

    def _load_archived(self) -> dict[Path, Record]:
        archived: dict[Path, Record] = {}
        if self.archive.exists():
            for record in files.load_file(self.archive):
                item = self._find_item(record, archived)
                archived[item.path] = record
        return archived

    def _find_item(self, record: Record, taken: Collection[Path]) -> Recorded:
        for item in self.items:
            is_free = item.path not in taken
            if is_free and files.is_same_measurement(item.record, record):
                return item
        raise UsageError(
            f"--continue: {self.archive} has a record of other flags or of another measurement, "
            f"{record.configuration.name}: give the same flags again, or a new folder"
        )

    def take_apart(self) -> None:
        """Write each record of an archive to a file of its own, and remove the archive.

        Do nothing without an archive. Raise RecordError if there is another file of this name, or if a file cannot be
        read or written, and UsageError for a record that no item continues: then nothing is removed.
        """
        archived = self._load_archived()
        for path, record in archived.items():
            if not path.exists():
                files.save(path, record)
            elif files.load(path) != record:
                raise RecordError(f"{path} and {self.archive} differ: move one of them away")
        if archived:
            self.archive.unlink()

    def join(self) -> None:
        """Join the records in an archive if this is wanted, and if all of them could be saved in the folder.

        If the archive cannot be written, print a warning: the single records stay.
        """
        are_here = all(item.saved_path == item.path for item in self.items)
        if not (self.is_archived and are_here):
            return
        try:
            archive = files.archive(self.path)
        except RecordError as error:
            print(f"warning: {error}. The records stay in single files", file=sys.stderr)
            return
        for item in self.items:
            item.saved_path = archive
