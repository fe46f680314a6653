"""`python -m locum.studio.work FOLDER DESCRIPTOR`: the process of one job. It needs no server, and outlives one."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType

from locum.errors import LocumError, missing_extra
from locum.io import one_line, write_bytes
from locum.studio.actions import ACTIONS
from locum.studio.jobs import RESULT, Reporter, read_job
from locum.studio.places import Root


def main(place: Path, events: int) -> int:
    """Do the job in a folder, tell what happens, and leave the result there."""
    signal.signal(signal.SIGTERM, _stop)
    report, root = Reporter(place, events), Root(Path.cwd())
    try:
        job = read_job(place)
        action = ACTIONS[job["kind"]].model_validate(job["arguments"])
        with report.turn():
            # Again: the root may have changed since the page asked.
            action.check(root)
            result = action.run(report, report.tell)
        write_bytes(place / RESULT, json.dumps(result, allow_nan=False).encode())
        report.tell("done")
        return 0
    except KeyboardInterrupt:
        report.tell("cancelled")
        return 130
    except ModuleNotFoundError as error:
        report.tell("failed", words=str(missing_extra(error) or error))
        return 2
    except LocumError as error:
        report.tell("failed", words=root.hide(one_line(str(error))))
        return error.exit_code
    except OSError as error:
        report.tell(
            "failed", words=root.hide(one_line(f"{error.strerror or error}: {error.filename or 'no file'!r}."))
        )
        return 1
    except MemoryError:
        report.tell("failed", words="This asks for more than the machine's memory holds: try fewer records.")
        return 2
    except Exception:
        report.tell("failed", words="Something went wrong in this job, and was written to its log.")
        raise


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
