"""The command line: `python -m recompute_core COMMAND`.

Exit codes: 0 adopt, or the command did what it says; 1 keep the original; 2 bad input; 3 undecided;
4 the run could not be completed.
"""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from .command_gate import gate
from .comparing.command import compare
from .errors import Cancelled, EngineError, InputError, StoreError, in_one_line
from .given_paths import GivenPath
from .output import EXIT_CODES, json_option
from .output import check_json_file as _check_writable
from .output import show as _print
from .output import write_json as _write_json
from .reinvest.command import reinvest
from .reports.command_export import export_command
from .reports.command_keys import keys
from .reports.command_recheck import recheck
from .reports.command_report import report, verify
from .settings import OURS, size_fields
from .spec import PRESETS
from .streams import stand_in_for_lost_ones
from .studies.engines import ADDRESS, check_engine
from .writing import check_is_text

if TYPE_CHECKING:
    from .planning import Wish
    from .spec import StudySpec


address_option = click.option(
    "--address",
    metavar="HOST:PORT",
    help=f"The Ray cluster, or auto for the one that this machine is part of; else {ADDRESS}.",
)
_MOST_LISTED = 1000

set_option = click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="Change one setting; may be repeated."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Should this training job recompute activations, where, and at what cost?"""
    check_is_text(os.environ.get("TMPDIR", ""), "TMPDIR")
    from .studies.store import home_folder

    with contextlib.suppress(FileNotFoundError):  # no working directory: said by whatever needs one
        check_is_text(home_folder(), "RECOMPUTE_HOME")


@cli.command(epilog="Example: python -m recompute_core study --preset quick --json result.json")
@click.argument("file", required=False, type=GivenPath(), metavar="[SPEC.yaml]")
@click.option("--preset", "preset_name", metavar="NAME", help=f"A ready study: {', '.join(PRESETS)}.")
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="WHAT",
    help="blocks: recompute 0, 1, 2 … all blocks. seq_len=128,256: one shape a value.",
)
@click.option(
    "--workload",
    metavar="NAME",
    help="A model: gpt, receipts, hf:CONFIG, timm:MODEL, a registered name or package.module:function.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    help="Where cells, each a phase of one plan at one shape, are done: on this machine, or each on a "
    "GPU or node of a Ray cluster.",
)
@address_option
@set_option
@json_option
def study(
    file: Path | None,
    preset_name: str | None,
    sweeps: tuple[str, ...],
    workload: str | None,
    engine: str | None,
    address: str | None,
    settings: tuple[str, ...],
    json_file: str | None,
) -> None:
    """Measure and judge: the whole flow, from the reference update to the verdict."""
    from .asking import asked
    from .studies.admission import admit
    from .studies.store import Store

    settings += (f"engine={engine}",) if engine else ()
    spec = asked(preset_name, file, settings, sweeps, workload)
    _at(address, spec)
    store = Store()
    _check_writable(json_file)
    study_id = store.create(admit(spec, store.home))
    _drive(store, study_id, store.claim(study_id), json_file)


@cli.command(epilog="Example: python -m recompute_core resume 20261129-163455-3f9c")
@click.argument("study_id", metavar="STUDY")
@address_option
@json_option
def resume(study_id: str, address: str | None, json_file: str | None) -> None:
    """Go on with an interrupted, cancelled or incomplete study."""
    from .studies.store import Store

    _check_writable(json_file)
    store = Store()
    row = store.study(study_id)
    if row.status == "done":
        raise InputError(f"study {study_id} is done; there is nothing to resume")
    _at(address, row.spec)
    check_engine(row.spec)
    lock = store.claim(study_id)
    store.ask_cancel(study_id, False)
    _drive(store, study_id, lock, json_file)


@cli.command(epilog="Example: python -m recompute_core longer 20261129-163455-3f9c")
@click.argument("study_id", metavar="STUDY")
@address_option
@json_option
def longer(study_id: str, address: str | None, json_file: str | None) -> None:
    """Measure an undecided study longer: a new one under the same thresholds, with more pairs.

    The new study says which one it repeats. Nothing is added to the old one.
    """
    from .rerun import longer as longer_than
    from .studies.admission import admit
    from .studies.assemble import assemble
    from .studies.store import Store, seconds_apart_from_time

    _check_writable(json_file)
    store = Store()
    row, cells = store.study(study_id), store.cells(study_id)
    _at(address, row.spec)
    result = assemble(row, cells)
    asked = longer_than(result, result.judged, seconds_apart_from_time(cells))
    if asked is None or result.verdict != "undecided":
        raise InputError(f"study {study_id}: it is not its update time that leaves it undecided")
    click.echo(asked.words, err=True)
    again = store.create(admit(asked.spec, store.home))
    _drive(store, again, store.claim(again), json_file)


def _at(address: str | None, spec: "StudySpec") -> None:
    """Ray's own variable carries an address to whatever drives the study."""
    if address is None:
        return
    if spec.engine == "local":
        raise InputError("--address is of a Ray cluster, and this study's engine is local")
    os.environ[ADDRESS] = address


