"""Makes files for the judge's trial of the walls, and checks that the trial did not change them."""

from __future__ import annotations

import os
import shutil
import tempfile

TEXT = b"another student's work\n"


class Victims:
    """Two files of the judge's user: another student's submission, which must not be read, and a file that may be read.

    The files are removed at the end of the `with` block.
    """

    def __enter__(self) -> Victims:
        self.folder = tempfile.mkdtemp(prefix="trial")
        os.chmod(self.folder, 0o755)
        self.neighbour, self.shelf = (os.path.join(self.folder, name) for name in ("neighbour.py", "shelf.txt"))
        for path in (self.neighbour, self.shelf):
            file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)  # as submissions often are
            os.write(file, TEXT)
            os.fchmod(file, 0o644)
            os.close(file)
        self._before = self._state()
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def changed(self) -> list[str]:
        """A list that names the changes to these files; it is empty if they are unchanged.

        The files themselves are read, whatever the trial's process reports.
        """
        return [] if self._state() == self._before else ["change files of others"]

    def _state(self) -> list[tuple[str, int, int, int, int, int]]:
        """Return the name, mode, owner, size, time and number of links of each file in the folder."""
        found = []
        for name in sorted(os.listdir(self.folder)):
            stat = os.lstat(os.path.join(self.folder, name))
            found.append((name, stat.st_mode, stat.st_uid, stat.st_size, stat.st_mtime_ns, stat.st_nlink))
        return found
