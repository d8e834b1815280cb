"""List hostile uses of the commands: the words, and the one line that it must end with.

Each is about the suite as such and not about a run that has begun: faults.py has those.
"""

from dataclasses import dataclass, field

from conftest import ROOT

TORCH, STORE = "torch", "store"
SMALL = ("--batch-size", "8", "--prompt-seq-len", "64", "--iterations", "3")
MEMCPY = ("--transport", "memcpy", *SMALL)
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
IMPORTS = "from dataflow.flows.flow import DRIVER, Flow, Task\nfrom dataflow.flows.message import Field, Message\n"
MAKE = """
def make(name="policy", shape=(8,)):
    message = Message((Field("tokens", "int64", shape),))
    return Flow("mine", "mine", message, (Task(name, (DRIVER,), message),), returns=(name,))
"""
FLOW_FILE = (
    IMPORTS
    + MAKE
    + """
flow = make()
def needs(n): return flow
def outside(): return make("../../../../tmp/evil")
def empty(): return make("")
def integer(): return make(5)
def fraction(): return make(shape=(8, 8.5))
def base(): raise BaseException("two\\nlines")
"""
)
CANNOT_PREPARE = 77  # exit code of the next prefix
# A shell in a control group of its own with little memory, of version 1, as root.
LITTLE_MEMORY = (
    "sh", "-c",
    'group=/sys/fs/cgroup/memory/hostile-$$; mkdir $group || exit 77; echo 400M > $group/memory.limit_in_bytes; '
    '(echo 0 > $group/cgroup.procs; exec "$@"); code=$?; rmdir $group; exit $code', "sh",
)  # fmt: skip
FULL_DISK = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=4k none /mnt; exec "$@"', "sh")
READ_ONLY_SHM = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm; exec "$@"', "sh")
NO_HOME = ("setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", "--inh-caps=+dac_read_search",
           "--ambient-caps=+dac_read_search", "env", "-u", "HOME")  # fmt: skip


@dataclass(frozen=True)
class Hostile:
    name: str
    command: tuple[str, ...]  # a runtime or a verb, and its flags; {folder} is a new folder that is the current one
    expected: str  # a regular expression: the last line of standard error, or of standard output with exit code 0
    code: int = 2
    variables: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # of the new folder: name -> content
    prefix: tuple[str, ...] = ()  # of the command
    needs: str = ""  # a file without which the case is skipped
    is_quick: bool = True  # `make test` has it: it ends within a second or two


def flow_case(name: str, function: str, expected: str) -> Hostile:
    return Hostile(name, (TORCH, *MEMCPY[:2], "--flow", f"mine.py:{function}"), expected, files={"mine.py": FLOW_FILE})


RECORD = str(min((ROOT / "results" / "published" / "hops").glob("*.json*")))
HOSTILE = [
    Hostile("a list of 300 million tensors", (TORCH, "--flow", "a -> b: 300000000 x bfloat16 4MB"),
            "more than 100000 tensors: give fewer and larger ones"),
    Hostile("a text flow of 1 TiB", (TORCH, "--flow", "a -> b: x int64 1099511627776B"),
            "are free: send smaller messages .--help sizes.$"),
    flow_case("a parameter without a default", "needs", "give its parameter n a number or a text as default"),
    flow_case("an actor name with ../", "outside", "is not a name: use letters, digits"),
    flow_case("an actor name that is empty", "empty", "'' is not a name: use letters, digits"),
    flow_case("an actor name that is a number", "integer", "5 is not a name: use letters, digits"),
    flow_case("a shape with a fraction", "fraction", r"8\.5 in a shape or length is not a whole number"),
    flow_case("a flow instead of a function", "flow", "is of type Flow: give FILE"),
    flow_case("a function that raises a BaseException", "base", "BaseException: two lines"),
    Hostile("a flow file that ends the program", (TORCH, "--flow", "mine.py:make"),
            r"mine\.py:make, line 1: SystemExit: 0: give FILE",
            files={"mine.py": "import sys; sys.exit(0)"}),
    Hostile("a time with 400 digits", (TORCH, "--duration", "9" * 400), "is not a number with at most 18 digits"),
    Hostile("a model time of years", (TORCH, *MEMCPY, "--model-seconds", "policy=99999999h"),
            "is too large: give 86400 s"),
    Hostile("two model times of one actor", (TORCH, *MEMCPY, "--model-seconds", "policy=1ms,policy=2ms"),
            "several names separated by commas and each of them once"),
    Hostile("a memory limit of a container", (TORCH, "--transport", "mapped", "--iterations", "3"),
            "of memory under the limit of this container .* are free: send smaller messages", prefix=LITTLE_MEMORY,
            needs="/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    Hostile("/dev/shm is read-only", (TORCH, *MEMCPY), "^error: /dev/shm is missing or cannot be written",
            prefix=READ_ONLY_SHM),
    Hostile("PYTHONOPTIMIZE=2", (TORCH, *MEMCPY), "^Execution time: ", 0, {"PYTHONOPTIMIZE": "2"}, is_quick=False),
    Hostile("PYTHONOPTIMIZE=2 with Ray", (STORE, "--transport", "refs", *SMALL), "^Execution time: ", 0,
            {"PYTHONOPTIMIZE": "2"}, is_quick=False),
    Hostile("PYTHONSAFEPATH=1", (TORCH, "--transport", "gloo", *SMALL), "^Execution time: ", 0,
            {"PYTHONSAFEPATH": "1"}, is_quick=False),
    Hostile("PYTHONSAFEPATH=1 with Ray", (STORE, "--transport", "refs", *SMALL), "^Execution time: ", 0,
            {"PYTHONSAFEPATH": "1"}, is_quick=False),
    Hostile("--help with PYTHONOPTIMIZE=2", ("run", "--help"), "new file for the record", 0, {"PYTHONOPTIMIZE": "2"}),
    Hostile("a user without a home", (TORCH, *MEMCPY, "--copy-in"), "^error: --copy-in", prefix=NO_HOME),
    Hostile("charts in an ASCII locale", ("report", RECORD, "--html", "--output", "{folder}"),
            "^charts: .*report.html", 0, ASCII),
    Hostile("a trace in an ASCII locale", (TORCH, *MEMCPY, "--trace"), "^Execution time: ", 0, ASCII,
            is_quick=False),
    Hostile("a compressed record that is not compressed", ("report", "b.json.gz"),
            "b.json.gz cannot be read as a record .Not a gzipped file",
            files={"b.json.gz": "x"}),
    Hostile("a record that is not JSON", ("report", "b.json"), "b.json cannot be read as a record .*invalid character",
            files={"b.json": '{"schema_version": NaN}'}),
    Hostile("charts on a full disk", ("report", RECORD, "--html", "--output", "/mnt/x"),
            "cannot write /mnt/x.* .No space left on device.: give another --output", prefix=FULL_DISK),
    Hostile("a name that a suite does not have", ("run", "--suite", "benchmark", "graph shm --copy-in", "--dry-run"),
            "benchmark has no graph shm --copy-in"),
    Hostile("a name without the flags of its suite", ("run", "--suite", "benchmark", "torch memcpy", "--dry-run"),
            r"^torch memcpy: 1 x \d+ iterations", 0),
]  # fmt: skip
