"""Whether memory is shared, by this process's own map."""

from bisect import bisect


class SharedMappings:
    """The mappings of files under /dev/shm, as they are when this is made."""

    def __init__(self) -> None:
        spans = []
        with open("/proc/self/maps") as maps:
            for line in maps:
                if "/dev/shm/" in line:
                    spans.append(tuple(int(bound, 16) for bound in line.split(" ", 1)[0].split("-")))
        self.spans = sorted(spans)

    def hold(self, address: int) -> bool:
        """Whether the address lies in one of them."""
        index = bisect(self.spans, (address, float("inf"))) - 1
        return index >= 0 and self.spans[index][0] <= address < self.spans[index][1]