def _drive(store: Any, study_id: str, lock: Any, json_file: str | None) -> None:
    from .studies.assemble import assemble
    from .studies.driver import drive
    from .terminal import bytes_and_time, progress, reasons, rerun_lines, study_table

    done = sum(cell.state == "done" for cell in store.cells(study_id))
    click.echo(f"Study {study_id} in {store.home}", err=True)
    try:
        with progress(store.study(study_id).spec, done) as listener:
            drive(store, study_id, lock, listener)
    except Cancelled:
        _write_json(json_file, assemble(store.study(study_id), store.cells(study_id)).document())
        raise
    row = store.study(study_id)
    result = assemble(row, store.cells(study_id))
    if json_file != "-":
        _print(study_table(result))
        for line in reasons(result):
            click.echo(line)
        click.echo(f"\n{result.sentence}")
        for line in rerun_lines(result):
            click.echo(line)
        if any(one.candidate.memory for one in result.judged):
            click.echo(bytes_and_time(row.spec))
    _write_json(json_file, result.document())
    sys.exit(4 if row.status != "done" else EXIT_CODES[result.verdict or "undecided"])


@cli.command(epilog="Example: python -m recompute_core studies --json -")
@json_option
def studies(json_file: str | None) -> None:
    """List the studies of this RECOMPUTE_HOME, newest first."""
    from .studies.store import Store
    from .terminal import studies_table
    from .words import count

    store = Store()
    rows = store.studies(limit=_MOST_LISTED)
    if hidden := min(store.count(), _MOST_LISTED) - len(rows):
        said = f"{count(hidden, 'study', 'studies')} cannot be read: damaged, or of another version"
        click.echo(f"{store.path}: {said}", err=True)
    if json_file != "-" and rows:
        _print(studies_table(rows))
    elif json_file != "-" and not hidden:
        click.echo("No studies yet; 'study --preset quick' makes one.")
    _write_json(
        json_file,
        [
            {
                "study_id": row.id,
                "created_at": row.created_at,
                "status": row.status,
                "verdict": row.verdict,
                "sentence": row.sentence,
                "spec": row.spec.model_dump(mode="json"),
            }
            for row in rows
        ],
    )


@cli.command(epilog="Example: python -m recompute_core workloads")
@json_option
def workloads(json_file: str | None) -> None:
    """List what can be trained, with every setting and its default."""
    from rich.table import Table

    facts = {
        name: {
            field: {"default": info.default, "help": info.description}
            for field, info in model.model_fields.items()
            if field != "name"
        }
        for name, model in OURS.items()
    }
    if json_file != "-":
        for name, model in OURS.items():
            table = Table(title=f"{name}: {model.__doc__}", title_justify="left", expand=False)
            table.add_column("setting")
            table.add_column("default", justify="right")
            table.add_column("meaning")
            for field, about in facts[name].items():
                table.add_row(f"workload.{field}", str(about["default"]), about["help"])
            _print(table)
    _write_json(json_file, facts)


@cli.command(epilog="Example: python -m recompute_core plans")
@json_option
def plans(json_file: str | None) -> None:
    """List the named plans."""
    from rich.table import Table

    from .plans.names import BUDGET, RECIPES

    facts = {recipe.name: recipe.summary for recipe in RECIPES}
    facts["blocks:0,2,4"] = "Recompute the blocks with these numbers."
    facts[BUDGET] = (
        "Let the compiler recompute so that half of the activations that it would keep is kept; "
        "0 to 99, in a compiled study."
    )
    if json_file != "-":
        table = Table("plan", "what it does")
        for name, summary in facts.items():
            table.add_row(name, summary)
        _print(table)
    _write_json(json_file, facts)


