"""build-tools/test.py [--results NAME] [--limit MINUTES] [--once] PART... [beside PART...] [then PART...]: runs make test-PART for each.

Parts run one after the other, also after one has failed; those behind "beside" meanwhile, and all of them have ended before what follows "then"
begins. Each part's log is in build/NAME (results), with a table of all, which also names the commit that was tested.

A part that has failed may name what did, in lines such as "failed: tests/integration/test_x.py::test_y" and a tab and the reason. If that are
five in all or fewer, each is tried again when everything else has ended: by ONLY="..." make test-PART. What passes then is called flaky, in the
table's place and in build/NAME/flaky, and is no failure. With --once, nothing is tried again. A part that takes more than --limit (45) minutes
is ended, fails, and counts what had passed until then. The last line is "N passed, N failed": the sum of what the parts say in theirs.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
AGAIN = 5
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RETRIED = {"extension", "majors", "molecule", "integration"}
# as pytest says it, prove, and our scripts
SKIPPED = re.compile(r"^SKIPPED .*|^\S+ \.+ skipped: .*|^skipped: .*", re.MULTILINE)
running: list[subprocess.Popen[bytes]] = []
ending = threading.Event()
# What had ended in a part that did not come to its own sum: pytest's lines, with -v and of xdist, and prove's
ENDED = re.compile(r"^(?:\[gw\d+\] .*?(PASSED|FAILED|ERROR)\b|\S+::\S.* (PASSED|FAILED|ERROR)\b|t/\S+ \.+ (ok|Failed|Dubious)\b)", re.MULTILINE)
# In a log, for the end: what CI shows of it may be no more
TELLING = re.compile(r"^(FAILED|ERROR|not ok|failed:|fatal:|E  )|\bFAILED\b|^t/\S+ +\(Wstat")


class Part:
    def __init__(self, name: str, results: pathlib.Path, limit: float, only: str = "") -> None:
        self.name, self.limit, self.only = name, limit, only
        self.log = results / ("%s.log" % "-".join([name, *re.findall(r"\w+", only)])[-100:])
        self.passed, self.failed, self.seconds = 0, 1, 0  # as long as it has not ended
        self.reasons: dict[str, str] = {}
        self.skipped: list[str] = []

    def run(self) -> bool:
        """Whether all of it has passed."""
        began = time.monotonic()
        environment = dict(os.environ, PGFLEET_TREE_STANDS="1", **({"ONLY": self.only} if self.only else {}))
        with open(self.log, "wb") as log:
            process = subprocess.Popen(
                ["make", "--no-print-directory", "test-" + self.name], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
                env=environment, start_new_session=True,
            )
            running.append(process)
            late = ""
            try:
                status = process.wait(self.limit)
            except subprocess.TimeoutExpired:
                status = -1
                late = "\nERROR: late: ended after %d s, at: %s\n" % (self.limit, self.log.read_text(errors="replace").rstrip().rpartition("\n")[2])
            finally:
                end(process)
        self.seconds = round(time.monotonic() - began)
        text = self.log.read_text(errors="replace") + late
        self.log.write_text(text)
        lines = [line for line in text.splitlines() if re.search(r"\b\d+ (passed|failed)\b", line)]
        count = {word: int(number) for number, word in re.findall(r"\b(\d+) (passed|failed)\b", lines[-1])} if lines else {}
        if late:
            ended = ["".join(words) in ("PASSED", "ok") for words in ENDED.findall(text)]
            count = {"passed": sum(ended), "failed": len(ended) - sum(ended) + 1}
        self.passed, self.failed = count.get("passed", 0), count.get("failed", 0)
        if status == 0:
            self.passed = self.passed or 1
        else:
            self.failed = self.failed or 1
            if not late and self.name in RETRIED:
                # Ansible's own lines go on with the host in brackets
                self.reasons = dict(re.findall(r"^failed: (?!\[)([^\t\n]+)\t?(.*)$", text, re.MULTILINE))
        self.skipped = SKIPPED.findall(text)
        return status == 0 and self.failed == 0

    def row(self) -> str:
        return "%-12s %5d passed %4d failed %5d s" % (self.name, self.passed, self.failed, self.seconds)


def end(process: subprocess.Popen[bytes]) -> None:
    """All of its process group, after a minute to clean up."""
    if process not in running:
        return
    running.remove(process)
    try:
        os.killpg(process.pid, signal.SIGTERM)
        time.sleep(0.1)
        for dummy in range(600):
            os.killpg(process.pid, 0)
            process.poll()
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def say(text: str) -> None:
    print("==> %s" % text, flush=True)


def lane(parts: list[Part], begun: float) -> None:
    for part in parts:
        if ending.is_set():
            return
        say("make test-%s; see %s" % (part.name, part.log.relative_to(ROOT)))
        part.run()
        say("%s; %d s since the start" % (part.row(), time.monotonic() - begun))


def tried_again(parts: list[Part], results: pathlib.Path) -> list[str]:
    """A line for each that has passed the second time; the parts are counted accordingly."""
    flaky = []
    for part in parts:
        still = [what for what in part.reasons if not Part(part.name, results, part.limit, what).run()]
        flaky += ["flaky: %s: %s" % (what, reason) for what, reason in part.reasons.items() if what not in still]
        if part.reasons:
            # one that is named may be several: of a file of the extension's, its assertions
            part.passed, part.failed = part.passed + part.failed - len(still), len(still)
            part.reasons = {what: part.reasons[what] for what in still}
    return flaky


def tested() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    return "tested: %s, %s" % (git("log", "-1", "--format=%h %s"), "with changes that are not committed" if git("status", "--porcelain") else "unchanged")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results")
    parser.add_argument("--limit", type=float, default=45)
    parser.add_argument("--once", action="store_true")
    options, words = parser.parse_known_args()
    if os.geteuid() != 0:
        print("ERROR: The whole test (packages, PostgreSQL servers, Docker) needs root.\n       Run it again as root: sudo make test", file=sys.stderr)
        return 1
    os.chdir(ROOT)
    results = ROOT / "build" / options.results
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    begun = time.monotonic()
    before = tested()
    # Once, for all: parts that run at the same time would copy under each other's feet.
    subprocess.run(["build-tools/tree"], check=True, stdin=subprocess.DEVNULL)
    parts: list[Part] = []
    for phase in " ".join(words).split(" then "):
        lanes = [[Part(name, results, 60 * options.limit) for name in names.split()] for names in phase.split(" beside ")]
        threads = [threading.Thread(target=lane, args=(one, begun), daemon=True) for one in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        parts += [part for one in lanes for part in one]

    flaky = []
    count = sum(len(part.reasons) for part in parts)
    if count and not options.once and count <= AGAIN:
        say("Again, each alone: %s" % "; ".join(what for part in parts for what in part.reasons))
        flaky = tried_again(parts, results)
    for part in parts:
        if part.failed:
            say("make test-%s FAILED" % part.name)
            text = part.log.read_text(errors="replace").splitlines()
            print("\n".join(line[:400] for line in [*[line for line in text if TELLING.search(line)][:20], "[...]", *text[-40:]]), flush=True)
    if tested() != before:
        flaky.append("ERROR: the tree has changed meanwhile: %s" % tested())
        parts[-1].failed += 1
    skipped = ["skipped in %s: %s" % (part.name, line[:160]) for part in parts for line in part.skipped]
    table = [*(part.row() for part in parts), *flaky, *skipped, before]
    (results / "table").write_text("\n".join(table) + "\n")
    (results / "flaky").write_text("".join(line + "\n" for line in flaky))
    print("\n%s\nin %d seconds; the logs are in build/%s" % ("\n".join(table), time.monotonic() - begun, options.results))
    print("%d passed, %d failed" % (sum(part.passed for part in parts), sum(part.failed for part in parts)), flush=True)
    return 1 if any(part.failed for part in parts) else 0


if __name__ == "__main__":
    for number in ENDS:
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("ERROR: interrupted")
    finally:
        for number in ENDS:
            signal.signal(number, signal.SIG_IGN)
        ending.set()
        while running:
            end(running[0])
