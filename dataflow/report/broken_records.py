"""Name the record that a report cannot show, for example because somebody has changed it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dataflow.analysis.comparison import match_results
from dataflow.analysis.result import group_results
from dataflow.errors import RecordError, SuiteError
from dataflow.records import files
from dataflow.report.sections import sections
from dataflow.report.sentences import describe_pair


@contextmanager
def name_broken_record(paths: Sequence[Path]) -> Iterator[None]:
    """If the block fails with a traceback, and a record cannot be shown alone either, raise RecordError for it."""
    try:
        yield
    except SuiteError:
        raise
    except Exception:
        for path in files.record_files(paths):
            try:
                results = group_results([files.load(path)])
                for chart in filter(None, (section.chart for section in sections(results))):
                    chart.draw()
                for pair in match_results(results, results, mixed=True)[0]:  # with itself
                    describe_pair(pair)
            except SuiteError:
                continue
            except Exception as error:
                reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:100]}"
                raise RecordError(f"{path} contradicts itself ({reason}): leave it out") from None
        raise
