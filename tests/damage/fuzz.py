"""One chunk of cases as a process: `python -m damage.fuzz WORLD WORK SEED FIRST COUNT`; two lines of JSON for each, begun and outcome."""

import faulthandler
import json
import logging
import signal
import sys
import traceback
from pathlib import Path

from realm.errors import RealmError
from realm.knn.datastore import is_datastore, verify_datastore
from realm.runs import mending

from .harms import Case, Drawer
from .subjects import QUIET, Subject, Warned, one_line, subjects_of

SUBJECTS = ("run", "corpus", "datastore", "checkpoints", "cache")
SECONDS, WAITED = 60, 3600
"""Of computing, and of the clock, for one case; then the process ends with a traceback of where it hung. Machines may be busy."""
REPAIRED = 5
"""Every fifth refusal is repaired, which reads all of a run three times."""
GOOD = ("same", "one line", "said", "repaired")


def outcome_of(case: Case, subject: Subject, warned: Warned, *, repair: bool) -> tuple[str, str]:
    warned.lines.clear()
    try:
        same = subject.asked() == subject.expected
    except RealmError as error:
        return _refused(case, subject, error, repair=repair)
    if same:
        return "same", ""
    return ("said", warned.lines[0]) if warned.lines and one_line(warned.lines) else ("SILENT DIFFERENCE", "")


def _refused(case: Case, subject: Subject, error: RealmError, *, repair: bool) -> tuple[str, str]:
    if not one_line(error):
        return "MORE THAN A LINE", str(error)
    if not repair or case.subject == "checkpoints":
        return "one line", str(error)
    place = subject.work if case.subject != "cache" else next(subject.work.glob("realm/documents/*"))
    mended, left = ([], verify_datastore(place)) if is_datastore(place) else mending.repair(place, QUIET, lambda _: None)
    if not mended:
        return ("one line", str(error)) if left else ("VERIFY FINDS NOTHING", str(error))
    try:
        same = subject.asked() in subject.mended
    except RealmError as again:
        return ("one line", str(again)) if left else ("REPAIR DOES NOT HELP", str(again))
    return ("repaired" if same else "REPAIR CHANGES ANSWERS"), mended[0].cure


def main(world: Path, work: Path, seed: int, first: int, count: int) -> None:
    warned, logger = Warned(), logging.getLogger("realm")
    logger.addHandler(warned)
    logger.propagate = False
    faulthandler.register(signal.SIGPROF, chain=True)
    drawer, subjects = Drawer(world, SUBJECTS), subjects_of(world, work)
    for number in range(first, first + count):
        case = drawer.draw(seed, number)
        subject = subjects[case.subject]
        print(json.dumps({"begun": f"{number}: {case}"}), flush=True)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        faulthandler.dump_traceback_later(WAITED, exit=True)
        drawer.apply(case, subject.work)
        try:
            outcome, said = outcome_of(case, subject, warned, repair=number % REPAIRED == 0)
        except Exception:
            outcome, said = "TRACEBACK", traceback.format_exc()
        subject.restore()
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"case": f"{number}: {case}", "outcome": outcome, "said": said}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:6]))
