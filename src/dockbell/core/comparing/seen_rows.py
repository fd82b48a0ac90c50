"""Which stored records the requests of a pass have shown: one bit for each row."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class SeenRows:
    """A set of stored rows; its size depends on the highest row alone (a million rows take 125 kB)."""

    def __init__(self, last_row: int, bits: bytearray | None = None) -> None:
        """Make room for the rows 1 to ``last_row``; later rows are new, so they cannot be missing and are not kept."""
        self.last_row = last_row
        self._bits = bits or bytearray(last_row // 8 + 1)
        self.count = sum(map(int.bit_count, self._bits)) if bits else 0

    def add(self, rows: Collection[int]) -> list[int]:
        """Add rows; return those that were there already."""
        if self._add_new(rows):
            return []
        bits, last_row = self._bits, self.last_row
        known = []
        for row in rows:
            if row <= last_row:
                if bits[row >> 3] & 1 << (row & 7):
                    known.append(row)
                else:
                    bits[row >> 3] |= 1 << (row & 7)
                    self.count += 1
        return known

    def _add_new(self, rows: Collection[int]) -> bool:
        """Add rows that follow upon each other and were not there yet, as those of most pages do; else add none."""
        first, last = min(rows, default=0), max(rows, default=0)
        if not rows or last > self.last_row or last - first + 1 != len(rows) or len(set(rows)) != len(rows):
            return False
        start, end = first >> 3, (last >> 3) + 1
        known = int.from_bytes(self._bits[start:end], "little")
        new = ((1 << len(rows)) - 1) << (first & 7)
        if known & new:
            return False
        self._bits[start:end] = (known | new).to_bytes(end - start, "little")
        self.count += len(rows)
        return True

    def find_unseen(self, rows: Iterable[int]) -> list[int]:
        """Return those of some rows that cannot be new, and were not added."""
        bits, last_row = self._bits, self.last_row
        return [row for row in rows if row <= last_row and not bits[row >> 3] & 1 << (row & 7)]

    def grow(self, last_row: int) -> None:
        if last_row > self.last_row:
            self.last_row = last_row
            self._bits.extend(bytes(max(0, last_row // 8 + 1 - len(self._bits))))

    def to_bytes(self) -> bytes:
        return self.last_row.to_bytes(8) + bytes(self._bits)

    @classmethod
    def from_bytes(cls, text: bytes) -> SeenRows:
        return cls(int.from_bytes(text[:8]), bytearray(text[8:]))