@cli.command(epilog="Example: python -m recompute_core legality timm:vit_tiny_patch16_224")
@click.argument("workload", required=False, metavar="[WORKLOAD]")
@click.option("--block", "blocks", multiple=True, metavar="FQN", help="Look at this block; repeatable.")
@click.option(
    "--workload", "factory", metavar="PACKAGE.MODULE:FUNCTION", help="What makes your own model."
)
@set_option
@json_option
def legality(
    workload: str | None,
    blocks: tuple[str, ...],
    factory: str | None,
    settings: tuple[str, ...],
    json_file: str | None,
) -> None:
    """Say which blocks are safe to recompute, and why others are not.

    WORKLOAD is gpt or receipts, or hf:CONFIG?setting=value of transformers, timm:MODEL?setting=value, or
    a name of your own, from RECOMPUTE_WORKLOADS (name=package.module:function, and commas) or from
    the entry points recompute_workloads.
    """
    from .asking import asked_workload
    from .studies.admission import admit
    from .studies.store import home_folder
    from .workloads.registered import resolve

    name = resolve(workload, factory)
    spec = asked_workload(name, settings)
    if name in OURS:
        admit(spec, home_folder())
    else:
        _check_heeded(name, settings)
    _check_writable(json_file)

    from .safety import check, own_model
    from .terminal import photo_progress, safety_table, steps_progress

    with photo_progress() as photos, contextlib.redirect_stdout(sys.stderr):
        own = own_model(spec, photos)
    autocast = None if name in OURS or spec.precision == "float32" else spec.precision
    with _ending_at_once(), steps_progress() as listener, contextlib.redirect_stdout(sys.stderr):
        found = check(own, spec, blocks, autocast, listener)
    if json_file != "-":
        _print(safety_table(found))
        for line in found.lines:
            click.echo(line)
    _write_json(json_file, found.document())
    sys.exit({"error": 4, "illegal": 1, "parity_fail": 1}.get(found.report.verdict, 0))


@cli.command(epilog="Example: python -m recompute_core plan gpt --budget-mb 250 --measure")
@click.argument("workload", metavar="WORKLOAD")
@click.option("--budget-mb", type=float, help="The whole update may take this many MB (10^6 bytes).")
@click.option("--max-overhead", type=float, metavar="PCT", help="Percent more update time at most.")
@click.option("--frontier", is_flag=True, help="Every plan that no other beats, from plain down.")
@click.option(
    "--against", type=click.Choice(["recipes"]), help="Set against every recipe at the recipe's peak."
)
@click.option("--measure", is_flag=True, help="Run a study of what was found: parity, peak and time.")
@set_option
@json_option
def plan(
    workload: str,
    budget_mb: float | None,
    max_overhead: float | None,
    frontier: bool,
    against: str | None,
    measure: bool,
    settings: tuple[str, ...],
    json_file: str | None,
) -> None:
    """Find the best plan: the least time for a memory budget, the least memory for a time budget."""
    from . import planning
    from .asking import asked_workload
    from .studies.store import Store
    from .terminal import plan_table, progress

    wish = _wish(budget_mb, max_overhead, frontier, against)
    spec = asked_workload(workload, settings)
    _check_writable(json_file)
    if measure:
        Store()  # that it cannot be used is found out before the search
    with _searching():
        found = planning.plan(spec, wish)
    is_something_to_run = any(point.regions for point in (*found.points, *found.recipes))
    if measure and is_something_to_run and (found.chosen is None or found.chosen.regions):
        with progress(planning.study_of(spec, found), 0) as listener:
            found = planning.measure(spec, found, listener=listener)
    if json_file != "-":
        _print(plan_table(found))
        click.echo(found.sentence)
    _write_json(json_file, found.model_dump(mode="json", by_alias=True))
    sys.exit({"found": 0, "none": 1, "undecided": 3, "incomplete": 4}[found.verdict])


def _check_heeded(name: str, settings: tuple[str, ...]) -> None:
    """Raises InputError for a setting that a check of somebody's own model does not look at."""
    known = ("workload", "checkpoint", "precision", "seed", "device", "threads")
    for one in settings:
        if one.partition("=")[0].partition(".")[0] not in known:
            raise InputError(f"--set {one}: a check of {name} takes {', '.join(known)}")


@contextlib.contextmanager
def _searching() -> Iterator[None]:
    """While plans are searched for: the machine is this command's, as ops are timed."""
    from .studies.locks import machine_lock
    from .terminal import steps_progress

    machine = machine_lock("a search for plans, on the command line")
    try:
        with _ending_at_once(), steps_progress() as tell:
            while not machine.acquire(0.5):
                tell("waiting for the machine: something is measured")
            tell("timing ops, then running plans on fake tensors")
            yield
    finally:
        machine.release()


@contextlib.contextmanager
def _ending_at_once() -> Iterator[None]:
    """While steps run in this process: Ctrl-C ends it (torch's callbacks would swallow it otherwise)."""
    from rich.console import Console

    def stop(*_: object) -> None:
        Console(stderr=True).show_cursor()
        sys.stderr.write("\nerror: stopped\n")
        os._exit(4)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _wish(
    budget_mb: float | None, max_overhead: float | None, frontier: bool, against: str | None
) -> "Wish":
    from .planning import Wish

    if [budget_mb is not None, max_overhead is not None, frontier].count(True) != 1:
        raise InputError("give one of --budget-mb N, --max-overhead PCT and --frontier")
    for name, value in (("--budget-mb", budget_mb), ("--max-overhead", max_overhead)):
        if value is not None and not 0 < value < 1e12:
            raise InputError(f"{name}: expected a number above 0, got {value:g}")
    return Wish(
        budget_bytes=None if budget_mb is None else int(budget_mb * 1e6),
        max_overhead=None if max_overhead is None else max_overhead / 100,
        frontier=frontier,
        against_recipes=against is not None,
    )


@cli.command(
    epilog="Example: python -m recompute_core estimate gpt --plan every-block --plan nested --fit-gb 80"
)
@click.argument("workload", metavar="WORKLOAD")
@click.option("--plan", "names", multiple=True, required=True, help="A plan; may be repeated.")
@click.option("--fit-gb", type=float, metavar="N", help="Also how far each plan reaches in N GB.")
@set_option
@json_option
def estimate(
    workload: str,
    names: tuple[str, ...],
    fit_gb: float | None,
    settings: tuple[str, ...],
    json_file: str | None,
) -> None:
    """Saved bytes, peak, and where the peak sits, allocating nothing.

    The model may be larger than this machine. Plain comes first, for comparison.
    """
    from . import estimating
    from .asking import asked_workload
    from .plans.custom import check_custom_plans
    from .studies.looking import looked_up
    from .terminal import estimates_table, fit_table

    others = tuple(name for name in names if name != "none")
    spec = looked_up(asked_workload(workload, settings, others))
    if spec.ranks is not None:
        raise InputError("ranks: an estimate is of training in one process; a study measures several")
    check_custom_plans(spec)
    if len(spec.shapes) > 1:
        raise InputError("--set shapes: an estimate is of one shape; set its sizes as workload.seq_len")
    if fit_gb is not None and not size_fields(spec.workload):
        raise InputError(
            f"--fit-gb: {spec.workload.name} brings its own batch, which cannot be made larger"
        )
    if fit_gb is not None and not 0 < fit_gb < 1e9:
        raise InputError(f"--fit-gb: expected a number above 0, got {fit_gb:g}")
    _check_writable(json_file)

    shape, plans = spec.shapes[0], ("none", *others)
    found = dict(zip(plans, estimating.estimates(spec, shape, plans), strict=True))
    said = estimating.advice(spec, shape, found["none"])
    fit = None
    if fit_gb is not None:
        field, budget = estimating.fit_field(spec), int(fit_gb * 1e9)
        reached = estimating.reach(spec, plans, field, budget)
        fit = estimating.fit_document(field, budget, plans, reached)
    if json_file != "-":
        _print(estimates_table(found))
        for line in said:
            click.echo(line)
        if fit is not None:
            _print(fit_table(fit))
        click.echo(f"MB = 10^6 bytes. Estimated: {found['none'].source}.")
    _write_json(json_file, estimating.document(spec, shape, found, said, fit))


cli.add_command(compare)
cli.add_command(export_command)
cli.add_command(gate)
cli.add_command(keys)
cli.add_command(recheck)
cli.add_command(reinvest)
cli.add_command(report)
cli.add_command(verify)


# --- output ----------------------------------------------------------------------------------


def main() -> None:
    """Run a command; a user's mistake is one line on standard error."""
    stand_in_for_lost_ones()
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    try:
        # Not by `cli.main`, which ends with 1, a verdict, where anything says that a pipe is broken.
        with cli.make_context("python -m recompute_core", sys.argv[1:]) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except (InputError, StoreError, EngineError, Cancelled) as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        click.echo(err=True)  # the terminal has written ^C
        _fail("stopped", 4)
    except click.Abort:
        _fail("stopped", 4)
    except OSError as error:
        _fail(_of_the_system(error), 4)
    except Exception:
        traceback.print_exc()  # our own bug: never to be read as a verdict
        sys.exit(4)


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    """A service manager's stop is a user's: the same line, the same exit code, as much is kept.

    Not by sending SIGINT: a shell starts what goes into the background with that ignored.
    """
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else signal.default_int_handler)(number, frame)


def _of_the_system(error: OSError) -> str:
    """What the system would not do, and with what; it names no folder that is not there any more."""
    said = error.strerror or str(error)
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {said}"
    try:
        os.getcwd()
    except OSError:
        return f"the working directory: {said}"
    return said


def _fail(message: str, code: int) -> None:
    click.echo(f"error: {in_one_line(message)}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
